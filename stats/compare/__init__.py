"""Compares arms: two, many, or two on several tasks."""
