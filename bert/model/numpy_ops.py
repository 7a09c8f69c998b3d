"""Operations of keras.ops in NumPy, with the same names, for a forward pass in float32.

A missing operation is an error: no other library replaces it, so add it here.
"""

from __future__ import annotations

import math
from typing import Any as _Array

import numpy as np
from numpy import (  # noqa: F401 - of `ops`, which asks for them by name
    argmax,
    concatenate,
    equal,
    matmul,
    mean,
    reshape,
    shape,
    square,
    sum,  # the name in keras.ops
    take,
    tanh,
    transpose,
    where,
)


def arange(stop: int, *, dtype: str) -> _Array:
    """Returns 0, 1, ..., stop - 1."""
    return np.arange(stop, dtype=dtype)


def cast(values: _Array, dtype: str | np.dtype) -> _Array:
    """Returns the values in a type, without a copy if they have it."""
    return np.asarray(values).astype(dtype, copy=False)


def gelu(values: _Array, *, approximate: bool) -> _Array:
    if not approximate:
        from scipy.special import ndtr

        return values * ndtr(values)
    # x^3 as products, as NumPy's power is many times slower.
    inner = values * values
    inner *= 0.044715
    inner += 1.0
    inner *= values
    inner *= math.sqrt(2.0 / math.pi)
    np.tanh(inner, out=inner)
    inner += 1.0
    inner *= values
    inner *= 0.5
    return inner


def one_hot(indices: _Array, num_classes: int, *, dtype: str) -> _Array:
    """Returns rows with a 1 at the index; [..., num_classes]."""
    return np.equal(indices[..., None], np.arange(num_classes)).astype(dtype)


def relu(values: _Array) -> _Array:
    return np.maximum(values, 0)


def rsqrt(values: _Array) -> _Array:
    return 1.0 / np.sqrt(values)


def softmax(values: _Array, *, axis: int) -> _Array:
    raised = np.exp(values - values.max(axis=axis, keepdims=True))
    raised /= raised.sum(axis=axis, keepdims=True)
    return raised
