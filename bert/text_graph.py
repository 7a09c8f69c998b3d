"""Graphs that map texts or pairs of texts to classes, sets of labels or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from multiberts.bert.graph_tokenization import GraphTokenizer
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.encoder import encode, pool
from multiberts.bert.model.heads import classification_logits
from multiberts.bert.tokenization import CLS, SEP


def text_signatures(
    weights: Mapping[str, tf.Variable],
    config: BertConfig,
    tokenizer: GraphTokenizer,
    vocabulary: Sequence[str],
    *,
    length: int,
    head: Mapping[str, Any],
) -> dict[str, Callable[..., Any]]:
    """Returns functions for `texts`, `pairs`, or both if the model does not record its inputs.

    Args:
      weights: variables by name, including the head's.
      length: the largest number of tokens in a sequence.
      head: record of the model's head (see `bert/checkpoint/fine_tuned.py`).
    """
    kind, labels = head["kind"], head["labels"]

    def answer(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        # [CLS] a [SEP], or [CLS] a [SEP] b [SEP]
        ids, segment_ids = tf_text.combine_segments(
            shortened([tokenizer(each) for each in texts], length - 1 - len(texts)),
            vocabulary.index(CLS),
            vocabulary.index(SEP),
        )
        states = encode(
            weights, config, ids.to_tensor(), tf.ones_like(ids).to_tensor(), segment_ids.to_tensor(),
            first_token_only=True,
        )  # fmt: skip
        logits = classification_logits(weights, pool(weights, states))
        if kind == "regression":
            return {"logits": logits, "prediction": logits[:, 0]}
        if kind == "multi_label_classification":
            # Repeat for each text, as TensorFlow Serving splits answers by rows.
            names = tf.tile([list(labels or ())], [tf.shape(logits)[0], 1])
            return {"logits": logits, "probabilities": tf.sigmoid(logits), "classes": names}
        best = tf.argmax(logits, axis=-1)
        prediction = best if labels is None else tf.gather(tf.constant(list(labels)), best)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "prediction": prediction,
        }

    inputs = {"texts": ["text"], "pairs": ["text", "text_pair"]}
    number = head["num_texts"]
    if number == 2:
        config.check_two_segments("a model of pairs")
    if number is not None or config.type_vocab_size == 1:
        del inputs["texts" if number == 2 else "pairs"]
    return {
        signature: tf.function(
            answer,
            input_signature=[tf.TensorSpec([None], tf.string, name=name) for name in names],
            autograph=False,
        )
        for signature, names in inputs.items()
    }


def shortened(segments: list[tf.RaggedTensor], most: int) -> list[tf.RaggedTensor]:
    """Returns segments with at most `most` tokens together, cut as in `finetune/features.py`.

    Tokens are dropped at the end of the longer one; of two equally long ones from the second.

    Args:
      segments: one or two arrays, int32 [batch, (pieces)].
    """
    if len(segments) == 1:
        return [segments[0][:, :most]]
    first, second = (segment.row_lengths() for segment in segments)
    excess = tf.maximum(first + second - most, 0)
    cut = tf.minimum(excess, abs(first - second))
    rest = excess - cut
    cut_of_first = tf.where(first > second, cut, tf.zeros_like(cut))
    lengths_left = (
        first - cut_of_first - rest // 2,
        second - (cut - cut_of_first) - (rest + 1) // 2,
    )
    return [
        tf.ragged.boolean_mask(
            segment, tf.ragged.range(segment.row_lengths()) < tf.expand_dims(length, 1)
        )
        for segment, length in zip(segments, lengths_left, strict=True)
    ]
