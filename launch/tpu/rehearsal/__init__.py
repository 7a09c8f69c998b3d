"""A rehearsal of Cloud TPU against a service in this process."""
