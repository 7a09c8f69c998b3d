"""`python -m pretrain.prepare` is `multiberts prepare`."""
