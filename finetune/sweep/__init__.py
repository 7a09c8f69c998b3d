"""`python -m finetune.sweep` is `multiberts sweep`."""
