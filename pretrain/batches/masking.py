"""A batch is a pure function of the instance table, the seeds and the step.

Rows are numbered across batches: row r of step s is position `s * batch_size + r`. An epoch is one pass
over the table in its own order, a keyed permutation. So there is no shuffled copy and no reading position,
any worker can make any batch, and a killed run resumes where it stopped.

Masks belong to the instance (they repeat from epoch to epoch, as the original's do, where `dupe_factor`
copies differ) or, with `fresh_masks`, to the position (they never repeat).

Reference: Devlin et al., NAACL 2019, section 3.1 and appendix A.1.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from multiberts.bert.randomness import below, hash_bits, permuted_index, uniform
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus.instances import NUM_SPECIAL_TOKENS, InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore

# Devlin et al. (2019), section 3.1: 80 % [MASK], 10 % as they are, 10 % any word piece.
_MASK_SHARE = 0.8
_KEEP_SHARE = 0.1

# Positions of an epoch that are permuted together: fewer calls from Python.
_POSITIONS_AT_ONCE = 4096

# The low bits of a token's random score are its position in the sequence. Scores of a row are therefore
# distinct, so exactly the requested number is chosen.
_POSITION_MASK = np.uint64(2**16 - 1)
# Larger than any score, so that all other positions sort last.
_NO_CANDIDATE = np.uint64(2**64 - 1)
_NO_HALF = np.uint32(2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Settings for making a sequence with masked tokens from an instance.

    Attributes:
      sequence_length: tokens in a sequence; no shorter than the instances were made for.
      masked_lm_probability: share of tokens to predict.
      whole_word_masks: whether to mask all pieces of a word together, as the original's option.
    """

    sequence_length: int
    max_predictions_per_sequence: int
    masked_lm_probability: float = 0.15
    whole_word_masks: bool = False

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        return cls(**{field.name: parameters[field.name] for field in fields(cls)})


def pretraining_batch(
    store: TokenStore,
    table: InstanceTable,
    masking: Masking,
    *,
    vocabulary: Vocabulary,
    data_seed: int,
    step: int,
    batch_size: int,
    fresh_masks: bool,
    instance_seed: int,
    num_steps: int = 1,
    mask_seed: int | None = None,
) -> dict[str, np.ndarray]:
    """Makes the batch of one or several consecutive steps, with the original's feature names.

    Args:
      data_seed: seed of the order of the examples (and of fresh masks).
      step: number of the first step, from 0.
      fresh_masks: whether masks are drawn per position (never repeated) instead of per instance.
      num_steps: number of steps; batch below is num_steps x batch_size.
      mask_seed: seed of the masks; None: the default seed.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` int32 [batch, length]; `masked_lm_positions`,
      `masked_lm_ids` int32 [batch, predictions] and `masked_lm_weights` float32 [batch,
      predictions], sorted by position and padded with 0; `next_sentence_labels` int32 [batch],
      1 where B is random.
    """
    position = step * batch_size + np.arange(num_steps * batch_size)  # [batch]
    instance = instance_order(position, len(table), data_seed)  # [batch]
    mask_key = (
        ("fresh masks", data_seed if mask_seed is None else mask_seed, position[:, None])
        if fresh_masks
        else ("masks", instance_seed if mask_seed is None else mask_seed, instance[:, None])
    )
    return masked_features(store, table.rows[instance], mask_key, masking, vocabulary)


def masked_features(
    store: TokenStore,
    rows: np.ndarray,
    mask_key: tuple[str | int | np.ndarray, ...],
    masking: Masking,
    vocabulary: Vocabulary,
) -> dict[str, np.ndarray]:
    """Makes the features of some instances.

    Args:
      rows: instances, structured array [batch].
      mask_key: address of their masks; arrays in it are [batch, 1].

    Returns:
      As `pretraining_batch`.
    """
    rows = np.asarray(rows)  # slicing a memory-mapped array is slower
    input_ids, segment_ids, is_text, length = _assemble(
        store, rows, vocabulary, masking.sequence_length
    )
    input_mask = np.arange(masking.sequence_length, dtype=np.int32) < length[:, None]
    most = masking.max_predictions_per_sequence
    count = number_of_predictions(length, masking.masked_lm_probability)
    # In the original's order: the share of all tokens (special ones too), then the cap. Only very short
    # sequences have fewer tokens that may be masked.
    count = np.minimum(np.minimum(count, most), length - NUM_SPECIAL_TOKENS)
    choice = (is_text, count, most, mask_key)
    if masking.whole_word_masks:
        # The first piece of A or B starts a word, even a continuation: its word was cut there.
        continues = _continues_word(vocabulary)[input_ids] & is_text
        continues[:, 1:] &= is_text[:, :-1]
        positions, weights = _choose_words(*choice, continues)
    else:
        positions, weights = _choose_positions(*choice)
    masked_lm_ids = _replace_chosen(input_ids, positions, weights, vocabulary, mask_key)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask.astype(np.int32),
        "segment_ids": segment_ids,
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": masked_lm_ids,
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": rows["is_random_next"].astype(np.int32),
    }


def instance_order(position: np.ndarray, num_instances: int, data_seed: int) -> np.ndarray:
    """Returns the index of the instance at each position of the training order.

    Args:
      position: int64, any shape; each epoch (`position // num_instances`) has its own order.
    """
    number = position // _POSITIONS_AT_ONCE
    instances = np.empty(position.shape, np.int64)
    for block in np.unique(number):
        block_order = _instances_from(int(block) * _POSITIONS_AT_ONCE, num_instances, data_seed)
        instances[number == block] = block_order[position[number == block] % _POSITIONS_AT_ONCE]
    return instances


@functools.lru_cache(maxsize=64)
def _instances_from(first: int, num_instances: int, data_seed: int) -> np.ndarray:
    """Returns the instances at `_POSITIONS_AT_ONCE` positions from the first, int64."""
    position = first + np.arange(_POSITIONS_AT_ONCE)
    epoch = position // num_instances
    return permuted_index(position % num_instances, num_instances, "order", data_seed, epoch)


def number_of_predictions(length: np.ndarray, masked_lm_probability: float) -> np.ndarray:
    """Returns the number of tokens of a sequence to predict, before the cap.

    Args:
      length: tokens with the special ones, any shape.
      masked_lm_probability: share of tokens to predict.
    """
    # rint rounds halves to even, as Python's round does in the original.
    return np.maximum(1, np.rint(length * masked_lm_probability).astype(np.int64))


def _assemble(
    store: TokenStore, rows: np.ndarray, vocabulary: Vocabulary, sequence_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Joins [CLS] A [SEP] B [SEP].

    Returns:
      Ids and segments int32 [batch, length]; tokens that are neither special nor padding, bool [batch,
      length]; true lengths int32 [batch].
    """
    a_length = rows["a_length"].astype(np.int32)[:, None]  # [batch, 1]
    b_length = rows["b_length"].astype(np.int32)[:, None]
    length = a_length + b_length + NUM_SPECIAL_TOKENS
    if length.max() > sequence_length:
        raise ValueError(
            f"an instance has {length.max()} tokens, more than sequence_length {sequence_length}"
        )
    positions = np.arange(sequence_length, dtype=np.int32)
    in_b = positions > a_length + 1  # and the last [SEP], and padding
    is_text = positions < length - 1
    # Outside A and B a neighbouring token is read and overwritten below.
    source = np.where(in_b, rows["b_start"][:, None] - a_length - 2, rows["a_start"][:, None] - 1)
    source += positions
    # `take` releases the GIL.
    input_ids = (
        np.asarray(store.tokens).take(source, mode="clip").astype(np.int32)
    )  # [batch, length]
    input_ids *= is_text
    segment_ids = (in_b & is_text).astype(np.int32)
    batch = np.arange(len(rows))
    last = length[:, 0] - 1
    segment_ids[batch, last] = 1
    input_ids[:, 0] = vocabulary.cls_id
    is_text[:, 0] = False
    input_ids[batch, a_length[:, 0] + 1] = vocabulary.sep_id
    is_text[batch, a_length[:, 0] + 1] = False
    input_ids[batch, last] = vocabulary.sep_id
    return input_ids, segment_ids, is_text, length[:, 0]


def _choose_positions(
    is_text: np.ndarray,
    count: np.ndarray,
    max_predictions: int,
    mask_key: tuple[str | int | np.ndarray, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the tokens to predict.

    Args:
      is_text: bool [batch, length], the tokens to choose from.
      count: int64 [batch], how many to choose.
      max_predictions: width of the outputs.

    Returns:
      Positions int64 (sorted, padded with 0) and weights bool, [batch, predictions].
    """
    # The `count` lowest random scores of a row are a uniform sample of its candidates.
    chosen = _lowest(is_text, _draws(is_text, mask_key), count)
    weights = np.arange(max_predictions) < count[:, None]
    positions = np.zeros(weights.shape, np.int64)
    # Flat arrays: flat indices are several times as fast as pairs.
    row_starts = np.arange(len(chosen)) * chosen.shape[1]  # in the flat array
    positions[weights] = np.flatnonzero(chosen) - np.repeat(row_starts, count)
    return positions, weights


def _lowest(candidates: np.ndarray, bits: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns which candidates have the `count` lowest scores of their row, bool [batch, length].

    Compares the upper 32 bits of the scores, which is faster; falls back to all bits on a tie where the
    draw ends.
    """
    halves = np.where(candidates, (bits >> np.uint64(32)).astype(np.uint32), _NO_HALF)
    chosen: np.ndarray = halves <= _at(np.sort(halves, axis=1), count)
    unclear = np.flatnonzero(np.count_nonzero(chosen, axis=1) != count)
    if unclear.size:
        scores = _scores(candidates[unclear], bits[unclear])
        chosen[unclear] = scores <= _at(np.sort(scores, axis=1), count[unclear])
        chosen[count == 0] = False
    return chosen


def _at(in_order: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns the last of the first `count` of each row, [batch, 1]; of none the first."""
    return np.asarray(in_order[np.arange(len(count)), np.maximum(count, 1) - 1])[:, None]


def _draws(candidates: np.ndarray, mask_key: tuple[str | int | np.ndarray, ...]) -> np.ndarray:
    return hash_bits("choice", *mask_key, np.arange(candidates.shape[1], dtype=np.uint64))


def _scores(candidates: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Returns scores of the candidates, with positions in the low bits; `_NO_CANDIDATE` elsewhere."""
    positions = np.arange(candidates.shape[1], dtype=np.uint64)
    return np.where(candidates, bits & ~_POSITION_MASK | positions, _NO_CANDIDATE)


@functools.lru_cache(maxsize=2)
def _continues_word(vocabulary: Vocabulary) -> np.ndarray:
    return np.array([piece.startswith("##") for piece in vocabulary.pieces])


def _choose_words(
    is_text: np.ndarray,
    count: np.ndarray,
    max_predictions: int,
    mask_key: tuple[str | int | np.ndarray, ...],
    continues: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses as `_choose_positions` does, but all pieces of a word or none.

    As in the original, words are taken in random order while they fit into the number to predict; a word
    that is too long is skipped. `continues` is bool [batch, length], true for pieces that continue a word.
    """
    batch_size, sequence_length = is_text.shape
    starts = is_text & ~continues
    scores = np.sort(_scores(starts, _draws(starts, mask_key)), axis=1)
    is_word = scores != _NO_CANDIDATE
    words = np.where(is_word, scores & _POSITION_MASK, 0).astype(np.int64)  # first positions
    sizes = np.take_along_axis(_sizes_of_words(continues), words, axis=1)
    taken = _taken_in_turn(np.where(is_word, sizes, sequence_length), count)
    chosen = np.zeros((batch_size, sequence_length), bool)
    row, column = np.nonzero(taken)
    chosen[row, words[row, column]] = True
    # Choose the following pieces of a chosen word too.
    first = np.maximum.accumulate(np.where(starts, np.arange(sequence_length), 0), axis=1)
    chosen = is_text & np.take_along_axis(chosen, first, axis=1)
    positions = np.zeros((batch_size, max_predictions), np.int64)
    row, position = np.nonzero(chosen)
    number = (np.cumsum(chosen, axis=1) - 1)[row, position]
    positions[row, number] = position
    weights = np.arange(max_predictions) < chosen.sum(axis=1)[:, None]
    return positions, weights


def _sizes_of_words(continues: np.ndarray) -> np.ndarray:
    """Counts the pieces of the word that starts at each position, int64 [batch, length]."""
    batch_size, sequence_length = continues.shape
    positions = np.arange(sequence_length)
    # A word ends before the next position that does not continue it.
    opens = np.where(continues, sequence_length, positions)
    opens = np.minimum.accumulate(opens[:, ::-1], axis=1)[:, ::-1]
    end = np.full((batch_size, 1), sequence_length)
    return np.concatenate([opens[:, 1:], end], axis=1) - positions


def _taken_in_turn(sizes: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns the words taken in order while they still fit into `count`, bool [batch, words]."""
    taken = np.zeros(sizes.shape, bool)
    left = count.copy()
    for rank in range(sizes.shape[1]):
        taken[:, rank] = sizes[:, rank] <= left
        left -= np.where(taken[:, rank], sizes[:, rank], 0)
        if not left.any():
            break
    return taken


def _replace_chosen(
    input_ids: np.ndarray,
    positions: np.ndarray,
    weights: np.ndarray,
    vocabulary: Vocabulary,
    mask_key: tuple[str | int | np.ndarray, ...],
) -> np.ndarray:
    """Puts [MASK] (80 %), the same (10 %) or any id of the vocabulary (10 %) at chosen positions.

    Returns:
      The original ids, int32 [batch, predictions], padded with 0.
    """
    action = uniform(hash_bits("action", *mask_key, positions))  # [batch, P]
    # Includes special tokens, because the original draws from its whole vocabulary.
    any_id = below(hash_bits("replacement", *mask_key, positions), vocabulary.size)
    row_starts = np.arange(len(input_ids)) * input_ids.shape[1]
    flat, indices = input_ids.reshape(-1), positions + row_starts[:, None]
    old = flat.take(indices)
    new = np.where(
        action < _MASK_SHARE,
        vocabulary.mask_id,
        np.where(action < _MASK_SHARE + _KEEP_SHARE, old, any_id),
    )
    # Padded entries point to position 0 and rewrite [CLS] there.
    flat[indices.reshape(-1)] = np.where(weights, new, old).reshape(-1)
    return np.asarray(old * weights)
