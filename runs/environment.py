"""Process-wide settings of Keras, TensorFlow and JAX, which read them when they are first imported.

The packages that import Keras (`bert`, `pretrain`, `finetune`) import this module first, so the
arithmetic is the same however a process enters them: console command, `python -m`, library import,
worker or test. What the user has set stays.

`MULTIBERTS_ENGINE` in the environment, or `--engine` on the command line, names the library that computes;
docs/engines.md has what each is for.

`MULTIBERTS_ATTENTION` names the way in which JAX computes attention on accelerators, and
`MULTIBERTS_MATMUL_PRECISION` how either engine rounds the factors of float32 products there.

With `MULTIBERTS_PORTABLE=1` in the environment the arithmetic is narrowed to what all x86-64 processors
share: XLA's code and oneDNN's products keep to SSE 4, which has no fused multiply-add, and run on one
thread. Numbers then depend less on the processor, and steps take longer; docs/departures.md has both.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from multiberts.runs.errors import UserError, nearest

PORTABLE = "MULTIBERTS_PORTABLE"
ENGINE = "MULTIBERTS_ENGINE"

ATTENTION = "MULTIBERTS_ATTENTION"

TENSORFLOW = "tensorflow"
JAX = "jax"
ENGINES = (TENSORFLOW, JAX)

# From the definition, or with our own backward pass.
PLAIN, RECOMPUTED = "plain", "recomputed"

PRECISION = "MULTIBERTS_MATMUL_PRECISION"
# The engine's default (TF32 on GPUs, bfloat16 on TPUs), or full float32.
DEFAULT, HIGHEST = "default", "highest"

# Environment variable that Keras reads.
_BACKEND = "KERAS_BACKEND"

# Driver files of accelerators below /dev, and the packages that JAX needs for them.
_ACCELERATORS = {
    "nvidia[0-9]*": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
    "accel[0-9]*": ("libtpu",),
    "vfio/[0-9]*": ("libtpu",),
}


def default_engine() -> str:
    """Returns `jax` if an accelerator and JAX for it are found, else `tensorflow`; imports neither."""
    plugins = [plugin for names in _accelerators() for plugin in names]
    is_there = _is_installed(JAX) and any(map(_is_installed, plugins))
    return JAX if is_there else TENSORFLOW


def _accelerators() -> list[tuple[str, ...]]:
    """Returns the packages for each kind of accelerator whose driver is found."""
    return [names for pattern, names in _ACCELERATORS.items() if any(Path("/dev").glob(pattern))]


def is_engine_open() -> bool:
    """Returns whether NumPy may compute a few rows: no engine is chosen and no accelerator found.

    Portable arithmetic needs XLA.
    """
    is_named = bool(os.environ.get(ENGINE)) or os.environ[_BACKEND] != TENSORFLOW
    return not (is_named or os.environ.get(PORTABLE) == "1" or _accelerators())


def _is_installed(module: str) -> bool:
    return module in sys.modules or find_spec(module) is not None


def choose_engine(name: str) -> None:
    """Sets the engine of this process and its child processes."""
    os.environ[ENGINE] = os.environ[_BACKEND] = check_engine(name, "--engine")
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != name:
        raise UserError(
            f"--engine is {name!r}, but this process computes with {keras.backend.backend()}; set "
            f"{ENGINE}={name} before it starts"
        )


def engine() -> str:
    """Returns the engine, `tensorflow` or `jax`."""
    variable = ENGINE if os.environ.get(ENGINE) else _BACKEND
    is_default = variable == _BACKEND and os.environ[_BACKEND] == DEFAULTS[_BACKEND]
    return check_engine(os.environ[variable], "the default engine" if is_default else variable)


def attention() -> str:
    """Returns how JAX computes attention on accelerators: `plain` or `recomputed`."""
    name = os.environ.get(ATTENTION) or RECOMPUTED
    return _one_of((PLAIN, RECOMPUTED), name, ATTENTION, "a way to compute attention")


def matmul_precision() -> str:
    """Returns how the factors of float32 products are rounded on accelerators: `default` or `highest`."""
    name = os.environ.get(PRECISION) or DEFAULT
    return _one_of((DEFAULT, HIGHEST), name, PRECISION, "a precision of products")


def _one_of(names: tuple[str, ...], name: str, where: str, meaning: str) -> str:
    if name not in names:
        raise UserError(f"{where} is {name!r}, not {meaning}; {nearest(name, names)}")
    return name


def check_engine(name: str, where: str) -> str:
    """Returns the name of an engine that is installed; `where` it comes from is for the message."""
    if not _is_installed(_one_of(ENGINES, name, where, "an engine")):
        (other,) = {*ENGINES} - {name}
        if name == TENSORFLOW and sys.version_info >= (3, 14):
            raise UserError(
                f"{where} is {name!r}, but TensorFlow has no wheels for Python {sys.version_info[0]}."
                f"{sys.version_info[1]}; install multiberts[{JAX}] and set {ENGINE}={JAX}, or use Python 3.13"
            )
        raise UserError(
            f"{where} is {name!r}, which is not installed; install multiberts[{name}], or install "
            f"multiberts[{other}] and set {ENGINE}={other}"
        )
    return name


# oneDNN may sum in another order and change numbers. The third hides TensorFlow's C++ log, except two lines
# about CUDA (docs/troubleshooting.md).
DEFAULTS = {
    _BACKEND: default_engine(),
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
    """Returns the facts of this machine that affect the last bits: processor name and XLA settings."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else os.uname().machine,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
if os.environ.get(ENGINE) in ENGINES:  # `engine` refuses other names where one is needed
    os.environ[_BACKEND] = os.environ[ENGINE]
if os.environ.get(PORTABLE) == "1":
    # Overrides the user's setting, because another instruction set would not be portable.
    _flags = os.environ.get("XLA_FLAGS", "").split()
    if _PORTABLE_FLAGS not in _flags:
        os.environ["XLA_FLAGS"] = " ".join([*_flags, _PORTABLE_FLAGS])
    os.environ.update(_PORTABLE_SETTINGS)
