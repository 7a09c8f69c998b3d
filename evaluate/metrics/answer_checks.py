"""Checks answers against labels under a metric: errors, and notes for readers.

Comparisons, imports and scores all call `check_answers`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import (
    CLASS_METRICS,
    MOST_CLASSES,
    Share,
    distinct,
    f1_share,
    is_binary,
    precision,
    recall,
    unlike_classes,
)
from multiberts.evaluate.metrics.column_metric import Array, Flags, Metric, checked, ratio
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.squad import OFFICIAL_NAMES, answer_words, references_of
from multiberts.runs.errors import counted

# Label of examples with unpublished labels, as in GLUE's test sets.
PLACEHOLDER = -1
# Standard errors below chance: three runs in 100,000 at chance score lower.
_FAR_BELOW = 4
# Examples sampled for ranks: enough to detect scores far below chance, in little time.
_MOST_RANKED = 10_000
# Averages over the classes of labels and answers; a class without labels has the same weight as others.
_MACRO: Mapping[str, Share] = {
    "f1_macro": f1_share, "precision_macro": precision, "recall_macro": recall
}  # fmt: skip
_MOST_WORDS = 5
# A text with at least this share of the answers to unanswerable questions, on this many questions, is not
# there by chance.
_WORD_SHARE, _WORD_QUESTIONS = 0.05, 3


@dataclass(frozen=True)
class Answers:
    """The answers of an arm.

    Attributes:
      name: the arm's name for error messages; may be empty.
      observed: bool [runs, examples], False for missing predictions; None if none is missing.
      weights: weight of each run in the arm's score [runs]; None: equal weights.
      num_units: number of independent examples or clusters; None: all examples.
    """

    predictions: NDArray
    name: str = ""
    observed: NDArray | None = None
    weights: Array | None = None
    num_units: int | None = None

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Returns whether each answer exists [runs, examples]."""
        if self.observed is None:
            return np.ones(self.predictions.shape, dtype=bool)
        return self.observed

    def flat(self) -> NDArray:
        answers: NDArray = (
            self.predictions.ravel() if self.observed is None else self.predictions[self.observed]
        )
        return answers

    def mean(self, of_runs: Array) -> float:
        """Averages values over runs [runs]."""
        return float(np.average(of_runs, weights=self.weights))


def check_answers(metric: str, labels: NDArray, arms: Sequence[Answers]) -> list[list[str]]:
    """Checks the answers of arms, the base first, under a metric; unknown metrics are not checked.

    Returns:
      Notes per arm: answers of classes that no label has, words for the empty answer, labels that no run
      predicts, scores far below chance. They contain `{arm}` for the arm's name, `{base}` and
      `{experiment}` for the names of the first and second arm.

    Examples:
      >>> labels, answers = np.array(["no", "yes"] * 50), np.array([["no", "yes"] * 50] * 3)
      >>> answers[0, :2] = "n/a"
      >>> check_answers("accuracy", labels, [Answers(answers)])
      [["2 of 300 answers of {arm} (0.67 %) are of classes that no label has: 'n/a' (2)."]]
    """
    notes: list[list[str]] = [[] for _ in arms]
    definition = METRICS.get(metric)
    if definition is None or not definition.uses_labels or definition.uses == "scores":
        return notes
    for arm in arms:
        if are_placeholders(labels, arm.predictions):
            raise ValueError(
                f"all {len(labels)} labels are {PLACEHOLDER}, as in test sets whose labels are not published "
                "(GLUE's), and no answer is; use examples with labels, such as the validation set"
            )
    if metric in CLASS_METRICS:
        notes = _notes_of_classes(metric, labels, arms)
    for arm_notes, arm in zip(notes, arms, strict=True):
        arm_notes += _below_chance(metric, labels, arm)
        if metric in OFFICIAL_NAMES:
            arm_notes += _words_for_no_answer(labels, arm)
    return notes


def are_placeholders(labels: NDArray, predictions: NDArray) -> bool:
    """Returns whether all labels are -1 and no answers are."""
    if labels.dtype.kind not in "if" or predictions.dtype.kind not in "biuf":
        return False
    return bool((labels == PLACEHOLDER).all()) and not (predictions == PLACEHOLDER).any()


def _notes_of_classes(metric: str, labels: NDArray, arms: Sequence[Answers]) -> list[list[str]]:
    counts: Counter = Counter(labels.tolist())
    notes: list[list[str]] = [[] for _ in arms]
    predicted: set[Any] = set()
    with_stray = []
    for arm_notes, arm in zip(notes, arms, strict=True):
        answers = arm.flat()
        # NumPy finds distinct values much faster than a set of Python objects.
        classes = {*(answers if answers.dtype.kind == "O" else distinct(answers)).tolist()}
        if any(isinstance(value, float) and not value.is_integer() for value in classes):
            return notes  # not classes: the metric raises an error
        # Per arm, as only one of them may spell its classes like the labels.
        unlike = unlike_classes(counts, classes)
        if unlike:
            raise ValueError(f"{arm.name}: {unlike}" if arm.name else unlike)
        predicted |= classes
        if classes - {*counts} and 2 <= len(counts) <= MOST_CLASSES:
            arm_notes.append(_stray(answers, counts))
            with_stray.append(arm_notes)
    if not 2 <= len(counts) <= MOST_CLASSES:
        return notes
    if with_stray and metric in _MACRO:
        with_stray[-1].append(_over_labelled_classes(metric, labels, arms))
    whose = "{base} or {experiment}" if len(arms) > 1 else "{arm}"
    unseen = [
        f"No run of {whose} predicts the label {_word(label)}, which "
        f"{counted(counts[label], 'example')} of {len(labels)} {'has' if counts[label] == 1 else 'have'}."
        for label in sorted({*counts} - predicted, key=str)
    ]
    notes[0] += unseen
    return notes


def _stray(answers: NDArray, labels: Mapping[Any, int]) -> str:
    """Describes the answers [answers] of classes that no label has."""
    stray = Counter({value: n for value, n in _counts(answers).items() if value not in labels})
    words = [f"{_word(value)} ({number:,})" for value, number in stray.most_common(_MOST_WORDS)]
    more = f" and {counted(len(stray) - len(words), 'other')}"
    number = stray.total()
    return (
        f"{number:,} of {answers.size:,} answers of {{arm}} ({100 * number / answers.size:.2g} %) "
        f"{'is' if number == 1 else 'are'} of classes that no label has: {', '.join(words)}"
        f"{more * (len(stray) > len(words))}."
    )


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


def _counts(answers: NDArray) -> Mapping[Any, int]:
    if answers.dtype.kind == "O":
        return Counter(answers.tolist())
    values, numbers = np.unique(answers, return_counts=True)
    return dict(zip(values.tolist(), numbers.tolist(), strict=True))


def labelled_averages(metric: str, labels: NDArray, arms: Sequence[Answers]) -> tuple[float, ...]:
    """Returns a macro average per arm over the labels' classes only.

    Returns:
      The averages; empty for other metrics, and if all answers are of these classes.
    """
    if metric not in _MACRO or not 2 <= len({*labels.tolist()}) <= MOST_CLASSES:
        return ()
    classes = {*labels.tolist()}
    if all({*_counts(arm.flat())} <= classes for arm in arms):
        return ()
    return tuple(arm.mean(_labelled_average(_MACRO[metric], labels, arm)) for arm in arms)


def _over_labelled_classes(metric: str, labels: NDArray, arms: Sequence[Answers]) -> str:
    """Returns a note on the macro average over the labels' classes only."""
    name, scores = METRICS[metric].label, labelled_averages(metric, labels, arms)
    roles = ("{base}", "{experiment}") if len(arms) > 1 else ("{arm}",)
    texts = [f"{100 * score:.1f} % for {role}" for score, role in zip(scores, roles, strict=True)]
    difference = ""
    if len(scores) > 1:
        difference = f", a difference of {100 * (scores[1] - scores[0]):+.1f} points"
    return (
        f"Each such class counts in {name} as one with a score of 0, as in scikit-learn, however few its "
        f"answers are. Over the {len({*labels.tolist()})} classes of the labels alone {name} is "
        f"{' and '.join(texts)}{difference}."
    )


def _labelled_average(share: Share, labels: NDArray, arm: Answers) -> Array:
    """Returns the average of a share over the labels' classes [runs]."""
    seen, shares = arm.seen, []
    for member in distinct(labels) if labels.dtype.kind != "O" else {*labels.tolist()}:
        truth, guess = seen & (labels == member), seen & (arm.predictions == member)
        sums = (part.sum(axis=-1, dtype=np.float64) for part in (truth, guess, truth & guess))
        shares.append(ratio(*share(*sums)))
    average: Array = np.mean(shares, axis=0)
    return average


def _below_chance(metric: str, labels: NDArray, arm: Answers) -> list[str]:
    """Returns a note if answers are too far below chance for noise."""
    units, number = arm.num_units or len(labels), len(labels)
    if metric in CLASS_METRICS:
        return _below_random_answers(labels, arm, units)
    if {labels.dtype.kind, arm.predictions.dtype.kind} - {*"biuf"} or number < 2:
        return []
    drawn = np.arange(number)
    if number > _MOST_RANKED:
        drawn = np.random.default_rng(0).choice(number, _MOST_RANKED, replace=False)
    labels, predictions, seen = labels[drawn], arm.predictions[:, drawn], arm.seen[:, drawn]
    # A cluster counts as one example.
    number, scale = len(drawn), math.sqrt(len(drawn) / max(2, units * len(drawn) / number))
    if metric in ("auc", "average_precision") and is_binary(labels) and 0 < labels.sum() < number:
        positives = int(labels.sum())
        error = math.sqrt((number + 1) / (12 * positives * (number - positives)))
        measure, chance, question = "auc", 0.5, "Are its scores of the other class?"
    elif metric in ("pearson", "spearman"):
        # A single outlier can flip the sign of Pearson's correlation, but not of Spearman's.
        error, measure, chance = 1 / math.sqrt(number - 1), "spearman", 0.0
        question = "Do its numbers run the other way?"
    else:
        return []
    of_runs = [
        float(METRICS[measure].score(labels[answered], row[answered])) if answered.any() else chance
        for row, answered in zip(predictions, seen, strict=True)
    ]
    score = arm.mean(np.array(of_runs))
    if score >= chance - _FAR_BELOW * scale * error:
        return []
    return [
        f"{METRICS[measure].label} of {{arm}} is {score:.3g}, far below chance ({chance:g}). {question}"
    ]


def _below_random_answers(labels: NDArray, arm: Answers, units: int) -> list[str]:
    """Compares the accuracy with that of random answers with the same class frequencies."""
    classes = Counter(labels.tolist())
    if not 2 <= len(classes) <= MOST_CLASSES:
        return []
    seen = arm.seen
    number = np.maximum(seen.sum(axis=-1), 1)
    right = arm.mean((seen & (arm.predictions == labels)).sum(axis=-1) / number)
    if right >= max(classes.values()) / len(labels):  # better than any random answers
        return []
    expected = np.zeros(len(seen))
    for member in classes:
        truth, guess = seen & (labels == member), seen & (arm.predictions == member)
        expected += truth.sum(axis=-1) * guess.sum(axis=-1) / number**2
    chance = arm.mean(expected)
    if right >= chance - _FAR_BELOW * math.sqrt(chance * (1 - chance) / units):
        return []
    return [
        f"Answers of {{arm}} are right on {100 * right:.1f} % of the examples, far below chance: random "
        f"answers with the same class frequencies would be on {100 * chance:.1f} %. Are classes exchanged?"
    ]


def _words_for_no_answer(labels: NDArray, arm: Answers) -> list[str]:
    """Returns a note on a text that seems to mean no answer, as only the empty text does."""
    no_answer = [not any(map(answer_words, references_of(label))) for label in labels]
    answers, seen = arm.predictions[:, no_answer], arm.seen[:, no_answer]
    texts = Counter(text for text in answers[seen].tolist() if answer_words(text))
    return [
        f"{number:,} of {int(seen.sum()):,} answers of {{arm}} to questions without an answer are "
        f"{text!r}, which counts as wrong: if it means no answer, leave the answer empty."
        for text, number in texts.most_common(1)
        if number > _WORD_SHARE * seen.sum()
        and ((answers == text) & seen).any(axis=0).sum() >= _WORD_QUESTIONS
    ]


def undefined_runs(metric: Metric | RankMetric, labels: NDArray, predictions: NDArray) -> Flags:
    """Returns whether each run's score is 0/0, and so a defined value [runs].

    Args:
      predictions: predictions [runs, examples], or [runs, examples, classes].
    """
    if isinstance(metric, RankMetric):
        flags: Flags = metric.bind(labels, predictions).weighted(np.ones((1, len(labels))))[1][0]
        return flags
    columns = metric.columns(*checked(labels, predictions, metric.uses))
    return metric.degenerate(columns.sum(axis=-2))


def why_undefined(labels: NDArray, predictions: NDArray, observed: NDArray | None = None) -> str:
    """Returns the reason in words why the scores of all runs are 0/0, such as constant labels or answers.

    Args:
      observed: bool [runs, examples], False for missing predictions; None if none is missing.

    Examples:
      >>> why_undefined(np.array([0, 0, 0]), np.array([[0, 0, 0], [0, 0, 0]]))
      'all 3 labels and all predictions are 0'
      >>> why_undefined(np.array([0, 1]), np.array([[0, 0], [1, 1]]))
      'each run predicts one value throughout'
    """
    seen = np.ones(predictions.shape, dtype=bool) if observed is None else observed
    of_labels = {*labels[seen.any(axis=0)].tolist()}
    of_runs = [{*row[answered].tolist()} for row, answered in zip(predictions, seen, strict=True)]
    every = set().union(*of_runs)
    number = f"all {int(seen.any(axis=0).sum())} labels"
    if len(of_labels) == 1 and of_labels == every:
        return f"{number} and all predictions are {_word(every.pop())}"
    reasons = [f"{number} are {_word(of_labels.pop())}"] if len(of_labels) == 1 else []
    if len(every) == 1:
        reasons.append(f"all predictions are {_word(every.pop())}")
    elif max(map(len, of_runs)) == 1:
        reasons.append("each run predicts one value throughout")
    return " and ".join(reasons) or "the denominator is 0"
