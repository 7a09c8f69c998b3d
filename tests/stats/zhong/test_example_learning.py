"""When examples are learned, and forgotten: by hand, and in a world where each has a time of its own."""

from __future__ import annotations

import numpy as np
import pytest

from multiberts import stats
from multiberts.stats.errors import DataError


def test_one_run_by_hand() -> None:
    right = np.array([[[1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0]]], bool)
    found = stats.zhong.learning([0, 5, 9], right)
    assert found.learned_step().tolist() == [0.0, np.inf, 9.0, np.inf]
    assert found.forgotten.tolist() == [[0, 0, 1, 1]]
    assert found.confidence == pytest.approx([1, 0, 2 / 3, 1 / 3])
    assert found.variability == pytest.approx([0, 0, np.sqrt(2) / 3, np.sqrt(2) / 3])


def test_the_order_of_learning_is_that_of_the_world() -> None:
    """Frequent examples are learned first; of four seeds two are a step late and one two steps."""
    steps = np.arange(12)
    due = np.array([1, 3, 5, 8])  # by falling frequency
    late = np.array([0, 1, 1, 2])  # of the seeds
    right = steps[None, :, None] >= due[None, None] + late[:, None, None]
    losses = np.where(right, 0.1, 3.0)
    found = stats.zhong.learning(steps.tolist(), right, losses)
    assert found.learned_step(0.25).tolist() == due.tolist()
    assert found.learned_step(0.5).tolist() == (due + 1).tolist()
    assert found.learned_step(1.0).tolist() == (due + 2).tolist()
    assert (np.diff(found.confidence) < 0).all() and not found.forgotten.any()
    assert found.share_learned.tolist() == [1.0] * 4
    always = stats.zhong.learning(steps.tolist(), np.ones_like(right), np.full(right.shape, 0.1))
    assert always.confidence == pytest.approx([np.exp(-0.1)] * 4)
    assert always.variability == pytest.approx([0] * 4, abs=1e-15)


@pytest.mark.parametrize(
    ("steps", "shape", "losses", "reason"),
    [
        ([0], (2, 1, 3), None, "expected two or more, increasing"),
        ([5, 5], (2, 2, 3), None, "expected two or more, increasing"),
        ([0, 5], (2, 3, 3), None, "found answers of shape"),
        ([0, 5], (2, 2, 3), np.zeros((2, 2, 1)), "found losses of shape"),
        ([0, 5], (2, 2, 3), np.full((2, 2, 3), np.nan), "expected numbers of shape"),
    ],
)
def test_what_is_no_training_is_refused(
    steps: list[int], shape: tuple[int, ...], losses: np.ndarray | None, reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        stats.zhong.learning(steps, np.ones(shape, bool), losses)


def test_guesses_count_as_learned_as_often_as_coins_fall() -> None:
    for seeds, known in ((1, 1 / 2), (2, 3 / 4), (3, 1 / 2), (4, 11 / 16)):
        found = stats.zhong.learning([0, 1], np.ones((seeds, 2, 1), bool))
        assert found.learned_by_guesses(0.5) == pytest.approx(known)
    random = np.random.default_rng(0)
    guessed = stats.zhong.learning([0, 1], random.random((5, 2, 20_000)) < 1 / 3)
    learned = np.isfinite(guessed.learned_step(0.5)).mean()
    assert guessed.learned_by_guesses(1 / 3) == pytest.approx(learned, abs=0.01)
