"""What a corpus holds, what a step saw, and exchange with the original's TFRecords."""
