"""Networks on the spans of a frozen encoder that decide whether two mentions refer to the same entity.

* `endpoints`: a span is its first token, its last token and the mean of its tokens; a pair is both
  spans and their elementwise product; a hidden layer with GELU. The product is our addition: with it
  a small head learns agreement between two spans from few pairs.
* `mean`: a span is the mean of its tokens; a pair is both spans, concatenated; a hidden layer with
  ReLU. This is the coreference model that two authors of the papers published with the Language
  Interpretability Tool (256 hidden units, every two mentions of a sentence).
* `self_attention`: a span is a sum of its projected tokens, weighted by a softmax over learned
  scores, with separate weights for pronoun and candidate; a hidden layer with tanh, layer
  normalisation and dropout 0.3. This is edge probing (Tenney et al. 2019, section 3 and its code; Lee
  et al. 2017, section 4) on the top layer only; projections are as wide as the hidden layer.

Reference: Webster et al. 2020, section 4; Sellam et al. 2022, section 4 (a two-layer feed-forward
network on span representations of a frozen encoder, binary for each pair); Tenney et al. 2020, The
Language Interpretability Tool, section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.coreference_head import SIDES, coreference_logits
from multiberts.bert.model.heads import cross_entropy
from multiberts.finetune.coreference.frozen_states import ENDPOINTS, MEAN, TOKENS, SpanStates
from multiberts.finetune.coreference.mention_pairs import MentionPairs
from multiberts.finetune.features import evaluation_batches
from multiberts.finetune.model import Arrays, TrainableNetwork

if TYPE_CHECKING:
    from multiberts.bert.training.engine import ForwardPass

# Spans are padded to the smallest sufficient length, so that a step is compiled for few shapes.
_SPAN_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512)


# States of a span by the network's representation.
POOLING = {"endpoints": ENDPOINTS, "mean": MEAN, "self_attention": TOKENS}
# Pairs per batch in prediction: all tokens of a span take more memory than one pooled state.
_EVALUATION_BATCH_SIZES = {ENDPOINTS: 1024, MEAN: 1024, TOKENS: 128}


def initial_parameters(
    representation: str, config: BertConfig, num_hidden_units: int, finetune_seed: int
) -> Arrays:
    """Returns the weights before the first step, by name."""
    from multiberts.bert.model.initialization import truncated_normal

    arrays: Arrays = {}

    def add_dense(name: str, inputs: int, outputs: int) -> None:
        key = ("finetune", finetune_seed, f"{name}/kernel")
        shape = (inputs, outputs)
        arrays[f"{name}/kernel"] = truncated_normal(shape, config.initializer_range, *key)
        arrays[f"{name}/bias"] = np.zeros(outputs, np.float32)

    if representation == "self_attention":
        for side in SIDES:
            add_dense(f"coreference/{side}/projection", config.hidden_size, num_hidden_units)
            add_dense(f"coreference/{side}/attention", num_hidden_units, 1)
        arrays["coreference/LayerNorm/gamma"] = np.ones(num_hidden_units, np.float32)
        arrays["coreference/LayerNorm/beta"] = np.zeros(num_hidden_units, np.float32)
        width = 2 * num_hidden_units
    else:
        width = {"endpoints": 9, "mean": 2}[representation] * config.hidden_size
    add_dense("coreference/hidden", width, num_hidden_units)
    add_dense("coreference/output", num_hidden_units, 2)
    return arrays


def pair_batch(
    representation: str, pairs: MentionPairs, states: SpanStates, rows: np.ndarray
) -> Arrays:
    """Returns a network's inputs for some pairs.

    Args:
      representation: a key of `POOLING`.
      rows: numbers of the pairs, int64 [batch].

    Returns:
      `pronouns` and `candidates`: float32 [batch, width]; for self-attention
      [batch, length, width], with `pronouns_mask` and `candidates_mask` [batch, length].
    """
    spans = dict(zip(("pronouns", "candidates"), pairs.pairs[rows].T, strict=True))
    if POOLING[representation] != TOKENS:
        return {name: states.pooled(numbers) for name, numbers in spans.items()}
    longest = max(int(states.lengths[numbers].max()) for numbers in spans.values())
    length = next((bucket for bucket in _SPAN_LENGTHS if bucket >= longest), longest)
    batch: Arrays = {}
    for name, numbers in spans.items():
        batch[name], batch[f"{name}_mask"] = states.tokens(numbers, length)
    return batch


def pair_logits(
    representation: str,
    predictor: ForwardPass,
    parameters: Mapping[str, np.ndarray],
    pairs: MentionPairs,
    states: SpanStates,
    rows: np.ndarray,
) -> np.ndarray:
    """Returns scores of some pairs, float32 [rows, 2]: not coreferent, coreferent."""
    size = _EVALUATION_BATCH_SIZES[POOLING[representation]]
    logits = np.zeros((len(rows), 2), np.float32)
    # Batch spans of similar length; pooled spans all have length 1.
    lengths = states.lengths[pairs.pairs[rows]].max(axis=1)
    predictor = predictor.suited_to(parameters, len(rows))
    for indices, count in evaluation_batches(lengths, size, is_compiled=predictor.is_compiled):
        batch = pair_batch(representation, pairs, states, rows[indices])
        logits[indices[:count]] = predictor(parameters, batch)["logits"][:count]
    return logits


@dataclasses.dataclass(frozen=True)
class PairNetwork(TrainableNetwork):
    """A network on the states of two spans; `representation` is a key of `POOLING`."""

    representation: str = "endpoints"

    def loss(
        self, parameters: Any, batch: Any, dropout_key: Any, backend: Any
    ) -> tuple[Any, dict[str, Any]]:
        logits = coreference_logits(self.representation, parameters, batch, dropout_key, backend)
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), batch["labels"])
        accuracy = ops.mean(ops.cast(right, "float32"))
        return ops.mean(cross_entropy(logits, batch["labels"], backend)), {"accuracy": accuracy}

    def predict(self, parameters: Any, batch: Any) -> dict[str, Any]:
        return {"logits": coreference_logits(self.representation, parameters, batch, None)}
