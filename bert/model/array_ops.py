"""The array operations of the model: keras.ops, or NumPy for forward passes in NumPy.

Keras with its backend takes seconds to import, more than a forward pass of a few rows takes in NumPy. So the
first operation imports Keras, and the model has the same code for TensorFlow, JAX and NumPy.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

_RUNS_IN_NUMPY = contextvars.ContextVar("runs_in_numpy", default=False)


@contextlib.contextmanager
def numpy_arrays() -> Iterator[None]:
    """Makes `ops` compute with NumPy inside the block, on NumPy arrays."""
    token = _RUNS_IN_NUMPY.set(True)
    try:
        yield
    finally:
        _RUNS_IN_NUMPY.reset(token)


class _ArrayOps:
    def __getattr__(self, name: str) -> Any:
        if _RUNS_IN_NUMPY.get():
            from multiberts.bert.model import numpy_ops

            return getattr(numpy_ops, name)
        from keras import ops

        return getattr(ops, name)


ops: Any = _ArrayOps()
