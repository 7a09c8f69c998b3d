"""The sections of the worked example; `docs/worked_example.py` makes the page."""
