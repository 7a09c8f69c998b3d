"""The plan of runs and the worker processes that carry it out; the synthetic world of the demo.

Imports neither TensorFlow nor Keras: only the worker processes do.
"""
