"""Metrics against scikit-learn and SciPy, plainly and under weights."""

import numpy as np
import pytest
import scipy.stats
import sklearn.linear_model
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluate.metrics import METRICS, metric_named

BINARY = {
    "accuracy": sklearn.metrics.accuracy_score,
    "error": sklearn.metrics.zero_one_loss,
    "f1": sklearn.metrics.f1_score,
    "matthews": sklearn.metrics.matthews_corrcoef,
}


def weighted_pearson(labels, predictions, sample_weight):
    covariance = np.cov(labels, predictions, aweights=sample_weight)
    return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


def weighted_slope(labels, predictions, sample_weight):
    model = sklearn.linear_model.LinearRegression()
    model.fit(labels[:, None], predictions, sample_weight=sample_weight)
    return model.coef_[0]


CONTINUOUS = {
    "mse": sklearn.metrics.mean_squared_error,
    "pearson": weighted_pearson,
    "slope": weighted_slope,
    "mean": lambda labels, predictions, sample_weight: np.average(
        predictions, weights=sample_weight
    ),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("trial", range(20))
def test_binary_metrics_equal_scikit_learn(name, trial):
    random = np.random.default_rng(trial)
    labels = random.integers(0, 2, 37)
    predictions = (random.random((3, 37)) < random.random()).astype(int)
    weights = random.integers(0, 4, (5, 37))
    ours = METRICS[name].score(labels, predictions, weights)
    plain = METRICS[name].score(labels, predictions)
    assert ours.shape == (3, 5)
    for run in range(3):
        assert plain[run] == pytest.approx(BINARY[name](labels, predictions[run]), abs=1e-10)
        for replicate in range(5):
            theirs = BINARY[name](labels, predictions[run], sample_weight=weights[replicate])
            assert ours[run, replicate] == pytest.approx(theirs, abs=1e-10)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("trial", range(20))
def test_continuous_metrics_equal_other_libraries(name, trial):
    random = np.random.default_rng(trial)
    labels = random.normal(100.0, 1.0, 41)  # far from 0: sums of squares lose digits if not centred
    predictions = 0.5 * labels + random.normal(size=(2, 41))
    weights = random.integers(0, 4, (4, 41))
    ours = METRICS[name].score(labels, predictions, weights)
    for run in range(2):
        for replicate in range(4):
            theirs = CONTINUOUS[name](labels, predictions[run], sample_weight=weights[replicate])
            assert ours[run, replicate] == pytest.approx(theirs, rel=1e-10, abs=1e-10)


def test_unweighted_pearson_and_slope_equal_scipy():
    random = np.random.default_rng(0)
    labels, predictions = random.normal(size=60), random.normal(size=60)
    fit = scipy.stats.linregress(labels, predictions)
    assert METRICS["pearson"].score(labels, predictions) == pytest.approx(fit.rvalue, abs=1e-12)
    assert METRICS["slope"].score(labels, predictions) == pytest.approx(fit.slope, abs=1e-12)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3)), min_size=2, max_size=30
    )
)
@settings(max_examples=200, deadline=None)
def test_integer_weights_are_repeated_examples(rows):
    labels, predictions, weights = (np.array(column) for column in zip(*rows, strict=True))
    if weights.sum() == 0:
        return
    for metric in METRICS.values():
        weighted = metric.score(labels, predictions, weights)
        repeated = metric.score(np.repeat(labels, weights), np.repeat(predictions, weights))
        assert weighted == pytest.approx(repeated, abs=1e-9), metric.name


@pytest.mark.parametrize(
    ("name", "labels", "predictions"),
    [
        ("f1", [0, 0, 0], [0, 0, 0]),
        ("matthews", [1, 1, 1], [1, 0, 1]),
        ("matthews", [1, 0, 1], [0, 0, 0]),
        ("pearson", [0.1, 0.2, 0.3], [0.1] * 3),
        ("pearson", [0.1] * 3, [0.1, 0.2, 0.4]),
        ("slope", [0.1] * 3, [0.1, 0.2, 0.4]),
    ],
)
def test_undefined_scores_are_zero_and_counted(name, labels, predictions):
    metric = METRICS[name]
    sums = metric.columns(np.array(labels), np.array(predictions)).sum(axis=-2)
    assert metric.score(labels, predictions) == 0.0
    assert metric.degenerate(sums)
    ordinary = metric.columns(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0])).sum(axis=-2)
    assert not metric.degenerate(ordinary)


@pytest.mark.parametrize("name", ["f1", "matthews"])
@pytest.mark.filterwarnings("ignore")
def test_degenerate_values_equal_scikit_learn(name):
    zeros, ones = np.zeros(5, int), np.ones(5, int)
    for labels, predictions in [(zeros, zeros), (zeros, ones), (ones, zeros), (ones, ones)]:
        theirs = BINARY[name](labels, predictions)
        assert METRICS[name].score(labels, predictions) == theirs


@pytest.mark.parametrize("name", sorted(METRICS))
def test_scale_of_the_sums_does_not_matter(name):
    random = np.random.default_rng(3)
    labels, predictions = random.integers(0, 2, 30), random.integers(0, 2, 30)
    metric = METRICS[name]
    sums = metric.columns(labels, predictions).sum(axis=-2)
    assert metric.finish(sums / 30) == pytest.approx(metric.finish(sums), rel=1e-12)


def test_mean_of_names_the_column_whose_mean_is_the_score():
    random = np.random.default_rng(4)
    labels, predictions = random.integers(0, 2, 30), random.integers(0, 2, 30)
    for metric in METRICS.values():
        if metric.mean_of is not None:
            columns = metric.columns(labels, predictions)
            assert columns[:, metric.mean_of].mean() == metric.score(labels, predictions)
            assert (columns[:, 0] == 1).all()


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="f1 is for two classes 0 and 1, found .* in labels"):
        METRICS["f1"].score([0, 1, 2], [0, 1, 1])
    with pytest.raises(ValueError, match="examples are the last axis"):
        METRICS["accuracy"].score([0, 1], [[0, 0, 1], [1, 1, 0]])
    with pytest.raises(ValueError, match="no examples"):
        METRICS["accuracy"].score([], [])
    with pytest.raises(ValueError, match="expected one of accuracy"):
        metric_named("acuracy")
