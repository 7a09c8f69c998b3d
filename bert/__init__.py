"""The model that all stages share: tokenisation, encoder, heads, optimiser, checkpoints, training."""

from multiberts.runs import environment as environment
