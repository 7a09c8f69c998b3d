"""Pre-training on Cloud TPU: queued resources, a start-up script, and a step that reconciles the two.

Nothing has to stay up between two steps: the markers, the bucket and the service hold all there is.
"""
