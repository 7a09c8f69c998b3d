"""The model as pure functions over a dict of named arrays."""
