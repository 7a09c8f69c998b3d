"""Heads on the encoder, and their losses: masked words, next sentence, classification, spans."""

from __future__ import annotations

from typing import Any

from multiberts.bert.model.addressed_dropout import TokenPositions, dropout
from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import PLAIN, BackendOps
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.encoder import (
    HEAD_SITE,
    Packing,
    Parameters,
    dense,
    encode,
    gather_tokens,
    gelu,
    layer_norm,
    pool,
    unpack_tokens,
)

Array = Any

# Added to the scores of positions after a sequence's end.
_NOT_A_TOKEN = -1e9


def masked_lm_logits(
    parameters: Parameters, config: BertConfig, sequence_output: Array, masked_lm_positions: Array
) -> Array:
    """Computes scores of every piece at the masked positions only.

    Args:
      sequence_output: float32 or bfloat16 [batch, length, hidden]; the product is of its type.
      masked_lm_positions: int32 [batch, predictions].

    Returns:
      float32 [batch, predictions, vocabulary].
    """
    return word_logits(parameters, config, gather_tokens(sequence_output, masked_lm_positions))


def word_logits(
    parameters: Parameters, config: BertConfig, states: Array, backend: BackendOps = PLAIN
) -> Array:
    """Computes scores of every piece.

    Args:
      states: float32 or bfloat16 [batch, predictions, hidden], of the last layer; the product is of its type.
      backend: operations with a version per backend.

    Returns:
      float32 [batch, predictions, vocabulary].
    """
    hidden = dense(parameters, "cls/predictions/transform/dense", states, backend)
    hidden = gelu(hidden, config.gelu)
    hidden = layer_norm(parameters, "cls/predictions/transform/LayerNorm", hidden)
    # The output weights are the word embeddings: tied.
    flat = ops.reshape(hidden, (-1, config.hidden_size))
    words = ops.cast(parameters["bert/embeddings/word_embeddings"], flat.dtype)
    logits = backend.word_scores(flat, words, parameters["cls/predictions/output_bias"])
    return ops.reshape(logits, (-1, ops.shape(states)[1], config.vocab_size))


def next_sentence_logits(parameters: Parameters, pooled: Array) -> Array:
    """Computes scores of [true next, random]; float32 [batch, 2] from the pooled [batch, hidden]."""
    weights = ops.transpose(parameters["cls/seq_relationship/output_weights"])
    return ops.matmul(pooled, weights) + parameters["cls/seq_relationship/output_bias"]


def classification_logits(
    parameters: Parameters,
    pooled: Array,
    rate: float = 0.0,
    dropout_key: Array | None = None,
    positions: TokenPositions | None = None,
) -> Array:
    """Computes scores of each label, with dropout before the projection.

    Args:
      parameters: arrays by name, among them `output_weights` [labels, hidden] and `output_bias`.
      pooled: float32 [batch, hidden]; for classification of tokens, their states [batch, length, hidden].
      rate: share of dropped elements in training.
      dropout_key: uint32 [2] in training; None for none.
      positions: positions of packed tokens, see `dropout`.

    Returns:
      float32 [batch, labels], or [batch, length, labels].
    """
    pooled = dropout(pooled, rate, dropout_key, HEAD_SITE, positions)
    return (
        ops.matmul(pooled, ops.transpose(parameters["output_weights"])) + parameters["output_bias"]
    )


def span_logits(
    parameters: Parameters,
    sequence_output: Array,
    input_mask: Array,
    packing: Packing | None = None,
) -> tuple[Array, Array]:
    """Computes scores of every token as the first and as the last token of an answer.

    Args:
      parameters: arrays by name, among them `output_weights` [2, hidden] and `output_bias`.
      sequence_output: float32 or bfloat16 [batch, length, hidden]; the product is of its type.
      input_mask: int32 [batch, length], 1 for a piece, 0 for padding.
      packing: positions of the sequences in the rows; None: one per row.

    Returns:
      float32 [batch, length] each.
    """
    weights = ops.cast(ops.transpose(parameters["output_weights"]), sequence_output.dtype)
    logits = ops.cast(ops.matmul(sequence_output, weights), "float32") + parameters["output_bias"]
    if packing is not None:
        logits, input_mask = unpack_tokens(logits, packing)
    # Batches differ in length, so positions after a sequence's end must not affect the result.
    after_end = (1.0 - ops.cast(input_mask, "float32")) * _NOT_A_TOKEN
    return logits[:, :, 0] + after_end, logits[:, :, 1] + after_end


def cross_entropy(logits: Array, labels: Array, backend: BackendOps = PLAIN) -> Array:
    """Computes minus the log probability of each label.

    Args:
      logits: float32 [..., classes].
      labels: int32 [...].
      backend: operations with a version per backend.

    Returns:
      float32 [...].
    """
    logits = ops.cast(logits, "float32")
    return ops.logsumexp(logits, axis=-1) - backend.label_values(logits, labels)


def sigmoid_cross_entropy(logits: Array, labels: Array) -> Array:
    """Computes minus the log probability of each label's presence or absence, for any number of labels.

    Args:
      logits: float32 [..., classes].
      labels: float32 [..., classes], 1 or 0.

    Returns:
      float32 [..., classes].
    """
    logits = ops.cast(logits, "float32")
    # max(x, 0) - xy + log(1 + exp(-|x|)): the same as the definition, and exp never overflows.
    return ops.maximum(logits, 0.0) - logits * labels + ops.log1p(ops.exp(-ops.abs(logits)))


def is_right(logits: Array, labels: Array, backend: BackendOps = PLAIN) -> Array:
    """Returns 1.0 if no class scores higher than the label, else 0.0.

    Cheaper than an argmax over a vocabulary, which compares positions besides values.

    Args:
      logits: float32 [..., classes].
      labels: int32 [...].
      backend: operations with a version per backend.

    Returns:
      float32 [...].
    """
    chosen = backend.label_values(logits, labels)
    return ops.cast(ops.greater_equal(chosen, ops.max(logits, axis=-1)), "float32")


def pretraining_loss(
    parameters: Parameters,
    config: BertConfig,
    batch: Parameters,
    dropout_key: Array | None,
    compute_dtype: str = "float32",
    backend: BackendOps = PLAIN,
) -> tuple[Array, dict[str, Array]]:
    """Computes masked-word plus next-sentence loss of one gradient shard.

    Args:
      batch: `input_ids`, `input_mask`, `segment_ids` int32 [batch, length];
        `masked_lm_positions`, `masked_lm_ids` int32 [batch, predictions]; `masked_lm_weights`
        float32 [batch, predictions]; `next_sentence_labels` int32 [batch].
      dropout_key: uint32 [2] in training; None for none.
      compute_dtype: `float32` or `bfloat16`, of the products; the losses are float32.
      backend: operations with a version per backend.

    Returns:
      The loss: sum(weight x cross-entropy) / (sum(weight) + 1e-5) + mean next-sentence
      cross-entropy; and scalars by name for the log.

    Reference: google-research/bert, `run_pretraining.py`; the sum runs over one replica's examples.
    """
    # The heads only use the pooler's token and the masked ones of the last layer.
    masked = batch["masked_lm_positions"]
    states = encode(
        parameters,
        config,
        batch["input_ids"],
        batch["input_mask"],
        batch["segment_ids"],
        dropout_key,
        compute_dtype,
        output_positions=ops.concatenate([ops.zeros_like(masked[:, :1]), masked], axis=1),
        backend=backend,
    )
    logits = word_logits(parameters, config, states[:, 1:], backend)
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    # The original's 1e-5: a shard without a masked token has loss 0, not 0 / 0.
    total = ops.sum(weights) + 1e-5
    masked_lm_loss = ops.sum(weights * cross_entropy(logits, labels, backend)) / total
    next_logits = next_sentence_logits(parameters, pool(parameters, states, backend))
    next_labels = batch["next_sentence_labels"]
    next_loss = ops.mean(cross_entropy(next_logits, next_labels, backend))
    return masked_lm_loss + next_loss, {
        "masked_lm_loss": masked_lm_loss,
        "masked_lm_accuracy": ops.sum(weights * is_right(logits, labels, backend)) / total,
        "next_sentence_loss": next_loss,
        "next_sentence_accuracy": ops.mean(is_right(next_logits, next_labels, backend)),
    }
