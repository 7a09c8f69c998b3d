"""Operations of keras.ops in NumPy, by the same names: those of a forward pass in float32.

Whoever needs one more adds it here; one that is not here is an error, not another library's.
"""

from __future__ import annotations

import math

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
    sum,  # keras.ops calls it so
    take,
    tanh,
    transpose,
    where,
)


def arange(stop: int, *, dtype: str) -> np.ndarray:
    """Returns 0, 1, ..., stop - 1."""
    return np.arange(stop, dtype=dtype)


def cast(values: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
    """Returns the values in a type; themselves where they have it."""
    found: np.ndarray = np.asarray(values).astype(dtype, copy=False)
    return found


def gelu(values: np.ndarray, *, approximate: bool) -> np.ndarray:
    if not approximate:
        from scipy.special import ndtr

        exact: np.ndarray = values * ndtr(values)
        return exact
    # x^3 as products: NumPy raises to a power element by element, many times slower.
    inner: np.ndarray = values * values
    inner *= 0.044715
    inner += 1.0
    inner *= values
    inner *= math.sqrt(2.0 / math.pi)
    np.tanh(inner, out=inner)
    inner += 1.0
    inner *= values
    inner *= 0.5
    return inner


def one_hot(indices: np.ndarray, num_classes: int, *, dtype: str) -> np.ndarray:
    """Returns rows with a 1 at the index; [..., num_classes]."""
    rows: np.ndarray = np.equal(indices[..., None], np.arange(num_classes)).astype(dtype)
    return rows


def relu(values: np.ndarray) -> np.ndarray:
    """Returns max(x, 0)."""
    positive: np.ndarray = np.maximum(values, 0)
    return positive


def rsqrt(values: np.ndarray) -> np.ndarray:
    """Returns 1 / sqrt(x)."""
    inverse: np.ndarray = 1.0 / np.sqrt(values)
    return inverse


def softmax(values: np.ndarray, *, axis: int) -> np.ndarray:
    """Returns exp(x) / sum(exp(x)) along an axis."""
    raised: np.ndarray = np.exp(values - values.max(axis=axis, keepdims=True))
    raised /= raised.sum(axis=axis, keepdims=True)
    return raised
