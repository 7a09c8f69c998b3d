"""The command `export`: predictions as one Parquet or CSV file, or as files of SQuAD's official scorer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multiberts.evaluate.prediction_files.predictions import read_run_predictions, texts_of_runs
from multiberts.evaluate.prediction_files.run_file import RUN_COORDINATES, find_runs, set_of
from multiberts.evaluate.squad_files import write_squad_files
from multiberts.runs import console
from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import MARK, as_cell, check_output, replaced
from multiberts.runs.tables import need_pyarrow

if TYPE_CHECKING:
    import pandas
    import pyarrow

_DICTIONARY_BYTES = 64 << 20
_FIRST = ("task", "evaluation_set", "epochs", *RUN_COORDINATES, "example_id", "label", "prediction")


def export(
    *,
    path: str,
    predictions: str | Sequence[str],
    evaluation_set: str = "dev",
    null_threshold: float | None = None,
) -> None:
    """Writes predictions of finished runs for other programs, in the format of the path's ending.

    `.parquet` and `.csv`: all predictions below a folder, one row per run and example. Columns: task,
    evaluation_set, epochs (null at the end of training where run.json does not have it), the run's
    coordinates, example_id, label (null where unknown), prediction, scores (a list), and every further
    column of the prediction files (lists of texts as lists) and the texts of the examples; null if a set
    lacks the column. In CSV files, lists are JSON.

    No ending: a folder with one run's answers in the format of SQuAD's official scorer (`predictions.json`,
    `null_odds.json`, `nbest_predictions.json`) and the `scores.json` that it prints for them.

    Args:
      path: file or folder to write.
      predictions: one or several folders with finished fine-tuning runs, at any depth; for SQuAD's files one
        run.
      evaluation_set: evaluation set to export, for SQuAD's files.
      null_threshold: threshold for SQuAD's files, such as the best one in `scores.json`: questions with
        higher null odds are left unanswered. None keeps the run's decisions.
    """
    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    suffix = Path(path).suffix
    if not suffix and len(folders) == 1:
        write_squad_files(path, folders[0], evaluation_set, null_threshold)
        return
    if suffix not in (".parquet", ".csv"):
        raise UserError(
            f"export.path is {path}, expected a name that ends in .parquet or .csv, or for the files of "
            "SQuAD's scorer a folder and one run; rename it"
        )
    if null_threshold is not None:
        raise UserError(
            f"export.null_threshold is {null_threshold}, which counts for the files of SQuAD's scorer only; "
            "leave it out, or give a path without an ending"
        )
    check_output(path)
    need_pyarrow(path)
    import pyarrow
    import pyarrow.parquet

    runs = [run for folder in folders for run in find_runs(folder)]
    if not runs:
        raise UserError(
            f"{', '.join(folders)} holds no finished fine-tuning run; give another folder"
        )
    known: dict[tuple, np.ndarray] = {}
    texts: dict[tuple, dict[str, pyarrow.Array]] = {}  # read once, and shared by the runs' tables
    tables = []
    for run_dir, content in ProgressBar(runs, desc="exporting", unit="run"):
        for name in content["evaluation_sets"]:
            frame = frame_of(run_dir, name, content, known)
            table = pyarrow.Table.from_pandas(frame, preserve_index=False)
            entry = content["evaluation_sets"][name]
            if "texts" in entry:
                key = (entry["texts"]["sha256"], *frame["example_id"])
                if key not in texts:
                    found = texts_of_runs([run_dir], [entry], key[1:])
                    texts[key] = {column: pyarrow.array(values) for column, values in found.items()}
                for column, values in texts[key].items():
                    table = table.append_column(column, values)
            tables.append(table)
    whole = pyarrow.concat_tables(tables, promote_options="permissive")
    names = [*_FIRST, *sorted(set(whole.column_names) - set(_FIRST))]
    whole = whole.select(names)
    with replaced(Path(path)) as temporary:
        if Path(path).suffix == ".csv":
            _write_csv(whole, temporary)
        else:
            # All runs have the same texts, so each text is written once per group of rows.
            whole = whole.replace_schema_metadata({**(whole.schema.metadata or {}), MARK: ""})
            pyarrow.parquet.write_table(
                whole, temporary, dictionary_pagesize_limit=_DICTIONARY_BYTES
            )
    console.report(
        f"{path}: {counted(len(runs), 'run')}, {whole.num_rows:,} rows, {len(names)} columns"
    )


def _write_csv(table: pyarrow.Table, path: Path) -> None:
    import pyarrow

    frame = table.to_pandas()
    for field in table.schema:
        if pyarrow.types.is_list(field.type):
            frame[field.name] = [
                values if values is None else json.dumps(values)
                for values in table[field.name].to_pylist()
            ]
    for name in ("task", "evaluation_set", "procedure"):  # ids and texts stay exact, for programs
        frame[name] = frame[name].map(as_cell)
    frame.to_csv(path, index=False)


def frame_of(
    run_dir: Path, name: str, content: dict, known: dict[tuple, np.ndarray]
) -> pandas.DataFrame:
    """Returns one run's predictions on one set, one row per example."""
    import pandas

    predictions = read_run_predictions(run_dir, name, content=content, cache=known)
    entry = content["evaluation_sets"][name]
    columns: dict[str, object] = {
        "task": content["task"],
        "evaluation_set": set_of(name, entry),
        "epochs": entry.get("epochs"),
        **{field: content[field] for field in RUN_COORDINATES},
        "example_id": predictions.example_ids,
        "label": predictions.labels.astype(np.float64),
        "prediction": predictions.predictions.astype(np.float64),
        "scores": list(predictions.scores),
    }
    for column, values in {**predictions.extras, **predictions.outputs}.items():
        lists = values.dtype == object and isinstance(values[0], tuple)
        columns[column] = [list(texts) for texts in values] if lists else values
    frame = pandas.DataFrame(columns, index=range(len(predictions.example_ids)))
    types = dict.fromkeys(("epochs", "learning_rate", "label"), "Float64")
    types |= dict.fromkeys(("pretrain_seed", "data_seed", "step", "finetune_seed"), "Int64")
    return frame.astype({**types, "procedure": "string"})
