"""Reads and writes prediction files: TFRecords of one run's answers on one evaluation set.

Each record is a tf.train.Example:

    example_id      bytes   UTF-8, stable across runs, such as `SST-2/dev/17`
    label           float   the right answer; NaN in every record if unknown
    prediction      float   the run's answer
    scores          floats  logits or probabilities of the answer; may be empty

and any further columns. A column describes the example and is equal for all runs (`heuristic`,
`occupation`, `percent_feminine`, the reference `answers`), or is part of the run's answer
(`outputs/prediction_text`, `outputs/null_odds`). Bytes are texts, floats and int64 are numbers; for a
list of texts per example, the feature's name ends in `[]` (`answers[]`).

Question answering: label is 1 if there is an answer, prediction is 1 if one was given, the column
`answers` lists the references, and the output `prediction_text` is the answer, '' for no answer; text
metrics compare these two.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.evaluate.prediction_files.example_columns import (
    Column,
    ForeignRecord,
    Texts,
    decode,
    encode,
)
from multiberts.evaluate.prediction_files.run_file import RUN_COORDINATES
from multiberts.evaluate.prediction_files.tfrecord import DamagedRecord, Records, framed, split
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, write_atomically

ANSWERS = "answers"
PREDICTION_TEXT = "prediction_text"
# The best non-empty answer, the null odds, and the other answers.
BEST_TEXT = "best_text"
NULL_ODDS = "null_odds"
N_BEST_TEXTS = "n_best_texts"
N_BEST_LOGITS = "n_best_logits"
_OUTPUTS = "outputs/"
_LIST = "[]"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_BASE = ("example_id", "label", "prediction", "scores")
RESERVED = frozenset(
    {
        *_BASE,
        *RUN_COORDINATES,
        "lineage",
        "example",
        "class",
        "run",
        "task",
        "evaluation_set",
        "epochs",
        "metrics",
    }
)

Values = Sequence[str] | Sequence[Sequence[str]] | Sequence[float] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The predictions of one run on one evaluation set, in the order of the file.

    Attributes:
      example_ids: unique ids, str [examples].
      labels: labels, float32 [examples]; all NaN if unknown.
      predictions: predictions, float32 [examples].
      scores: scores, float32 [examples, classes]; classes may be 0.
      extras: columns of the examples, each [examples]: str, float32, int64, or tuples of str (object).
      outputs: columns of the run's answers, each [examples], of the same dtypes.
    """

    example_ids: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    scores: np.ndarray
    extras: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def write_predictions(
    path: PathLike,
    *,
    example_ids: Sequence[str],
    labels: Sequence[float] | np.ndarray | None,
    predictions: Sequence[float] | np.ndarray,
    scores: np.ndarray | None = None,
    extras: Mapping[str, Values] | None = None,
    outputs: Mapping[str, Values] | None = None,
) -> None:
    """Writes one evaluation set; equal arguments give equal bytes.

    Args:
      labels: labels [examples], or None if unknown.
      scores: scores [examples, classes], or None.
      extras: columns [examples] that describe the examples, equal for all runs: texts, numbers (written
        as int64 or float32), or lists of texts.
      outputs: columns [examples] of the run's answers, of the same types.
    """
    number = len(example_ids)
    if labels is None:
        labels = np.full(number, np.nan)
    label_array = np.asarray(labels, dtype=np.float32)
    unknown = np.isnan(label_array)
    if unknown.any() and not unknown.all():
        raise ValueError(
            f"{path}: {int(unknown.sum())} of {number} labels are NaN, expected none or all"
        )
    columns: dict[str, Any] = {
        "example_id": [[example_id] for example_id in example_ids],
        "label": label_array,
        "prediction": np.asarray(predictions, dtype=np.float32),
        "scores": np.zeros((number, 0), np.float32) if scores is None else np.asarray(scores),
    }
    if columns["scores"].ndim != 2 or {label_array.ndim, columns["prediction"].ndim} != {1}:
        raise ValueError(
            f"{path}: expected labels and predictions [examples], scores [examples, classes]"
        )
    columns["scores"] = columns["scores"].astype(np.float32)
    twice = set(extras or {}) & set(outputs or {})
    if twice:
        raise ValueError(f"{path}: columns {sorted(twice)} are in both extras and outputs")
    for prefix, further in (("", extras), (_OUTPUTS, outputs)):
        for name, values in (further or {}).items():
            suffix, column = _checked_column(name, values)
            columns[prefix + name + suffix] = column
    lengths = {len(column) for column in columns.values()}
    if lengths != {number}:
        raise ValueError(f"columns of lengths {sorted(lengths)} for {number} examples")
    if len(set(example_ids)) != number:
        raise ValueError(f"{path}: an example id appears twice")
    shaped = {
        name: column[:, None] if isinstance(column, np.ndarray) and column.ndim == 1 else column
        for name, column in columns.items()
    }
    write_atomically(path, framed(encode(shaped)))


def is_column_name(name: str) -> bool:
    """Returns whether a further column can have this name.

    Example:
      >>> is_column_name("premise"), is_column_name("label"), is_column_name("Review text")
      (True, False, False)
    """
    return bool(_NAME.fullmatch(name)) and name not in RESERVED


def _checked_column(name: str, values: Values) -> tuple[str, np.ndarray | list]:
    """Returns the suffix of a column's name in the file, and its values for `encode`."""
    if not is_column_name(name):
        raise ValueError(
            f"column {name!r}: expected a name of at most 40 lower-case letters, digits and _, and "
            f"none of {', '.join(sorted(RESERVED))}"
        )
    listed: list[Any] = list(values)
    if listed and all(isinstance(value, str) for value in listed):
        return "", [[value] for value in listed]
    if listed and all(isinstance(value, (list, tuple)) for value in listed):
        if not all(isinstance(text, str) for value in listed for text in value):
            raise ValueError(f"column {name!r}: expected lists of texts")
        return _LIST, listed
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        raise ValueError(f"column {name!r}: expected texts, lists of texts, or numbers [examples]")
    return "", array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def read_file(
    path: PathLike,
    *,
    sha256: str | None = None,
    examples: int | None = None,
    cache: dict[tuple, np.ndarray] | None = None,
) -> Predictions:
    """Reads one prediction file.

    Args:
      path: a TFRecord file written by `write_predictions`.
      cache: columns of examples of previous files. A column with the same content is returned as the
        cached array, others are added, which speeds up reading many runs on one evaluation set.
    """
    path = Path(path)
    records = _read_records(path, sha256, examples)
    try:
        columns = decode(records)
    except ForeignRecord as error:
        raise _foreign(path, error.number, error.problem) from error
    base = _base_columns(path, columns)
    cache = {} if cache is None else cache
    example_ids = _texts_of_examples(
        path, "example_id", columns.pop("example_id"), cache, unique=True
    )
    extras, outputs = {}, {}
    for feature, column in columns.items():
        name = feature.removeprefix(_OUTPUTS).removesuffix(_LIST)
        if not is_column_name(name) or name in extras or name in outputs:
            raise _foreign(path, 1, f"found the feature {feature!r}")
        if feature.startswith(_OUTPUTS):
            outputs[name] = column_values(path, feature, column)
        elif isinstance(column, Texts):
            extras[name] = _texts_of_examples(path, feature, column, cache)
        else:
            extras[name] = column_values(path, feature, column)
    return Predictions(example_ids, *base, extras, outputs)


def _base_columns(
    path: Path, columns: dict[str, Column]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Removes and returns labels, predictions and scores of `columns`."""
    arrays = []
    for name in _BASE[1:]:
        column = columns.pop(name, None)
        if not isinstance(column, np.ndarray) or (name != "scores" and column.shape[1] != 1):
            raise _foreign(path, 1, f"found no {name}")
        arrays.append(column.astype(np.float32, copy=False))
    if not isinstance(columns.get("example_id"), Texts):
        raise _foreign(path, 1, "found no example_id")
    labels, predictions, scores = arrays
    unknown = np.isnan(labels)
    if unknown.any() and not unknown.all():
        raise UserError(
            f"{path} record {int(unknown.argmax()) + 1}: found no label, expected one as in record "
            f"{int(unknown.argmin()) + 1}; run the fine-tuning again"
        )
    return labels[:, 0], predictions[:, 0], scores


def _foreign(path: Path, number: int, problem: str) -> UserError:
    return UserError(
        f"{path} record {number}: found something else than a prediction ({problem}), expected a "
        "tf.train.Example with example_id (bytes), label, prediction (float) and scores (floats) as in "
        "every record; give the folder of a fine-tuning run"
    )


def _texts_of_examples(
    path: Path, feature: str, column: Column, cache: dict[tuple, np.ndarray], unique: bool = False
) -> np.ndarray:
    """Returns a column of texts, shared with other runs."""
    assert isinstance(column, Texts)
    key = (feature, *column.key())
    if key not in cache:
        values = column_values(path, feature, column)
        if unique:
            _refuse_repeated_ids(path, values)
        if values.dtype == object and not feature.endswith(_LIST):
            values = values.astype(str)
        cache[key] = values
    return cache[key]


def column_values(path: Path, feature: str, column: Column) -> np.ndarray:
    """Returns a column [examples]: float32, int64, or object of texts or tuples of texts."""
    if isinstance(column, np.ndarray):
        if feature.endswith(_LIST) or column.shape[1] != 1:
            raise _foreign(path, 1, f"found {column.shape[1]} numbers in {feature}")
        return column[:, 0]
    try:
        texts = column.decode()
    except UnicodeDecodeError as error:
        raise _foreign(path, 1, f"found bytes in {feature} that are not UTF-8") from error
    values = np.empty(len(column.counts), dtype=object)
    if feature.endswith(_LIST):
        ends = np.cumsum(column.counts).tolist()
        values[:] = [
            tuple(texts[end - count : end])
            for end, count in zip(ends, column.counts.tolist(), strict=True)
        ]
        return values
    odd = np.flatnonzero(column.counts != 1)
    if odd.size:
        raise _foreign(
            path, int(odd[0]) + 1, f"found {column.counts[odd[0]]} texts in {feature}, expected one"
        )
    values[:] = texts
    return values


def _read_records(path: Path, sha256: str | None, examples: int | None) -> Records:
    """Reads the records of a file, verified by its SHA-256, or else by their checksums."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; run the fine-tuning that writes it") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the folder") from error
    whole = sha256 is not None and hashlib.sha256(data).hexdigest() == sha256
    try:
        records = split(data, verify=not whole)
    except DamagedRecord as error:
        raise UserError(
            f"{path} record {error.number}: the file ends inside the record, is damaged there, or is "
            "not a TFRecord file; remove the run's directory and run it again"
        ) from error
    problem = None
    if not len(records):
        problem = " has no record"
    elif examples is not None and len(records) != examples:
        problem = f": found {counted(len(records), 'record')}, expected {examples} as in run.json"
    elif sha256 is not None and not whole:
        problem = ": its SHA-256 is not that of run.json"
    if problem is not None:
        raise UserError(f"{path}{problem}; remove the run's directory and run it again")
    return records


def _refuse_repeated_ids(path: Path, example_ids: np.ndarray) -> None:
    first: dict[str, int] = {}
    for number, example_id in enumerate(example_ids.tolist(), start=1):
        if example_id in first:
            raise UserError(
                f"{path} record {number}: example id {example_id!r} is in record "
                f"{first[example_id]} already, expected each once; run the fine-tuning again"
            )
        first[example_id] = number
