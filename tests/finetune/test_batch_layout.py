from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiberts.finetune.batch_layout import layouts, parted_batch, parts_of
from multiberts.finetune.features import SequenceFeatures, bucket_length, stacked_sequences


def features_of(lengths: list[int]) -> SequenceFeatures:
    rows = [[1000 * number + place + 1 for place in range(n)] for number, n in enumerate(lengths)]
    return stacked_sequences(rows, [max(1, n // 2) for n in lengths])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(3, 128), min_size=1, max_size=60), st.integers(1, 40), st.randoms())
def test_the_parts_hold_every_row_of_the_batch_whole(lengths, batch_size, random) -> None:
    features = features_of(lengths)
    rows = np.array([random.randrange(len(lengths)) for _ in range(batch_size)])
    batch, order = parted_batch(features, rows, layouts(features, batch_size))
    assert sorted(order.tolist()) == list(range(batch_size))
    found, places = [], []
    for (ids, mask, segments), standing in parts_of(batch):
        assert len(ids) == len(standing)
        for row in range(len(ids)):
            length = int(mask[row].sum())
            assert mask[row, :length].all() and not ids[row, length:].any()
            assert segments[row].sum() == length - max(1, length // 2)
            found.append(ids[row, :length].tolist())
        places.extend(standing.tolist())
    assert places == order.tolist()
    for place, ids in zip(places, found, strict=True):
        row = rows[place]
        assert ids == features.input_ids[row, : features.lengths[row]].tolist()


def test_two_layouts_spare_a_fifth_of_what_padding_to_the_longest_costs() -> None:
    """Lengths spread as those of short texts are: many short ones and a long tail."""
    lengths = np.minimum(128, np.random.default_rng(0).lognormal(4, 0.5, 2000)).astype(int)
    features = features_of(lengths.tolist())
    choice = layouts(features, 32)
    draw = np.random.default_rng(1)
    shapes, padded, longest = set(), 0, 0
    for _ in range(200):
        rows = draw.choice(2000, 32, replace=False)
        batch, _ = parted_batch(features, rows, choice)
        ids = [part[0] for part, _ in parts_of(batch)]
        shapes.add(tuple(part.shape for part in ids))
        padded += sum(part.size for part in ids)
        longest += 32 * bucket_length(int(features.lengths[rows].max()))
    assert len(shapes) <= 2
    assert padded < 0.8 * longest


def test_layouts_depend_on_lengths_alone_and_one_length_needs_no_parts() -> None:
    lengths = [5] * 30 + [60] * 10
    assert layouts(features_of(lengths), 16) == layouts(features_of(lengths), 16)
    usual, whole = layouts(features_of([20] * 50), 16)
    assert usual == whole == ((16, 20),)


@pytest.mark.parametrize("batch_size", [1, 7, 15])
def test_small_batches_stay_whole(batch_size: int) -> None:
    usual, whole = layouts(features_of([5] * 30 + [60] * 10), batch_size)
    assert usual == whole == ((batch_size, 60),)
