"""Facts about the heads that the golden tests do not show."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from multiberts.bert.model.backend_ops import PLAIN, BackendOps, compare_labels
from multiberts.bert.model.heads import cross_entropy, is_right
from multiberts.bert.randomness import generator

COMPARING = BackendOps(label_values=compare_labels)


def test_right_is_where_the_label_is_the_argmax() -> None:
    draw = generator("heads test", 0)
    logits = draw.normal(size=(50, 6, 7)).astype(np.float32)
    labels = draw.integers(0, 7, (50, 6)).astype(np.int32)
    found = np.asarray(is_right(logits, labels))
    assert 0 < found.sum() < found.size
    np.testing.assert_array_equal(found, logits.argmax(-1) == labels)
    # A tie for the best counts as right, whichever comes first.
    np.testing.assert_array_equal(np.asarray(is_right(np.zeros((1, 3)), np.array([2]))), [1.0])


def test_labels_that_are_compared_have_the_same_losses() -> None:
    draw = generator("heads test", 1)
    logits = (30 * draw.normal(size=(50, 6, 7))).astype(np.float32)
    labels = draw.integers(0, 7, (50, 6)).astype(np.int32)
    losses, right = (function(logits, labels, COMPARING) for function in (cross_entropy, is_right))
    np.testing.assert_allclose(losses, cross_entropy(logits, labels), rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(right, is_right(logits, labels))


def test_labels_that_are_compared_have_the_same_gradient() -> None:
    draw = generator("heads test", 2)
    logits = tf.constant(draw.normal(size=(5, 6, 7)), tf.float32)
    labels = draw.integers(0, 7, (5, 6)).astype(np.int32)
    weights = tf.constant(draw.normal(size=(5, 6)), tf.float32)
    gradients = []
    for backend in (PLAIN, COMPARING):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = tf.reduce_sum(weights * cross_entropy(logits, labels, backend))
        gradients.append(tape.gradient(loss, logits))
    expected = weights[..., None] * (tf.nn.softmax(logits) - tf.one_hot(labels, 7))
    for found in gradients:
        np.testing.assert_allclose(found, expected, atol=1e-6)
