"""Tables of runs: order, means over unbalanced trees, and what is refused."""

import numpy as np
import pytest

from multiberts.papers.zhong.ensembles import aligned, as_runs
from multiberts.stats.runs_table import make_arm, make_runs


def test_every_seed_counts_the_same_in_an_unbalanced_tree():
    runs = make_runs([[1.0], [0.0], [0.5], [0.2]], [(0, 0), (0, 1), (0, 2), (7, 0)])
    assert runs.mean() == pytest.approx([(0.5 + 0.2) / 2])
    deep = make_runs(
        [[1.0], [0.0], [0.0], [1.0]], [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)]
    )
    assert deep.mean() == pytest.approx([((0.5 + 0) / 2 + 1) / 2])
    assert deep.averaged(2).keys == (("a", 0), ("a", 1), ("b", 0))


def test_runs_are_put_in_order_of_their_keys():
    random = np.random.default_rng(0)
    scores = random.random((6, 4))
    keys = [(seed, run) for seed in range(3) for run in range(2)]
    order = random.permutation(6)
    shuffled = make_runs(scores[order], [keys[place] for place in order])
    assert shuffled.keys == tuple(keys)
    np.testing.assert_array_equal(shuffled.predictions, scores)


def test_cells_that_are_nan_throughout_are_runs_that_were_not_made():
    scores = np.arange(24, dtype=float).reshape(3, 2, 4)
    scores[1, 1] = np.nan
    runs = as_runs(scores)
    assert runs.keys == ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1))
    assert runs.levels == ("pretrain_seed", "finetune_seed")


def test_examples_are_matched_by_id():
    first = make_runs([[0, 1, 1]], [0], example_ids=["a", "b", "c"])
    second = make_runs([[5, 6, 7]], [0], example_ids=["c", "a", "b"])
    np.testing.assert_array_equal(aligned(first, second)[1].predictions, [[6, 7, 5]])
    unknown = make_runs([[0, 1, 1]], [0])
    assert len(aligned(unknown, unknown)) == len(aligned(first, first)) == 2


def test_an_arm_is_averaged_as_any_table_of_runs():
    """The weights of the bootstrap are those of the instance-level analyses."""
    keys = [("b", 0, 0), ("a", 0, 0), ("a", 1, 0), ("a", 0, 1), ("b", 0, 1)]
    scores = np.random.default_rng(0).random((5, 6))
    arm = make_arm(
        "arm", scores, np.zeros(6), [key[0] for key in keys],
        inner_levels=[key[1:] for key in keys],
    )  # fmt: skip
    table = make_runs(scores, keys)
    assert arm.seeds == table.seeds == ("a", "b")
    np.testing.assert_allclose(arm.seed_weights.T @ scores, table.averaged(1).predictions)
    expected = [((scores[1] + scores[3]) / 2 + scores[2]) / 2, (scores[0] + scores[4]) / 2]
    np.testing.assert_allclose(table.averaged(1).predictions, expected)


def test_runs_that_nothing_tells_apart_count_alike():
    arm = make_arm("arm", [[1.0], [0.0], [0.5]], [0], [3, 3, 4])
    np.testing.assert_array_equal(arm.seed_weights, [[0.5, 0], [0.5, 0], [0, 1]])
