"""`python -m pretrain.import_records` is `multiberts import-records`."""
