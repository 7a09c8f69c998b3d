"""`python -m finetune.submission` is `multiberts submission`."""
