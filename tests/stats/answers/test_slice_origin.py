"""Slices that were made from one arm's answers are told from those that were not."""

import numpy as np
import pytest

from multiberts import stats

LABELS = np.ones(400, int)


def arms(key, num_seeds, difficulty=0.0, difference=0.0):
    """Two arms [seeds, examples] of answers, right where a logit of difficulty and luck says so."""
    random = np.random.default_rng([key, num_seeds])
    examples = 1.5 + difficulty + 2 * random.normal(size=400)
    logits = examples + np.array([0.0, 1.0])[:, None] * difference
    return [
        (random.random((num_seeds, 400)) < 1 / (1 + np.exp(-logit))).astype(int) for logit in logits
    ]


def sliced(base, experiment, by, metric="accuracy"):
    how = {"labels": LABELS, "n_resamples": 39} if base.shape[0] > 1 else {
        "labels": LABELS, "n_resamples": 39, "resample": "examples"
    }  # fmt: skip
    return stats.slices(stats.compare(base, experiment, metric, **how), by)


MADE = {
    "own majority": lambda base: np.where(base.mean(axis=0) > 0.5, "easy", "hard"),
    "one run": lambda base: np.where(base[0] == 1, "easy", "hard"),
    "seeds disagree": lambda base: np.where(np.ptp(base, axis=0) > 0, "disagree", "agree"),
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("behind", [0, 1])
def test_slices_made_from_an_arms_answers_are_named(kind, behind):
    both = arms(1, 5)
    found = sliced(*both, by=MADE[kind](both[behind]))
    assert found.made_from == ("base", "experiment")[behind]
    text = str(found)
    assert f"go with the answers of {found.made_from}" in text
    assert "regression to the mean" in text


def test_scores_without_labels_are_answers_too():
    base, experiment = (table.astype(float) for table in arms(2, 5))
    slices = MADE["own majority"](base)
    found = stats.slices(stats.compare(base, experiment, n_resamples=39), slices)
    assert found.made_from == "base"


@pytest.mark.parametrize("num_seeds", [1, 5, 10])
@pytest.mark.parametrize("difference", [0.0, 1.5])
def test_slices_of_what_is_known_before_are_not(num_seeds, difference):
    """Hard and easy by four logits, also where the experiment is better on the hard ones alone."""
    for key in range(10):
        hard = np.random.default_rng(key).random(400) < 0.5
        both = arms(key, num_seeds, np.where(hard, -2, 2), difference * hard)
        found = sliced(*both, by=np.where(hard, "hard", "easy"))
        assert not found.made_from, key
    answers_of_a_third = arms(99, 5)[0]
    both = arms(3, 5)
    assert not sliced(*both, by=MADE["own majority"](answers_of_a_third)).made_from
