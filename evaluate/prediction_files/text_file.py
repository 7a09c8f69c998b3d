"""Texts of examples, for readers to recognise them: a file per run and evaluation set.

`texts/<evaluation set>.tfrecord.gz` is a TFRecord compressed with gzip (`tf.data.TFRecordDataset(path,
"GZIP")` reads it). A record is a tf.train.Example with `example_id`, as in the predictions, and a feature
per text, such as `premise` and `hypothesis`. Predictions of early checkpoints share the file. `run.json`
has the SHA-256 of the uncompressed content, as compressed bytes depend on the version of zlib. Predictions
imported without texts have no file.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.evaluate.prediction_files.example_columns import ForeignRecord, decode, encode
from multiberts.evaluate.prediction_files.prediction_file import column_values, is_column_name
from multiberts.evaluate.prediction_files.tfrecord import DamagedRecord, framed, split
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes, write_atomically

if TYPE_CHECKING:
    import xarray

# Columns of texts [examples], as objects: in NumPy's string arrays every text has the longest's size.
TextColumns = dict[str, np.ndarray]
_CURE = "remove the run and fine-tune it again"


def write_texts(
    run_dir: PathLike,
    evaluation_set: str,
    example_ids: Sequence[str] | np.ndarray,
    texts: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Writes the texts of an evaluation set, such as `dev`, atomically.

    Returns:
      The set's entry `texts` in run.json: file, columns, and the SHA-256 before compression.

    Examples:
      >>> entry = write_texts(".", "dev", ["rte/dev/0"], {"premise": ["It rains."]})
      >>> read_texts(".", entry, ["rte/dev/0"])["premise"]
      array(['It rains.'], dtype=object)
    """
    file = f"texts/{evaluation_set}.tfrecord.gz"
    path = Path(run_dir) / file
    unfit = [name for name in texts if not is_column_name(name)]
    if unfit or not texts or {len(column) for column in texts.values()} != {len(example_ids)}:
        raise ValueError(
            f"{path}: found the columns {sorted(texts)}, expected texts of {len(example_ids)} examples"
        )
    columns = {"example_id": map(str, example_ids), **texts}
    content = framed(
        encode({name: [[text] for text in column] for name, column in columns.items()})
    )
    write_atomically(path, gzip.compress(content, mtime=0))
    return {"file": file, "columns": list(texts), "sha256": hashlib.sha256(content).hexdigest()}


def read_texts(
    run_dir: PathLike, entry: Mapping[str, Any], example_ids: Sequence[str] | np.ndarray
) -> TextColumns:
    """Reads the texts of an evaluation set.

    Args:
      example_ids: ids [examples], in the order of the returned texts.

    Returns:
      Texts [examples] by column name.
    """
    path = Path(run_dir) / entry["file"]
    content = read_bytes(path, _CURE)
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise UserError(f"{path} does not have the SHA-256 in run.json; {_CURE}")
    columns = {}
    with contextlib.suppress(DamagedRecord, ForeignRecord):
        columns = decode(split(content, verify=False))
    if set(columns) != {"example_id", *entry["columns"]}:
        raise UserError(
            f"{path} has the columns {sorted(columns)}, expected example_id and those that run.json "
            f"names; {_CURE}"
        )
    values = {name: column_values(path, name, column) for name, column in columns.items()}
    row_of_id = {name: row for row, name in enumerate(values["example_id"])}
    missing = [name for name in map(str, example_ids) if name not in row_of_id]
    if missing:
        raise UserError(f"{path} lacks example {missing[0]!r}, which has a prediction; {_CURE}")
    order = [row_of_id[name] for name in map(str, example_ids)]
    return {name: values[name][order] for name in entry["columns"]}


def example_texts(data: xarray.Dataset, longest: int) -> dict[str, str]:
    """Returns a description of each example: its label, its texts up to `longest` characters, other columns.

    Examples:
      >>> from multiberts.evaluate.prediction_files.predictions import read_predictions
      >>> example_texts(read_predictions(["runs/seed_0"], "dev"), 80)["rte/dev/0"]
      'label: 1'
    """
    columns = {
        str(name): item.to_numpy()
        for name, item in data.variables.items()
        if item.dims == ("example",) and name != "example_id" and item.dtype.kind in "UO"
    }
    labels = data["label"].to_numpy()
    texts = {}
    for row, example_id in enumerate(data["example_id"].to_numpy().tolist()):
        parts = [f"label: {labels[row]:g}"] if labels.dtype.kind in "iufb" else []
        for name, column in columns.items():
            value = column[row]
            text = " ".join((" | ".join(value) if isinstance(value, tuple) else str(value)).split())
            parts.append(f"{name}: {text[:longest]}{'...' if len(text) > longest else ''}")
        texts[str(example_id)] = "; ".join(parts)
    return texts
