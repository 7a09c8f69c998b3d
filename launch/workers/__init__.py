"""Workers that carry out runs, here and on clusters."""
