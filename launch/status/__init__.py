"""How an experiment stands, in the terminal and as a page."""
