"""Results in words: the corrected p decides, and the metric says which way is better."""

import re

import numpy as np
import pytest
import xarray

from multiberts.report.presentation.formats import metric_label
from multiberts.report.presentation.ranking_words import ranking_notes
from multiberts.report.presentation.reported import ReportedComparison, answer
from multiberts.report.presentation.words import finding, verdict, warnings
from multiberts.stats import compare, compare_arms
from multiberts.tests.worlds import changed


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
        *sides, "accuracy", labels=labels, n_resamples=99,
    ).named("old", "new", name="new against old", evaluation_set="dev")  # fmt: skip


def with_p(item, **values):
    """Returns the result with other p-values of the recommended test."""
    return changed(item, p_values=item.p_values | {"t": item.p_values["t"]._replace(**values)})


def test_the_corrected_p_decides(comparison):
    """p .042 and Holm .34 are not clear, whatever the p alone says."""
    own = with_p(comparison, two_sided=0.042)
    assert verdict(own, 0.34) == "not clear"
    assert verdict(own, 0.049) == "better"
    assert verdict(own, 0.05) == "not clear"
    text = finding(own, 0.34)
    assert re.search("p = 0.042, .*p = 0.34 after Holm's correction", text)
    assert "rule out" not in finding(own)


def test_better_knows_which_way_the_metric_points(comparison):
    fell = changed(comparison, estimate=-0.1)
    for metric, words in {
        "accuracy": ("better", "worse"),
        "log_loss": ("worse", "better"),
        "error": ("worse", "better"),
        "bias_correlation": ("higher", "lower"),
        "slope": ("higher", "lower"),
    }.items():
        pair = changed(comparison, metric=metric), changed(fell, metric=metric)
        assert (verdict(pair[0], 0.001), verdict(pair[1], 0.001)) == words
    assert verdict(changed(comparison, estimate=0), 0.001) == "not clear"


def test_shares_are_in_per_cent_in_tables_and_from_0_to_1_in_results(comparison):
    text = str(comparison)
    assert "| accuracy (%) |" in text and f"| {100 * comparison.base.estimate:.1f} " in text
    (row,) = comparison.to_frame().to_dict("records")
    assert row["estimate"] == comparison.estimate < 1 and row["metric"] == "accuracy"
    assert f"old,{comparison.base.estimate}," in comparison.table().csv()
    assert metric_label("my_own_metric") == "my own metric"


def test_the_answer_is_one_sentence_on_the_clearest(comparison):
    other = changed(comparison, evaluation_set="test", estimate=-1.0)
    items = [
        ReportedComparison(other, 0.9, "not clear"),
        ReportedComparison(comparison, 0.002, "better"),
    ]
    text = answer(items, items[1])
    assert text.startswith("new against old, 2 comparisons: better on 1, not clear on 1;")
    assert "accuracy on dev, 9" in text and " % against " in text and " points (95 % CI " in text
    assert "p = 0.002 after correction" in text
    assert re.search(r"5 paired seeds and 40 shared examples\.$", text)
    assert text.count(". ") == 0
    lone = ReportedComparison(comparison, 0.3, "not clear")
    alone = answer([lone], lone)
    assert alone.startswith("new against old, not clear: accuracy")


def test_equal_warnings_are_equal_texts(comparison):
    few = changed(comparison, seed_floor=1 / 32, below_seed_floor=True)
    other = with_p(few, greater=1e-5)
    assert warnings(few) == warnings(other) != []
    alike = compare(np.ones((3, 40)), np.zeros((3, 40)), "accuracy", labels=np.ones(40))
    for numbers, named in ((True, True), (False, False)):
        assert ("base" in " ".join(warnings(alike, numbers)[-1:])) == named


def test_a_ranking_shows_how_often_seeds_fail():
    random, labels = np.random.default_rng(0), np.arange(400) % 2
    arms = {}
    for name in ("old", "new", "third"):
        arms[name] = np.where(random.random((5, 400)) < 0.9, labels, 1 - labels)
    arms["third"][4] = 1
    result = compare_arms(arms, "accuracy", design="unpaired", labels=labels)
    (failed,) = [text for text in ranking_notes(result) if "failed to train" in text]
    # Clopper and Pearson's limits for 1 of 5.
    assert re.search(r"1 of 5 seeds of third \(seed 4\) .*0.005 to 0.716\)\. The others", failed)
