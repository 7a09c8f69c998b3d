"""Modules that all stages share: run directories, atomic writes, clear errors, the command line.

The lowest package of the project. It imports neither TensorFlow nor NumPy, so any command can refuse
bad input within a second. `ROOMS` lists all rooms, from the lowest; Makefile, lint and tests read it.
"""

ROOMS = ("runs", "bert", "pretrain", "evaluate", "finetune", "stats", "report", "papers", "launch")
