"""The BERT encoder: pure functions over a dict of arrays with the released variable names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from multiberts.bert.model.addressed_dropout import TokenPositions, dropout
from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import PLAIN, BackendOps
from multiberts.bert.model.configuration import BertConfig, Gelu

Array = Any
Parameters = Mapping[str, Array]

LAYER_NORM_EPSILON = 1e-12
# google-research/bert, `modeling.attention_layer`: -10000 has exp 0 in float32, and is finite, so rows of
# padding only do not become NaN.
_MASKED = -10000.0

# Dropout sites: 0 the embeddings, then three per layer; heads number theirs from HEAD_SITE.
_EMBEDDING_SITE = 0
HEAD_SITE = 1 << 16


class Packing(NamedTuple):
    """Several sequences packed into each row of a batch, none attending to another.

    Attributes:
      sequences: int32 [rows, length], index of each token's sequence in the batch; -1 for padding.
      positions: int32 [rows, length], position of each token in its sequence.
      firsts: int32 [rows, most], column of each sequence's first token, padded with 0.
      chosen: int32 [batch], index of each sequence in the flattened `firsts`.

    Reference: Krell et al., 2021, "Efficient sequence packing without cross-contamination".
    """

    sequences: Array
    positions: Array
    firsts: Array
    chosen: Array

    @property
    def tokens(self) -> TokenPositions:
        return TokenPositions(self.positions, self.sequences, self.positions)


def encode(
    parameters: Parameters,
    config: BertConfig,
    input_ids: Array,
    input_mask: Array,
    segment_ids: Array,
    dropout_key: Array | None = None,
    compute_dtype: str = "float32",
    first_token_only: bool = False,
    output_positions: Array | None = None,
    packing: Packing | None = None,
    backend: BackendOps = PLAIN,
) -> Array:
    """Computes the last layer's hidden states.

    With bfloat16, products are bfloat16; weights stay float32 and are rounded at each use; softmax, layer
    normalisation and dropout's scaling are float32.

    Args:
      parameters: arrays by released name (`bert/embeddings/word_embeddings`, ...), float32.
      input_ids: int32 [batch, length], pieces of the vocabulary.
      input_mask: int32 [batch, length], 1 for a piece, 0 for padding.
      segment_ids: int32 [batch, length], 0 or 1.
      dropout_key: uint32 [2] in training; None for none.
      compute_dtype: `float32` or `bfloat16`, dtype of products and of activations.
      first_token_only: whether the last layer computes only the first token, the pooler's input; the
        same up to rounding.
      output_positions: int32 [batch, count], may repeat; the last layer computes these tokens alone,
        the same up to rounding. None: all.
      packing: positions of several sequences in each row; their states equal those of separate rows up
        to rounding. None: one sequence per row.
      backend: operations with a version per backend.

    Returns:
      [batch, length, hidden] of compute_dtype, of packed rows [rows, length, hidden]; with first_token_only
      [batch, 1, hidden], with output_positions [batch, count, hidden].

    Reference: Devlin et al., 2019, section 3; Vaswani et al., 2017, section 3 (post-LN blocks).
    """
    positions, read = None, (1 if first_token_only else output_positions)
    keys = input_mask
    if packing is not None:
        positions = packing.tokens
        read, keys = (packing.firsts if first_token_only else None), packing.sequences
    run = _Pass(parameters, config, dropout_key, backend)
    hidden = _embed(run, input_ids, segment_ids, positions)
    # The embeddings were summed and normalised in float32. From here on, operations keep the dtype of their
    # inputs.
    hidden = ops.cast(hidden, compute_dtype)
    bias = _attention_bias(keys, positions)
    last = config.num_hidden_layers - 1
    for layer in range(last):
        hidden = _block(run, layer, hidden, bias, None, positions)
    if packing is not None and first_token_only:
        first_sequences = ops.take_along_axis(packing.sequences, packing.firsts, axis=1)
        positions = TokenPositions(
            ops.zeros_like(first_sequences), first_sequences, packing.positions
        )
        bias = _attention_bias(keys, positions)
    elif output_positions is not None:
        positions = TokenPositions(output_positions)
    hidden = _block(run, last, hidden, bias, read, positions)
    if packing is None or not first_token_only:
        return hidden
    return ops.take(ops.reshape(hidden, (-1, 1, config.hidden_size)), packing.chosen, axis=0)


def unpack_tokens(values: Array, packing: Packing) -> tuple[Array, Array]:
    """Copies each packed sequence to a separate row.

    Args:
      values: [rows, length, width], values of each token.

    Returns:
      [batch, length, width], arbitrary after a sequence's end; and int32 [batch, length], 1 for its tokens.
    """
    rows, length, width = ops.shape(values)
    most = ops.shape(packing.firsts)[1]
    begins = ops.take(ops.reshape(packing.firsts, (-1,)), packing.chosen)
    begins = begins + packing.chosen // most * length
    position = ops.arange(length, dtype="int32")
    indices = ops.minimum(begins[:, None] + position, rows * length - 1)
    # Valid where the gathered token has the expected offset in its own sequence.
    is_own = ops.equal(ops.take(ops.reshape(packing.positions, (-1,)), indices), position)
    unpacked = ops.take(ops.reshape(values, (-1, width)), indices, axis=0)
    return unpacked, ops.cast(is_own, "int32")


class _Pass(NamedTuple):
    """Arguments that all layers of a forward pass share."""

    parameters: Parameters
    config: BertConfig
    dropout_key: Array | None
    backend: BackendOps

    def dense(self, name: str, inputs: Array) -> Array:
        return dense(self.parameters, name, inputs, self.backend)

    def dropout(self, values: Array, site: int, positions: TokenPositions | None) -> Array:
        return dropout(values, self.config.hidden_dropout_prob, self.dropout_key, site, positions)


def _attention_bias(keys: Array, positions: TokenPositions | None) -> Array:
    """Returns the term added to scores: -10000 for masked keys, as in the original.

    Args:
      keys: int32 [batch, length], 1 for a piece; of packed rows the sequences' numbers.
      positions: positions of the queries in packed rows.

    Returns:
      float32 [batch, 1, 1, length]; of packed rows [batch, 1, queries, length].
    """
    if positions is None or positions.sequences is None:
        attended = ops.cast(keys, "float32")[:, None, None, :]
    else:
        alike = ops.equal(positions.sequences[:, :, None], keys[:, None, :])
        attended = ops.cast(alike, "float32")[:, None]
    return (1.0 - attended) * _MASKED


def gather_tokens(values: Array, positions: Array | int | None) -> Array:
    """Gathers tokens from their sequences.

    Args:
      values: [batch, length, width].
      positions: int32 [batch, count]; an integer n: the first n; None: all.

    Returns:
      [batch, count, width].
    """
    if positions is None:
        return values
    if isinstance(positions, int):
        return values[:, :positions]
    # Whole rows of one matrix: the gradient then adds rows, not single numbers.
    batch, length, width = ops.shape(values)
    first = ops.arange(batch, dtype="int32")[:, None] * length
    return ops.take(ops.reshape(values, (-1, width)), positions + first, axis=0)


def pool(parameters: Parameters, sequence_output: Array, backend: BackendOps = PLAIN) -> Array:
    """Pools the first token: dense and tanh.

    Args:
      sequence_output: float32 or bfloat16 [batch, length, hidden].
      backend: operations with a version per backend.

    Returns:
      float32 [batch, hidden].
    """
    first = dense(parameters, "bert/pooler/dense", sequence_output[:, 0], backend)
    return ops.tanh(ops.cast(first, "float32"))


def dense(parameters: Parameters, name: str, inputs: Array, backend: BackendOps) -> Array:
    """Computes inputs @ `<name>/kernel` + `<name>/bias`, in the inputs' type."""
    kernel, bias = (
        ops.cast(parameters[f"{name}/{part}"], inputs.dtype) for part in ("kernel", "bias")
    )
    return backend.dense(inputs, kernel, bias)


def layer_norm(parameters: Parameters, name: str, inputs: Array) -> Array:
    """Normalises the last axis in float32 with `<name>/gamma` and `<name>/beta`; keeps the type."""
    dtype = inputs.dtype
    inputs = ops.cast(inputs, "float32")
    mean = ops.mean(inputs, axis=-1, keepdims=True)
    centred = inputs - mean
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + LAYER_NORM_EPSILON) * parameters[f"{name}/gamma"]
    return ops.cast(centred * scale + parameters[f"{name}/beta"], dtype)


def gelu(inputs: Array, form: Gelu = "tanh") -> Array:
    """Applies GELU: x times the normal CDF of x, or its tanh approximation (the original code's)."""
    return ops.gelu(inputs, approximate=form == "tanh")


def _embed(
    run: _Pass, input_ids: Array, segment_ids: Array, positions: TokenPositions | None
) -> Array:
    prefix, parameters = "bert/embeddings", run.parameters
    words = run.backend.look_up_words(parameters[f"{prefix}/word_embeddings"], input_ids)
    # Two types at most: a product with one-hot rows has a cheaper gradient than a gather.
    types = ops.one_hot(segment_ids, run.config.type_vocab_size, dtype="float32")
    types = ops.matmul(types, parameters[f"{prefix}/token_type_embeddings"])
    position_embeddings = parameters[f"{prefix}/position_embeddings"][: ops.shape(input_ids)[1]]
    if positions is not None:
        position_embeddings = ops.take(position_embeddings, positions.in_sequence, axis=0)
    hidden = layer_norm(parameters, f"{prefix}/LayerNorm", words + types + position_embeddings)
    return run.dropout(hidden, _EMBEDDING_SITE, positions)


def _block(
    run: _Pass,
    layer: int,
    hidden: Array,
    attention_bias: Array,
    read: Array | int | None,
    positions: TokenPositions | None,
) -> Array:
    """Computes LN(x + dropout(attention)), then LN(x + dropout(feed-forward)), for the tokens `read`."""
    name = f"bert/encoder/layer_{layer}"
    # Each layer has three dropouts: the attention probabilities, and both outputs before their residuals.
    site = 1 + 3 * layer
    queries = gather_tokens(hidden, read)
    attended = _attend(run, name, queries, hidden, attention_bias, site, positions)
    hidden = queries
    attended = run.dense(f"{name}/attention/output/dense", attended)
    attended = run.dropout(attended, site + 1, positions)
    hidden = layer_norm(run.parameters, f"{name}/attention/output/LayerNorm", hidden + attended)
    transformed = gelu(run.dense(f"{name}/intermediate/dense", hidden), run.config.gelu)
    transformed = run.dense(f"{name}/output/dense", transformed)
    transformed = run.dropout(transformed, site + 2, positions)
    return layer_norm(run.parameters, f"{name}/output/LayerNorm", hidden + transformed)


def _attend(
    run: _Pass,
    name: str,
    queries: Array,
    hidden: Array,
    attention_bias: Array,
    site: int,
    positions: TokenPositions | None,
) -> Array:
    """Computes multi-head self-attention without its output projection; [batch, queries, hidden]."""
    batch, config = ops.shape(hidden)[0], run.config
    heads = config.num_attention_heads
    size = config.hidden_size // heads

    def split(part: str, inputs: Array) -> Array:  # [batch, heads, length, size]
        projected = run.dense(f"{name}/attention/self/{part}", inputs)
        shape = (batch, ops.shape(inputs)[1], heads, size)
        return ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))

    query, key, value = split("query", queries), split("key", hidden), split("value", hidden)
    rate = config.attention_probs_dropout_prob
    mixed = run.backend.attention(
        query, key, value, attention_bias, rate, run.dropout_key, site, positions
    )
    shape = (batch, ops.shape(queries)[1], config.hidden_size)
    return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), shape)
