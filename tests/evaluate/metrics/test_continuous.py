"""Metrics of numbers against scikit-learn, SciPy and NumPy, plainly and under weights."""

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.metrics

from multiberts.evaluate.metrics.register import METRICS


def weighted_pearson(labels, predictions, sample_weight):
    covariance = np.cov(labels, predictions, aweights=sample_weight)
    return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


def weighted_slope(labels, predictions, sample_weight):
    model = sklearn.linear_model.LinearRegression()
    model.fit(labels[:, None], predictions, sample_weight=sample_weight)
    return model.coef_[0]


CONTINUOUS = {
    "mse": sklearn.metrics.mean_squared_error,
    "mae": sklearn.metrics.mean_absolute_error,
    "pearson": weighted_pearson,
    "slope": weighted_slope,
    "mean": lambda labels, predictions, sample_weight: np.average(
        predictions, weights=sample_weight
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("trial", range(8))
def test_equal_to_other_libraries(name, trial):
    random = np.random.default_rng(trial)
    labels = random.normal(100.0, 1.0, 41)  # far from 0: sums of squares lose digits if not centred
    predictions = 0.5 * labels + random.normal(size=(2, 41))
    weights = random.integers(0, 4, (4, 41))
    ours = METRICS[name].score(labels, predictions, weights)
    for run in range(2):
        for replicate in range(4):
            theirs = CONTINUOUS[name](labels, predictions[run], sample_weight=weights[replicate])
            assert ours[run, replicate] == pytest.approx(theirs, rel=1e-10, abs=1e-10)


def test_a_replicate_of_one_example_is_degenerate():
    """The weights leave one example, though labels and predictions vary in the data."""
    random = np.random.default_rng(1)
    labels, predictions = random.normal(50, 1, 9), random.normal(50, 1, 9)
    metric = METRICS["pearson"]
    columns = metric.columns(labels, predictions)
    assert metric.degenerate(9 * columns[4]) and metric.finish(9 * columns[4]) == 0
    assert not metric.degenerate(8 * columns[4] + columns[5])


def test_the_mean_of_answers_takes_nothing_but_noughts_and_ones():
    right = np.array([[1, 0, 1, 1], [0, 0, 1, 0]])
    assert METRICS["share"].score(np.ones(4), right) == pytest.approx([0.75, 0.25])
    assert METRICS["mean"].score(np.ones(2), np.array([1.0, 0.5])) == 0.75  # the cure
