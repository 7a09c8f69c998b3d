"""Answers to further questions about a finished comparison, one file each."""
