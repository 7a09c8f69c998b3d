from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.features import (
    BUCKET_LENGTHS,
    bucket_length,
    check_sequence_length,
    evaluation_batches,
    evaluation_lengths,
    sequence_batch,
    stacked_sequences,
    text_features,
    truncated_lengths,
)
from multiberts.runs.errors import UserError


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 80))
def test_truncation_takes_one_token_at_a_time_from_the_longer(a: int, b: int, limit: int) -> None:
    kept_a, kept_b = a, b
    while kept_a + kept_b > limit:
        if kept_a > kept_b:
            kept_a -= 1
        else:
            kept_b -= 1
    assert truncated_lengths(a, b, limit) == (kept_a, kept_b)


def test_transformers_cuts_pairs_in_the_same_way_but_where_the_card_says_so() -> None:
    """An odd token goes to the second text there, if that is as long or longer; all lengths are tried."""
    transformers = pytest.importorskip("transformers")
    pieces = [*SPECIAL_TOKENS, "a", "b"]
    library = transformers.BertTokenizerFast(vocab={piece: n for n, piece in enumerate(pieces)})
    for limit, a, b in itertools.product(range(4, 12), range(1, 12), range(1, 12)):
        found = library("a " * a, "b " * b, truncation="longest_first", max_length=limit + 3)
        theirs = tuple(found["input_ids"].count(pieces.index(piece)) for piece in "ab")
        ours = truncated_lengths(a, b, limit)
        is_odd_one_theirs = limit % 2 == 1 and b >= a > limit // 2
        assert (ours[0] - is_odd_one_theirs, ours[1] + is_odd_one_theirs) == theirs, (limit, a, b)


def test_pairs_have_both_separators_and_two_segments(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    features = text_features(tokenizer, ["the sun"] * 2, ["it is red.", "red " * 20], 16)
    assert features.num_cut == 1
    assert text_features(tokenizer, ["sun " * 14, "sun " * 15], None, 16).num_cut == 1
    batch = sequence_batch(features, np.array([0]))
    pieces = [tokenizer.pieces[number] for number in batch["input_ids"][0]]
    assert pieces[:9] == ["[CLS]", "the", "sun", "[SEP]", "it", "is", "red", ".", "[SEP]"]
    assert set(pieces[9:]) == {"[PAD]"}
    assert batch["segment_ids"][0].tolist() == [0] * 4 + [1] * 5 + [0] * 7
    assert batch["input_mask"][0].tolist() == [1] * 9 + [0] * 7


def test_batches_take_the_smallest_bucket_and_keep_the_order(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    texts = ["red", "red " * 14, "red " * 15, "red " * 60]
    features = text_features(tokenizer, texts, None, 40)
    assert features.lengths.tolist() == [3, 16, 17, 40]
    for rows, length in (([0, 1], 16), ([2, 0], 32), ([3], 48), ([1, 3, 0], 48)):
        batch = sequence_batch(features, np.array(rows))
        assert batch["input_ids"].shape == (len(rows), length)
        assert batch["input_mask"].sum(axis=1).tolist() == features.lengths[rows].tolist()


def test_buckets_hold_every_length() -> None:
    for length in range(1, 600):
        bucket = bucket_length(length)
        assert bucket >= length
        assert not any(length <= smaller < bucket for smaller in BUCKET_LENGTHS)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 9))
def test_evaluation_batches_cover_each_row_once(lengths: list[int], batch_size: int) -> None:
    batches = evaluation_batches(np.array(lengths), batch_size)
    assert all(len(rows) == batch_size for rows, _ in batches)
    covered = np.concatenate([rows[:count] for rows, count in batches])
    assert sorted(covered.tolist()) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 4))
def test_evaluation_compiles_few_lengths_that_hold_their_batches(
    lengths: list[int], batch_size: int
) -> None:
    features = stacked_sequences([[1] * length for length in lengths], lengths)
    batches = evaluation_batches(features.lengths, batch_size)
    padded = evaluation_lengths(features.lengths, batches)
    for (rows, _), length in zip(batches, padded, strict=True):
        assert features.lengths[rows].max() <= length <= bucket_length(max(lengths))
    assert len(set(padded)) <= 1 + len(batches) // 8


def test_more_tokens_than_positions_are_refused() -> None:
    check_sequence_length(64, 64)
    with pytest.raises(
        UserError, match="sequence_length is 65, but the checkpoint has 64 positions"
    ):
        check_sequence_length(65, 64)
    # What is padded to a bucket must have positions too.
    with pytest.raises(
        UserError, match="padded to 128, .* 100 positions; give sequence_length = 96"
    ):
        check_sequence_length(100, 100)


def test_stacking_keeps_rows_of_any_length() -> None:
    features = stacked_sequences([[5, 6], [7], [8, 9, 10]], [2, 1, 3])
    assert features.input_ids.tolist() == [[5, 6, 0], [7, 0, 0], [8, 9, 10]]
