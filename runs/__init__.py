"""What every stage stands on: run directories, whole-file writes, clear errors, the command line.

The lowest room of the house. It imports neither TensorFlow nor NumPy, so any command can refuse bad
input within a second.
"""
