"""Readers of predictions that others published."""
