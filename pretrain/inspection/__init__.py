"""Summaries of corpora and batches."""
