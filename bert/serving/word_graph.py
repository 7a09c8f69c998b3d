"""Words in a graph: a tag for each, as `finetune/text/` gives them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from multiberts.bert.model.heads import classification_logits
from multiberts.bert.serving.graph_model import GraphModel, signature

# The tag of a word that no piece stands for.
OUTSIDE = "O"


def word_signatures(model: GraphModel) -> dict[str, Callable[..., Any]]:
    """Returns `texts`, whose words are cut at white space, and `words`."""
    labels = list(model.head["labels"])

    def answer(words: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        logits, is_asked = _logits_of_words(model, words.values, words.row_splits)
        tags = tf.gather(tf.constant(labels), tf.argmax(logits, axis=-1))
        tags = tf.where(is_asked, tags, OUTSIDE)
        return {
            "words": words.to_tensor(),
            "prediction": words.with_values(tags).to_tensor(),
            "logits": words.with_values(logits).to_tensor(),
        }

    def of_texts(texts: tf.Tensor) -> dict[str, tf.Tensor]:
        spaced = tf.strings.regex_replace(texts, _white_space(), " ")
        return answer(tf.strings.split(spaced))

    def of_words(words: tf.Tensor) -> dict[str, tf.Tensor]:
        places = tf.range(1, tf.shape(words, tf.int64)[1] + 1)
        lengths = tf.reduce_max(tf.where(words != "", places, 0), axis=1)
        return answer(tf.RaggedTensor.from_tensor(words, tf.maximum(lengths, 0)))

    return {
        "texts": signature(of_texts, text=tf.TensorSpec([None], tf.string)),
        "words": signature(of_words, words=tf.TensorSpec([None, None], tf.string)),
    }


def _logits_of_words(
    model: GraphModel, words: tf.Tensor, row_splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scores of the first piece of each word.

    Args:
      model: gives the scores.
      words: string [words], those of a text one after the other.
      row_splits: int64 [texts + 1], where those of each text begin.

    Returns:
      float32 [words, tags], 0 where there is no piece within the sequence; and whether there is one.
    """
    pieces = model.tokenizer(words)  # [words, (pieces)]
    begins = tf.gather(pieces.row_splits, row_splits)
    of_texts = tf.RaggedTensor.from_row_splits(pieces.values, begins)
    states, _ = model.encode([of_texts[:, : model.length - 2]])
    logits = classification_logits(model.weights, states)
    texts = tf.RaggedTensor.from_row_splits(words, row_splits).value_rowids()
    places = 1 + pieces.row_splits[:-1] - tf.gather(begins, texts)
    is_asked = (pieces.row_lengths() > 0) & (places < model.length - 1)
    found = tf.gather_nd(logits, tf.stack([texts, tf.where(is_asked, places, 0)], axis=1))
    return tf.where(is_asked[:, None], found, 0.0), is_asked


def _white_space() -> str:
    """Returns a pattern of all that `str.split` cuts at."""
    spaces = [code for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    return "[" + "".join(rf"\x{{{code:x}}}" for code in spaces) + "]"
