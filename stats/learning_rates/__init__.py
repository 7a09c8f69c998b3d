"""`python -m stats.learning_rates` is `multiberts learning-rates`."""
