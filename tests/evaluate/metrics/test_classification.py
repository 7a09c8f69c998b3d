"""Metrics of classes against scikit-learn, called on the replicate itself."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from multiberts.evaluate.metrics.classification import distinct
from multiberts.evaluate.metrics.register import METRICS
from multiberts.tests.tools.executed_lines import executed_lines


def f1(average):
    return lambda labels, predictions, **weights: sklearn.metrics.f1_score(
        labels, predictions, average=average, zero_division=0, **weights
    )


def averaged(function, **settings):
    return lambda labels, predictions, **weights: getattr(sklearn.metrics, function)(
        labels, predictions, zero_division=0, **settings, **weights
    )


BINARY = {
    "precision": averaged("precision_score"),
    "recall": averaged("recall_score"),
    "precision_macro": averaged("precision_score", average="macro"),
    "recall_macro": averaged("recall_score", average="macro"),
    "f1_weighted": f1("weighted"),
    "balanced_accuracy": sklearn.metrics.balanced_accuracy_score,
    "accuracy": sklearn.metrics.accuracy_score,
    "error": sklearn.metrics.zero_one_loss,
    "f1": f1("binary"),
    "f1_macro": f1("macro"),
    "f1_micro": f1("micro"),
    "matthews": sklearn.metrics.matthews_corrcoef,
}
OF_POSITIVES = ("f1", "precision", "recall")
MULTICLASS = [name for name in BINARY if name not in OF_POSITIVES]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("trial", range(2))
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


@pytest.mark.parametrize("name", MULTICLASS)
@pytest.mark.filterwarnings("ignore")
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9
    )
)
@settings(max_examples=20, deadline=None)
def test_many_classes_equal_scikit_learn_on_the_replicate(name, rows):
    """Few examples, so that replicates lose classes, or all but one."""
    labels, predictions, weights = (np.array(column) for column in zip(*rows, strict=True))
    if not weights.any():
        return
    theirs = BINARY[name](np.repeat(labels, weights), np.repeat(predictions, weights))
    assert METRICS[name].score(labels, predictions, weights) == pytest.approx(theirs, abs=1e-10)


@pytest.mark.parametrize("name", MULTICLASS)
def test_classes_may_have_any_names(name):
    random = np.random.default_rng(5)
    labels, predictions = random.integers(0, 3, 40), random.integers(0, 3, (2, 40))
    plain = METRICS[name].score(labels, predictions)
    names = np.array(["neutral", "entailment", "contradiction"])
    numbers = np.array([-3.0, 70_000.0, 12.0])
    for classes in (names, numbers, names.astype(object), numbers.astype(np.int64)):
        renamed = METRICS[name].score(classes[labels], classes[predictions])
        np.testing.assert_allclose(renamed, plain, rtol=0, atol=1e-14)


def test_label_columns_follow_the_classes():
    labels, predictions = np.array([0, 1, 2, 3]), np.array([[0, 1, 2, 2]])
    bound = METRICS["matthews"].bind(labels, predictions)
    assert (bound.num_columns, bound.num_label_columns) == (8, 4)
    assert METRICS["f1_macro"].bind(labels, predictions).num_columns == 8


def test_distinct_values_of_every_type():
    random = np.random.default_rng(0)
    for values in (
        random.integers(-128, 127, 50).astype(np.int8),
        random.integers(0, 255, 50).astype(np.uint8),
        random.integers(-(2**62), 2**62, 50),
        random.integers(2**63, 2**64 - 1, 9, dtype=np.uint64) // 3 * 3,
        np.uint64(2**64 - 5) + random.integers(0, 4, 9).astype(np.uint64),
        np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).min + 7]),
        random.integers(0, 3, (4, 5)),
        np.array([True, False]),
        np.array(["b", "a", "b"]),
        np.round(random.normal(size=30), 1),
    ):
        np.testing.assert_array_equal(distinct(values), np.unique(values))
        assert distinct(values).dtype == values.dtype


def test_numbers_and_texts_do_not_mix():
    for name in MULTICLASS:
        with pytest.raises(ValueError, match=f"{name}: .*labels .* 0 .*predictions .*'0'"):
            METRICS[name].score([0, 1], ["0", "1"])
        mixed = METRICS[name].score(np.array([0, 1, 1], dtype=object), [0, 1, 0])
        assert mixed == METRICS[name].score([0, 1, 1], [0, 1, 0])


@pytest.mark.parametrize("name", ["f1", "matthews"])
def test_columns_of_many_runs_are_made_together(name: str):
    """No loop of Python over runs or examples, which would be slow."""
    labels, predictions = np.tile([0, 1], 50), np.tile([0, 0, 1, 1], (25, 25))
    METRICS[name].columns(labels, predictions)  # the first call of a process has lines of its own
    one = executed_lines(lambda: METRICS[name].columns(labels[:4], predictions[:1, :4]))
    assert executed_lines(lambda: METRICS[name].columns(labels, predictions)) == one
