"""Variance components and sequential looks."""
