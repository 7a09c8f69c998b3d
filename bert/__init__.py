"""The model every stage shares: tokenisation, encoder, heads, optimiser, checkpoints, training."""
