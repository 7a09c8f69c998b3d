"""The reliability table beside scikit-learn's, and beside the metric `ece`."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from multiberts.evaluate.metrics.calibration import is_calibratable, reliability
from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.metrics.register import METRICS


def test_bins_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(4000, 3))
    labels = random.integers(0, 3, 4000)
    probabilities = softmax(logits)
    right = probabilities.argmax(axis=1) == labels
    shares, confidences = calibration_curve(right, probabilities.max(axis=1), n_bins=15)
    filled = [item for item in reliability(labels, logits) if item.examples]
    assert len(filled) < 15  # of three classes the largest probability is a third at least
    np.testing.assert_allclose([item.accuracy for item in filled], shares)
    np.testing.assert_allclose([item.confidence for item in filled], confidences)
    assert sum(item.examples for item in filled) == 4000
    assert all(item.low < item.confidence <= item.high for item in filled)


def test_mean_gap_is_the_metric_ece():
    random = np.random.default_rng(1)
    logits, labels = random.normal(size=(500, 2)), random.integers(0, 2, 500)
    gaps = [
        item.examples / 500 * abs(item.accuracy - item.confidence)
        for item in reliability(labels, logits)
        if item.examples
    ]
    assert sum(gaps) == pytest.approx(METRICS["ece"].score(labels, softmax(logits)), abs=1e-12)


def test_what_has_no_table():
    labels, scores = np.array([0, 1]), np.array([[1.0, 0], [0, 1]])
    assert is_calibratable(labels, np.array([0, 1]), scores)
    assert not is_calibratable(labels, np.array([1, 1]), scores)  # answers are not those of scores
    assert not is_calibratable(labels + 1, np.array([0, 1]), scores)
    assert not is_calibratable(labels, np.array([0, 0]), scores[:, :1])
