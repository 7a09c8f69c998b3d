"""Shared by every stage: run directories, whole-file writes, clear errors, the command line.

The lowest package of the project. It imports neither TensorFlow nor NumPy, so any command can refuse
bad input within a second.
"""
