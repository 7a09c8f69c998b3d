"""Readers of predictions that other programs wrote."""
