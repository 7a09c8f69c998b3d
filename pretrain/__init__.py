"""Pre-training: text to token store, instances, batches and trained checkpoints."""

from multiberts.runs import environment as environment
