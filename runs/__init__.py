"""Modules that all stages share: run directories, atomic writes, clear errors, the command line.

The lowest package of the project. It imports neither TensorFlow nor NumPy, so any command can refuse
bad input within a second.
"""

# All rooms, from the lowest. Everything that lists them reads this line: Makefile and tests, too.
ROOMS = ("runs", "bert", "pretrain", "evaluate", "finetune", "stats", "report", "papers", "launch")
