"""The report: which runs it uses, what it computes, and the page."""
