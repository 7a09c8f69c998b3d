"""Mentions in a graph: whether a pronoun refers to candidates, as `finetune/coreference/` asks of GAP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from multiberts.bert.model.coreference_head import coreference_logits
from multiberts.bert.serving.graph_model import GraphModel, signature

# The answer on a pair that has none.
_NONE = -1


def mention_signatures(model: GraphModel) -> dict[str, Callable[..., Any]]:
    """Returns `mentions`."""

    def answer(
        texts: tf.Tensor, pronouns: tf.Tensor, candidates: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        is_given = tf.reduce_all(candidates >= 0, axis=-1)  # [batch, candidates]
        mentions = tf.concat([pronouns[:, None], tf.maximum(candidates, 0)], axis=1)
        tokens, spans = _cut_texts(model, texts, mentions)
        pronoun, candidate = tf.broadcast_to(spans[:, :1], tf.shape(spans[:, 1:])), spans[:, 1:]
        shape = tf.shape(is_given)
        rows = tf.repeat(tf.range(shape[0]), shape[1])
        pairs = tf.stack([tf.reshape(each, [-1, 2]) for each in (pronoun, candidate)], axis=1)
        logits, fits = _logits_of_pairs(model, tf.gather(tokens, rows), pairs)
        fits = tf.reshape(fits, shape) & is_given
        logits = tf.where(fits[..., None], tf.reshape(logits, [shape[0], shape[1], 2]), 0.0)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "prediction": tf.where(fits, tf.argmax(logits, axis=-1), _NONE),
        }

    return {
        "mentions": signature(
            answer,
            text=tf.TensorSpec([None], tf.string),
            pronoun=tf.TensorSpec([None, 2], tf.int64),
            candidates=tf.TensorSpec([None, None, 2], tf.int64),
        )
    }


def _cut_texts(
    model: GraphModel, texts: tf.Tensor, mentions: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Returns the word pieces of texts that are cut at the mentions' ends, and where the mentions are.

    Args:
      model: gives the word pieces.
      texts: string [batch].
      mentions: int64 [batch, mentions, 2], first and last + 1 character of each.

    Returns:
      int32 [batch, (pieces)]; int64 [batch, mentions, 2], first and last piece.
    """
    batch = tf.shape(texts)[0]
    size = tf.strings.length(texts, unit="UTF8_CHAR")[:, None]
    ends = tf.reshape(tf.cast(mentions, tf.int32), [batch, -1])
    tf.debugging.assert_less_equal(
        ends, size, "a mention ends after the last character of its text"
    )
    cuts = tf.sort(tf.concat([tf.zeros_like(size), ends, size], 1), axis=1)
    parts = tf.strings.substr(
        tf.repeat(texts[:, None], tf.shape(cuts)[1] - 1, axis=1),
        cuts[:, :-1], cuts[:, 1:] - cuts[:, :-1], unit="UTF8_CHAR",
    )  # fmt: skip
    pieces = model.tokenizer(tf.reshape(parts, [-1]))
    counts = tf.reshape(pieces.row_lengths(), tf.shape(parts))
    before = tf.concat([tf.zeros([batch, 1], tf.int64), tf.cumsum(counts, axis=1)], axis=1)
    tokens = tf.RaggedTensor.from_row_lengths(pieces.values, before[:, -1])
    places = tf.gather(before, tf.searchsorted(cuts, ends), batch_dims=1)
    spans = tf.reshape(places, tf.shape(mentions)) - tf.constant([0, 1], tf.int64)
    return tokens, spans


def _logits_of_pairs(
    model: GraphModel, tokens: tf.RaggedTensor, pairs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scores of pairs, each in a window around it, and which of them fit one.

    Args:
      model: gives the scores.
      tokens: int32 [pairs, (pieces)], of their texts.
      pairs: int64 [pairs, 2, 2]: of pronoun and candidate the first and the last piece.

    Returns:
      float32 [pairs, 2] and bool [pairs].
    """
    limit = model.length - 2
    begin, end = tf.reduce_min(pairs[:, :, 0], axis=1), tf.reduce_max(pairs[:, :, 1], axis=1)
    fits = tf.reduce_all(pairs[:, :, 1] >= pairs[:, :, 0], axis=1) & (end - begin + 1 <= limit)
    # As much text before as after, where the text has it.
    lengths = tokens.row_lengths()
    start = begin - tf.maximum(limit - (end - begin + 1), 0) // 2
    start = tf.maximum(tf.minimum(start, lengths - limit), 0)
    place = tokens.with_values(tf.ragged.range(lengths).values)
    is_inside = (place >= start[:, None]) & (place < start[:, None] + limit)
    states, _ = model.encode([tf.ragged.boolean_mask(tokens, is_inside)])
    # Places in the sequence; a pair that does not fit is not looked at.
    spans = tf.where(fits[:, None, None], pairs - start[:, None, None] + 1, 0)
    representation = model.options["span_representation"]
    batch: dict[str, tf.Tensor] = {}
    for side, name in enumerate(("pronouns", "candidates")):
        first, last = spans[:, side, :1], spans[:, side, 1:]
        at = tf.range(tf.shape(states, tf.int64)[1])
        mask = tf.cast((at >= first) & (at <= last), tf.float32)
        if representation == "self_attention":
            batch |= {name: states, f"{name}_mask": mask}
            continue
        mean = tf.reduce_sum(states * mask[:, :, None], axis=1)
        mean /= tf.reduce_sum(mask, axis=1, keepdims=True)
        ends = [tf.gather(states, place[:, 0], batch_dims=1) for place in (first, last)]
        batch[name] = mean if representation == "mean" else tf.concat([*ends, mean], axis=1)
    return coreference_logits(representation, model.weights, batch), fits
