"""Prediction files: the format, run.json, readers and checks."""
