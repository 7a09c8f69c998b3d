"""Estimates of a plan: operations, times, prices."""
