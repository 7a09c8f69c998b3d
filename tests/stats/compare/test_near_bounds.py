"""Intervals of bounded scores: near their ends, of paired differences, and where nothing varies."""

import itertools

import numpy as np
import pytest
import xarray
from scipy.special import ndtri

from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats import compare, compare_arms
from multiberts.stats.interval_rule import clopper_pearson_interval, t_interval
from multiberts.tests.stats.crossings import crossing_of_tables

FEW = {"n_resamples": 40}


def study(random, num_seeds, num_examples, accuracy, common, lead=0.0):
    """Right answers of two sides [seeds, examples] whose seeds have most effects in common."""
    seeds = common * random.normal(size=(num_seeds, 1)) + random.normal(size=num_examples)
    shape = num_seeds, num_examples
    return [
        random.normal(size=shape) < ndtri(accuracy) * np.sqrt(2 + common**2) + seeds + side * lead
        for side in (0, 1)
    ]


def by_labels(base, experiment, **options):
    labels = np.arange(base.shape[1]) % 2
    sides = [np.where(right, labels, 1 - labels) for right in (base, experiment)]
    return compare(*sides, "accuracy", labels=labels, **options, **FEW)


def plain_t(base, experiment):
    table = 1.0 * experiment - base
    found = crossing_of_tables([table]).unbiased_variance()
    freedom = found.cautious_degrees_of_freedom
    return t_interval(table.mean(), found.variance**0.5, freedom, 0.95)


def test_what_all_seeds_have_in_common_does_not_widen_a_paired_difference():
    random = np.random.default_rng(0)
    base = random.random((5, 2000)) < np.array([0.60, 0.71, 0.77, 0.85, 0.93])[:, None]
    experiment = base.copy()
    for right in experiment:
        right[random.choice(np.flatnonzero(~right), 60, replace=False)] = True
    found = by_labels(base, experiment)
    assert found.estimate == pytest.approx(0.03)
    assert 0.024 < found.ci.low < found.ci.high < 0.036 and found.p_value < 1e-4
    arms = compare_arms({"base": base, "experiment": experiment}, n_resamples=40)
    assert arms.differences[0].ci == pytest.approx(found.ci)


def studies(number):
    random = np.random.default_rng(5)
    for trial in range(number):
        size, seeds = int(random.integers(40, 800)), int(random.integers(2, 9))
        accuracy = (0.6, 0.78, 0.95, 0.99, 0.999)[trial % 5]
        spread, lead = random.choice([0.1, 0.5, 1.2]), random.choice([0.0, 0.3])
        yield study(random, seeds, size, accuracy, spread, lead)


def test_a_paired_interval_is_close_to_the_plain_one_where_thirty_examples_differ():
    many = 0
    for base, experiment in studies(80):
        if (base != experiment).any(axis=0).sum() >= 30:
            many += 1
            found, plain = by_labels(base, experiment).ci, plain_t(base, experiment)
            assert found.high - found.low <= 1.5 * (plain.high - plain.low)
    assert many > 40


def same_everywhere(metric):
    """Labels, and answers with which all seeds score alike: all right, all wrong, one class, mixed.

    A correlation of one class is 0/0, which is refused.
    """
    uses = METRICS[metric].uses
    labels = np.arange(20) % 2
    mixed = np.random.default_rng(3).integers(0, 2, 20)
    if uses == "scores":
        right = np.eye(2)[labels]
        tables = right, 1 - right, 0 * right + 0.5, 0.1 + 0.8 * np.eye(2)[mixed]
        return labels, [np.stack([table] * 3) for table in tables]
    if uses == "text":
        texts = np.array(["B-LOC", "O"]) if metric == "span_f1" else np.array(["joy", "fear"])
        answers = [texts[labels], texts[1 - labels], texts[0 * labels], texts[mixed]]
        return texts[labels], [np.stack([answer] * 3) for answer in answers]
    answers = [labels, 1 - labels, mixed, 0 * labels + 1]
    if metric in ("matthews", "pearson", "spearman"):
        answers.pop()
    if uses == "positive_score":
        answers = [0.9 * answer for answer in answers]
    return labels, [np.stack([answer] * 3) for answer in answers]


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_no_metric_gives_an_interval_of_one_point_with_a_p_value(metric):
    if metric.startswith("top_"):
        pytest.skip("needs more classes than two")
    labels, answers = same_everywhere(metric)
    given = {"labels": labels} if METRICS[metric].uses_labels else {}
    ways = itertools.cycle(itertools.product(("paired", "unpaired"), ("both", "seeds")))
    # Each with itself and with the next in one of the four ways, another one in the next metric.
    ways = itertools.islice(ways, sorted(METRICS).index(metric) % 4, None)
    sides = [*zip(answers, answers, strict=True), *itertools.pairwise([*answers, answers[0]])]
    for base, experiment in sides:
        design, resample = next(ways)
        found = compare(base, experiment, metric, design=design, resample=resample, **given, **FEW)
        assert found.ci.low < found.ci.high, (design, resample, found.estimate)
        assert found.base.ci.low < found.base.ci.high
        for interval in found.intervals.values():
            assert interval.method == "percentile" or interval.low < interval.high


@pytest.mark.parametrize(
    ("metric", "units"),
    [("recall", 6), ("precision", 6), ("f1", 6), ("f1_macro", 12), ("auc", 6), ("matthews", 12)],
)
def test_a_perfect_score_rests_on_the_examples_that_it_counts(metric, units):
    labels = np.arange(200) < 6
    right = np.tile(1.0 * labels, (5, 1))
    found = compare(right, None, metric, design="single", labels=1 * labels, **FEW)
    low = clopper_pearson_interval(units, units, 0.95).low
    bounds = METRICS[metric].bounds
    assert found.ci == pytest.approx((1 - (bounds[1] - bounds[0]) * (1 - low), 1))


def test_a_recall_of_zero_leaves_room_for_that_of_few_positives():
    labels = np.arange(200) < 6
    none = np.zeros((5, 200), int)
    none[:, -1] = 1
    found = compare(none, None, "recall", design="single", labels=1 * labels, **FEW)
    assert found.ci == pytest.approx((0, 1 - 0.025 ** (1 / 6)))
    found = compare(none, None, "f1", design="single", labels=1 * labels, **FEW)
    share = 1 - 0.025 ** (1 / 7)  # of seven examples that either side calls positive
    assert found.ci.high >= 2 * share / (1 + share)


@pytest.mark.parametrize("metric", ["recall", "f1", "matthews"])
def test_scores_of_few_positives_cover(metric):
    """Of 200 examples 10 are positive; with the plain t recall covers .82, with 6 of them .62."""
    random, labels = np.random.default_rng(3), np.arange(200) < 10
    truth = {"recall": 0.95, "f1": 0.8891, "matthews": 0.8848}[metric]
    scale, covered, trials = np.sqrt(2 + 0.2**2), 0, 80
    cut = np.where(labels, ndtri(0.95), ndtri(0.99)) * scale
    for _ in range(trials):
        latent = 0.2 * random.normal(size=(5, 1)) + random.normal(size=200)
        right = latent + random.normal(size=(5, 200)) + cut > 0
        answers = np.where(right, labels, ~labels).astype(int)
        found = compare(answers, None, metric, design="single", labels=1 * labels, **FEW)
        covered += found.ci.low <= truth <= found.ci.high
    assert covered / trials >= 0.93


def test_unpaired_seeds_that_are_alike_are_pooled():
    random = np.random.default_rng(2)
    seeds = np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 5.0]])[..., None]
    base, experiment = seeds + 0.01 * random.normal(size=(2, 3, 50))
    found = compare(base, experiment, design="unpaired", **FEW)
    assert found.pooled_seeds and 3.9 < found.df < 4.1
    apart = compare(base, 30 * experiment, design="unpaired", **FEW)
    assert not apart.pooled_seeds and 1.9 < apart.df < 2.1
    assert not compare(base, experiment, **FEW).pooled_seeds


def test_scores_without_labels_have_the_bounds_of_the_metric_they_are_named_after():
    random = np.random.default_rng(1)
    scores = xarray.DataArray(
        1 - 0.03 * random.random((3, 30)) * (random.random((3, 30)) < 0.1),
        {"pretrain_seed": range(3)},
        ("pretrain_seed", "example"),
    )
    assert compare(scores, None, None, design="single", **FEW).ci.high > 1
    named = scores.assign_attrs(columns={"score": "f1"})
    assert compare(named, None, None, design="single", **FEW).ci.high < 1
    in_per_cent = 100 * named.assign_attrs(named.attrs)
    assert 99 < compare(in_per_cent, None, None, design="single", **FEW).ci.high < 100
    beyond = 2 * in_per_cent
    assert compare(beyond, None, None, design="single", **FEW).ci.high > 200
    assert compare(named, beyond, None, **FEW).score.ends == (-np.inf, np.inf)  # one arm suffices


@pytest.mark.parametrize("design", ["paired", "unpaired"])
def test_a_stray_answer_does_not_widen_the_interval_of_matthews(design):
    random, names = np.random.default_rng(0), np.array(["low", "medium", "high"])
    labels = random.integers(0, 3, 1000)
    base, experiment = (
        np.where(random.random((5, 1000)) < skill, labels, (labels + 1) % 3)
        for skill in (0.9, 0.92)
    )
    stray = names[experiment].astype("U12")
    stray[[0, 1, 2], [0, 10, 20]] = ["maybe", "unknown", "n/a"]
    widths = []
    for answers in (names[experiment], stray):
        found = compare(
            names[base], answers, "matthews", labels=names[labels], design=design, **FEW
        )
        widths.append([ci.high - ci.low for ci in (found.ci, found.experiment.ci)])
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
