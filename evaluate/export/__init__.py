"""`python -m evaluate.export` is `multiberts export`."""
