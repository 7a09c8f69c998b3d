"""`python -m pretrain.hold_out` is `multiberts hold-out`."""
