"""The model every stage shares: tokenisation, encoder, heads, optimiser, checkpoints, training."""

from multiberts.runs import environment as environment
