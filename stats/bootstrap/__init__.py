"""The Multi-Bootstrap: designs, draws, variances, intervals, tests, comparisons."""
