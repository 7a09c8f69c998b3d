"""AUC and Spearman against scikit-learn and SciPy on the replicate itself, and their influence."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from multiberts.evaluate.metrics import rank_moments
from multiberts.evaluate.metrics.register import METRICS
from multiberts.tests.tools.executed_lines import executed_lines

pytestmark = pytest.mark.seconds


def auc(labels, predictions):
    """Score, and whether it is a defined value."""
    if len(set(labels.tolist())) < 2:
        return 0.5, True
    return sklearn.metrics.roc_auc_score(labels, predictions), False


def spearman(labels, predictions):
    if len(set(labels.tolist())) < 2 or len(set(predictions.tolist())) < 2:
        return 0.0, True
    return scipy.stats.spearmanr(labels, predictions).statistic, False


def average_precision(labels, predictions):
    if 1 not in labels:
        return 0.0, True
    return sklearn.metrics.average_precision_score(labels, predictions), False


ORACLES = {"auc": auc, "spearman": spearman, "average_precision": average_precision}


def check(name, labels, predictions, weights, observed=None):
    """All replicates of all runs against the oracle on the sample drawn out."""
    metric: Any = METRICS[name]
    bound = metric.bind(labels, predictions, observed)
    scores, degenerate = bound.weighted(weights)
    assert scores.shape == degenerate.shape == (len(weights), len(predictions))
    for run in range(len(predictions)):
        for replicate in range(len(weights)):
            counts = weights[replicate] * (1 if observed is None else observed[run])
            expected, undefined = ORACLES[name](
                np.repeat(labels, counts), np.repeat(predictions[run], counts)
            )
            assert scores[replicate, run] == pytest.approx(expected, abs=1e-10)
            assert degenerate[replicate, run] == undefined


@pytest.mark.parametrize("name", ORACLES)
@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 4), st.integers(0, 4), st.integers(0, 30)),
            *(st.integers(0, 3), st.integers(0, 3), st.booleans()),
        ),
        min_size=1,
        max_size=10,
    )
)
@settings(max_examples=25, deadline=None)
def test_small_samples_with_ties_and_missing_cells(name, rows):
    labels, *others = (np.array(column) for column in zip(*rows, strict=True))
    if name != "spearman":
        labels = labels % 2
    first, second, some, more, seen = others
    predictions, weights = np.array([first, second / 7]), np.array([some, more])
    check(name, labels, predictions, weights)
    check(name, labels, predictions, weights, np.array([seen, ~seen]))


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("num_examples", [31, 32, 63, 64, 65, 513])
@pytest.mark.parametrize("decimals", [0, 12])
def test_all_sizes_of_sample_and_of_ties(name, num_examples, decimals):
    """The sums go by halves: sizes around powers of two, with and without ties."""
    random = np.random.default_rng(num_examples)
    labels = random.integers(0, 2, num_examples)
    predictions = np.round(labels + random.normal(size=(2, num_examples)), decimals)
    if name == "spearman":
        labels = np.round(random.normal(size=num_examples), 1)
    weights = random.multinomial(num_examples, np.full(num_examples, 1 / num_examples), size=3)
    check(name, labels, predictions, weights)
    check(name, labels, predictions, weights, random.random(predictions.shape) < 0.7)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("decimals", [0, 12])
def test_chunks_of_replicates_and_of_examples_do_not_change_the_scores(name, decimals, monkeypatch):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 150)
    predictions = np.round(random.normal(size=(3, 150)), decimals)
    weights = random.integers(0, 4, (150, 150))
    metric = METRICS[name]
    scores, degenerate = metric.bind(labels, predictions).weighted(weights)
    pieces = [
        metric.bind(labels, predictions).weighted(weights[k : k + 37])[0] for k in (0, 37, 74)
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), scores[:111])
    for limit, value in (
        *(("_ELEMENTS", 1), ("_ELEMENTS", 160 * 8)),
        *(("_SEGMENT_GROUPS", 1), ("_SEGMENT_GROUPS", 40), ("_PART_ROWS", 1), ("_PART_ROWS", 7)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(rank_moments, limit, value)
            again = metric.bind(labels, predictions).weighted(weights)
        np.testing.assert_array_equal(again[0], scores)
        np.testing.assert_array_equal(again[1], degenerate)


@pytest.mark.parametrize("name", ORACLES)
def test_fractional_weights_do_not_depend_on_their_neighbours(name):
    """Each replicate is added up in the same order, however many go together."""
    random = np.random.default_rng(7)
    labels, predictions = random.integers(0, 2, 500), random.normal(size=(2, 500))
    weights = random.random((70, 500))
    metric = METRICS[name]
    scores, _ = metric.bind(labels, predictions).weighted(weights)
    for replicate in (0, 63, 64, 69):
        alone, _ = metric.bind(labels, predictions).weighted(weights[replicate : replicate + 1])
        np.testing.assert_array_equal(alone[0], scores[replicate])


@pytest.mark.parametrize("name", ORACLES)
def test_score_takes_any_leading_axes(name):
    random = np.random.default_rng(1)
    labels, predictions = random.integers(0, 2, 20), random.normal(size=(2, 3, 20))
    weights = random.integers(0, 3, (4, 20))
    metric = METRICS[name]
    plain, weighted = metric.score(labels, predictions), metric.score(labels, predictions, weights)
    assert plain.shape == (2, 3) and weighted.shape == (2, 3, 4)
    assert plain[1, 2] == pytest.approx(ORACLES[name](labels, predictions[1, 2])[0], abs=1e-12)
    assert metric.score(labels, predictions[1, 2]) == plain[1, 2]
    assert metric.score(labels, predictions[1, 2], weights[3]) == weighted[1, 2, 3]
    np.testing.assert_array_equal(
        metric.bind(labels, predictions[0]).weighted(weights)[0], weighted[0].T
    )


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("auc", sklearn.metrics.roc_auc_score),
        ("average_precision", sklearn.metrics.average_precision_score),
    ],
)
def test_fractional_weights_equal_scikit_learn(name, theirs):
    random = np.random.default_rng(2)
    labels, predictions = random.integers(0, 2, 300), np.round(random.normal(size=(2, 300)), 1)
    weights = random.random((5, 300))
    scores = METRICS[name].score(labels, predictions, weights)
    for run in range(2):
        for replicate in range(5):
            expected = theirs(labels, predictions[run], sample_weight=weights[replicate])
            assert scores[run, replicate] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_influence_is_the_derivative_by_the_weights(name, decimals):
    """Finite differences: 1 + h and 1 - h on one example, scaled to examples x derivative."""
    random = np.random.default_rng(3)
    number, step = 40, 1e-5
    labels = random.integers(0, 2, number)
    predictions = np.round(labels + random.normal(size=(2, number)), decimals)
    if name == "spearman":
        labels = np.round(labels + random.normal(size=number), 1)
    metric = METRICS[name]
    up, down = (1 + sign * step * np.eye(number) for sign in (1, -1))
    slope = metric.score(labels, predictions, up) - metric.score(labels, predictions, down)
    influence = metric.influence(labels, predictions)
    np.testing.assert_allclose(influence, number * slope / (2 * step), rtol=0, atol=1e-8)
    np.testing.assert_allclose(influence.sum(axis=-1), 0, rtol=0, atol=1e-10)
    assert np.abs(influence).max() > 0.1


def test_degenerate_scores_have_no_influence():
    for name, labels in (
        ("auc", np.ones(5, int)),
        ("spearman", np.arange(5)),
        ("average_precision", np.zeros(5, int)),
    ):
        influence = METRICS[name].influence(labels, np.zeros((2, 5)))
        np.testing.assert_array_equal(influence, np.zeros((2, 5)))


def test_infinite_scores_have_ranks():
    assert METRICS["auc"].score([0, 1, 1], [np.inf, -np.inf, 3.0]) == 0


def test_many_replicates_are_computed_together():
    """No loop of Python over replicates, which would be slow."""
    random = np.random.default_rng(5)
    labels = random.integers(0, 2, 500)
    bound = METRICS["auc"].bind(labels, labels + random.normal(size=(1, 500)))
    weights = random.multinomial(500, np.full(500, 1 / 500), size=20)
    assert executed_lines(lambda: bound.weighted(weights[:2])) == executed_lines(
        lambda: bound.weighted(weights)
    )
