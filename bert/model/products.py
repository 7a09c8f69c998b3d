"""Products with weights; `PLAIN` is the definition, in the arrays of either engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

Array = Any


class Products(NamedTuple):
    """Ways to compute what has most of a model's operations.

    Attributes:
      dense: (inputs [..., width], kernel [width, outputs], bias [outputs]), all of one type ->
        inputs @ kernel + bias, of that type.
      scores: (states [rows, width], words [vocabulary, width] of the same type, bias float32
        [vocabulary]) -> states @ words^T + bias, float32 [rows, vocabulary].
    """

    dense: Callable[[Array, Array, Array], Array]
    scores: Callable[[Array, Array, Array], Array]


def _dense(inputs: Array, kernel: Array, bias: Array) -> Array:
    return ops.matmul(inputs, kernel) + bias


def _scores(states: Array, words: Array, bias: Array) -> Array:
    return ops.cast(ops.matmul(states, ops.transpose(words)), "float32") + bias


PLAIN = Products(_dense, _scores)
