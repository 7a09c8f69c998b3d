from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from multiberts.finetune.features import SequenceFeatures, bucket_length, stacked_sequences
from multiberts.finetune.packing import (
    PACKING,
    Shape,
    at_packed_tokens,
    packed_batch,
    packed_shapes,
)


def features_of(lengths: list[int]) -> SequenceFeatures:
    rows = [[1000 * number + place + 1 for place in range(n)] for number, n in enumerate(lengths)]
    return stacked_sequences(rows, [max(1, n // 2) for n in lengths])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(3, 128), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(1, 3),
    st.randoms(),
)
def test_a_packed_batch_holds_every_sequence_whole(
    lengths, shard_size, most, shards, random
) -> None:
    """The rows of each shard hold its sequences, numbered from 0."""
    features = features_of(lengths)
    rows = np.array([random.randrange(len(lengths)) for _ in range(shards * shard_size)])
    shape = Shape(shard_size, max(lengths), most)
    packed = packed_batch(features, rows, (shape,), shards)
    values = np.arange(len(rows) * shape.length).reshape(len(rows), shape.length)
    stands = at_packed_tokens(values, packed, -7, shards)
    for shard in range(shards):
        own = slice(shard * shard_size, (shard + 1) * shard_size)
        batch = {name: array[own] for name, array in packed.items()}
        check_shard(features, rows[own], most, batch)
        tokens = batch["sequences"] >= 0
        expected = values[own][batch["sequences"][tokens], batch["positions"][tokens]]
        assert stands[own][tokens].tolist() == expected.tolist()
        assert (stands[own][~tokens] == -7).all()


def check_shard(features, rows, most, batch) -> None:
    batch_size = len(rows)
    shape = Shape(batch_size, features.lengths.max(), most)
    assert {values.shape for name, values in batch.items() if name not in PACKING[2:]} == {
        (shape.rows, shape.length)
    }
    found = {n: np.argwhere(batch["sequences"] == n) for n in range(batch_size)}
    for number, row in enumerate(rows):
        places = found[number]
        length = features.lengths[row]
        # One after the other in one row.
        assert (places[:, 0] == places[0, 0]).all()
        assert places[:, 1].tolist() == list(range(places[0, 1], places[0, 1] + length))
        where = tuple(places.T)
        assert batch["input_ids"][where].tolist() == features.input_ids[row, :length].tolist()
        assert batch["positions"][where].tolist() == list(range(length))
        assert batch["input_mask"][where].all()
        assert batch["segment_ids"][where].sum() == length - max(1, length // 2)
        row_of, slot = divmod(int(batch["chosen"][number]), most)
        assert [row_of, batch["firsts"][row_of, slot]] == places[0].tolist()
    padding = batch["sequences"] == -1
    assert padding.sum() == padding.size - features.lengths[rows].sum()
    assert not any(batch[name][padding].any() for name in batch if name.startswith("input_"))
    in_row = [{*row.tolist()} - {-1} for row in batch["sequences"]]
    assert max(map(len, in_row)) <= most


def test_rows_hold_a_third_less_than_what_padding_to_the_longest_costs() -> None:
    """Lengths spread as those of short texts are: many short ones and a long tail."""
    lengths = np.minimum(128, np.random.default_rng(0).lognormal(4, 0.5, 2000)).astype(int)
    features = features_of(lengths.tolist())
    small, large = packed_shapes(features, 32)
    assert small.rows < large.rows < 32
    draw = np.random.default_rng(1)
    rows_of, padded, longest = [], 0, 0
    for _ in range(200):
        rows = draw.choice(2000, 32, replace=False)
        ids = packed_batch(features, rows, (small, large))["input_ids"]
        rows_of.append(len(ids))
        padded += ids.size
        longest += 32 * bucket_length(int(features.lengths[rows].max()))
    assert {*rows_of} == {small.rows, large.rows}
    assert rows_of.count(small.rows) > 100
    assert padded < 0.67 * longest


def test_shapes_depend_on_lengths_alone_and_one_length_is_not_packed() -> None:
    lengths = [5] * 30 + [60] * 10
    assert packed_shapes(features_of(lengths), 16) == packed_shapes(features_of(lengths), 16)
    assert packed_shapes(features_of([20] * 50), 16) == ()
    assert packed_shapes(features_of(lengths), 1) == ()
    for batch_size in (7, 16):  # short sequences share rows
        small, _ = packed_shapes(features_of([5] * 90 + [60]), batch_size)
        assert small.rows < batch_size / 2


def test_a_batch_takes_the_first_shape_that_it_fits() -> None:
    features = features_of([5] * 30 + [60] * 10)
    shapes = Shape(4, 60, 3), Shape(6, 60, 3)
    few = packed_batch(features, np.arange(28, 32), shapes)
    assert few["input_ids"].shape == (4, 60)
    assert few["sequences"].max(axis=1).tolist() == [2, 3, 1, -1]
    more = packed_batch(features, np.arange(28, 34), shapes)
    assert more["input_ids"].shape == (6, 60)
    none = packed_batch(features, np.arange(30, 38), shapes)
    assert {*none} == {"input_ids", "input_mask", "segment_ids"}
    assert none["input_ids"].shape == (8, 60)
    short = packed_batch(features, np.arange(8), ())
    assert short["input_ids"].shape == (8, 16)


def test_shards_share_a_shape() -> None:
    """That of the shard which needs most rows; a batch whose shards do not all fit is not packed."""
    features = features_of([5] * 30 + [60] * 10)
    small, large = packed_shapes(features, 16, 2)
    assert small.rows < large.rows < 8
    shapes = Shape(2, 60, 3), Shape(3, 60, 3)
    rows = np.array([0, 1, 2, 3, 30, 31, 4, 5])
    assert packed_batch(features, rows, shapes, 2)["input_ids"].shape == (6, 60)
    rows[:4] = 33, 34, 35, 36
    assert packed_batch(features, rows, shapes, 2)["input_ids"].shape == (8, 60)
