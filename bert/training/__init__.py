"""The training engine, its loop, its state and its log."""
