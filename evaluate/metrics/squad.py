"""Exact match and F1 of answers in words, as SQuAD defines them (Rajpurkar et al., 2016, 2018).

The label of an example is its reference answers, a tuple of strings (or one string). Without references,
or with references without words, the example has no answer, and the empty prediction is right. An
example's score is the maximum over its references with words. Scores are shares in [0, 1]. The scorer of
SQuAD 1.1 also accepts references without words, which three questions have (docs/departures.md).

A model of SQuAD 2.0 computes null odds per question: the score of no answer minus that of its best answer.
Questions with null odds above a threshold are left unanswered. The best threshold is chosen on the scored
questions, so its score is an upper bound, not an estimate (evaluate-v2.0.py of the SQuAD explorer).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    mean_metric,
    reference_array,
    shown,
    stack,
    with_empty_texts,
)

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

Words = tuple[str, ...]


def answer_words(text: str) -> Words:
    """Returns the words of an answer in lower case, without punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(reference: Words, prediction: Words) -> float:
    """Returns 1 if the words are equal, otherwise 0."""
    return float(reference == prediction)


def f1_of_words(reference: Words, prediction: Words) -> float:
    """Returns 2 x shared words / words of both; if either is empty, returns 1 if both are, otherwise 0."""
    if not reference or not prediction:
        return float(reference == prediction)
    shared = (Counter(reference) & Counter(prediction)).total()
    return 2 * shared / (len(reference) + len(prediction))


def references_of(label: object) -> Sequence[str]:
    return (label,) if isinstance(label, str) else tuple(label)  # type: ignore[arg-type]


def check_texts(name: str, labels: NDArray, predictions: NDArray) -> None:
    """Raises ValueError unless labels are texts or tuples of texts, and predictions are texts."""
    for label in labels:
        fits = isinstance(label, str) or (
            isinstance(label, (tuple, list, np.ndarray))
            and all(isinstance(text, str) for text in label)
        )
        if not fits:
            raise ValueError(
                f"{name}: found label {shown(label)}, expected a tuple of reference texts; give the "
                "references of every example"
            )
    if predictions.dtype.kind != "U":
        for prediction in predictions.flat:
            if not isinstance(prediction, str):
                raise ValueError(
                    f"{name}: found prediction {shown(prediction)}, expected a text; give the predicted "
                    "text of every example ('' for none)"
                )


def _bind_answers(
    name: str, compare: Callable[[Words, Words], float], labels: NDArray, predictions: NDArray
) -> Columns:
    check_texts(name, labels, predictions)

    def columns(labels: NDArray, predictions: NDArray) -> Array:
        runs = predictions.reshape(-1, len(labels))
        best = np.empty(runs.shape)
        for example, label in enumerate(labels):
            references = {answer_words(text) for text in references_of(label)} - {()} or {()}
            scores: dict[str, float] = {}  # cached by text, as runs often agree
            for run, text in enumerate(runs[:, example].tolist()):
                if text not in scores:
                    words = answer_words(text)
                    scores[text] = max(compare(reference, words) for reference in references)
                best[run, example] = scores[text]
        return stack(predictions.shape, 1.0, best.reshape(predictions.shape))

    return columns


SQUAD_METRICS = (
    mean_metric(
        "squad_exact_match",
        BoundColumns(partial(_bind_answers, "squad_exact_match", exact_match)),
        label="exact match",
        unit="%",
        meaning="Share of answers equal to a reference answer.",
        whole=True,
        uses="text",
        of_cells=with_empty_texts,
        bounds=(0.0, 1.0),
    ),
    mean_metric(
        "squad_f1",
        BoundColumns(partial(_bind_answers, "squad_f1", f1_of_words)),
        label="F1 of words",
        unit="%",
        meaning="Overlap of the words of answer and reference, averaged.",
        uses="text",
        of_cells=with_empty_texts,
        bounds=(0.0, 1.0),
    ),
)

# The official scorer's name of each metric.
OFFICIAL_NAMES = {"squad_exact_match": "exact", "squad_f1": "f1"}


@dataclass(frozen=True)
class BestThreshold:
    """The threshold on the null odds that maximises a metric.

    Attributes:
      score: the metric at the threshold, in [0, 1].
      threshold: questions with higher null odds are left unanswered.
    """

    score: float
    threshold: float


def best_threshold(
    scores: ArrayLike, null_odds: ArrayLike, has_answer: ArrayLike, answered: ArrayLike
) -> BestThreshold:
    """Finds the threshold with the best score, like the official scorer.

    Questions are answered one by one in the order of their null odds. The lowest of equally good thresholds
    is chosen, or 0 if no answers are best. Questions with equal null odds are answered one by one, too, so
    that the score may lie between them.

    Args:
      scores: exact match or F1 of each question's answer [questions].
      has_answer: whether the question has an answer, bool [questions].
      answered: whether the prediction is not empty, bool [questions]. Empty predictions lose nothing at any
        threshold, so give the best answers, not those above some threshold.
    """
    columns = [np.asarray(values) for values in (scores, null_odds, has_answer, answered)]
    score, odds, has, is_answered = columns
    if not (len(score) and all(column.shape == (len(score),) for column in columns)):
        raise ValueError(
            f"found columns of shapes {[column.shape for column in columns]}, expected one value per "
            "question in each; give all of the same questions"
        )
    if np.isnan(odds.astype(np.float64)).any():
        raise ValueError("null odds are not numbers; the predictions are not of SQuAD 2.0")
    order = np.argsort(odds, kind="stable")
    gains = np.where(has, score, np.where(is_answered, -1.0, 0.0))[order].astype(np.float64)
    # Cumulative, so that the last bits equal the official scorer's.
    reached = np.cumsum(np.concatenate([[float(np.count_nonzero(~has.astype(bool)))], gains]))
    best = int(reached.argmax())
    threshold = 0.0 if best == 0 else float(odds[order[best - 1]])
    return BestThreshold(float(reached[best] / len(score)), threshold)


def question_scores(
    references: Sequence[Sequence[str]], predictions: Sequence[str]
) -> dict[str, Array]:
    """Computes exact match and F1 of every question, by name of the metric.

    Args and values are [questions]; "no answer" has no references, and the prediction "".
    """
    labels = reference_array(references)
    answers = np.array(predictions, dtype=object)
    scores = {}
    for metric in SQUAD_METRICS:
        bound = metric.bind(labels, answers)
        scores[metric.name] = np.asarray(bound.columns(labels, answers)[:, 1], np.float64)
    return scores


def official_scores(
    references: Sequence[Sequence[str]],
    predictions: Sequence[str],
    null_odds: Sequence[float] | None = None,
) -> dict[str, float]:
    """Computes the official scorer's report, in percent, with its names.

    Args:
      references: reference texts [questions]; none for no answer.
      predictions: predicted texts [questions]; "" for no answer.
      null_odds: null odds [questions], for the best thresholds.

    Returns:
      `exact`, `f1`, `total`; the same for questions with an answer (`HasAns_...`) and without
      (`NoAns_...`), if there are any; and with null odds `best_exact`, `best_exact_thresh`, `best_f1`,
      `best_f1_thresh`. Null odds do not change the first scores: the official scorer drops answers with
      null odds above 1 (its `--na-prob-thresh`), but BERT leaves questions above 0 unanswered already.
    """
    scores = question_scores(references, predictions)
    has_answer = np.array([len(texts) > 0 for texts in references])
    report: dict[str, float] = {}
    groups = {"": np.ones(len(has_answer), bool), "HasAns_": has_answer, "NoAns_": ~has_answer}
    for prefix, members in groups.items():
        if members.any():
            for name, official in OFFICIAL_NAMES.items():
                report[prefix + official] = 100 * float(scores[name][members].mean())
            report[f"{prefix}total"] = int(members.sum())
    if null_odds is not None:
        answered = np.array([bool(text) for text in predictions])
        for name, official in OFFICIAL_NAMES.items():
            best = best_threshold(scores[name], null_odds, has_answer, answered)
            report[f"best_{official}"] = 100 * best.score
            report[f"best_{official}_thresh"] = best.threshold
    return report
