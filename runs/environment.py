"""Process-wide settings of Keras and TensorFlow, which both read when they are first imported.

The packages that import Keras (`bert`, `pretrain`, `finetune`) import this module first, so the
arithmetic is the same however a process enters them: console command, `python -m`, library import,
worker or test. What the user has set stays.

With `MULTIBERTS_PORTABLE=1` in the environment the arithmetic is narrowed to what all x86-64 processors
share: XLA's code and oneDNN's products keep to SSE 4, which has no fused multiply-add, and run on one
thread. Numbers then depend less on the processor, and steps take longer; docs/departures.md has both.
"""

import os
from pathlib import Path

PORTABLE = "MULTIBERTS_PORTABLE"

DEFAULTS = {
    "KERAS_BACKEND": "tensorflow",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

_PORTABLE_FLAGS = "--xla_cpu_max_isa=SSE4_2"
_PORTABLE_SETTINGS = {
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}


def machine() -> dict[str, str]:
    """Returns what of this machine enters the last bits: the processor's name and settings of XLA."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else os.uname().machine,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
if os.environ.get(PORTABLE) == "1":
    # What the user has set gives way: a cap of another kind would not be portable.
    _flags = os.environ.get("XLA_FLAGS", "").split()
    if _PORTABLE_FLAGS not in _flags:
        os.environ["XLA_FLAGS"] = " ".join([*_flags, _PORTABLE_FLAGS])
    os.environ.update(_PORTABLE_SETTINGS)
