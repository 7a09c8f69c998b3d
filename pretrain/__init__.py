"""Pre-training: text to token store, instances, batches and trained checkpoints."""
