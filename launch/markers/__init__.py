"""Markers of an experiment: plan, lease, attempts, failures."""
