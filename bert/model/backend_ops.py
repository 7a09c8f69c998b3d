"""Operations that backends may implement differently; `PLAIN` is the definition, in keras.ops.

Other implementations are equal up to rounding and drop the same elements. The trainer passes one of them to
the loss function; all other code uses the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from multiberts.bert.model.addressed_dropout import TokenPositions, dropout
from multiberts.bert.model.array_ops import ops

Array = Any


def dense(inputs: Array, kernel: Array, bias: Array) -> Array:
    """Computes inputs @ kernel + bias.

    Args:
      inputs: [..., width].
      kernel: [width, outputs], of the same type, as bias.
      bias: [outputs].

    Returns:
      [..., outputs], of that type.
    """
    return ops.matmul(inputs, kernel) + bias


def look_up_words(words: Array, ids: Array) -> Array:
    """Returns the rows of words.

    Args:
      words: float32 [vocabulary, width].
      ids: int32 [batch, length].

    Returns:
      float32 [batch, length, width].
    """
    return ops.take(words, ids, axis=0)


def word_scores(states: Array, words: Array, bias: Array) -> Array:
    """Computes states @ words^T + bias, which takes most of a small model's operations.

    Args:
      states: [rows, width].
      words: [vocabulary, width], of the same type.
      bias: float32 [vocabulary].

    Returns:
      float32 [rows, vocabulary].
    """
    return ops.cast(ops.matmul(states, ops.transpose(words)), "float32") + bias


def attention(
    query: Array,
    key: Array,
    value: Array,
    attention_bias: Array,
    rate: float,
    dropout_key: Array | None,
    site: int,
    positions: TokenPositions | None = None,
) -> Array:
    """Mixes values by the softmax of scaled scores, with dropout of the probabilities.

    Args:
      query: float32 or bfloat16 [batch, heads, queries, size]; products are of its type, the softmax float32.
      key: [batch, heads, length, size], as value.
      attention_bias: float32 [batch, 1, 1 or queries, length], added to the scores.
      rate: share of dropped probabilities.
      dropout_key: uint32 [2], or None for no dropout; see `dropout`.
      site: index of this dropout in the model.
      positions: positions of queries and keys in their sequences; None: 0, 1, 2, ...

    Returns:
      [batch, heads, queries, size], of the query's type.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    scores = ops.cast(scores, "float32") * (query.shape[-1] ** -0.5)
    probabilities = ops.softmax(scores + attention_bias, axis=-1)
    probabilities = dropout(probabilities, rate, dropout_key, site, positions)
    return ops.matmul(ops.cast(probabilities, value.dtype), value)


def look_up_labels(values: Array, labels: Array) -> Array:
    """Returns each label's value by a lookup, whose gradient compares classes without a scatter.

    Args:
      values: [..., classes].
      labels: int32 [...].

    Returns:
      [...].
    """

    @ops.custom_gradient  # here, as it imports Keras
    def look_up(values: Array, labels: Array) -> tuple[Array, Callable[..., Any]]:
        def back(*gradients: Array, upstream: Array | None = None) -> tuple[Array, None]:
            (gradient,) = gradients if upstream is None else (upstream,)
            return ops.where(_is_label(values, labels), gradient[..., None], 0.0), None

        return ops.take_along_axis(values, labels[..., None], axis=-1)[..., 0], back

    return look_up(values, labels)


def compare_labels(values: Array, labels: Array) -> Array:
    """Computes `look_up_labels` by comparing every class with the label.

    An accelerator then needs neither a lookup nor, for its gradient, a scatter, which would each be a pass
    over the scores of a vocabulary.
    """
    return ops.sum(ops.where(_is_label(values, labels), values, 0.0), axis=-1)


def _is_label(values: Array, labels: Array) -> Array:
    classes = ops.arange(ops.shape(values)[-1], dtype=labels.dtype)
    return ops.equal(labels[..., None], classes)  # bool [..., classes]


class BackendOps(NamedTuple):
    """The operations that are worth an implementation per backend; the defaults are the definition."""

    dense: Callable[[Array, Array, Array], Array] = dense
    look_up_words: Callable[[Array, Array], Array] = look_up_words
    word_scores: Callable[[Array, Array, Array], Array] = word_scores
    attention: Callable[..., Array] = attention
    label_values: Callable[[Array, Array], Array] = look_up_labels
    # Squares gradients, whose squares are summed next.
    square: Callable[[Array], Array] = lambda values: ops.square(values)


PLAIN = BackendOps()
