"""The Multi-Bootstrap: draws, scores of replicates, and pseudo-values of scores that are not means."""
