"""Readers of published predictions."""
