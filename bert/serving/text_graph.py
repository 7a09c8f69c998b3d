"""Texts and pairs of texts in a graph: classes, sets of labels, numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from multiberts.bert.model.encoder import pool
from multiberts.bert.model.heads import classification_logits
from multiberts.bert.serving.graph_model import GraphModel, signature

_TEXTS = tf.TensorSpec([None], tf.string)


def text_signatures(model: GraphModel) -> dict[str, Callable[..., Any]]:
    """Returns `texts`, `pairs`, or both where the model does not record which it takes."""
    kind, labels = model.head["kind"], model.head["labels"]

    def answer(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        segments = [model.tokenizer(each) for each in texts]
        states, _ = model.encode(
            shortened(segments, model.length - 1 - len(texts)), first_token_only=True
        )
        logits = classification_logits(model.weights, pool(model.weights, states))
        if kind == "regression":
            return {"logits": logits, "prediction": logits[:, 0]}
        if kind == "multi_label_classification":
            # A row for each text: TensorFlow Serving takes answers apart by rows.
            names = tf.tile([list(labels or ())], [tf.shape(logits)[0], 1])
            return {"logits": logits, "probabilities": tf.sigmoid(logits), "classes": names}
        best = tf.argmax(logits, axis=-1)
        prediction = best if labels is None else tf.gather(tf.constant(list(labels)), best)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "prediction": prediction,
        }

    known = {
        "texts": signature(answer, text=_TEXTS),
        "pairs": signature(answer, text=_TEXTS, text_pair=_TEXTS),
    }
    number = model.head["num_texts"]
    if number is None:
        return known
    name = "texts" if number == 1 else "pairs"
    return {name: known[name]}


def shortened(segments: list[tf.RaggedTensor], most: int) -> list[tf.RaggedTensor]:
    """Returns segments with at most `most` tokens together, cut as in `finetune/features.py`.

    Tokens are dropped at the end of the longer one; of two equally long ones from the second.

    Args:
      segments: one or two, int32 [batch, (pieces)].
      most: number of tokens.
    """
    if len(segments) == 1:
        return [segments[0][:, :most]]
    first, second = (segment.row_lengths() for segment in segments)
    excess = tf.maximum(first + second - most, 0)
    cut = tf.minimum(excess, abs(first - second))
    rest = excess - cut
    cut_of_first = tf.where(first > second, cut, tf.zeros_like(cut))
    kept = (
        first - cut_of_first - rest // 2,
        second - (cut - cut_of_first) - (rest + 1) // 2,
    )
    return [
        tf.ragged.boolean_mask(
            segment, tf.ragged.range(segment.row_lengths()) < tf.expand_dims(length, 1)
        )
        for segment, length in zip(segments, kept, strict=True)
    ]
