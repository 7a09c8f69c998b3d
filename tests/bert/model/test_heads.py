"""Facts about the heads that the golden tests do not show."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np

from multiberts.bert.model.backend_ops import PLAIN, BackendOps, compare_labels
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import cross_entropy, is_right, pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
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
    import tensorflow as tf

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


def test_everything_in_the_loss_that_a_backend_may_compute_is_left_to_it() -> None:
    """Else an engine's own implementation would be passed by, and only last bits would show it."""
    config = BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    parameters, calls = initial_parameters(config, 0), collections.Counter[str]()

    def counting(name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            calls[name] += 1
            return getattr(PLAIN, name)(*given)

        return call

    ones = np.ones((2, 4), np.int32)
    batch = dict.fromkeys(("input_ids", "input_mask", "segment_ids", "masked_lm_positions"), ones)
    batch |= {"masked_lm_ids": ones, "masked_lm_weights": ones.astype(np.float32)}
    backend = BackendOps(*map(counting, BackendOps._fields))
    key = np.array([1, 2], np.uint32)
    pretraining_loss(
        parameters, config, {**batch, "next_sentence_labels": ones[:, 0]}, key, backend=backend
    )
    assert calls == {
        "dense": sum(name.endswith("/kernel") for name in parameters),
        "look_up_words": 1,
        "word_scores": 1,
        "attention": config.num_hidden_layers,
        "label_values": 4,  # loss and accuracy of words and of pairs
    }
