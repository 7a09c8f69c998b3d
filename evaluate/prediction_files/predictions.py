"""Reads predictions of many runs as one labelled array.

A finished run is a directory with a `DONE` marker, the run's description `run.json` (`run_file`), and
`predictions/<evaluation set>.tfrecord` (`prediction_file`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.evaluate.prediction_files.prediction_file import Predictions, read_file
from multiberts.evaluate.prediction_files.run_file import (
    RUN_COORDINATES,
    find_entry,
    lineage_of,
    read_run,
)
from multiberts.evaluate.prediction_files.text_file import TextColumns, read_texts
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

if TYPE_CHECKING:
    import xarray


def read_run_predictions(
    run_dir: PathLike,
    evaluation_set: str,
    epochs: float | None = None,
    *,
    content: Mapping[str, Any] | None = None,
    cache: dict[tuple, np.ndarray] | None = None,
) -> Predictions:
    """Reads one run's predictions on one evaluation set and verifies them with its run.json.

    Args:
      run_dir: a finished fine-tuning run.
      evaluation_set: see `read_predictions`.
      epochs: see `read_predictions`.
      content: content of its run.json; None: read it.
      cache: see `evaluate.prediction_files.prediction_file.read_file`.

    Raises:
      UserError: the run lacks the set, or its file was changed.

    Examples:
      >>> read_run_predictions("runs/seed_0", "dev").predictions
      array([1., 0., 1.], dtype=float32)
    """
    run_dir = Path(run_dir)
    content = read_run(run_dir) if content is None else content
    _, entry = find_entry(run_dir, content, evaluation_set, epochs)
    return read_file(
        run_dir / entry["file"], sha256=entry["sha256"], examples=entry["examples"], cache=cache
    )


def read_predictions(
    run_dirs: Sequence[PathLike], evaluation_set: str, epochs: float | None = None
) -> xarray.Dataset:
    """Reads the predictions of many runs on one evaluation set, aligned by example id.

    Args:
      run_dirs: finished fine-tuning runs.
      evaluation_set: name of the set, such as `dev` or `winogender`; `dev@2.5` for an early checkpoint.
      epochs: epochs of an early checkpoint; None for the trained model.

    Returns:
      A Dataset with dimensions (run, example, class): `prediction` float64 [run, example], `label`
      float64 [example] (NaN if unknown), `scores` float32 [run, example, class], and further outputs of
      the runs [run, example] (`prediction_text` as object); coordinates along run: procedure,
      pretrain_seed, data_seed, step, learning_rate, finetune_seed, and lineage (object, see
      `evaluate.prediction_files.run_file.lineage_of`); along example: example_id, columns that describe
      the examples (occupation, heuristic, answers as tuples of str, ...), and their texts if a run has
      them (premise, hypothesis, question, ..., as object). Examples have the order of the first run.
      Attributes: task, evaluation_set, metrics, and epochs if run.json has them.

    Raises:
      UserError: no run, a damaged or foreign file, runs of different tasks, or runs with different
        examples, labels, texts or further columns.

    Examples:
      >>> dev = read_predictions(["runs/seed_0", "runs/seed_1"], "dev")
      >>> dict(dev.sizes), dev.pretrain_seed.values
      ({'run': 2, 'example': 3, 'class': 2}, array([0, 1]))
      >>> (dev.prediction == dev.label).mean("example").values
      array([1.        , 0.66666667])
    """
    if not run_dirs:
        raise UserError(
            f"found no run to read {evaluation_set!r} from; give at least one run directory"
        )
    paths = [Path(run_dir) for run_dir in run_dirs]
    runs = [read_run(path) for path in paths]
    cache: dict[tuple, np.ndarray] = {}
    all_predictions = [
        read_run_predictions(path, evaluation_set, epochs, content=run, cache=cache)
        for path, run in zip(paths, runs, strict=True)
    ]
    data = labelled_array(paths, runs, all_predictions, evaluation_set, epochs)
    entries = [
        find_entry(path, run, evaluation_set, epochs)[1]
        for path, run in zip(paths, runs, strict=True)
    ]
    texts = texts_of_runs(paths, entries, data["example_id"].to_numpy())
    return data.assign_coords({name: ("example", column) for name, column in texts.items()})


def texts_of_runs(
    paths: Sequence[Path],
    entries: Sequence[Mapping[str, Any]],
    example_ids: Sequence[str] | np.ndarray,
) -> TextColumns:
    """Reads the texts of several runs' evaluation set from the first run that has them.

    The entries are those of the set in each run.json.

    Returns:
      Texts [examples] by name, in the order of the ids; empty if no run has texts.

    Raises:
      UserError: the texts of two runs differ, or the file is damaged.

    Examples:
      >>> entry = read_run("runs/seed_0").get("evaluation_sets").get("dev")
      >>> texts_of_runs([Path("runs/seed_0")], [entry], ["rte/dev/0"])
      {}
    """
    text_entries = [
        (path, entry["texts"])
        for path, entry in zip(paths, entries, strict=True)
        if "texts" in entry
    ]
    if not text_entries:
        return {}
    first_path, first = text_entries[0]
    for path, texts in text_entries:
        if texts["sha256"] != first["sha256"]:
            raise UserError(
                f"{path / texts['file']} holds other texts than {first_path / first['file']}; compare runs "
                "on the same evaluation data"
            )
    return read_texts(first_path, first, example_ids)


def labelled_array(
    paths: Sequence[Path],
    runs: Sequence[Mapping[str, Any]],
    all_predictions: Sequence[Predictions],
    evaluation_set: str,
    epochs: float | None = None,
) -> xarray.Dataset:
    """Combines predictions of several runs; `runs` are the contents of their run.json.

    Examples:
      >>> from multiberts.evaluate.prediction_files.run_file import find_runs
      >>> paths, contents = zip(*find_runs("runs"))
      >>> all_predictions = [read_run_predictions(path, "dev") for path in paths]
      >>> print(*labelled_array(paths, contents, all_predictions, "dev").attrs["metrics"])
      accuracy
    """
    import xarray

    for path, run, predictions in zip(paths, runs, all_predictions, strict=True):
        if run["task"] != runs[0]["task"]:
            raise UserError(
                f"{path} is a run of task {run['task']}, expected {runs[0]['task']} as "
                f"{paths[0]}; read one task at a time"
            )
        if predictions.scores.shape[1] != all_predictions[0].scores.shape[1]:
            raise UserError(
                f"{path} has {predictions.scores.shape[1]} scores per example, expected "
                f"{all_predictions[0].scores.shape[1]} as {paths[0]}; read runs of the same labels"
            )
    all_predictions = [
        aligned(path, predictions, paths[0], all_predictions[0])
        for path, predictions in zip(paths, all_predictions, strict=True)
    ]
    first = all_predictions[0]
    coordinates: dict[str, Any] = {"example_id": ("example", first.example_ids)}
    for name, column in first.extras.items():
        coordinates[name] = ("example", column)
    for name in RUN_COORDINATES:
        coordinates[name] = ("run", _run_column([run[name] for run in runs]))
    lineage = np.empty(len(runs), object)
    lineage[:] = [lineage_of(run) for run in runs]
    coordinates["lineage"] = ("run", lineage)
    variables: dict[str, Any] = {
        "prediction": (
            ("run", "example"),
            np.stack(
                [predictions.predictions for predictions in all_predictions], dtype=np.float64
            ),
        ),
        "label": ("example", first.labels.astype(np.float64)),
        "scores": (
            ("run", "example", "class"),
            np.stack([predictions.scores for predictions in all_predictions]),
        ),
    }
    for name in first.outputs:
        variables[name] = (
            ("run", "example"),
            np.stack([predictions.outputs[name] for predictions in all_predictions]),
        )
    _, entry = find_entry(paths[0], runs[0], evaluation_set, epochs)
    attributes = {
        "task": runs[0]["task"],
        "evaluation_set": evaluation_set,
        "metrics": list(entry["metrics"]),
    }
    if entry.get("epochs") is not None:
        attributes["epochs"] = entry["epochs"]
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def _run_column(values: list[Any]) -> np.ndarray:
    """Returns a coordinate [run]; unknown values (null) become '' or -1."""
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array([-1 if value is None else value for value in values])


def aligned(
    path: Path, predictions: Predictions, first_path: Path, first: Predictions
) -> Predictions:
    """Returns `predictions` with its examples in the order of `first`.

    Raises:
      UserError: the examples, labels, further columns or names of outputs differ.

    Examples:
      >>> first, other = Path("runs/seed_0"), Path("runs/seed_1")
      >>> all_predictions = [read_run_predictions(path, "dev") for path in (first, other)]
      >>> aligned(other, all_predictions[1], first, all_predictions[0]).example_ids.tolist()
      ['rte/dev/0', 'rte/dev/1', 'rte/dev/2']
    """
    if predictions.example_ids is not first.example_ids and not np.array_equal(
        predictions.example_ids, first.example_ids
    ):
        predictions = _reordered(path, predictions, first_path, first)
    for kind in ("extras", "outputs"):
        for name in sorted({*getattr(predictions, kind)} ^ {*getattr(first, kind)}):
            raise UserError(f"{path} and {first_path} do not both have the column {name}")
    columns = {"label": (predictions.labels, first.labels)}
    columns |= {
        name: (predictions.extras[name], first.extras[name]) for name in sorted(first.extras)
    }
    for name, (values, expected) in columns.items():
        if values is expected:
            continue
        odd = np.flatnonzero((values != expected) & ~((values != values) & (expected != expected)))
        if odd.size:
            raise UserError(
                f"{path}: {name} of example {str(first.example_ids[odd[0]])!r} is {values[odd[0]]}, but "
                f"{expected[odd[0]]} in {first_path}; compare runs on the same evaluation data"
            )
    return predictions


def _reordered(
    path: Path, predictions: Predictions, first_path: Path, first: Predictions
) -> Predictions:
    position = {example_id: row for row, example_id in enumerate(predictions.example_ids.tolist())}
    first_ids = set(first.example_ids.tolist())
    for example_id in [*first.example_ids.tolist(), *position]:
        if example_id not in position or example_id not in first_ids:
            here, there = (path, first_path) if example_id in first_ids else (first_path, path)
            raise UserError(
                f"{here} lacks example {example_id!r}, which {there} has; compare runs on the "
                "same evaluation data"
            )
    order = np.array([position[example_id] for example_id in first.example_ids.tolist()])
    return dataclasses.replace(
        predictions,
        example_ids=predictions.example_ids[order],
        labels=predictions.labels[order],
        predictions=predictions.predictions[order],
        scores=predictions.scores[order],
        extras={name: column[order] for name, column in predictions.extras.items()},
        outputs={name: column[order] for name, column in predictions.outputs.items()},
    )
