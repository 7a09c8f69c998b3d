"""Matrix products with float32 weights that XLA compiles well for processors.

They are equal to `backend_ops.PLAIN` up to rounding. XLA's library multiplies row-major matrices. Products
with a transposed matrix, such as gradients of weights, take another path at half the speed if the result
has more rows than columns. So the smaller factor is first copied into the other order.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from multiberts.bert.model.backend_ops import PLAIN, BackendOps

Gradients = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def _dense(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    if inputs.dtype != tf.float32:
        return PLAIN.dense(inputs, kernel, bias)
    rows = tf.reshape(inputs, (-1, inputs.shape[-1]))
    outputs = _flat_dense(rows, tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias))
    return tf.reshape(outputs, (*inputs.shape[:-1], kernel.shape[-1]))


@tf.custom_gradient
def _flat_dense(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], Gradients]]:
    def back(gradient: tf.Tensor) -> Gradients:
        if inputs.shape[1] > gradient.shape[1]:
            d_kernel = _stored(tf.matmul(_stored(tf.transpose(gradient)), inputs))
            d_kernel = tf.transpose(d_kernel)
        else:
            d_kernel = tf.matmul(_stored(tf.transpose(inputs)), gradient)
        d_inputs = tf.matmul(gradient, kernel, transpose_b=True)
        return d_inputs, d_kernel, tf.reduce_sum(gradient, 0)

    return tf.matmul(inputs, kernel) + bias, back


def _word_scores(states: tf.Tensor, words: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    if states.dtype != tf.float32:
        return PLAIN.word_scores(states, words, bias)
    return _flat_scores(states, tf.convert_to_tensor(words), tf.convert_to_tensor(bias))


@tf.custom_gradient
def _flat_scores(
    states: tf.Tensor, words: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], Gradients]]:
    # The bias as one more column: a vocabulary's scores are so large that adding it, and summing its
    # gradient, would each take longer than a copy of the words.
    ones = tf.ones((states.shape[0], 1))

    def back(gradient: tf.Tensor) -> Gradients:
        columns = _stored(tf.concat([tf.transpose(states), tf.transpose(ones)], 0))
        d_words = tf.matmul(columns, gradient)  # [width + 1, vocabulary]
        return tf.matmul(gradient, words), tf.transpose(d_words[:-1]), d_words[-1]

    with_bias = tf.concat([words, bias[:, None]], 1)
    return tf.matmul(tf.concat([states, ones], 1), with_bias, transpose_b=True), back


def _stored(values: tf.Tensor) -> tf.Tensor:
    """Stores the values in this layout, so that XLA does not fuse the transposition into a product."""
    stored: tf.Tensor = xla.optimization_barrier(values, tf.zeros(()))[0]
    return tf.ensure_shape(stored, values.shape)


def square(values: tf.Tensor) -> tf.Tensor:
    """Squares and stores: XLA sums stored values faster than values computed inside the sum."""
    return _stored(tf.square(values))


COMPILED_ON_CPU = BackendOps(dense=_dense, word_scores=_word_scores, square=square)
