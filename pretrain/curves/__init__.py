"""`python -m pretrain.curves` is `multiberts curves`."""
