"""Batches as a pure function of the instances, the seeds and the step."""
