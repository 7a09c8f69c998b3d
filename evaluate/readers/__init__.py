"""Readers of other programs' predictions."""
