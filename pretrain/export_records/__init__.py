"""`python -m pretrain.export_records` is `multiberts export-records`."""
