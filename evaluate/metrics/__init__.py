"""Metrics (columns and a finish), and the register of all metrics."""
