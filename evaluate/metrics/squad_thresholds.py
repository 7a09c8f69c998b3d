"""What the official scorer of SQuAD 2.0 reports: scores by kind of question, and the best thresholds.

A model gives each question its null odds: how much likelier no answer is than its best one. Questions
whose null odds are above a threshold go unanswered. The best threshold is found on the questions that
it is scored on, so its score is an upper bound, not an estimate.

Reference: Rajpurkar et al., 2018; evaluate-v2.0.py of the SQuAD explorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.column_metric import reference_array
from multiberts.evaluate.metrics.squad import SQUAD_METRICS

Array = NDArray[np.float64]

# The official scorer's name of each metric.
OFFICIAL_NAMES = {"squad_exact_match": "exact", "squad_f1": "f1"}


@dataclass(frozen=True)
class BestThreshold:
    """The threshold on the null odds at which a metric is highest.

    Attributes:
      score: the metric there, in [0, 1].
      threshold: questions with null odds above it go unanswered.
    """

    score: float
    threshold: float


def best_threshold(
    scores: ArrayLike, null_odds: ArrayLike, has_answer: ArrayLike, answered: ArrayLike
) -> BestThreshold:
    """Finds the threshold that gives the best score, as the official scorer does.

    Questions are answered one by one in the order of their null odds. Of equally good thresholds the
    least is taken; 0 where answering nothing at all is best. Questions with equal null odds count one
    after the other, in the order given, so that the score may be one between them.

    Args:
      scores: [questions]: exact match or F1 of the answer that each question has.
      null_odds: [questions].
      has_answer: bool [questions]: whether there is an answer to find.
      answered: bool [questions]: whether the prediction is not empty. One that is loses nothing at
        any threshold, so give the best answers rather than those left at a threshold.

    Raises:
      ValueError: no questions, other lengths, or null odds that are not numbers.
    """
    columns = [np.asarray(values) for values in (scores, null_odds, has_answer, answered)]
    score, odds, has, given = columns
    if not (len(score) and all(column.shape == (len(score),) for column in columns)):
        raise ValueError(
            f"found columns of shapes {[column.shape for column in columns]}, expected one value a "
            "question in each; give all of the same questions"
        )
    if np.isnan(odds.astype(np.float64)).any():
        raise ValueError("null odds are not numbers; the predictions are not of SQuAD 2.0")
    order = np.argsort(odds, kind="stable")
    gains = np.where(has, score, np.where(given, -1.0, 0.0))[order].astype(np.float64)
    # One after the other, so that the last bits are the official scorer's.
    reached = np.cumsum(np.concatenate([[float(np.count_nonzero(~has.astype(bool)))], gains]))
    best = int(reached.argmax())
    threshold = 0.0 if best == 0 else float(odds[order[best - 1]])
    return BestThreshold(float(reached[best] / len(score)), threshold)


def question_scores(
    references: Sequence[Sequence[str]], predictions: Sequence[str]
) -> dict[str, Array]:
    """Exact match and F1 of every question, by the name of the metric.

    Args:
      references: [questions]: texts of the answers, none where there is no answer.
      predictions: [questions]: "" for no answer.

    Returns:
      float64 [questions] for each.

    Raises:
      ValueError: the lengths differ, or values that are not texts.
    """
    labels = reference_array(references)
    given = np.array(predictions, dtype=object)
    found = {}
    for metric in SQUAD_METRICS:
        bound = metric.bind(labels, given)
        found[metric.name] = np.asarray(bound.columns(labels, given)[:, 1], np.float64)
    return found


def official_scores(
    references: Sequence[Sequence[str]],
    predictions: Sequence[str],
    null_odds: Sequence[float] | None = None,
) -> dict[str, float]:
    """The official scorer's report, in percent, under its names.

    Args:
      references: [questions]: texts of the answers, none where there is no answer.
      predictions: [questions]: "" for no answer.
      null_odds: [questions], for the best thresholds.

    Returns:
      `exact`, `f1`, `total`; the same of questions with an answer (`HasAns_...`) and without
      (`NoAns_...`), where there are any; and with null odds `best_exact`, `best_exact_thresh`,
      `best_f1`, `best_f1_thresh`. Null odds leave the first ones as they are: the official scorer
      would drop answers whose null odds are above 1 (its `--na-prob-thresh`), which BERT's never
      are, as they went unanswered above 0 already.

    Raises:
      ValueError: the lengths differ, or values that are not texts or numbers.
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
