"""Variance components, power, and sequential looks."""
