"""`python -m evaluate.import_predictions` is `multiberts import-predictions`."""
