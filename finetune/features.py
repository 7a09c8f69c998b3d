"""From texts to batches, padded to the bucket of their longest example."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from multiberts.bert.training.engine import ForwardPass
    from multiberts.bert.vocabulary import Vocabulary

# Batches are padded to the smallest sufficient length: few lengths, as each is compiled, yet close
# enough to waste little on padding.
BUCKET_LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)

# Compiling one more length costs about as much as evaluating this many batches.
_BATCHES_A_LENGTH = 8

_EVALUATION_BATCH_SIZE = 64

# Without compilation, larger batches bring nothing but padding.
_UNCOMPILED_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True, eq=False)
class SequenceFeatures:
    """Sequences of piece ids with special tokens; compared by identity, as a key for caches.

    Attributes:
      input_ids: int32 [sequences, longest], padded with 0.
      lengths: int32 [sequences].
      first_lengths: int32 [sequences]: tokens of segment 0, [CLS] a [SEP].
      num_cut: number of truncated sequences.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    first_lengths: np.ndarray
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.lengths)


def check_sequence_length(sequence_length: int, max_position_embeddings: int) -> None:
    """Refuses a sequence length that exceeds the model's positions."""
    if sequence_length > max_position_embeddings:
        raise UserError(
            f"sequence_length is {sequence_length}, but the checkpoint has {max_position_embeddings} "
            f"positions; give sequence_length = {max_position_embeddings} or less"
        )
    padded = bucket_length(sequence_length)
    if padded > max_position_embeddings:
        fitting = [bucket for bucket in BUCKET_LENGTHS if bucket <= max_position_embeddings]
        cure = f"give sequence_length = {fitting[-1]}" if fitting else "take a larger model"
        raise UserError(
            f"sequence_length is {sequence_length}, which is padded to {padded}, but the checkpoint has "
            f"{max_position_embeddings} positions; {cure}"
        )
    if sequence_length < 8:
        raise UserError(f"sequence_length is {sequence_length}, expected 8 or more")


def text_features(
    tokenizer: Vocabulary,
    first_texts: Sequence[str],
    second_texts: Sequence[str] | None,
    sequence_length: int,
) -> SequenceFeatures:
    """Returns [CLS] a [SEP], or [CLS] a [SEP] b [SEP], with at most `sequence_length` tokens.

    Pairs that are too long lose tokens at the end of the longer text, one at a time, on a tie of the
    second (google-research/bert, run_classifier.py).
    """
    first = tokenizer.encode_batch(list(first_texts))
    if second_texts is None:
        bodies = [ids[: sequence_length - 2] for ids in first]
        rows = [[tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in bodies]
        num_cut = sum(len(ids) > sequence_length - 2 for ids in first)
        return stacked_sequences(rows, [len(row) for row in rows], num_cut)
    rows, first_lengths, num_cut = [], [], 0
    second = tokenizer.encode_batch(list(second_texts))
    for a, b in zip(first, second, strict=True):
        length_a, length_b = truncated_lengths(len(a), len(b), sequence_length - 3)
        num_cut += (length_a, length_b) != (len(a), len(b))
        a, b = a[:length_a], b[:length_b]
        rows.append([tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id])
        first_lengths.append(length_a + 2)
    return stacked_sequences(rows, first_lengths, num_cut)


def truncated_lengths(first: int, second: int, limit: int) -> tuple[int, int]:
    """Returns the lengths after dropping tokens of the longer text (on a tie the second) until both fit."""
    excess = max(0, first + second - limit)
    # First the longer text shrinks to the other's length, then they alternate: the same result as
    # google-research/bert's `_truncate_seq_pair`, which pops token by token.
    cut = min(excess, abs(first - second))
    if first > second:
        first -= cut
    else:
        second -= cut
    shared = excess - cut
    return first - shared // 2, second - (shared + 1) // 2


def stacked_sequences(
    rows: Sequence[Sequence[int] | np.ndarray], first_lengths: Sequence[int], num_cut: int = 0
) -> SequenceFeatures:
    """Stacks rows of ids into one padded array."""
    lengths = np.array([len(row) for row in rows], np.int32)
    input_ids = np.zeros((len(rows), int(lengths.max(initial=1))), np.int32)
    for row, ids in enumerate(rows):
        input_ids[row, : len(ids)] = ids
    return SequenceFeatures(input_ids, lengths, np.array(first_lengths, np.int32), num_cut)


def bucket_length(length: int) -> int:
    """Returns the smallest sufficient bucket; the length itself beyond the last bucket."""
    return next((bucket for bucket in BUCKET_LENGTHS if bucket >= length), length)


def sequence_batch(
    features: SequenceFeatures, rows: np.ndarray, length: int | None = None
) -> dict[str, np.ndarray]:
    """Returns the encoder's inputs for some sequences, in the order of `rows`.

    Args:
      rows: numbers of the sequences, int64 [batch].
      length: length to pad to; None: the bucket of the longest sequence.

    Returns:
      `input_ids`, `input_mask`, `segment_ids`: int32 [batch, length].
    """
    lengths = features.lengths[rows]
    length = bucket_length(int(lengths.max())) if length is None else length
    input_ids = np.zeros((len(rows), length), np.int32)
    width = min(length, features.input_ids.shape[1])
    input_ids[:, :width] = features.input_ids[rows, :width]
    positions = np.arange(length)
    input_mask = positions < lengths[:, None]
    segment_ids = input_mask & (positions >= features.first_lengths[rows][:, None])
    return {
        "input_ids": input_ids,
        "input_mask": input_mask.astype(np.int32),
        "segment_ids": segment_ids.astype(np.int32),
    }


def encoder_inputs(batch: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return batch["input_ids"], batch["input_mask"], batch["segment_ids"]


def evaluation_batches(
    lengths: np.ndarray, batch_size: int, *, is_compiled: bool = True
) -> list[tuple[np.ndarray, int]]:
    """Returns batches of equal size with all rows once, rows of similar length together.

    Args:
      lengths: int32 [rows].
      is_compiled: whether each shape is compiled; if not, batches are small and not filled up.

    Returns:
      (row numbers int64 [batch_size], number of rows that count) per batch; the last batch repeats its
      last row, so that every batch has the compiled shape.
    """
    # Stable, so that batches, and the last bits of results, depend on the lengths alone.
    order = np.argsort(lengths, kind="stable")
    batches = []
    size = batch_size if is_compiled else _UNCOMPILED_BATCH_SIZE
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        filler = np.full(size - len(rows) if is_compiled else 0, rows[-1])
        batches.append((np.concatenate([rows, filler]), len(rows)))
    return batches


def evaluation_lengths(lengths: np.ndarray, batches: list[tuple[np.ndarray, int]]) -> list[int]:
    """Returns the padded length of each batch; runs of batches share one, as each length is compiled.

    Args:
      lengths: int32 [rows].
      batches: result of `evaluation_batches`, shortest rows first.
    """
    longest = [bucket_length(int(lengths[rows].max())) for rows, _ in batches]
    run = _BATCHES_A_LENGTH
    # In sorted order, the last batch of each run is the longest.
    return [longest[min(len(batches), (n // run + 1) * run) - 1] for n in range(len(batches))]


def predicted_batches(
    predictor: ForwardPass,
    parameters: Mapping[str, np.ndarray],
    features: SequenceFeatures,
    rows: np.ndarray,
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields a model's outputs for some sequences, sequences of similar length together.

    Yields:
      Positions in `rows`, int64 [batch]; and the outputs [batch, ...] by name.
    """
    lengths = features.lengths[rows]
    predictor = predictor.suited_to(parameters, int(lengths.sum()))
    is_compiled = predictor.is_compiled
    batches = evaluation_batches(lengths, _EVALUATION_BATCH_SIZE, is_compiled=is_compiled)
    padded = (
        evaluation_lengths(lengths, batches)
        if is_compiled
        else [int(lengths[indices].max()) for indices, _ in batches]
    )
    for (indices, count), length in zip(batches, padded, strict=True):
        outputs = predictor(parameters, sequence_batch(features, rows[indices], length))
        yield indices[:count], {name: values[:count] for name, values in outputs.items()}
