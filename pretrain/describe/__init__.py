"""`python -m pretrain.describe` is `multiberts describe`."""
