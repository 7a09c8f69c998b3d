"""Answers of a fine-tuned model as objects, one per example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from multiberts.evaluate.metrics.label_sets import SEPARATOR
from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS, PREDICTION_TEXT
from multiberts.finetune.model import EvaluationSet
from multiberts.finetune.squad.questions import ids_of_rows, is_official
from multiberts.finetune.text.task import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from multiberts.runs.tables import is_table, table_entries

QUESTIONS, _COREFERENCE = "question_answering", "coreference"
# Heads whose new examples are rows of a table.
_KINDS_OF_TABLES = (CLASSIFICATION, REGRESSION, MULTI_LABEL, TOKENS, QUESTIONS)
_OURS = ("set", "example_id", "prediction", "label", "probabilities", "scores")


def answer_lines(
    predicted: EvaluationSet, head: Mapping[str, Any], path: str | None
) -> Iterator[dict[str, Any]]:
    """Yields an object per example: the columns of its row, its id, the answer and the truth, and outputs.

    Args:
      head: its record, see `bert.checkpoint.fine_tuned`.
      path: the file of new examples; None: a published set, whose columns are its reader's.
    """
    kind, ids = head["kind"], list(predicted.example_ids)
    rows: list[Mapping[str, Any]] = []
    order: Sequence[int] = range(len(ids))
    if path is not None and kind in _KINDS_OF_TABLES and is_table(path):
        rows = list(table_entries(path))
        if kind == QUESTIONS and is_official(rows):
            rows = []
        elif kind == QUESTIONS:  # sorted by their ids, where these are given
            place = {name: number for number, name in enumerate(ids)}
            order = [place[name] for name in ids_of_rows(rows)]
    probabilities: np.ndarray | None = None  # those of the classes, or of each label of a set
    if predicted.scores is not None and kind in (CLASSIFICATION, _COREFERENCE):
        probabilities = softmax(predicted.scores)
    elif predicted.scores is not None and kind == MULTI_LABEL:
        probabilities = expit(predicted.scores.astype(np.float64))
    names = head["labels"] if kind == MULTI_LABEL else predicted.classes
    for number, row in enumerate(order):
        line: dict[str, Any] = {"set": predicted.name, "example_id": ids[row]}
        if PREDICTION_TEXT in predicted.outputs:
            line["prediction"] = _names(predicted.outputs[PREDICTION_TEXT][row], kind)
        else:
            line["prediction"] = _named(predicted.predictions[row].item(), predicted.classes)
        if predicted.labels is not None and ANSWERS in predicted.extras:
            known = predicted.extras[ANSWERS][row]
            line["label"] = _names(known, kind) if isinstance(known, str) else list(known)
        elif predicted.labels is not None:
            line["label"] = _named(predicted.labels[row].item(), predicted.classes)
        if probabilities is not None:
            values = [round(float(value), 6) for value in probabilities[row]]
            line["probabilities"] = dict(zip(names, values, strict=True)) if names else values
        if predicted.scores is not None:
            line["scores"] = predicted.scores[row].tolist()
        for name, column in predicted.outputs.items():
            if name != PREDICTION_TEXT:
                value = column[row]
                line[name] = value.item() if isinstance(value, np.generic) else value
        if not rows:
            yield line
            continue
        # A column that is called as one of ours, and says something else, is kept under another name.
        kept = {
            name
            if name not in {*_OURS, *line} or value == line.get(name, ...)
            else f"input_{name}": value
            for name, value in rows[number].items()
        }
        yield {**kept, **line}


def _names(text: str, kind: str) -> str | list[str]:
    if kind == TOKENS:
        return text.split()
    if kind == MULTI_LABEL:
        return text.split(SEPARATOR) if text else []
    return text


def _named(number: float, classes: Sequence[str] | None) -> Any:
    return number if classes is None else classes[int(number)]
