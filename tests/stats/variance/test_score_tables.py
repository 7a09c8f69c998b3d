"""Tables in blocks: the same answers whatever the blocks are, and little memory."""

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from multiberts.stats.errors import DataError
from multiberts.stats.variance.score_tables import (
    ScoreTable,
    aligned_blocks,
    clustered_table,
    deviations,
    score_table,
    summed_table,
)
from multiberts.tests.stats.crossings import crossing_of_tables


def in_blocks(values, width):
    starts = range(0, values.shape[1], width)
    return ScoreTable(values.shape, lambda: (values[:, start : start + width] for start in starts))


@pytest.mark.parametrize("block_size", [1, 7, 100, 1000])
def test_results_do_not_depend_on_the_blocks(block_size):
    random = np.random.default_rng(0)
    base, experiment = random.normal(5, 1, size=(4, 100)), random.normal(5, 1, size=(6, 100))
    first, second = in_blocks(base, block_size), in_blocks(experiment, 13)
    for of_blocks, of_arrays in (([first], [base]), ([first, second], [base, experiment])):
        blocks, whole = map(crossing_of_tables, (of_blocks, of_arrays))
        exact = whole.bootstrap_variance()
        assert blocks.bootstrap_variance() == pytest.approx(exact, rel=1e-12)
        found, expected = blocks.unbiased_variance(), whole.unbiased_variance()
        assert found.variance == pytest.approx(expected.variance, rel=1e-12)
        assert found.degrees_of_freedom == pytest.approx(expected.degrees_of_freedom, rel=1e-12)


def test_difference_of_tables_with_other_blocks():
    random = np.random.default_rng(1)
    base, experiment = random.normal(size=(2, 3, 50))
    table = summed_table([in_blocks(base, 7), in_blocks(experiment, 11)], [-1.0, 1.0])
    blocks = list(table.blocks())
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), experiment - base)
    assert table.shape == (3, 50)
    pairs = aligned_blocks(in_blocks(base, 7), in_blocks(base, 11))
    widths = [first.shape[1] for first, _ in pairs]
    assert sum(widths) == 50 and max(widths) <= 7
    with pytest.raises(DataError, match="3 examples and experiment 4"):
        list(aligned_blocks(score_table(base[:, :3]), score_table(base[:, :4])))


def test_an_array_is_cut_into_blocks_that_make_it_up():
    values = np.arange(3 * 2**18).reshape(3, -1)
    blocks = list(score_table(values).blocks())
    assert len(blocks) > 2 and {block.dtype for block in blocks} == {np.dtype(np.float64)}
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), values)


def test_parts_and_their_sums():
    table = np.random.default_rng(2).normal(size=(5, 30)) + 1000
    parts = deviations(table)
    residual = table - parts.mean - parts.seed[:, None] - parts.example
    assert parts.mean == pytest.approx(table.mean(), rel=1e-14)
    for sums in (parts.seed, parts.example, residual.sum(axis=0), residual.sum(axis=1)):
        assert abs(sums.sum()) < 1e-9
    assert parts.residual_squares == pytest.approx((residual**2).sum(), rel=1e-10)


def test_no_digits_are_lost_beside_a_large_mean():
    table = np.random.default_rng(3).integers(-8, 9, size=(4, 64)) / 16  # exact after the shift too
    shifted = crossing_of_tables([table + 2**30]).unbiased_variance()
    assert shifted.variance == pytest.approx(
        crossing_of_tables([table]).unbiased_variance().variance, rel=1e-8
    )


def test_a_constant_table_has_exactly_no_spread():
    for value in (0.1, 1 / 3, 0.7):
        assert crossing_of_tables([np.full((7, 1001), value)]).unbiased_variance().variance == 0
        assert deviations(np.full((7, 1001), value)).residual_squares == 0
        assert deviations(np.full((7, 1001), value)).mean == value


def test_unequal_clusters_are_the_linear_part_of_the_ratio():
    """Against the ratio itself under counts of clusters that hardly differ from one."""
    random = np.random.default_rng(5)
    table = random.normal(3, 1, size=(3, 40))
    clusters = random.integers(0, 6, size=40)
    result = clustered_table(in_blocks(table, 7), clusters)
    np.testing.assert_allclose(result.mean(axis=1), table.mean(axis=1), rtol=1e-12)
    names = np.unique(clusters)
    shift = 1e-5 * random.normal(size=len(names))

    def ratio(weights: np.ndarray) -> np.ndarray:
        of_examples = weights[np.searchsorted(names, clusters)]
        return table @ of_examples / of_examples.sum()

    change = (ratio(1 + shift) - ratio(1 - shift)) / 2
    linear = (result - result.mean(axis=1, keepdims=True)) @ shift / len(names)
    np.testing.assert_allclose(change, linear, rtol=1e-6, atol=1e-12)


def test_a_million_examples_take_little_memory():
    """25 seeds by 1,000,000 examples, 25 MB as bytes and 200 MB as floats."""

    source = np.random.default_rng(7).integers(0, 2, size=(25, 1_000_000), dtype=np.uint8)

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, source.shape[1], 20_000):
            yield source[:, start : start + 20_000].astype(np.float64)

    table = ScoreTable(source.shape, blocks)
    tracemalloc.start()
    both = crossing_of_tables([table]).unbiased_variance()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6  # a few floats an example and a few blocks
    seeds = crossing_of_tables([table], "seeds").unbiased_variance().variance
    assert seeds == pytest.approx(source.mean(axis=1).var(ddof=1) / 25, rel=1e-9)
    assert both.variance >= seeds
