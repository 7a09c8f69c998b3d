"""The tables and figures of the MultiBERTs paper."""
