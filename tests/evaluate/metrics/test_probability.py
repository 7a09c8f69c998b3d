"""Calibration error and its table, Brier score and log loss against scikit-learn and a plain loop."""

import itertools

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from multiberts.evaluate.metrics.probability import is_calibratable, reliability, softmax
from multiberts.evaluate.metrics.register import METRICS


def plain_calibration_error(labels, probabilities, num_bins=15):
    """Guo et al. (2017), equation 3, bin by bin."""
    confidence, guess = probabilities.max(axis=-1), probabilities.argmax(axis=-1)
    edges = np.linspace(0, 1, num_bins + 1)
    error = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            gap = (guess == labels)[inside].mean() - confidence[inside].mean()
            error += abs(gap) * inside.mean()
    return error


def oracles(num_classes):
    classes = list(range(num_classes))
    return {
        "ece": plain_calibration_error,
        "brier": lambda labels, p: sklearn.metrics.brier_score_loss(labels, p, labels=classes),
        "log_loss": lambda labels, p: sklearn.metrics.log_loss(labels, p, labels=classes),
    }


@pytest.mark.parametrize("name", ["ece", "brier", "log_loss"])
@given(drawn=st.data())
@settings(max_examples=30, deadline=None)
def test_equal_to_scikit_learn_on_the_replicate(name, drawn):
    """Certainty, and bins' very edges, come up; replicates lose classes."""
    num_classes = drawn.draw(st.integers(2, 4))
    num_examples = drawn.draw(st.integers(1, 8).filter(lambda n: n != num_classes))
    random = np.random.default_rng(drawn.draw(st.integers(0, 2**32)))
    labels = random.integers(0, num_classes, num_examples)
    logits = random.choice([0.0, 1.0, -800.0, 3.7], size=(2, num_examples, num_classes))
    probabilities = softmax(logits)
    fifteenths = random.multinomial(15, np.full(num_classes, 1 / num_classes), size=num_examples)
    probabilities[1] = fifteenths / 15
    weights = random.integers(0, 4, (3, num_examples))
    weights[:, 0] += 1
    ours = METRICS[name].score(labels, probabilities, weights)
    assert ours.shape == (2, 3)
    for run in range(2):
        for replicate in range(3):
            theirs = oracles(num_classes)[name](
                np.repeat(labels, weights[replicate]),
                np.repeat(probabilities[run], weights[replicate], axis=0),
            )
            assert ours[run, replicate] == pytest.approx(theirs, abs=1e-10)


@pytest.mark.parametrize("name", ["ece", "brier", "log_loss"])
def test_probability_of_class_1_alone(name):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 50)
    probabilities = np.round(random.random((3, 50)), 2)
    probabilities[0, :4] = [0, 1, 0.5, 0.5]
    alone = METRICS[name].score(labels, probabilities)
    both = np.stack([1 - probabilities, probabilities], axis=-1)
    np.testing.assert_allclose(METRICS[name].score(labels, both), alone, rtol=0, atol=1e-12)
    for run in range(3):
        if name == "ece":
            theirs = plain_calibration_error(labels, both[run])
        else:
            theirs = oracles(2)[name](labels, probabilities[run])
        assert alone[run] == pytest.approx(theirs, abs=1e-10)
        assert METRICS[name].score(labels, probabilities[run]) == alone[run]


@pytest.mark.parametrize(
    ("precision", "tolerance"), [(np.float16, 2e-3), (np.float32, 1e-6), (np.float64, 1e-12)]
)
def test_log_loss_is_clipped_by_the_precision(precision, tolerance):
    """scikit-learn also adds up in the given precision, hence the tolerances."""
    labels = np.array([0, 1, 0, 0])
    probabilities = np.array([0.0, 0.0, 0.25, 1.0], dtype=precision)
    theirs = sklearn.metrics.log_loss(labels, probabilities)
    assert METRICS["log_loss"].score(labels, probabilities) == pytest.approx(theirs, rel=tolerance)


def test_softmax():
    logits = np.array([[1000.0, 1001.0], [0.0, -np.inf]])
    np.testing.assert_allclose(softmax(logits), [[1 / (1 + np.e), np.e / (1 + np.e)], [1, 0]])


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


def test_what_has_no_table():
    labels, scores = np.array([0, 1]), np.array([[1.0, 0], [0, 1]])
    assert is_calibratable(labels, np.array([0, 1]), scores)
    assert not is_calibratable(labels, np.array([1, 1]), scores)  # answers are not those of scores
    assert not is_calibratable(labels + 1, np.array([0, 1]), scores)
    assert not is_calibratable(labels, np.array([0, 0]), scores[:, :1])


def test_a_confidence_on_an_edge_belongs_below_it():
    """As Guo et al. (2017), section 2: bin m is ((m - 1) / 15, m / 15]."""
    # Of three equal logits each class has 1/3 = 5/15; of two far apart one has 1.
    thirds = reliability([0, 1], np.zeros((2, 3)))
    assert [(item.examples, round(15 * item.high)) for item in thirds if item.examples] == [(2, 5)]
    certain = reliability([0, 1, 1], [[900.0, 0.0], [0.0, 900.0], [900.0, 0.0]])
    assert len(certain) == 15
    assert (certain[-1].examples, certain[-1].low, certain[-1].high) == (3, 14 / 15, 1.0)
    assert certain[-1].accuracy == pytest.approx(2 / 3)
    # Right at 6/15 and wrong a little below: of one bin, the gaps cancel but for what is left.
    edge = 6 / 15
    probabilities = np.array([[edge, 0.3, 0.3], [0.37, 0.33, 0.3]])
    found = METRICS["ece"].score([0, 1], probabilities)
    assert found == pytest.approx(abs((edge - 1) + 0.37) / 2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("num_classes", [3, 7])
def test_top_k_accuracy_equals_scikit_learn(number, num_classes):
    """With ties: sevenths and more, so that several classes are equally likely."""
    random = np.random.default_rng(number)
    counts = random.integers(0, 4, (2, 50, num_classes)) + 1
    labels = random.integers(0, num_classes, 50)
    probabilities = counts / counts.sum(axis=-1, keepdims=True)
    weights = random.integers(0, 4, (3, 50))
    ours = METRICS[f"top_{number}_accuracy"].score(labels, probabilities, weights)
    for run in range(2):
        for replicate in range(3):
            theirs = sklearn.metrics.top_k_accuracy_score(
                *(labels, probabilities[run]),
                k=number,
                labels=range(num_classes),
                sample_weight=weights[replicate],
            )
            assert ours[run, replicate] == pytest.approx(theirs, abs=1e-10)


def test_two_classes_are_always_the_top_two():
    assert METRICS["top_2_accuracy"].score([0, 1, 1], [0.1, 0.2, 0.9]) == 1
