"""Exact match and F1 of answers, and the official scorer's report, against published figures."""

import gzip
import json
import re
import string
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.metrics.column_metric import reference_array
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.squad import (
    answer_words,
    best_threshold,
    official_scores,
    question_scores,
)

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
# Only these can differ under the scorer of 1.1: docs/departures.md.
WORDLESS = ["5725bad5271a42140099d0c1", "5730b7ce069b5314008322c4", "57340d124776f419006617bf"]
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
    pairs = zip(questions, labels, strict=True)
    wordless = [question["id"] for question, label in pairs if not all(map(answer_words, label))]
    assert sorted(wordless) == WORDLESS
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
        (("Denver", ""), "", 0, 0),  # a reference without words does not count next to others
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
    assert "best_f1" not in official_scores(labels, predictions[0])  # without null odds


# Printed by evaluate-v2.0.py for the answers and null odds of a BERT-base run (Nstats/my_bert,
# run_squad2.sh), whose files are read here.
PRINTED = {
    "exact": 71.9952834161543,
    "f1": 75.63946351369651,
    "total": 11873,
    "HasAns_exact": 71.49122807017544,
    "HasAns_f1": 78.79003884921,
    "HasAns_total": 5928,
    "NoAns_exact": 72.49789739276703,
    "NoAns_f1": 72.49789739276703,
    "NoAns_total": 5945,
    "best_exact": 72.83753053145793,
    "best_exact_thresh": -5.559882640838623,
    "best_f1": 76.10335982008996,
    "best_f1_thresh": -4.95320200920105,
}


def questions_of(path: Path) -> dict[str, list[str]]:
    """The reference texts of every question, by id."""
    return {
        question["id"]: [answer["text"] for answer in question["answers"]]
        for article in read(path)["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }


def test_the_official_scorer_printed_these(shared_data: Path) -> None:
    references = questions_of(shared_data / "squad" / "dev-v2.0.no_plausible.json.gz")
    folder = shared_data / "reference" / "squad_predictions"
    texts = read(folder / "v2.0_bert_base_uncased_nstats_predictions.json.gz")
    odds = read(folder / "v2.0_bert_base_uncased_nstats_null_odds.json.gz")
    report = official_scores(
        list(references.values()), [texts[i] for i in references], [odds[i] for i in references]
    )
    assert report == pytest.approx(PRINTED, rel=1e-14)


def slow_words(text: str) -> list[str]:
    kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def slow_scores(references: list[str], prediction: str) -> tuple[float, float]:
    """Exact match and F1 of one question, word by word."""
    usable = [text for text in references if slow_words(text)] or [""]
    best = [0.0, 0.0]
    for reference in usable:
        wanted, given = slow_words(reference), slow_words(prediction)
        shared, left = 0, list(given)
        for word in wanted:
            if word in left:
                left.remove(word)
                shared += 1
        if not wanted or not given:
            f1 = float(wanted == given)
        else:
            f1 = 0.0
            if shared:
                precision, recall = shared / len(given), shared / len(wanted)
                f1 = 2 * precision * recall / (precision + recall)
        best = [max(best[0], float(wanted == given)), max(best[1], f1)]
    return best[0], best[1]


WORDS = ["the", "a", "An", "Denver", "denver", "Broncos,", "won", "fifty-two", "(1895)", "x", ""]


def random_texts(random: np.random.Generator, number: int) -> list[str]:
    return [" ".join(random.choice(WORDS, random.integers(0, 5))) for _ in range(number)]


@pytest.mark.parametrize("seed", range(20))
def test_random_answers_score_as_counted_word_by_word(seed: int) -> None:
    random = np.random.default_rng(seed)
    predictions = random_texts(random, 60)
    references = [random_texts(random, int(random.integers(0, 4))) for _ in predictions]
    slow = np.array([slow_scores(*pair) for pair in zip(references, predictions, strict=True)])
    fast = question_scores(references, predictions)
    np.testing.assert_allclose(fast["squad_exact_match"], slow[:, 0], rtol=0, atol=0)
    np.testing.assert_allclose(fast["squad_f1"], slow[:, 1], rtol=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_is_better_than_the_best(seed: int) -> None:
    """Every threshold is tried in turn; null odds differ, so each is what the search can reach."""
    random = np.random.default_rng(100 + seed)
    number = 50
    scores, odds = random.random(number), random.permutation(number) / 10 - 2.05
    has_answer, answered = random.random(number) < 0.5, random.random(number) < 0.8
    scores = np.where(has_answer, np.where(answered, scores, 0.0), 0.0)

    def at(threshold: float) -> float:
        total = 0.0
        for score, null, has, given in zip(scores, odds, has_answer, answered, strict=True):
            kept = null <= threshold and given
            total += (score if kept else 0.0) if has else float(not kept)
        return total / number

    best = best_threshold(scores, odds, has_answer, answered)
    assert best.score == pytest.approx(max(at(t) for t in [-99.0, *odds]), abs=1e-12)
    # The official scorer says 0 where it is best to answer nothing.
    threshold = best.threshold or -99.0
    assert at(threshold) == pytest.approx(best.score, abs=1e-12)


def test_nothing_answered_is_best_at_zero() -> None:
    best = best_threshold([0.0, 0.0], [-3.0, 2.0], [False, False], [True, True])
    assert (best.score, best.threshold) == (1.0, 0.0)


def test_equal_null_odds_count_one_after_the_other() -> None:
    # The official scorer stops between questions with equal odds: 1 of 2, and not 0.5 of 2.
    best = best_threshold([1.0, 0.0], [0.5, 0.5], [True, False], [True, True])
    assert (best.score, best.threshold) == (1.0, 0.5)
