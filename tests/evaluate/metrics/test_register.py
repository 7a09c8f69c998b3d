"""What holds for every metric, and the registry of them."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import (
    METRICS,
    default_metric,
    metric_input,
    metric_named,
    values_of_cells,
)

COLUMN_METRICS = sorted(name for name, metric in METRICS.items() if isinstance(metric, Metric))

WORDS = ("cat", "dog", "sat", "ran", "on", "mat", "the", "red", "old", "mouse")


def suited(name, num_runs, num_examples, random):
    """Labels [examples] and predictions [runs, examples(, classes)] that the metric is for."""
    metric = METRICS[name]
    if name.startswith("squad"):
        texts = [
            " ".join(random.choice(WORDS, size=random.integers(4, 8)))
            for _ in range((num_runs + 2) * num_examples)
        ]
        labels = np.empty(num_examples, dtype=object)
        labels[:] = list(
            zip(texts[:num_examples], texts[num_examples : 2 * num_examples], strict=True)
        )
        predictions = np.array(texts[2 * num_examples :], dtype=object).reshape(num_runs, -1)
        copied = random.random(predictions.shape) < 0.5
        return labels, np.where(copied, [label[0] for label in labels], predictions)
    if name == "span_f1":
        tags = random.choice(["O", "B-a", "I-a", "B-b", "I-b"], (num_runs + 1, num_examples, 3))
        texts = np.array([[" ".join(tags) for tags in row] for row in tags.tolist()])
        return texts[0], texts[1:]
    if name.startswith("multilabel_"):
        sets = random.choice(["", "a", "b", "a|b", "b|c|a"], (num_runs + 1, num_examples))
        return sets[0], sets[1:]
    labels = random.integers(0, 2, num_examples)
    if metric.uses == "scores":
        logits = random.normal(size=(num_runs, num_examples, 3))
        return random.integers(0, 3, num_examples), softmax(logits)
    if name in ("pearson", "spearman", "slope", "mse", "mae", "mean", "auc", "average_precision"):
        return labels, np.round(labels + random.normal(size=(num_runs, num_examples)), 1)
    flipped = random.random((num_runs, num_examples)) < 0.3
    return labels, np.where(flipped, 1 - labels, labels)


@pytest.mark.parametrize("name", sorted(METRICS))
@given(drawn=st.data())
@settings(max_examples=15, deadline=None)
def test_integer_weights_are_repeated_examples(name, drawn):
    random = np.random.default_rng(drawn.draw(st.integers(0, 2**32)))
    num_examples = drawn.draw(st.integers(3, 12))
    labels, predictions = suited(name, 2, num_examples, random)
    weights = random.integers(0, 4, num_examples)
    if not weights.any():
        return
    metric = METRICS[name]
    weighted = metric.score(labels, predictions, weights)
    again = metric.score(np.repeat(labels, weights), np.repeat(predictions, weights, axis=1))
    np.testing.assert_allclose(weighted, again, rtol=0, atol=1e-9)
    table = metric.score(labels, predictions, weights[None])
    assert table.shape == (2, 1)
    np.testing.assert_array_equal(table[:, 0], weighted)


@pytest.mark.parametrize("name", COLUMN_METRICS)
def test_columns_of_blocks_are_the_columns(name):
    random = np.random.default_rng(1)
    labels, predictions = suited(name, 3, 40, random)
    metric = METRICS[name]
    bound = metric.bind(labels, predictions)
    everything = metric.columns(labels, predictions)
    assert everything.shape == (3, 40, bound.num_columns)
    cuts = [0, 1, 4, 7, 26, 40]  # blocks of 1, 3 (as many as runs and classes), 3, 19, 14
    blocks = [
        bound.columns(labels[start:stop], predictions[:, start:stop])
        for start, stop in itertools.pairwise(cuts)
    ]
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), everything)
    of_labels = everything[..., : bound.num_label_columns]
    np.testing.assert_array_equal(of_labels, np.broadcast_to(of_labels[:1], of_labels.shape))
    sums = everything.sum(axis=-2)
    np.testing.assert_array_equal(bound.finish(sums), metric.finish(sums))
    np.testing.assert_array_equal(bound.finish(sums), metric.score(labels, predictions))
    assert bound.metric is metric and bound.metric.name == name
    if metric.whole:
        assert (everything == np.rint(everything)).all() and np.abs(everything).max() <= 255


@pytest.mark.parametrize("name", COLUMN_METRICS)
def test_a_row_of_zeros_does_not_count_as_an_example(name):
    random = np.random.default_rng(2)
    labels, predictions = suited(name, 2, 30, random)
    metric = METRICS[name]
    bound = metric.bind(labels, predictions)
    columns = bound.columns(labels, predictions)
    columns[:, 20:] = 0
    expected = metric.score(labels[:20], predictions[:, :20])
    np.testing.assert_allclose(bound.finish(columns.sum(axis=-2)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_scale_of_the_weights_does_not_matter(name):
    random = np.random.default_rng(3)
    labels, predictions = suited(name, 2, 30, random)
    weights = random.integers(0, 4, (5, 30))
    metric = METRICS[name]
    scores = metric.score(labels, predictions, weights)
    np.testing.assert_allclose(
        metric.score(labels, predictions, weights / 30), scores, rtol=1e-12, atol=1e-13
    )


def test_mean_of_names_the_column_whose_mean_is_the_score():
    random = np.random.default_rng(4)
    means = [name for name in COLUMN_METRICS if METRICS[name].mean_of is not None]
    assert {"accuracy", "mse", "brier", "squad_f1"} <= set(means)
    for name in means:
        labels, predictions = suited(name, 2, 30, random)
        metric = METRICS[name]
        columns = metric.columns(labels, predictions)
        np.testing.assert_allclose(
            columns[..., metric.mean_of].mean(axis=-1),
            metric.score(labels, predictions),
            rtol=1e-14,
        )
        assert (columns[..., 0] == 1).all()


@pytest.mark.parametrize(
    ("name", "labels", "predictions"),
    [
        ("f1", [0, 0, 0], [0, 0, 0]), ("matthews", [1, 1, 1], [1, 0, 1]), ("matthews", [1, 0, 1], [0, 0, 0]),
        ("matthews", [1, 2, 3], [2, 2, 2]), ("matthews", [1, 1, 1], [1, 1, 1]),
        ("pearson", [0.1, 0.2, 0.3], [0.1] * 3), ("pearson", [0.1] * 3, [0.1, 0.2, 0.4]),
        ("slope", [0.1] * 3, [0.1, 0.2, 0.4]),
    ],
)  # fmt: skip
def test_undefined_scores_are_zero_and_counted(name, labels, predictions):
    metric = METRICS[name]
    sums = metric.columns(np.array(labels), np.array(predictions)).sum(axis=-2)
    assert metric.score(labels, predictions) == 0.0
    assert metric.degenerate(sums)
    ordinary = metric.columns(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0])).sum(axis=-2)
    assert not metric.degenerate(ordinary)


def test_columns_lie_one_after_the_other():
    columns = METRICS["matthews"].columns(np.array([0, 1, 1]), np.array([[0, 1, 0]] * 5))
    assert np.moveaxis(columns, -1, 0).flags["C_CONTIGUOUS"]


def test_the_registry():
    assert set(METRICS) == {
        *("accuracy", "error", "f1", "f1_macro", "f1_micro", "matthews", "pearson", "spearman"),
        *("auc", "ece", "brier", "log_loss", "mse", "mae", "mean", "loss", "share", "slope"),
        "squad_exact_match",
        *("squad_f1", "precision", "recall", "precision_macro"),
        *("recall_macro", "f1_weighted", "balanced_accuracy", "average_precision"),
        *("top_2_accuracy", "top_3_accuracy", "top_5_accuracy", "span_f1"),
        *("multilabel_f1_micro", "multilabel_f1_macro"),
    }
    assert all(metric.name == name for name, metric in METRICS.items())
    lower = {name for name, metric in METRICS.items() if metric.higher_is_better is False}
    assert lower == {"error", "ece", "brier", "log_loss", "mse", "mae", "loss"}
    assert metric_named("auc") is METRICS["auc"]
    assert isinstance(metric_named("spearman"), RankMetric)


@pytest.mark.parametrize(
    ("usual", "name"),
    [
        ("Accuracy", "accuracy"), ("acc", "accuracy"), ("macro_f1", "f1_macro"), ("F1", "f1"),
        ("matthews_correlation", "matthews"), ("roc-auc", "auc"), ("pearsonr", "pearson"),
    ],
)  # fmt: skip
def test_usual_names_are_taken(usual: str, name: str) -> None:
    assert metric_named(usual) is METRICS[name]


def test_what_a_metric_is_given():
    prediction, logits = np.array([[1, 0]]), np.array([[[0.0, 2.0], [1.0, 0.5]]])
    assert metric_input(METRICS["accuracy"], prediction, logits) is prediction
    np.testing.assert_allclose(metric_input(METRICS["ece"], prediction, logits).sum(axis=-1), 1)
    np.testing.assert_array_equal(metric_input(METRICS["auc"], prediction, logits), [[2.0, -0.5]])
    probability = np.array([[0.75, 0.0]])
    assert metric_input(METRICS["auc"], probability) is probability
    expected = [[[0.25, 0.75], [1.0, 0.0]]]
    np.testing.assert_array_equal(metric_input(METRICS["brier"], probability), expected)


def test_import_needs_numpy_alone():
    code = (
        "import sys, evaluate.metrics.register; "
        "heavy = {'scipy', 'sklearn', 'pandas', 'xarray', 'tensorflow'} & "
        "set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SETS = np.array(["joy", "joy, relief", "relief", "fear", "fear, joy"], dtype=object)


@pytest.mark.parametrize(
    "labels",
    [
        ["very good", "good", "very bad", "bad"], ["Nice, France", "Metz, France"], ["O", "B-X"], [1, 0],
        ["1,5", "2,7", "0,3"], [float("nan"), "a|b"],
    ],
)  # fmt: skip
def test_classes_of_several_words_are_classes(labels: list) -> None:
    labels = np.array(labels, dtype=object)
    assert default_metric(labels[None], labels) == "accuracy"


def test_lists_are_what_a_metric_takes_them_for() -> None:
    lists = np.empty(3, dtype=object)
    lists[:] = [("joy", "relief"), (), float("nan")]
    sets = values_of_cells(METRICS["multilabel_f1_micro"], lists, "label")
    assert sets.tolist() == ["joy|relief", "", ""]
    references = values_of_cells(METRICS["squad_f1"], lists, "label")
    assert references.tolist() == [("joy", "relief"), (), ""]


def test_another_sign_between_names_is_asked_about() -> None:
    """Micro F1 was .684 for .836 where commas stood between the names."""
    metric = METRICS["multilabel_f1_micro"]
    for cells in (SETS, np.array(["a;b", "c"]), np.array([text.replace(",", "") for text in SETS])):
        with pytest.raises(ValueError, match=r"and \| in no cell; write .* between them"):
            values_of_cells(metric, cells, "label")
    for fine in (["so, so|joy", "so, so"], ["very happy", "sad"], ["joy", ""]):
        assert values_of_cells(metric, np.array(fine, dtype=object), "label").tolist() == fine
