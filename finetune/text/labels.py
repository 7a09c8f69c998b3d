"""Labels of text tasks: a class, a number, a set of labels, or a tag per word.

Sets are written as names separated by `|`, tags are separated by spaces. Both may be lists, too: typed
lists (JSON lines, Parquet, `datasets`), or lists as text (`['rude', 'kind']` in CSV). A set may also be a
vector with a 0 or 1 per label. Prediction files have names separated by `|`, or tags separated by spaces,
in `answers` and `prediction_text`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.metrics.label_sets import SEPARATOR, separator_in
from multiberts.evaluate.metrics.tagged_spans import spans
from multiberts.finetune.text.task import MULTI_LABEL, TOKENS, TextTask
from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError, counted, listed
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import TableRow, as_text

# The tag outside of spans.
OUTSIDE = "O"
# Padding after the last word's tag.
NO_TAG = -1
# A column with more distinct values does not hold classes.
_MOST_LABELS = 1000
# Spellings of a missing label; not "none" and "NONE", which are classes of some tasks.
_MISSING = ("", "nan", "NaN", "None", "null", "NULL", "NA", "<NA>", "N/A", "n/a", "#N/A")
# The entries of a vector.
_BITS = dict.fromkeys(("0", "0.0", "False"), 0.0) | dict.fromkeys(("1", "1.0", "True"), 1.0)
_VECTOR = re.compile(r"[01](?:[\s,;|]+[01])+")
# Other separators of names than `|`; those of the second line also occur within names.
_SIGNS = ",;\t\uff0c\u3001\uff1b"
_SIGNS_WITHIN = "/ "
# An item of a list written by JSON, Python or NumPy, and the space or comma after it.
_ITEM = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d+\.?\d*|[Tt]rue|[Ff]alse)(?:[\s,]+|$)"""
)
# Messages list this many labels at most.
_MOST_SHOWN = 20


def words_of(row: TableRow, column: str) -> list[str]:
    """Returns the words of a cell: its list, or its text split at spaces."""
    is_list = column in row.lists or row[column].startswith(("['", '["'))
    words = (items_of(row, column) if is_list else None) or row[column].split()
    if not words:
        raise UserError(
            f"{row.where}: found nothing in {column}, expected a word or more; correct it or leave it out"
        )
    return words


def items_of(row: TableRow, column: str) -> list[str] | None:
    """Returns the items of a cell that is a list, or a list written as text; None for other texts."""
    if column in row.lists:
        return row.lists[column]
    text = row[column].strip()
    inside = text[1:-1].strip()
    if text[:1] + text[-1:] not in ("[]", "()", "{}") or _ITEM.sub("", inside):
        return None
    items = []
    for written in _ITEM.findall(inside):
        item = None
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError):
                item = item or as_text(read(written))
        items.append(item or written)
    return items


def _names_in(
    row: TableRow, column: str, kind: str | None, labels: Sequence[str] = ()
) -> list[str]:
    """Returns the label names in a cell: one, those of a set (or its vector), or a tag per word.

    Args:
      labels: all names, if known; the separator is then the one that yields only these names.
    """
    if kind == TOKENS:
        return words_of(row, column)
    text = row[column]
    names = cells = row.lists.get(column, [text])
    if kind != MULTI_LABEL:
        if len(cells) != 1:
            raise UserError(
                f"{row.where}: found a list under {column!r}, expected one label; give the option kind = "
                f"{MULTI_LABEL!r} or {TOKENS!r}"
            )
        return cells
    if column not in row.lists and text not in labels:
        if _VECTOR.fullmatch(text):
            return re.findall("[01]", text)
        is_listed = text[:1] + text[-1:] in ("[]", "()", "{}") and SEPARATOR not in text
        if is_listed and (listed := items_of(row, column)) is not None:
            return listed
        if is_listed and text[0] == "[":
            raise UserError(
                f"{row.where}: found {column} {shortened(text)}, expected a list such as ['rude', 'kind'] or "
                "[1, 0]; correct it, or give finetune.labels with this name among them"
            )
        names = _parts(cells, SEPARATOR)
    if not labels or all(name in labels for name in names):
        return names
    others = (_parts(cells, sign) for sign in SEPARATOR + _SIGNS + _SIGNS_WITHIN)
    return next((parts for parts in others if all(part in labels for part in parts)), names)


def _parts(texts: Iterable[str], sign: str) -> list[str]:
    return [part.strip() for text in texts for part in text.split(sign) if part.strip()]


def labels_of_rows(
    where: str, rows: Iterable[TableRow], column: str, kind: str | None
) -> tuple[str, ...]:
    """Returns the labels of training examples: sorted, numbers by value; `LABEL_0`, ... for vectors."""
    first: dict[str, TableRow] = {}  # by name
    forms: dict[int, TableRow] = {}  # first row by the length of its vector, 0 for names
    most = 0
    for row in rows:
        names = _names_in(row, column, kind)
        forms.setdefault(len(names) if {*names} <= _BITS.keys() else 0, row)
        most = max(most, len(names))
        for name in names:
            first.setdefault(name, row)
    labels = sorted(first, key=_sort_key)
    if kind == MULTI_LABEL and [*forms] == [most] and most > 1:
        labels = [f"LABEL_{number}" for number in range(most)]  # as in transformers
        note_once(
            f"{where}: {column} has {most} zeros and ones in every row; the labels are called LABEL_0 to "
            f"{labels[-1]}, unless finetune.labels names them"
        )
    else:
        for name in [name for name in first if name in _MISSING]:
            is_none = " (an empty cell has none)" if kind == MULTI_LABEL else ""
            is_name = f", or give finetune.labels if {name!r} is one of them" if name else ""
            raise UserError(
                f"{first[name].where}: found {column} {name!r}, which stands for a missing label; write the "
                f"label{is_none} or remove the row{is_name}"
            )
        if kind == MULTI_LABEL and first:
            _refuse_joined(column, first, [*forms.values()][-1], most)
    if not 2 <= len(labels) <= _MOST_LABELS:
        raise UserError(
            f"{where}: found {counted(len(labels), 'different label')}, expected 2 to {_MOST_LABELS}; give "
            "finetune.labels, or the option kind = 'regression' for numbers"
        )
    alike: dict[object, str] = {}
    for label in sorted(labels):
        is_text, number, _ = _sort_key(label)
        earlier = alike.setdefault(label.strip() if is_text else number, label)
        if earlier != label:
            raise UserError(
                f"{where}: found the labels {shortened(earlier)} and {shortened(label)}, which would be two "
                "classes; write them alike, or give finetune.labels"
            )
    return tuple(labels)


def _sort_key(label: str) -> tuple[bool, float, str]:
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label


def _refuse_joined(
    column: str, first: Mapping[str, TableRow], plain_row: TableRow, most: int
) -> None:
    """Refuses numbers from 0 to 1 outside vectors (as in `plain_row`), and names that may be several."""
    if all(not is_text and 0 <= number <= 1 for is_text, number, _ in map(_sort_key, first)):
        row = next((first[name] for name in first if name not in _BITS), plain_row)
        raise UserError(
            f"{row.where}: found {column} {shortened(row.lists.get(column, row[column]))}, and no labels but "
            "numbers from 0 to 1; write names, or in every row a list with a 0 or 1 for each label, or give "
            f"finetune.labels if the names are {listed(first)}"
        )
    for sign in _SIGNS + _SIGNS_WITHIN:
        # Names that `|` separates already need no other separator, unless the parts are names, too.
        is_likely = most < 2 and (sign in _SIGNS or separator_in(first, sign) == sign)
        for name, row in first.items():
            parts = _parts([name], sign)
            if sign in name and (is_likely or {*parts} <= first.keys()):
                names = sorted({*_parts(first, sign)}, key=_sort_key)
                raise UserError(
                    f"{row.where}: found {column} {shortened(name)}, which may be one label or {len(parts)}; "
                    f"give finetune.labels, all the names ({listed(names)}, if {sign!r} separates them), or "
                    f"write {listed([SEPARATOR.join(parts)])}"
                )


def label_of(row: TableRow, task: TextTask, cure: str) -> float | list[float]:
    """Returns a row's class number or regression value; for sets 1 or 0 per class; for tags their numbers."""
    if task.labels is None:
        return row.number(task.label_column)
    labels, column = task.labels, task.label_column
    names = _names_in(row, column, task.kind, labels)
    unknown = [name for name in names if name not in labels]
    if task.kind == MULTI_LABEL and {*names} <= _BITS.keys():
        unknown = unknown or names[len({*names}) :]  # a set has no name twice
        if unknown and len(names) == len(labels):
            return [_BITS[name] for name in names]
        cure = f", or a 0 or 1 for each{cure}"
    if unknown:
        raise UserError(
            f"{row.where}: found {column} {shortened(unknown[0])}, expected one of {listed(labels)}{cure}"
        )
    if task.kind == MULTI_LABEL:
        return [float(name in names) for name in labels]
    numbers = [float(labels.index(name)) for name in names]
    if task.kind != TOKENS:
        return numbers[0]
    words = words_of(row, task.text_columns[0])
    if len(numbers) != len(words):
        raise UserError(
            f"{row.where}: found {counted(len(numbers), 'tag')} in {column} for the "
            f"{counted(len(words), 'word')} of "
            f"{task.text_columns[0]}, expected one for each; correct the line"
        )
    return numbers


def is_label(row: TableRow, task: TextTask) -> bool:
    """Returns whether a row has a label; empty cells and -1 (`datasets`) are labels only as classes."""
    text = row.get(task.label_column, "")
    return text not in (*_MISSING, "-1", "-1.0") or text in (task.labels or ())


def described_labels(labels: np.ndarray, task: TextTask) -> str:
    """Returns the labels of the training examples with their counts, for a note.

    Args:
      labels: result of `label_array`.

    Examples:
      >>> described_labels(np.array([0, 2, 2]), TextTask("tone", ("bad", "fair", "good")))
      '0 bad (1), 1 fair (0), 2 good (2)'
    """
    if task.labels is None:
        return f"numbers from {labels.min():g} to {labels.max():g}"
    if task.kind == MULTI_LABEL:
        counts = labels.sum(axis=0).astype(int)
    else:
        counts = np.bincount(labels[labels != NO_TAG].astype(int), minlength=len(task.labels))
    shown = [
        f"{number} {name} ({count:,})"
        for number, (name, count) in enumerate(zip(task.labels, counts, strict=True))
    ]
    further = [f"and {len(shown) - _MOST_SHOWN:,} more"] * (len(shown) > _MOST_SHOWN)
    without = int((labels == 0).all(axis=-1).sum()) if task.kind == MULTI_LABEL else 0
    return ", ".join([*shown[:_MOST_SHOWN], *further, *[f"none ({without:,})"] * bool(without)])


def label_array(labels: Sequence[Any], task: TextTask) -> np.ndarray:
    """Returns the labels of all rows as one array.

    Returns:
      float32 [examples]; for sets [examples, classes]; for tags [examples, most words], padded with `NO_TAG`.
    """
    if task.kind != TOKENS:
        return np.array(labels, np.float32)
    numbers = np.full((len(labels), max(map(len, labels))), NO_TAG, np.float32)
    for row, tags in enumerate(labels):
        numbers[row, : len(tags)] = tags
    return numbers


def check_tags(task: TextTask) -> None:
    labels = task.labels or ()
    cure = "give finetune.labels, or tag in BIO: O, B-<type>, I-<type>"
    try:
        spans(" ".join(labels))
    except ValueError as error:
        raise UserError(f"task {task.name}: {error}; {cure}") from error
    if OUTSIDE not in labels:
        raise UserError(
            f"task {task.name} has the tags {listed(labels)}, expected {OUTSIDE} among them; {cure}"
        )


def first_pieces(
    tokenizer: Vocabulary, words: Sequence[Sequence[str]], sequence_length: int
) -> np.ndarray:
    """Returns the position of each word's first piece in `[CLS] words [SEP]`, int32 [examples, most words].

    It is -1 for words without pieces, truncated words, and padding.
    """
    pieces = iter(tokenizer.encode_batch([word for row in words for word in row]))
    positions = np.full((len(words), max(map(len, words), default=0)), -1, np.int32)
    for number, row in enumerate(words):
        position = 1
        for column in range(len(row)):
            count = len(next(pieces))
            if count and position < sequence_length - 1:
                positions[number, column] = position
            position += count
    return positions


def tags_of_pieces(labels: np.ndarray, positions: np.ndarray, length: int) -> np.ndarray:
    """Returns the tag of each word at its first piece, the only piece that is trained.

    Args:
      labels: result of `label_array` [batch, most words].
      positions: result of `first_pieces`, int32 [batch, most words].

    Returns:
      int32 [batch, length], `NO_TAG` at other pieces.
    """
    tags = np.full((len(labels), length), NO_TAG, np.int32)
    rows, columns = np.nonzero(positions >= 0)
    tags[rows, positions[rows, columns]] = labels[rows, columns]
    return tags


def predicted_tags(logits: np.ndarray, positions: np.ndarray, task: TextTask) -> np.ndarray:
    """Returns the tag of each word's first piece; `O` for words without a piece.

    Args:
      logits: scores [batch, length, tags].
      positions: result of `first_pieces`, int32 [batch, most words].

    Returns:
      int64 [batch, most words].
    """
    assert task.labels is not None
    tags = np.take_along_axis(logits.argmax(axis=-1), np.maximum(positions, 0), axis=1)
    return np.where(positions >= 0, tags, task.labels.index(OUTSIDE))


def texts_of_labels(labels: np.ndarray, task: TextTask) -> tuple[np.ndarray, list[str]]:
    """Returns sets or tags as written to prediction files.

    Args:
      labels: sets [examples, classes], 1 for each label of the set; or tags [examples, most words].

    Returns:
      float32 [examples], 1 for examples with a label or span; and the texts.
    """
    assert task.labels is not None
    if task.kind == TOKENS:
        tags = [[task.labels[int(tag)] for tag in row if tag >= 0] for row in labels]
        is_any = [any(tag != OUTSIDE for tag in row) for row in tags]
        return np.array(is_any, np.float32), [" ".join(row) for row in tags]
    sets = [[name for name, bit in zip(task.labels, row, strict=True) if bit] for row in labels]
    return np.array([*map(bool, sets)], np.float32), [SEPARATOR.join(names) for names in sets]
