"""Text to token store and instance table."""
