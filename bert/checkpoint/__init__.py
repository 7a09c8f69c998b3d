"""Checkpoints on disk: both layouts, conversion, comparison, model cards."""
