"""Summaries of corpora and batches, and exchange with the original's TFRecords."""
