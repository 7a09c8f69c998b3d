"""Labels of text tasks: a class, a number, a set of labels, or a tag for each word.

A set is written as the names of its labels with `|` between them, tags with spaces between them; where
cells have types (JSON lines, Parquet, `datasets`), both may be lists, too. Prediction files have them in
the same form, as `answers` and `prediction_text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from multiberts.bert.tokenization import Tokenizer
from multiberts.evaluate.metrics.label_sets import SEPARATOR
from multiberts.evaluate.metrics.tagged_spans import spans
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS, PREDICTION_TEXT
from multiberts.finetune.text.task import MULTI_LABEL, TOKENS, TextTask
from multiberts.runs.errors import UserError, counted
from multiberts.runs.tables import TableRow

# The tag outside of spans.
OUTSIDE = "O"
# In place of the tag of a word that is not there.
NO_TAG = -1


def words_of(row: TableRow, column: str) -> list[str]:
    """Returns the words of a cell: its list, or its text cut at spaces."""
    words = row.lists[column] if column in row.lists else row[column].split()
    if not words:
        raise UserError(
            f"{row.where}: found nothing in {column}, expected a word or more; correct it or leave it out"
        )
    return words


def names_in(row: TableRow, column: str, kind: str | None) -> list[str]:
    """Returns the names of labels in a cell: one, those of a set, or a tag for each word."""
    if kind == TOKENS:
        return words_of(row, column)
    if kind != MULTI_LABEL:
        return [row[column]]
    if column in row.lists:
        return row.lists[column]
    return row[column].split(SEPARATOR) if row[column] else []


def label_of(row: TableRow, task: TextTask, cure: str) -> float | list[float]:
    """Returns the label of a row as numbers.

    Args:
      cure: for the message on an unknown label.

    Returns:
      The number of the class, or the value of a regression; of a set, 1 or 0 for each class; of tags, the
      number of each.
    """
    if task.labels is None:
        return row.number(task.label_column)
    names = names_in(row, task.label_column, task.kind)
    unknown = [name for name in names if name not in task.labels]
    if unknown:
        raise UserError(
            f"{row.where}: found {task.label_column} {unknown[0]!r}, expected one of "
            f"{', '.join(task.labels)}{cure}"
        )
    if task.kind == MULTI_LABEL:
        return [float(name in names) for name in task.labels]
    numbers = [float(task.labels.index(name)) for name in names]
    if task.kind != TOKENS:
        return numbers[0]
    words = words_of(row, task.text_columns[0])
    if len(numbers) != len(words):
        raise UserError(
            f"{row.where}: found {counted(len(numbers), 'tag')} in {task.label_column} for the "
            f"{counted(len(words), 'word')} of "
            f"{task.text_columns[0]}, expected one for each; correct the line"
        )
    return numbers


def label_array(labels: Sequence[Any], task: TextTask) -> np.ndarray:
    """Returns the labels of all rows as one array.

    Args:
      labels: [examples], as from `label_of`.

    Returns:
      float32 [examples]; of sets [examples, classes]; of tags [examples, most words], with `NO_TAG` after
      the last one.
    """
    if task.kind != TOKENS:
        return np.array(labels, np.float32)
    found = np.full((len(labels), max(map(len, labels))), NO_TAG, np.float32)
    for row, tags in enumerate(labels):
        found[row, : len(tags)] = tags
    return found


def check_tags(task: TextTask) -> None:
    labels = task.labels or ()
    cure = "give finetune.labels, or tag in BIO: O, B-<type>, I-<type>"
    try:
        spans(" ".join(labels))
    except ValueError as error:
        raise UserError(f"task {task.name}: {error}; {cure}") from error
    if OUTSIDE not in labels:
        raise UserError(
            f"task {task.name} has the tags {', '.join(labels)}, expected {OUTSIDE} among them; {cure}"
        )


def first_pieces(
    tokenizer: Tokenizer, words: Sequence[Sequence[str]], sequence_length: int
) -> np.ndarray:
    """Returns where the first word piece of each word stands in `[CLS] words [SEP]`.

    Args:
      sequence_length: the largest number of tokens in a sequence.

    Returns:
      int32 [examples, most words]; -1 for words without a piece, for those that are cut off, and after
      the last one.
    """
    pieces = iter(tokenizer.encode_batch([word for row in words for word in row]))
    found = np.full((len(words), max(map(len, words), default=0)), -1, np.int32)
    for number, row in enumerate(words):
        place = 1
        for column in range(len(row)):
            count = len(next(pieces))
            if count and place < sequence_length - 1:
                found[number, column] = place
            place += count
    return found


def tags_of_pieces(labels: np.ndarray, places: np.ndarray, length: int) -> np.ndarray:
    """Returns the tag of each word at its first piece, the only one that is trained.

    Args:
      labels: [batch, most words], as from `label_array`.
      places: int32 [batch, most words], as from `first_pieces`.

    Returns:
      int32 [batch, length], `NO_TAG` at other pieces.
    """
    found = np.full((len(labels), length), NO_TAG, np.int32)
    rows, columns = np.nonzero(places >= 0)
    found[rows, places[rows, columns]] = labels[rows, columns]
    return found


def predicted_tags(logits: np.ndarray, places: np.ndarray, task: TextTask) -> np.ndarray:
    """Returns the tag of each word, that of its first piece; `O` for a word without one.

    Args:
      logits: [batch, length, tags].
      places: int32 [batch, most words], as from `first_pieces`.

    Returns:
      int64 [batch, most words].
    """
    assert task.labels is not None
    tags = np.take_along_axis(logits.argmax(axis=-1), np.maximum(places, 0), axis=1)
    return np.where(places >= 0, tags, task.labels.index(OUTSIDE))


def texts_of_labels(labels: np.ndarray, task: TextTask) -> list[str]:
    """Returns sets or tags as text.

    Args:
      labels: [examples, classes] of sets, 1 for those that are there; [examples, most words] of tags.
    """
    assert task.labels is not None
    if task.kind == TOKENS:
        return [" ".join(task.labels[int(tag)] for tag in row if tag >= 0) for row in labels]
    chosen = [
        [name for name, given in zip(task.labels, row, strict=True) if given] for row in labels
    ]
    return [SEPARATOR.join(names) for names in chosen]


def text_columns_of_prediction_set(
    labels: np.ndarray | None, answers: np.ndarray, task: TextTask
) -> tuple[np.ndarray | None, np.ndarray, dict[str, list[str]], dict[str, list[str]]]:
    """Returns what a prediction file holds of answers in words.

    Args:
      labels: sets or tags, as `texts_of_labels` takes them; None where they are unknown.

    Returns:
      Labels and predictions float32 [examples], 1 where there is any label or span; the columns of the
      examples; those of the run's answers.
    """
    answer_texts = texts_of_labels(answers, task)
    outputs = {PREDICTION_TEXT: answer_texts}
    if labels is None:
        return None, _is_any(answer_texts, task), {}, outputs
    texts = texts_of_labels(labels, task)
    return _is_any(texts, task), _is_any(answer_texts, task), {ANSWERS: texts}, outputs


def _is_any(texts: Sequence[str], task: TextTask) -> np.ndarray:
    if task.kind == TOKENS:
        return np.array([any(tag != OUTSIDE for tag in text.split()) for text in texts], np.float32)
    return np.array([bool(text) for text in texts], np.float32)
