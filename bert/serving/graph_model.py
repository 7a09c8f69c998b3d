"""A fine-tuned model in a graph: what every kind of task asks of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from multiberts.bert.graph_tokenization import GraphTokenizer
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.encoder import encode
from multiberts.bert.tokenization import CLS, SEP


@dataclasses.dataclass(frozen=True)
class GraphModel:
    """A model with its tokeniser.

    Attributes:
      weights: variables by name, the head's among them.
      tokenizer: of its vocabulary.
      vocabulary: the pieces by id.
      config: the encoder's sizes.
      length: the largest number of tokens in a sequence.
      head: the record of its head (see `bert/checkpoint/fine_tuned.py`).
      options: of its task, as far as they are known.
    """

    weights: Mapping[str, tf.Variable]
    tokenizer: GraphTokenizer
    vocabulary: Sequence[str]
    config: BertConfig
    length: int
    head: Mapping[str, Any]
    options: Mapping[str, Any]

    def encode(
        self, segments: Sequence[tf.RaggedTensor], *, first_token_only: bool = False
    ) -> tuple[tf.Tensor, tf.RaggedTensor]:
        """Encodes [CLS] a [SEP], or [CLS] a [SEP] b [SEP].

        Args:
          segments: one or two, int32 [batch, (pieces)], which fit together.
          first_token_only: whether only the first token's state is needed.

        Returns:
          The states, float32 [batch, length, hidden], with `first_token_only` [batch, 1, hidden]; and the
          ids, int32 [batch, (tokens)].
        """
        ids, segment_ids = tf_text.combine_segments(
            segments, self.vocabulary.index(CLS), self.vocabulary.index(SEP)
        )
        states = encode(
            self.weights, self.config, ids.to_tensor(), tf.ones_like(ids).to_tensor(),
            segment_ids.to_tensor(), first_token_only=first_token_only,
        )  # fmt: skip
        return states, ids


def signature(answer: Callable[..., Any], **inputs: tf.TensorSpec) -> Callable[..., Any]:
    """Returns a function of named tensors as a graph.

    Args:
      answer: takes them by place, in this order.
      inputs: what each is.
    """
    specs = [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()]
    found: Callable[..., Any] = tf.function(answer, input_signature=specs, autograph=False)
    return found
