"""Checkpoints and predictions that are there already, as finished runs."""
