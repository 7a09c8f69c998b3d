"""Status of an experiment, in the terminal and as a page."""
