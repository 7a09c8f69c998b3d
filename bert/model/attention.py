"""The core of attention, from queries, keys and values to mixtures of values.

`plain` is the definition, in the arrays of either engine. Other ways are equal up to rounding and drop the
same elements.
"""

from __future__ import annotations

from typing import Any, Protocol

from keras import ops

from multiberts.bert.model.addressed_dropout import Standing, dropout

Array = Any


class AttentionCore(Protocol):
    """A way to compute attention's core; see `plain`."""

    def __call__(
        self,
        query: Array,
        key: Array,
        value: Array,
        attention_bias: Array,
        rate: float,
        dropout_key: Array | None,
        site: int,
        standing: Standing | None = None,
    ) -> Array:
        """Returns what `plain` returns, up to rounding."""


def plain(
    query: Array,
    key: Array,
    value: Array,
    attention_bias: Array,
    rate: float,
    dropout_key: Array | None,
    site: int,
    standing: Standing | None = None,
) -> Array:
    """Mixes values by the softmax of scaled scores, with dropout of the probabilities.

    Args:
      query: float32 or bfloat16 [batch, heads, queries, size]; products are of its type, the softmax float32.
      key: [batch, heads, length, size], as value.
      value: of the same type.
      attention_bias: float32 [batch, 1, 1 or queries, length], added to the scores.
      rate: the share of the probabilities that is dropped.
      dropout_key: uint32 [2], or None for no dropout; see `dropout`.
      site: the number of this dropout among those of the model.
      standing: where queries and keys stand in their sequences; None: one after the other.

    Returns:
      [batch, heads, queries, size], of the query's type.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    scores = ops.cast(scores, "float32") * (query.shape[-1] ** -0.5)
    probabilities = ops.softmax(scores + attention_bias, axis=-1)
    probabilities = dropout(probabilities, rate, dropout_key, site, standing)
    return ops.matmul(ops.cast(probabilities, value.dtype), value)
