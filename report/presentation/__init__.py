"""Figures, tables and words for comparisons."""
