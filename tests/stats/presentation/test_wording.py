"""Results in words: the corrected p decides, and the metric says which way is better."""

import dataclasses

import numpy as np
import pytest
import xarray

from multiberts.stats import compare, compare_arms
from multiberts.stats.intervals import Interval
from multiberts.stats.presentation.metric_names import as_shown, higher_is_better, metric_label
from multiberts.stats.presentation.ranking_words import notes
from multiberts.stats.presentation.wording import answer, finding, verdict, warnings


@pytest.fixture(scope="module")
def comparison():
    """Five paired seeds of 40 examples; the experiment is right more often."""
    random = np.random.default_rng(0)
    coordinates = {"pretrain_seed": range(5), "example": range(40)}
    sides = [
        xarray.DataArray((random.random((5, 40)) < chance).astype(int), coordinates)
        for chance in (0.4, 0.9)
    ]
    labels = xarray.DataArray(np.ones(40, int), {"example": range(40)})
    return compare(
        *sides, "accuracy", labels=labels, num_bootstrap=99, name="new against old",
        evaluation_set="dev", base_name="old", experiment_name="new",
    )  # fmt: skip


def test_the_corrected_p_decides(comparison):
    """p .042 and Holm .34 are not clear, whatever the p alone says."""
    own = dataclasses.replace(comparison, p_t=comparison.p_t._replace(two_sided=0.042))
    assert verdict(own, 0.34, True) == "not clear"
    assert verdict(own, 0.049, True) == "better"
    assert verdict(own, 0.05, True) == "not clear"
    text = finding(own, 0.34)
    assert "may be due to chance" in text and "unlikely" not in text
    assert "p = 0.042 (two-sided t test), p = 0.34 after Holm's correction" in text
    assert "unlikely to be due to chance" in finding(own)


def test_better_knows_which_way_the_metric_points(comparison):
    fell = dataclasses.replace(comparison, estimate=-0.1)
    for metric, words in {
        "accuracy": ("better", "worse"),
        "log_loss": ("worse", "better"),
        "error": ("worse", "better"),
        "bias_correlation": ("higher", "lower"),
        "slope": ("higher", "lower"),
    }.items():
        better = higher_is_better(metric)
        assert (verdict(comparison, 0.001, better), verdict(fell, 0.001, better)) == words
    assert verdict(dataclasses.replace(comparison, estimate=0), 0.001, True) == "not clear"


def test_shares_are_shown_in_per_cent(comparison):
    shown = as_shown(comparison)
    for answer_of in ("detectable_difference", "error_of_twice_the_seeds"):
        number = getattr(comparison.answers, answer_of)
        assert getattr(shown.answers, answer_of) == pytest.approx(100 * number)
    assert shown.answers.opposite_chance == pytest.approx(comparison.answers.opposite_chance)
    assert shown.base.standard_error == 100 * comparison.base.standard_error
    assert shown.metric == "accuracy (%)"
    assert shown.estimate == pytest.approx(100 * comparison.estimate)
    assert shown.base.estimate == pytest.approx(100 * comparison.base.estimate)
    for kind in ("t", "percentile", "basic", "bca", "studentised"):
        assert tuple(getattr(shown, kind)) == pytest.approx(
            [100 * end for end in getattr(comparison, kind)]
        )
    for before, after in (
        (comparison, shown), (comparison.base, shown.base), (comparison.experiment, shown.experiment)
    ):  # fmt: skip
        intervals = [
            field.name
            for field in dataclasses.fields(before)
            if isinstance(getattr(before, field.name), Interval)
        ]
        assert {"t", "percentile"} <= set(intervals)
        for name in intervals:
            ends = [100 * end for end in getattr(before, name)]
            assert tuple(getattr(after, name)) == pytest.approx(ends)
    np.testing.assert_allclose(shown.samples, 100 * comparison.samples)
    np.testing.assert_allclose(
        shown.experiment.seed_scores, 100 * comparison.experiment.seed_scores
    )
    for same in ("p_t", "p_sign_flip", "effect", "degrees_of_freedom"):
        assert getattr(shown, same) == getattr(comparison, same)
    other = as_shown(dataclasses.replace(comparison, metric="bias_slope"))
    assert (other.metric, other.estimate) == ("bias slope", comparison.estimate)
    assert metric_label("my_own_metric") == "my own metric"


def test_the_answer_is_one_sentence_on_the_clearest(comparison):
    shown = as_shown(comparison)
    other = dataclasses.replace(shown, evaluation_set="test", estimate=-1.0)
    text = answer([other, shown], [0.9, 0.002], ["not clear", "better"])
    assert text.startswith(
        "new against old, 2 comparisons: better on 1, not clear on 1; the clearest"
    )
    assert "accuracy (%) on dev" in text and "p = 0.002 after correction" in text
    assert text.endswith("from 5 paired seeds (5 and 5 runs) and 40 shared examples.")
    assert text.count(". ") == 0
    alone = answer([shown], [0.3], ["not clear"])
    assert alone.startswith("new against old, not clear: accuracy (%) on dev, ")


def test_sides_that_never_differ_have_a_warning():
    scores = np.random.default_rng(0).random((3, 40))
    (warning,) = warnings(compare(scores, scores))
    assert "Nothing varies" in warning


def test_equal_warnings_are_equal_texts(comparison):
    few = dataclasses.replace(comparison, seed_floor=1 / 32, below_seed_floor=True)
    other = dataclasses.replace(few, p_t=few.p_t._replace(greater=1e-5))
    assert warnings(few) != warnings(other)
    assert warnings(few, numbers=False) == warnings(other, numbers=False)
    assert "1/32" in warnings(few, numbers=False)[0]


def test_arms_whose_answers_are_alike_have_one_warning():
    always = np.ones((3, 40), int)
    item = compare(always, 1 - always, "accuracy", labels=always[0])
    (alike,) = [text for text in warnings(item) if "alike" in text]
    assert alike.startswith("All answers of base and of experiment are alike")
    (alike,) = [text for text in warnings(item, numbers=False) if "alike" in text]
    assert alike.startswith("All answers of an arm are alike")


def test_a_ranking_shows_how_often_seeds_fail():
    random, labels = np.random.default_rng(0), np.arange(400) % 2
    arms = {}
    for name in ("old", "new", "third"):
        arms[name] = np.where(random.random((5, 400)) < 0.9, labels, 1 - labels)
    arms["third"][4] = 1
    result = compare_arms(arms, "accuracy", labels=labels)
    (failed,) = [text for text in notes(result) if "failed to train" in text]
    # Clopper and Pearson's limits for 1 of 5.
    assert (
        "Seeds of third that may have failed to train: 4 (95% CI of the rate 0.0051 to 0.716)"
        in failed
    )
