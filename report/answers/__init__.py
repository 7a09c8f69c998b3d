"""Answers to further questions about a finished comparison, with one module per question."""
