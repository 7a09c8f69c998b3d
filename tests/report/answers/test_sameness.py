"""Sameness within a margin: two one-sided tests on the recommended interval, in words and in plans."""

import json
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.special import ndtri

from multiberts import stats
from multiberts.report.compare_command import compare_files
from multiberts.report.presentation.methods_paragraph import methods
from multiberts.stats.errors import DataError

FEW = {"n_resamples": 40}


def answers(accuracies, num_seeds=5, num_examples=1000, key=0):
    """0/1 answers [arms, seeds, examples] of arms with seeds of their own and common examples."""
    random = np.random.default_rng([key, num_seeds])
    examples = random.normal(size=num_examples)
    return [
        (
            random.normal(size=(num_seeds, num_examples))
            < ndtri(accuracy) * math.sqrt(2.0025)
            + examples
            + random.normal(0, 0.05, (num_seeds, 1))
        ).astype(int)
        for accuracy in accuracies
    ]


def compare(accuracies, metric="accuracy", **options):
    arms = answers(accuracies, key=options.pop("key", 0))
    labels = np.ones(arms[0].shape[1], int)
    return stats.compare(*arms, metric, labels=labels, **{**FEW, **options})


def same(accuracies, margin, **options):
    return stats.same(compare(accuracies, **options), margin)


@pytest.mark.parametrize("design", ["paired", "unpaired", "fixed_baseline"])
@pytest.mark.parametrize("accuracies", [(0.7, 0.7), (0.7, 0.72), (0.985, 0.98), (0.72, 0.7)])
def test_arms_are_the_same_where_the_recommended_interval_lies_within_the_margin(
    accuracies, design
):
    """At .05 that is the 90 % interval, plain or near a bound, and each p agrees with its own end."""
    for margin in (0.5, 1.5, 3.0, 6.0):
        found = same(accuracies, margin, design=design)
        low, high = compare(accuracies, design=design, confidence_level=0.9).ci
        assert tuple(found.ci) == pytest.approx((low, high), abs=1e-12)
        assert found.margin == pytest.approx(margin / 100)
        assert (found.p_lower < 0.05) == found.not_worse == (low > -found.margin)
        assert (found.p_upper < 0.05) == (high < found.margin)
        assert found.same == (-found.margin < low and high < found.margin)


def test_of_seeds_alone_it_is_scipys_one_sided_t():
    differences = np.array([0.010, -0.004, 0.006, 0.002, 0.003])
    base = np.repeat([[0.0], [0.1], [0.2], [0.3], [0.4]], 6, axis=1)
    result = stats.compare(
        base, base + differences[:, None], "mae", labels=np.zeros(6), resample="seeds", **FEW
    )
    found = stats.same(result, 0.01)
    for p, null, side in ((found.p_lower, -0.01, "greater"), (found.p_upper, 0.01, "less")):
        expected = scipy.stats.ttest_1samp(differences, null, alternative=side).pvalue
        assert p == pytest.approx(expected, rel=1e-9)
    assert found.p_not_worse == found.p_upper  # of an error, less is better


def test_the_margin_is_in_the_unit_that_is_printed():
    shares = [table.astype(float) for table in answers((0.7, 0.7))]
    in_shares = stats.same(stats.compare(*shares, **FEW), 2.0)  # 0 and 1 are answers, too
    assert same((0.7, 0.7), 2.0) == in_shares


def test_a_mean_of_tasks_has_one_too():
    base, experiment = (table.astype(float) for table in answers((0.7, 0.7)))
    tasks = {name: stats.TaskData(base, experiment) for name in ("first", "second")}
    family = stats.compare_tasks(tasks, **FEW)
    found = stats.same(family.macro_average, 5)  # points, as of its tasks
    assert found.margin == 0.05 and found.ci.level == pytest.approx(0.9)
    with pytest.raises(DataError, match="mean of tasks"):
        stats.slices(family.macro_average, np.arange(1000) % 2)
    assert stats.slices(family.comparisons["first"], np.arange(1000) % 2).slices[0].ci


def test_a_result_that_was_pickled_has_no_further_answers():
    result = compare((0.7, 0.7))
    again = pickle.loads(pickle.dumps(result))
    assert again == result and str(again) == str(result)
    with pytest.raises(DataError, match="compare the arms again"):
        stats.same(again, 1)


def test_what_would_show_it_is_said_and_methods_name_the_test():
    """What is shown is said in sentences.csv: `margin of 5 points`."""
    unclear = same((0.7, 0.7), 0.5)
    assert re.search("More of both seeds and examples .*not worse by 0.5 points", str(unclear))
    needed = (
        r"About \d+ seeds \(80 % range \d+ to \d+\) would show that experiment is not worse by 1 "
    )
    assert re.search(needed, str(same((0.7, 0.7), 1)))
    text = methods([unclear.comparison], answers=[unclear])
    assert "two one-sided tests at 0.05 (Schuirmann," in text and "Journal of Pharm" in text
    assert "Sameness" not in compare((0.7, 0.7)).methods()
    assert unclear.to_dict()["p_not_worse"] == unclear.p_lower


def test_nothing_is_claimed_where_a_seed_may_have_failed():
    """Of ten seeds at .9 one is at chance: worse by 4 points, which a margin of 20 would allow."""
    random, labels = np.random.default_rng(4), np.arange(500) % 2
    right = random.random((2, 10, 500)) < 0.9
    right[1, 3] = random.random(500) < 0.5
    arms = np.where(right, labels, 1 - labels)
    options = {"labels": labels, "design": "unpaired", **FEW}
    found = stats.same(stats.compare(*arms, "accuracy", **options), 20)
    assert found.p_not_worse < 0.01 and found.p_same < 0.01
    assert not found.not_worse and not found.same
    assert found.to_dict()["refused"] is True
    assert re.search("is not claimed .*seed 3 of experiment may have failed", str(found))
    assert not found.more_needed()
    # Of these very models, on new examples, it holds; and of the arms without that seed.
    assert stats.same(stats.compare(*arms, "accuracy", resample="examples", **options), 20).same
    others = stats.compare(arms[0], np.delete(arms[1], 3, axis=0), "accuracy", **options)
    assert stats.same(others, 20).same


def test_a_plan_holds_in_simulated_studies():
    """Equals are shown not to be worse as often as planned, from components that are known."""
    parts = stats.VarianceComponents(seed=1.0, example=0.0, residual=0.0)
    random, trials, number = np.random.default_rng(0), 2000, 6
    plan = parts.plan(num_seeds=number, sides=1)
    differences = random.normal(0, 1, (trials, number))
    margin = plan.minimum_detectable_effect()
    p_values = scipy.stats.ttest_1samp(differences, -margin, axis=1, alternative="greater").pvalue
    assert np.mean(p_values < 0.05) == pytest.approx(0.8, abs=0.03)
    answer = same((0.7, 0.7), 1.0)
    ours = answer.plan()
    assert (ours.sides, ours.effect) == (1, pytest.approx(0.01))
    assert ours.at(int(ours.number_needed("seeds"))).power() >= 0.8
    assert answer.plan(true_difference=0.005).effect == pytest.approx(0.015)


def test_the_command_corrects_for_the_number_of_arms(tmp_path):
    frames = [
        pd.DataFrame({"model": name, "seed": seed, "id": range(1000), "correct": row})
        for name, table in zip("abc", answers((0.7, 0.7, 0.7)), strict=True)
        for seed, row in enumerate(table)
    ]
    path, page = tmp_path / "arms.csv", tmp_path / "page.html"
    pd.concat(frames).to_csv(path, index=False)
    first, second = json.loads(compare_files(results=str(path), base="a", margin=10, json=True))
    own = sorted(item["sameness"]["p_not_worse"] for item in (first, second))
    holm = sorted(item["sameness"]["p_not_worse_holm"] for item in (first, second))
    assert holm == pytest.approx([2 * own[0], max(2 * own[0], own[1])])
    text = compare_files(results=str(path), base="a", margin=10, html=str(page))
    for shown in (text, page.read_text()):
        assert "the same within 10 points" in shown and "after Holm" in shown
