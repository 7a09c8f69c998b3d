"""Errors that users can mend, as one line and an exit status; our own mistakes keep their traceback."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from multiberts.runs import console
from multiberts.runs.errors import UserError, disk_full_line, in_flags, memory_error

EXIT_USER_ERROR = 2

# The extra in `pyproject.toml` of each package that `pip install .` leaves out.
_EXTRAS = {"gcsfs": "cloud", "fsspec": "cloud", "pyarrow": "parquet"}
# Launches need the tokeniser, too, which the extra `launch` alone lacks.
_TRAINING = (
    "cryptography dask distributed google h5py huggingface_hub keras ml_dtypes psutil rich "
    "safetensors tensorflow tensorflow_datasets tokenizers"
)
_EXTRAS |= dict.fromkeys(_TRAINING.split(), "tensorflow")


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Exits with one line if the user, the disk, the memory or the installation is at fault."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        # Flushing at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell reports a process that SIGPIPE ended
    except KeyboardInterrupt:
        console.progress("stopped")
        sys.exit(130)  # as a shell reports a process that SIGINT ended
    except Exception as raised:
        error = memory_error(raised) or raised
        if isinstance(error, UserError):
            line: str | None = in_flags(str(error))
        elif isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            extra = _EXTRAS.get(package)
            other = " (or gpu, jax, jax-cuda12, jax-cuda13, jax-tpu)" * (extra == "tensorflow")
            line = extra and (
                f"this command needs the package {package}, which is not installed: pip install "
                f"'multiberts[{extra}]'{other}"
            )
        else:
            line = disk_full_line(error)
        if line is None:
            raise
        if isinstance(error, UserError) and console.is_verbose():
            traceback.print_exc()
        console.error(line)
        sys.exit(EXIT_USER_ERROR)
