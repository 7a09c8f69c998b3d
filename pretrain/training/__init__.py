"""Pre-training of one seed."""
