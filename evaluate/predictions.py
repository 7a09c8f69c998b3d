"""Per-example predictions of fine-tuning runs: one TFRecord an evaluation set, read back as one
array.

A finished run is a directory with a `DONE` marker, a `run.json` that says what the run was, and
`predictions/<evaluation set>.tfrecord`. Each record is a tf.train.Example:

    example_id        bytes   UTF-8, stable across runs, such as `SST-2/dev/17`
    label             float   the right answer
    prediction        float   the run's answer
    scores            floats  logits or probabilities behind the answer; may be empty
    occupation        bytes   optional
    gender            bytes   optional: masculine, feminine or neutral
    percent_feminine  float   optional: 0 to 100

TensorFlow is imported inside the functions that touch records, so that finding runs stays cheap.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runs.directory import DONE
from runs.errors import UserError
from runs.files import PathLike, replaced

if TYPE_CHECKING:
    import xarray

RUN_FILE = "run.json"
# Length and checksum before each record, checksum behind it.
_RECORD_FRAME_BYTES = 16
TEXT_EXTRAS = ("occupation", "gender")
NUMBER_EXTRAS = ("percent_feminine",)
RUN_COORDINATES = (
    "procedure",
    "pretrain_seed",
    "data_seed",
    "step",
    "learning_rate",
    "finetune_seed",
)


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The predictions of one run on one evaluation set, in the order of the file.

    Attributes:
      example_ids: str [examples], each once.
      labels: float32 [examples].
      predictions: float32 [examples].
      scores: float32 [examples, classes]; classes may be 0.
      extras: further columns, each [examples]: str or float32.
    """

    example_ids: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    scores: np.ndarray
    extras: dict[str, np.ndarray]


def write_predictions(
    path: PathLike,
    *,
    example_ids: Sequence[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    scores: np.ndarray | None = None,
    extras: Mapping[str, Sequence[str] | np.ndarray] | None = None,
) -> None:
    """Writes one evaluation set; the same arguments give the same bytes.

    Args:
      path: the TFRecord file; written beside and moved in whole.
      example_ids: [examples], each once.
      labels: numbers [examples].
      predictions: numbers [examples].
      scores: numbers [examples, classes], or None where there are none.
      extras: columns [examples] named in `TEXT_EXTRAS` (strings) or `NUMBER_EXTRAS` (numbers).

    Raises:
      ValueError: lengths differ, an id appears twice, or a column is unknown.
      UserError: the file cannot be written.
    """
    import tensorflow as tf

    extras = dict(extras or {})
    unknown = set(extras) - set(TEXT_EXTRAS) - set(NUMBER_EXTRAS)
    if unknown:
        raise ValueError(f"unknown extra columns {sorted(unknown)}")
    scores = np.zeros((len(example_ids), 0)) if scores is None else np.asarray(scores)
    lengths = {len(column) for column in (labels, predictions, scores, *extras.values())}
    if lengths != {len(example_ids)}:
        raise ValueError(f"columns of lengths {sorted(lengths)} for {len(example_ids)} examples")
    if len(set(example_ids)) != len(example_ids):
        raise ValueError(f"{path}: an example id appears twice")

    def floats(values: Iterable[float]) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def text(value: str) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    with replaced(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
        for row, example_id in enumerate(example_ids):
            feature = {
                "example_id": text(example_id),
                "label": floats([float(labels[row])]),
                "prediction": floats([float(predictions[row])]),
                "scores": floats(scores[row].tolist()),
            }
            for name, column in extras.items():
                value = column[row]
                feature[name] = text(value) if name in TEXT_EXTRAS else floats([float(value)])
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            # Deterministic serialisation writes a map in the order of its keys.
            writer.write(example.SerializeToString(deterministic=True))


def read_file(path: PathLike) -> Predictions:
    """Reads one prediction file.

    Args:
      path: a TFRecord file written by `write_predictions`.

    Raises:
      UserError: missing, empty, truncated or damaged, not predictions of this format, or an id that
        appears twice; with the file and the number of the record, counted from 1.
    """
    import tensorflow as tf

    path = Path(path)
    records = _read_records(path)
    specification = {
        "example_id": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.float32),
        "prediction": tf.io.FixedLenFeature([], tf.float32),
        "scores": tf.io.RaggedFeature(tf.float32),
        **{name: tf.io.FixedLenFeature([], tf.string, "") for name in TEXT_EXTRAS},
        **{name: tf.io.FixedLenFeature([], tf.float32, np.nan) for name in NUMBER_EXTRAS},
    }
    try:
        parsed = tf.io.parse_example(records, specification)
    except tf.errors.InvalidArgumentError as error:
        _refuse_foreign_record(path, records, specification)
        raise UserError(f"{path} does not hold predictions: {error.message}") from error

    example_ids = np.array([value.decode() for value in parsed["example_id"].numpy()])
    _refuse_repeated_ids(path, example_ids)
    extras = {
        name: np.array([value.decode() for value in parsed[name].numpy()])
        for name in TEXT_EXTRAS
        if any(parsed[name].numpy())
    }
    for name in NUMBER_EXTRAS:
        if not np.isnan(parsed[name].numpy()).all():
            extras[name] = parsed[name].numpy()
    return Predictions(
        example_ids=example_ids,
        labels=parsed["label"].numpy(),
        predictions=parsed["prediction"].numpy(),
        scores=_rectangular_scores(path, parsed["scores"], len(example_ids)),
        extras=extras,
    )


def _read_records(path: Path) -> np.ndarray:
    """The serialized records of a file, bytes [records], their checksums compared."""
    import tensorflow as tf

    if not path.is_file():
        raise UserError(f"{path} does not exist; run the fine-tuning that writes it")
    dataset = tf.data.TFRecordDataset(str(path), buffer_size=1 << 20)
    try:
        batches = [batch.numpy() for batch in dataset.batch(1 << 16)]
    except tf.errors.DataLossError as error:
        raise _damaged(path, _count_whole_records(dataset)) from error
    records = np.concatenate(batches) if batches else np.array([], object)
    # The reader takes a file that ends within a record's header for one that ends before it.
    if path.stat().st_size != sum(map(len, records)) + _RECORD_FRAME_BYTES * len(records):
        raise _damaged(path, len(records))
    if not len(records):
        raise UserError(f"{path} holds no record; remove the run's directory and run it again")
    return records


def _count_whole_records(dataset: Any) -> int:
    """How many records can be read before the damaged one."""
    import tensorflow as tf

    whole = 0
    try:
        for _ in dataset:
            whole += 1
    except tf.errors.DataLossError:
        pass
    return whole


def _damaged(path: Path, whole: int) -> UserError:
    return UserError(
        f"{path} record {whole + 1}: the file ends inside the record, is damaged there, or is no "
        "TFRecord file; remove the run's directory and run it again"
    )


def _refuse_foreign_record(path: Path, records: np.ndarray, specification: dict) -> None:
    """Raises a UserError that names the first record which is not a prediction."""
    import tensorflow as tf

    for number, record in enumerate(records, start=1):
        try:
            tf.io.parse_single_example(record, specification)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{path} record {number}: found something else than a prediction, expected a "
                "tf.train.Example with example_id (bytes), label, prediction (float) and scores "
                "(floats); give the folder of a fine-tuning run"
            ) from error


def _refuse_repeated_ids(path: Path, example_ids: np.ndarray) -> None:
    first: dict[str, int] = {}
    for number, example_id in enumerate(example_ids.tolist(), start=1):
        if example_id in first:
            raise UserError(
                f"{path} record {number}: example id {example_id!r} stands in record "
                f"{first[example_id]} already, expected each once; run the fine-tuning again"
            )
        first[example_id] = number


def _rectangular_scores(path: Path, scores: Any, num_examples: int) -> np.ndarray:
    lengths = scores.row_lengths().numpy()
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        raise UserError(
            f"{path} record {odd[0] + 1}: found {lengths[odd[0]]} scores, expected {lengths[0]} as in "
            "record 1; run the fine-tuning again"
        )
    return scores.flat_values.numpy().reshape(num_examples, int(lengths[0]))


def find_runs(root: PathLike) -> list[tuple[Path, dict[str, Any]]]:
    """Finished fine-tuning runs below a folder, in the order of their paths.

    Args:
      root: a folder; the run may be the folder itself.

    Returns:
      (run directory, content of its run.json) for every `run.json` beside a `DONE` marker.

    Raises:
      UserError: the folder does not exist, or a run.json is not one of ours.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give the folder that holds the fine-tuning runs")
    found = []
    for directory, folders, files in os.walk(root):
        folders.sort()
        if RUN_FILE in files and DONE in files:
            found.append((Path(directory), read_run(directory)))
    return sorted(found, key=lambda pair: pair[0])


def read_run(run_dir: PathLike) -> dict[str, Any]:
    """The content of a run's `run.json`.

    Raises:
      UserError: it is missing, not JSON, or lacks a field that every run has.
    """
    path = Path(run_dir) / RUN_FILE
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the directory of a finished fine-tuning run")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); run the fine-tuning again") from error
    needed = {"task", "evaluation_sets", *RUN_COORDINATES}
    missing = sorted(needed - set(content)) if isinstance(content, dict) else sorted(needed)
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it is not the run.json of a fine-tuning"
        )
    return content


def read_run_predictions(run_dir: PathLike, evaluation_set: str) -> Predictions:
    """One run's predictions on one evaluation set, compared with what its run.json says of them.

    Raises:
      UserError: the run has no such set, or the file is not the one that the run wrote.
    """
    run_dir = Path(run_dir)
    sets = read_run(run_dir)["evaluation_sets"]
    if evaluation_set not in sets:
        raise UserError(
            f"{run_dir / RUN_FILE} lists no evaluation set {evaluation_set!r}, only "
            f"{', '.join(sorted(sets))}; choose one of these"
        )
    entry = sets[evaluation_set]
    path = run_dir / entry["file"]
    predictions = read_file(path)
    if len(predictions.example_ids) != entry["examples"]:
        raise UserError(
            f"{path}: found {len(predictions.example_ids)} records, expected {entry['examples']} as "
            f"{RUN_FILE} says; remove the run's directory and run it again"
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
        raise UserError(
            f"{path}: found other bytes than {RUN_FILE} says (SHA-256); remove the run's directory "
            "and run it again"
        )
    return predictions


def read_predictions(run_dirs: Sequence[PathLike], evaluation_set: str) -> xarray.Dataset:
    """Reads the predictions of many runs on one evaluation set, aligned by example id.

    Args:
      run_dirs: finished fine-tuning runs.
      evaluation_set: its name, such as `dev` or `winogender`.

    Returns:
      A Dataset with dimensions (run, example, class): `prediction` float64 [run, example], `label`
      float64 [example], `scores` float32 [run, example, class]; coordinates along run: procedure,
      pretrain_seed, data_seed, step, learning_rate, finetune_seed; along example: example_id and,
      where the dumps have them, occupation, gender, percent_feminine. Examples keep the order of
      the first run. Attributes: task, evaluation_set, metrics.

    Raises:
      UserError: no run, a damaged or foreign file, runs of different tasks, or runs whose examples,
        labels or further columns disagree.
    """
    import xarray

    if not run_dirs:
        raise UserError(f"no run to read {evaluation_set!r} of; give at least one run directory")
    paths = [Path(run_dir) for run_dir in run_dirs]
    runs = [read_run(path) for path in paths]
    dumps = [read_run_predictions(path, evaluation_set) for path in paths]
    for path, run, dump in zip(paths, runs, dumps, strict=True):
        if run["task"] != runs[0]["task"]:
            raise UserError(
                f"{path} is a run of task {run['task']}, expected {runs[0]['task']} as "
                f"{paths[0]}; read one task at a time"
            )
        if dump.scores.shape[1] != dumps[0].scores.shape[1]:
            raise UserError(
                f"{path} has {dump.scores.shape[1]} scores an example, expected "
                f"{dumps[0].scores.shape[1]} as {paths[0]}; read runs of the same labels"
            )
    dumps = [
        _aligned(path, dump, paths[0], dumps[0]) for path, dump in zip(paths, dumps, strict=True)
    ]

    coordinates: dict[str, Any] = {"example_id": ("example", dumps[0].example_ids)}
    for name, column in dumps[0].extras.items():
        coordinates[name] = ("example", column)
    for name in RUN_COORDINATES:
        coordinates[name] = ("run", _run_column([run[name] for run in runs]))
    return xarray.Dataset(
        {
            "prediction": (
                ("run", "example"),
                np.stack([dump.predictions for dump in dumps]).astype(np.float64),
            ),
            "label": (("example",), dumps[0].labels.astype(np.float64)),
            "scores": (("run", "example", "class"), np.stack([dump.scores for dump in dumps])),
        },
        coords=coordinates,
        attrs={
            "task": runs[0]["task"],
            "evaluation_set": evaluation_set,
            "metrics": list(runs[0]["evaluation_sets"][evaluation_set]["metrics"]),
        },
    )


def _run_column(values: list[Any]) -> np.ndarray:
    """A coordinate [run]; a value that a checkpoint does not tell (null) becomes '' or -1."""
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array([-1 if value is None else value for value in values])


def _aligned(path: Path, dump: Predictions, first_path: Path, first: Predictions) -> Predictions:
    """`dump` with its examples in the order of `first`.

    Raises:
      UserError: the examples, their labels or their further columns differ.
    """
    if not np.array_equal(dump.example_ids, first.example_ids):
        position = {example_id: row for row, example_id in enumerate(dump.example_ids.tolist())}
        known = set(first.example_ids.tolist())
        for example_id in [*first.example_ids.tolist(), *position]:
            if example_id not in position or example_id not in known:
                here, there = (path, first_path) if example_id in known else (first_path, path)
                raise UserError(
                    f"{here} lacks example {example_id!r}, which {there} has; compare runs on the "
                    "same evaluation data"
                )
        order = np.array([position[example_id] for example_id in first.example_ids.tolist()])
        dump = Predictions(
            dump.example_ids[order],
            dump.labels[order],
            dump.predictions[order],
            dump.scores[order],
            {name: column[order] for name, column in dump.extras.items()},
        )
    columns = {"label": (dump.labels, first.labels)}
    for name in {*dump.extras, *first.extras}:
        columns[name] = (dump.extras.get(name, np.array([])), first.extras.get(name, np.array([])))
    for name, (found, expected) in sorted(columns.items()):
        if found.shape != expected.shape:
            raise UserError(f"{path} and {first_path} do not both have the column {name}")
        odd = np.flatnonzero(found != expected)
        if odd.size:
            raise UserError(
                f"{path}: {name} of example {str(first.example_ids[odd[0]])!r} is {found[odd[0]]}, but "
                f"{expected[odd[0]]} in {first_path}; compare runs on the same evaluation data"
            )
    return dump
