"""Imported runs: their predictions in memory, and as run directories.

A reader of a layout yields `ImportedRun`s. Unknown facts of a run (learning rate, vocabulary) are null in
its run.json, or left out.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.evaluate.prediction_files.prediction_file import Predictions, write_predictions
from multiberts.evaluate.prediction_files.run_file import (
    RUN_COORDINATES,
    RUN_FILE,
    check_set_names,
    evaluation_entry,
    files_of,
    write_run,
)
from multiberts.evaluate.prediction_files.text_file import write_texts
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, is_name_inside, read_bytes

# Pre-training steps of the published checkpoints (Sellam et al., 2022, sections 2.1 and 4).
STEPS = 2_000_000
INCREMENTAL_STEPS = 2_050_000
# Tolerance for sums of probabilities, which are rounded in the files.
_SUM_TOLERANCE = 2e-3


@dataclasses.dataclass(frozen=True)
class ImportedSet:
    """Predictions of one run on one evaluation set.

    Attributes:
      name: name of its entry in run.json: `dev`, or `dev@3.333` for an early checkpoint.
      metrics: names of metrics, the main one first; empty if labels are unknown.
      evaluation_set: name of the set, for an early checkpoint.
      epochs: epochs of training; None if unknown, except for early checkpoints.
      texts: texts [examples] by name, for readers to recognise examples.
    """

    name: str
    predictions: Predictions
    metrics: tuple[str, ...]
    evaluation_set: str | None = None
    epochs: float | None = None
    texts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ImportedRun:
    """A run to import.

    Attributes:
      facts: fields of its run.json: task, source and the known `RUN_COORDINATES`.
    """

    name: str
    facts: Mapping[str, Any]
    files: tuple[Path, ...]
    read: Callable[[], Sequence[ImportedSet]]


def facts_of(
    task: str, procedure: str, pretrain_seed: int, finetune_seed: int, source: str, **more: Any
) -> dict[str, Any]:
    return {
        "task": task,
        "procedure": procedure,
        "pretrain_seed": pretrain_seed,
        "finetune_seed": finetune_seed,
        **more,
        "source": source,
    }


def read_numbers(path: PathLike) -> np.ndarray:
    """Reads a matrix of numbers from a file (or `.gz`), separated by blanks or tabs, without a header.

    Returns:
      float64 [rows, columns].
    """
    try:
        table = np.loadtxt(io.BytesIO(read_bytes(path)), dtype=np.float64, ndmin=2, comments=None)
    except ValueError as error:
        reason = str(error).partition(";")[0]  # drops NumPy's advice to programmers
        raise UserError(
            f"{path}: expected rows of numbers, all of one length ({reason}); fetch the file again"
        ) from error
    if not table.size or not np.isfinite(table).all():
        raise UserError(f"{path}: found no numbers or nan, expected finite numbers; fetch it again")
    return table


def predictions_of(
    example_ids: Sequence[str],
    labels: Sequence[float] | np.ndarray | None,
    predictions: np.ndarray,
    scores: np.ndarray | None = None,
    extras: Mapping[str, np.ndarray] | None = None,
    outputs: Mapping[str, np.ndarray] | None = None,
) -> Predictions:
    """Returns `Predictions` of these columns: float32, and NaN for unknown labels."""
    number = len(example_ids)
    return Predictions(
        np.asarray(example_ids),
        np.full(number, np.nan, np.float32) if labels is None else np.asarray(labels, np.float32),
        np.asarray(predictions, dtype=np.float32),
        np.zeros((number, 0), np.float32) if scores is None else np.asarray(scores, np.float32),
        dict(extras or {}),
        dict(outputs or {}),
    )


def read_table(
    file: PathLike, asked: PathLike, num_examples: int, num_classes: int | None = None
) -> np.ndarray:
    """Reads numbers for the examples in the file `asked`, [examples, classes] if the classes are known."""
    table = read_numbers(file)
    if table.shape != (num_examples, num_classes or table.shape[1]):
        columns = f" of {num_classes}" if num_classes else ""
        raise UserError(
            f"{file}: found {counted(len(table), 'row')} of {table.shape[1]}, expected "
            f"{num_examples}{columns} as {asked}; fetch both again"
        )
    return table


def as_logits(scores: np.ndarray) -> np.ndarray:
    """Returns logits of the class probabilities.

    Args:
      scores: probabilities or logits [examples, classes]; logits are returned unchanged.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if (scores < 0).any() or np.abs(scores.sum(axis=-1) - 1).max() > _SUM_TOLERANCE:
        return scores
    logits: np.ndarray = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
    return logits


def write_imported(root: PathLike, layout: str, run: ImportedRun) -> None:
    """Writes a run directory below `root` in the layout of fine-tuning, unless it exists."""
    if not is_name_inside(run.name):
        raise UserError(
            f"{', '.join(map(str, run.files[:1]))} has a run named {run.name!r}, which would be outside "
            f"{root}; rename it"
        )
    directory = RunDirectory(
        Path(root) / run.name,
        stage="import_predictions",
        parameters={
            "layout": layout,
            **{name: value for name, value in run.facts.items() if name != "source"},
        },
        inputs={"files": list(run.files)},
    )
    if directory.done:
        return
    sets = run.read()
    check_set_names([imported.name for imported in sets if imported.evaluation_set is None])
    with directory:
        entries = {}
        for imported in sets:
            file, ids = f"predictions/{imported.name}.tfrecord", imported.predictions.example_ids
            unlabelled = np.isnan(np.asarray(imported.predictions.labels, float))
            if unlabelled.any() and not unlabelled.all():
                raise UserError(
                    f"{', '.join(map(str, run.files[:2]))}: {int(unlabelled.sum())} of {len(ids)} examples "
                    f"of {run.name} have no label, such as {ids[int(unlabelled.argmax())]}; complete the "
                    "file, or leave all labels out"
                )
            write_predictions(directory.path / file, **vars(imported.predictions))
            entries[imported.name] = evaluation_entry(
                directory.path,
                file,
                examples=len(ids),
                metrics=imported.metrics,
                evaluation_set=imported.evaluation_set,
                epochs=imported.epochs,
                texts=write_texts(
                    directory.path, imported.evaluation_set or imported.name, ids, imported.texts
                )
                if imported.texts
                else None,
            )
        facts = {**dict.fromkeys(RUN_COORDINATES), **run.facts}
        write_run(directory.path, {**facts, "evaluation_sets": entries})
        directory.finish([RUN_FILE, *files_of(entries)])
