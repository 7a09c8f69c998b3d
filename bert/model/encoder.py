"""The BERT encoder: pure functions over a dict of arrays with the released variable names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras import ops

from multiberts.bert.model.addressed_dropout import Standing, dropout
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.ways import chosen_ways

Array = Any
Parameters = Mapping[str, Array]

LAYER_NORM_EPSILON = 1e-12
_MASKED = -10000.0

# Dropout sites: 0 the embeddings, then three per layer; heads number theirs from HEAD_SITE.
_EMBEDDING_SITE = 0
HEAD_SITE = 1 << 16


class Packing(NamedTuple):
    """Which sequences lie in the rows of a batch, one after the other, none attending to another.

    Attributes:
      sequences: int32 [rows, length], the number of each token's sequence in the batch; -1 for padding.
      positions: int32 [rows, length], of each token in its sequence.
      firsts: int32 [rows, most], where the sequences of a row begin; 0 where there are fewer.
      chosen: int32 [batch], for each sequence where it is among all `firsts`.

    Reference: Krell et al., 2021, "Efficient sequence packing without cross-contamination".
    """

    sequences: Array
    positions: Array
    firsts: Array
    chosen: Array


def encode(
    parameters: Parameters,
    config: BertConfig,
    input_ids: Array,
    input_mask: Array,
    segment_ids: Array,
    dropout_key: Array | None = None,
    compute_dtype: str = "float32",
    first_token_only: bool = False,
    places: Array | None = None,
    packing: Packing | None = None,
) -> Array:
    """Computes the last layer's hidden states.

    With bfloat16, products are of bfloat16; weights stay float32 and are rounded where they are
    used, and softmax, layer normalisation and dropout's scaling are float32.

    Args:
      parameters: arrays by released name (`bert/embeddings/word_embeddings`, ...), float32.
      config: the model's sizes.
      input_ids: int32 [batch, length], pieces of the vocabulary.
      input_mask: int32 [batch, length], 1 for a piece, 0 for padding.
      segment_ids: int32 [batch, length], 0 or 1.
      dropout_key: uint32 [2] in training; None for none.
      compute_dtype: `float32` or `bfloat16`, of products and of what passes between them.
      first_token_only: whether the last layer computes the first token alone, which is all that the
        pooler reads; it is the same up to rounding.
      places: int32 [batch, count], tokens that are all that is read of the last layer, any of them several
        times; it computes no others, and is the same up to rounding. None: all.
      packing: where several sequences lie in each row of the inputs; then the last layer computes their
        first tokens alone, which have the states of rows of their own, up to rounding. None: one in each.

    Returns:
      [batch, length, hidden] of compute_dtype; with first_token_only or packing [batch, 1, hidden], with
      places [batch, count, hidden].

    Reference: Devlin et al., 2019, section 3; Vaswani et al., 2017, section 3 (post-LN blocks).
    """
    standing, read = None, (1 if first_token_only else places)
    of_keys = input_mask
    if packing is not None:
        standing = Standing(packing.positions, packing.sequences, packing.positions)
        read, of_keys = packing.firsts, packing.sequences
    hidden = _embed(parameters, config, input_ids, segment_ids, dropout_key, standing)
    # From here on, everything follows the type of what it is given.
    hidden = ops.cast(hidden, compute_dtype)
    bias = _attention_bias(of_keys, standing)
    last = config.num_hidden_layers - 1
    for layer in range(last):
        hidden = _block(parameters, config, layer, hidden, bias, dropout_key, None, standing)
    if packing is not None:
        of_firsts = ops.take_along_axis(packing.sequences, packing.firsts, axis=1)
        standing = Standing(ops.zeros_like(of_firsts), of_firsts, packing.positions)
        bias = _attention_bias(of_keys, standing)
    elif places is not None:
        standing = Standing(places)
    hidden = _block(parameters, config, last, hidden, bias, dropout_key, read, standing)
    if packing is None:
        return hidden
    return ops.take(ops.reshape(hidden, (-1, 1, config.hidden_size)), packing.chosen, axis=0)


def _attention_bias(of_keys: Array, standing: Standing | None) -> Array:
    """Returns what is added to scores: masked keys get -10000 before the softmax, as in the original.

    Args:
      of_keys: int32 [batch, length], 1 for a piece; of packed rows the sequences' numbers.
      standing: of the queries, in packed rows.

    Returns:
      float32 [batch, 1, 1, length]; of packed rows [batch, 1, queries, length].
    """
    if standing is None or standing.sequences is None:
        keys = ops.cast(of_keys, "float32")[:, None, None, :]
    else:
        alike = ops.equal(standing.sequences[:, :, None], of_keys[:, None, :])
        keys = ops.cast(alike, "float32")[:, None]
    return (1.0 - keys) * _MASKED


def taken(values: Array, places: Array | int | None) -> Array:
    """Takes tokens from their sequences.

    Args:
      values: [batch, length, width].
      places: int32 [batch, count]; an integer: so many first ones; None: all.

    Returns:
      [batch, count, width].
    """
    if places is None:
        return values
    if isinstance(places, int):
        return values[:, :places]
    # Whole rows of one matrix: the gradient then adds rows, not single numbers.
    batch, length, width = ops.shape(values)
    first = ops.arange(batch, dtype="int32")[:, None] * length
    return ops.take(ops.reshape(values, (-1, width)), places + first, axis=0)


def pool(parameters: Parameters, sequence_output: Array) -> Array:
    """Pools the first token: dense and tanh.

    Args:
      parameters: arrays by released name.
      sequence_output: float32 or bfloat16 [batch, length, hidden].

    Returns:
      float32 [batch, hidden].
    """
    first = dense(parameters, "bert/pooler/dense", sequence_output[:, 0])
    return ops.tanh(ops.cast(first, "float32"))


def dense(parameters: Parameters, name: str, inputs: Array) -> Array:
    """Computes inputs @ `<name>/kernel` + `<name>/bias`, of the inputs' type."""
    kernel, bias = (
        ops.cast(parameters[f"{name}/{part}"], inputs.dtype) for part in ("kernel", "bias")
    )
    return chosen_ways().products.dense(inputs, kernel, bias)


def layer_norm(parameters: Parameters, name: str, inputs: Array) -> Array:
    """Normalises the last axis in float32 with `<name>/gamma` and `<name>/beta`; of the inputs' type."""
    given = inputs.dtype
    inputs = ops.cast(inputs, "float32")
    mean = ops.mean(inputs, axis=-1, keepdims=True)
    centred = inputs - mean
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + LAYER_NORM_EPSILON) * parameters[f"{name}/gamma"]
    return ops.cast(centred * scale + parameters[f"{name}/beta"], given)


def gelu(inputs: Array) -> Array:
    """Applies the tanh form of GELU, as in the original code."""
    return ops.gelu(inputs, approximate=True)


def _embed(
    parameters: Parameters,
    config: BertConfig,
    input_ids: Array,
    segment_ids: Array,
    dropout_key: Array | None,
    standing: Standing | None,
) -> Array:
    prefix = "bert/embeddings"
    words = ops.take(parameters[f"{prefix}/word_embeddings"], input_ids, axis=0)
    # Two types at most: a product with one-hot rows has a cheaper gradient than a gather.
    types = ops.one_hot(segment_ids, config.type_vocab_size, dtype="float32")
    types = ops.matmul(types, parameters[f"{prefix}/token_type_embeddings"])
    positions = parameters[f"{prefix}/position_embeddings"][: ops.shape(input_ids)[1]]
    if standing is not None:
        positions = ops.take(positions, standing.positions, axis=0)
    hidden = layer_norm(parameters, f"{prefix}/LayerNorm", words + types + positions)
    return dropout(hidden, config.hidden_dropout_prob, dropout_key, _EMBEDDING_SITE, standing)


def _block(
    parameters: Parameters,
    config: BertConfig,
    layer: int,
    hidden: Array,
    attention_bias: Array,
    dropout_key: Array | None,
    read: Array | int | None,
    standing: Standing | None,
) -> Array:
    """Computes LN(x + dropout(attention)), then LN(x + dropout(feed-forward)), of tokens that are read."""
    name = f"bert/encoder/layer_{layer}"
    site = 1 + 3 * layer
    asking = taken(hidden, read)
    attended = _attend(
        parameters, config, name, asking, hidden, attention_bias, dropout_key, site, standing
    )
    hidden = asking
    attended = dense(parameters, f"{name}/attention/output/dense", attended)
    attended = dropout(attended, config.hidden_dropout_prob, dropout_key, site + 1, standing)
    hidden = layer_norm(parameters, f"{name}/attention/output/LayerNorm", hidden + attended)
    transformed = gelu(dense(parameters, f"{name}/intermediate/dense", hidden))
    transformed = dense(parameters, f"{name}/output/dense", transformed)
    transformed = dropout(transformed, config.hidden_dropout_prob, dropout_key, site + 2, standing)
    return layer_norm(parameters, f"{name}/output/LayerNorm", hidden + transformed)


def _attend(
    parameters: Parameters,
    config: BertConfig,
    name: str,
    asking: Array,
    hidden: Array,
    attention_bias: Array,
    dropout_key: Array | None,
    site: int,
    standing: Standing | None,
) -> Array:
    """Computes multi-head self-attention without its output projection; [batch, queries, hidden]."""
    batch = ops.shape(hidden)[0]
    heads = config.num_attention_heads
    size = config.hidden_size // heads

    def split(part: str, inputs: Array) -> Array:  # [batch, heads, length, size]
        projected = dense(parameters, f"{name}/attention/self/{part}", inputs)
        shape = (batch, ops.shape(inputs)[1], heads, size)
        return ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))

    query, key, value = split("query", asking), split("key", hidden), split("value", hidden)
    rate = config.attention_probs_dropout_prob
    mixed = chosen_ways().attention(
        query, key, value, attention_bias, rate, dropout_key, site, standing
    )
    shape = (batch, ops.shape(asking)[1], config.hidden_size)
    return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), shape)
