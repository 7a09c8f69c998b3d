"""Predictions on disk: the file format, run.json, readers and checks."""
