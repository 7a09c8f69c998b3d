"""Exact match and F1 of answers against the scores of published prediction files."""

import gzip
import json

import numpy as np
import pytest

from multiberts.evaluate.metrics.column_metric import reference_array
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.squad import answer_words

# Exact match and F1 in percent on the development sets, by prediction file.
PUBLISHED = {
    "v1.1_bert_ensemble": (86.206, 92.196),
    "v1.1_logistic_regression": (40.142, 50.982),
    "v1.1_match_lstm": (67.635, 76.756),
    "v1.1_rnet_plus": (82.469, 88.478),
    "v1.1_slqa_plus": (81.949, 88.384),
    "v2.0_bert_base_uncased_nstats_predictions": (71.995, 75.639),
    "v2.0_bert_single": (78.742, 81.775),
    "v2.0_bidaf_sa_elmo": (65.704, 67.876),
    "v2.0_nlnet": (75.828, 78.778),
}
DATA = {"v1.1": "dev-v1.1.json.gz", "v2.0": "dev-v2.0.no_plausible.json.gz"}


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


@pytest.mark.parametrize("version", DATA)
def test_published_predictions(version, shared_data):
    """All files of a version at once, as runs on the same examples."""
    articles = read(shared_data / "squad" / DATA[version])["data"]
    questions = [
        question
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    labels = reference_array(
        [[answer["text"] for answer in question["answers"]] for question in questions]
    )
    names = [name for name in PUBLISHED if name.startswith(version)]
    predictions = []
    for name in names:
        answers = read(shared_data / "reference" / "squad_predictions" / f"{name}.json.gz")
        # A question that a file leaves out is answered by nothing.
        predictions.append([answers.get(question["id"], "") for question in questions])
    table = np.array(predictions, dtype=object)
    for position, metric in enumerate(("squad_exact_match", "squad_f1")):
        expected = [PUBLISHED[name][position] for name in names]
        np.testing.assert_array_equal(
            np.round(100 * METRICS[metric].score(labels, table), 3), expected
        )


def test_words_of_an_answer():
    assert answer_words("The  Quick, (brown) fox's an A-team ") == (
        "quick",
        "brown",
        "foxs",
        "ateam",
    )
    assert answer_words("The a An!") == ()
    assert answer_words("theme Anna") == ("theme", "anna")


@pytest.mark.parametrize(
    ("references", "prediction", "exact", "f1"),
    [
        (("Denver Broncos", "The Broncos"), "the broncos.", 1, 1),
        (("Denver Broncos", "Carolina Panthers"), "Broncos of Denver", 0, 0.8),
        (("a b b c",), "b b b d", 0, 4 / 7),  # words b, b, c and b, b, b, d: two shared
        ((), "", 1, 1),
        ((), "Denver", 0, 0),
        (("Denver",), "", 0, 0),
        (("",), "", 1, 1),
        (("Denver", ""), "", 0, 0),  # a reference without words does not count beside others
        (("The",), "a", 1, 1),
        ("Denver", "denver", 1, 1),
    ],
)
def test_best_of_the_references(references, prediction, exact, f1):
    labels = np.empty(1, dtype=object)
    labels[0] = references
    assert METRICS["squad_exact_match"].score(labels, [prediction]) == exact
    assert METRICS["squad_f1"].score(labels, [prediction]) == pytest.approx(f1, abs=1e-15)


def test_references_may_be_lists():
    labels = [["one", "two"], ["three", "four"], []]
    predictions = [["two", "four", ""], ["three", "x", "x"]]
    np.testing.assert_allclose(METRICS["squad_f1"].score(labels, predictions), [1, 0])
    assert reference_array(labels).shape == (3,)
    np.testing.assert_array_equal(reference_array([0, 1]), [0, 1])
    assert reference_array([[0, 1], [1, 0]]).shape == (2, 2)


def test_bad_values_are_refused():
    for name in ("squad_f1", "squad_exact_match"):
        with pytest.raises(ValueError, match=f"{name}: found label 1, expected a tuple of ref"):
            METRICS[name].score(np.array([1], dtype=object), ["a"])
        with pytest.raises(ValueError, match=f"{name}: found prediction None, expected a text"):
            METRICS[name].score(["a"], np.array([None], dtype=object))
        with pytest.raises(ValueError, match="found label None"):
            METRICS[name].score(np.array([("a", None), None], dtype=object)[1:], ["a"])
