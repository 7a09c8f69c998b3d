"""What every stage stands on: run directories, whole-file writes, clear errors, the command line.

The lowest room of the house. It imports neither TensorFlow nor NumPy, so any command can refuse bad
input within a second.
"""

import os

# Read by TensorFlow and Keras when they are first imported, and set here because every room imports
# this one first: the same arithmetic however a stage is entered, and no log lines of libraries
# between ours. What the user has set stays.
for _name, _value in {
    "KERAS_BACKEND": "tensorflow",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}.items():
    os.environ.setdefault(_name, _value)
