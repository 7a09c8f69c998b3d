"""Exact match and F1 of answers in words, as SQuAD defines them (Rajpurkar et al., 2016, 2018).

The label of an example is its reference answers, a tuple of strings (or one string); none, or none
that holds a word, means that there is no answer, and the empty prediction is then right. An example
scores the best of its references. Scores are shares in [0, 1].
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Metric,
    mean_finish,
    shown,
    stack,
)

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

Words = tuple[str, ...]


def answer_words(text: str) -> Words:
    """The words of an answer in lower case, without punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(reference: Words, prediction: Words) -> float:
    return float(reference == prediction)


def f1_of_words(reference: Words, prediction: Words) -> float:
    """2 x shared words / words of both; where either side has none, whether both have none."""
    if not reference or not prediction:
        return float(reference == prediction)
    shared = (Counter(reference) & Counter(prediction)).total()
    return 2 * shared / (len(reference) + len(prediction))


def references_of(label: object) -> Sequence[str]:
    """The references that a label stands for."""
    return (label,) if isinstance(label, str) else tuple(label)  # type: ignore[arg-type]


def check_texts(name: str, labels: NDArray, predictions: NDArray) -> None:
    """Raises ValueError unless labels are texts or tuples of them, and predictions texts."""
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
            scores: dict[str, float] = {}  # runs often agree
            for run, text in enumerate(runs[:, example].tolist()):
                if text not in scores:
                    words = answer_words(text)
                    scores[text] = max(compare(reference, words) for reference in references)
                best[run, example] = scores[text]
        return stack(predictions.shape, 1.0, best.reshape(predictions.shape))

    return columns


SQUAD_METRICS = (
    Metric(
        "squad_exact_match",
        BoundColumns(partial(_bind_answers, "squad_exact_match", exact_match)),
        mean_finish,
        mean_of=1,
        num_label_columns=1,
        whole=True,
        uses="text",
    ),
    Metric(
        "squad_f1",
        BoundColumns(partial(_bind_answers, "squad_f1", f1_of_words)),
        mean_finish,
        mean_of=1,
        num_label_columns=1,
        uses="text",
    ),
)
