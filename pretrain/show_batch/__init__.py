"""`python -m pretrain.show_batch` is `multiberts show-batch`."""
