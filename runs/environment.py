"""Process-wide settings of Keras and TensorFlow, which both read when they are first imported.

The packages that import Keras (`bert`, `pretrain`, `finetune`) import this module first, so the
arithmetic is the same however a process enters them: console command, `python -m`, library import,
worker or test. What the user has set stays.
"""

import os

DEFAULTS = {
    "KERAS_BACKEND": "tensorflow",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
