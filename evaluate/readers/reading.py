"""Reads predictions that other programs wrote, recognised by their content, as one table."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.evaluate.readers.columns import (
    USUAL_NAMES,
    ColumnNames,
    is_doubtful,
    settled,
    standard_rows,
    warn_of_numbers,
)
from multiberts.evaluate.readers.harness_logs import helm_rows, lm_eval_rows
from multiberts.evaluate.readers.inspect_logs import (
    UnfinishedLogError,
    by_inspect,
    inspect_rows,
    is_inspect_log,
    samples_of_archive,
)
from multiberts.evaluate.readers.log_folders import arrange_logs, logs_by_task, logs_of_task
from multiberts.evaluate.readers.rows import (
    BY_NAME,
    NUMBERED,
    POSITION,
    ArmTable,
    ReadAs,
    Rows,
    arms_of_rows,
    rows_of_table,
    table_of_arrays,
)
from multiberts.runs import console
from multiberts.runs.archives import open_archive, read_arrays
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import decoded, parse_json, read_bytes
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import is_parquet, read_columnar

if TYPE_CHECKING:
    import pandas

# Endings of the files that a folder is searched for.
_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".npz", ".eval", ".arrow")
_KINDS = "CSV, TSV, JSON, JSON lines, Parquet, .npz or an evaluation log"


def read_arms(
    path: str, names: ColumnNames | None = None, task: str | None = None
) -> dict[str, ArmTable]:
    """Reads predictions or scores of many runs, by arm ("" where the files name none).

    Args:
      path: one of
        a table (CSV, TSV, JSON lines, JSON, Parquet; also `.gz`), long or with one column per run;
        a `.npz` file of `predictions` or `scores` [seeds, examples] and optionally `labels` [examples],
        `seeds`, `example_ids` and `clusters`;
        a log of Inspect (`.eval` or JSON), or its folder of logs of several models;
        a folder of such files, one per seed, whose names hold the seed's number (`seed_0.csv`);
        a folder of outputs of lm-evaluation-harness (`samples_*.jsonl`), HELM
        (`per_instance_stats.json`) or Hugging Face `datasets`, one folder per seed.
      names: of columns, where they are not the usual ones.
      task: one of several tasks in the files; a column `task` or `evaluation_set`, or the harness's
        name for it.
    """
    file = Path(path)
    if file.is_file() and _is_archive_of_arrays(file):
        table = _read_npz(file, names or ColumnNames(), None)
        if task is not None:
            raise UserError(f"{path} names no task; leave --task out")
        seed = _number(file.name, _SEED)
        if seed is not None:
            _refuse_other_seed(file, seed, table.seeds, table.read.columns["seed"])
        return {"": replace(table, read=replace(table.read, files=[path]))}
    return arms_of_rows(read_rows(path, names, task), path)


def read_rows(path: str, names: ColumnNames | None = None, task: str | None = None) -> Rows:
    """Reads one row per run and example; see `read_arms`."""
    tasks = read_tasks(path, names or ColumnNames(), task)
    if len(tasks) > 1:
        raise UserError(
            f"{path} holds {len(tasks)} tasks ({', '.join([*tasks][:20])}); choose one with "
            "--task=NAME"
        )
    [rows] = tasks.values()
    for name in ("procedure", "step", "learning_rate"):  # of an export, where an arm has several
        if name in rows.further:
            column, arms = rows.further[name], rows.roles["arm"]
            if (column.groupby(arms).nunique() > 1).any():
                arms = arms.astype(str) + f", {name} " + column.astype(str)
                rows = replace(rows, roles=rows.roles.assign(arm=arms))
    return rows


def read_tasks(
    path: str, names: ColumnNames, task: str | None = None, *, may_name: bool = False
) -> dict[str, Rows]:
    """Reads predictions of one task or all, by task; see `read_arms`.

    Args:
      task: the one that is wanted; None: all.
      may_name: whether `task` is the name for files that name none.

    Returns:
      Rows by task; by the path's name where the files name no task. The further column `source_file` is where
      each was found. From files of `multiberts export`: the rows of trained models, with all columns.
    """
    import pandas

    start = Path(path)
    if start.is_file():
        number = _number(start.name, _SEED)
        files, seeds = [start], [None if number is None else FileSeed(number, is_named=True)]
    elif start.is_dir():
        by_task = logs_by_task(_files_in(start))
        if may_name and task is None and len(by_task) > 1 and "" not in by_task:
            each = (read_tasks(path, names, own, may_name=True) for own in by_task)
            return {own: rows for tasks in each for own, rows in tasks.items()}
        files = logs_of_task(by_task, task, start)
        seeds = _seeds_of(files, start)
    else:
        raise UserError(f"{path} does not exist; check the path")
    files, seeds, parts = _read_files(files, seeds, names)
    for file, seed, part in zip(files, seeds, parts, strict=True):
        if seed is not None and seed.is_named:
            held = part.roles["seed"].unique().tolist()
            _refuse_other_seed(file, seed.number, held, part.read.columns["seed"])
    if all(part.log is not None for part in parts):
        numbers = [seed.number if seed else None for seed in seeds]
        parts = arrange_logs(files, numbers, parts, start, name_of(start))
    columns: dict[str, str] = {}
    for part, seed in zip(parts, seeds, strict=True):
        columns |= part.read.columns
        if seed and not seed.is_named and columns["seed"] == BY_NAME:
            columns["seed"] = NUMBERED
    roles, further = (
        pandas.concat([getattr(part, name) for part in parts], ignore_index=True)
        for name in ("roles", "further")
    )
    if may_name:
        lengths = [len(part) for part in parts]
        further["source_file"] = np.repeat(np.array([*map(str, files)], object), lengths)
        if "task" not in roles:
            roles["task"] = task or name_of(start)
    possible_ids = dict.fromkeys(name for part in parts for name in part.possible_ids)
    read = ReadAs(
        columns=columns, files=[*map(str, files)], logged_metric=parts[0].read.logged_metric
    )
    rows_by_task = _by_task(Rows(roles, further, read, [*possible_ids]), task, path)
    tasks = {own: settled(part, names, path) for own, part in rows_by_task.items()}
    for own, part in tasks.items():
        tasks[own] = replace(part, read=replace(part.read, task=own if "task" in roles else ""))
        _warn_of_near_misses(part, path)
    return tasks


def _read_files(
    files: Sequence[Path], seeds: Sequence[FileSeed | None], names: ColumnNames
) -> tuple[list[Path], list[FileSeed | None], list[Rows]]:
    """Reads each file; one of several logs whose evaluation did not end is left out."""
    read: list[tuple[Path, FileSeed | None, Rows]] = []
    for file, seed in zip(files, seeds, strict=True):
        try:
            part = _read_file(file, names, seed.number if seed else None)
        except UnfinishedLogError as error:
            if file == files[-1] and not read:
                raise
            console.warn(f"{str(error).partition(',')[0]}; it is left out")
        else:
            read.append((file, seed, part))
    return [file for file, *_ in read], [seed for _, seed, _ in read], [part for *_, part in read]


@dataclass(frozen=True)
class FileSeed:
    """The number in the name of a file, and whether the word "seed" stands before it."""

    number: int
    is_named: bool


def _refuse_other_seed(file: Path, number: int, seeds: Sequence[object], column: str) -> None:
    """Refuses a file whose name has the number of another seed than its rows."""
    numbers = {
        int(found[0])
        for seed in seeds
        if (
            found := re.search(
                r"\d+(?=\D*$)", f"{seed:.0f}" if isinstance(seed, float) else str(seed)
            )
        )
    }
    if numbers and number not in numbers:
        raise UserError(
            f"{file}: the path names seed {number}, but its column of seeds "
            f"({column!r}) says {', '.join(map(str, seeds[:5]))}; correct the one that "
            "is wrong"
        )


def _warn_of_near_misses(rows: Rows, path: str) -> None:
    """Warns where a predicted class is a label but for spaces or capitals: it counts as wrong."""
    if not {"prediction", "label"} <= {*rows.roles}:
        return
    predictions, labels = (
        {value for value in rows.roles[name].unique() if isinstance(value, str)}
        for name in ("prediction", "label")
    )
    alike = {label.strip().lower(): label for label in sorted(labels)}
    near = sorted(value for value in predictions - labels if value.strip().lower() in alike)
    if near:
        console.warn(
            f"{path}: the prediction {near[0]!r} is the label {alike[near[0].strip().lower()]!r} but for "
            "spaces or capitals, and accuracy counts it as wrong; if it is right, write both alike"
        )


def name_of(path: str | Path) -> str:
    """Returns what predictions are called that name no model or task: as their file or folder.

    Example:
      >>> name_of("results/base.csv.gz"), name_of("results/new.2.tsv")
      ('base', 'new.2')
    """
    place = Path(path)
    return place.name if place.is_dir() else Path(place.name.removesuffix(".gz")).stem


def _files_in(folder: Path) -> list[Path]:
    """Returns the files of predictions in a folder, at any depth; of `datasets` their folders."""
    for pattern in ("samples_*.jsonl", "per_instance_stats.json", "data-*.arrow"):
        files = sorted(folder.rglob(pattern))
        if files:
            return sorted({file.parent for file in files}) if "arrow" in pattern else files
    found = [
        file
        for file in sorted(folder.rglob("*"))
        if file.name.removesuffix(".gz").endswith(_ENDINGS)
    ]
    files = [file for file in found if file.is_file()]
    for file in found:
        if file.is_symlink() and not file.exists():
            console.warn(f"{file} is left out: it is a link to a file that does not exist")
    if not files:
        raise UserError(f"{folder} holds no file of predictions; expected {_KINDS}")
    return files


def _seeds_of(files: Sequence[Path], folder: Path) -> list[FileSeed | None]:
    """Returns the seed that each file's path names.

    Files in one folder (several tasks of one model) share the number of the folder. Times of
    writing are not looked at.
    """
    places = [file.relative_to(folder) for file in files]
    by_word = [_number(str(place), _SEED) for place in places]
    if None not in by_word or len(files) == 1:
        return [None if number is None else FileSeed(number, is_named=True) for number in by_word]
    if not any(seed is not None for seed in by_word):
        names = [
            str(place.parent if _is_named_by_folder(place) else place.with_suffix(""))
            for place in places
        ]
        last = [_number(name, r"(\d+)(?!.*\d)") for name in names]
        if all(map(_is_log, places)):
            return [None] * len(
                files
            )  # of several models (Llama-2, Llama-3), or of one at several times
        if None not in last and len(set(zip(names, last, strict=True))) == len(set(last)):
            doubtful = [name for name in names if is_doubtful(Path(name).name)]
            if doubtful:
                warn_of_numbers(str(folder), "files", doubtful)
            return [FileSeed(number or 0, is_named=False) for number in last]
        if len({place.parent for place in places}) == 1 and set(last) == {None}:
            return [None] * len(files)
    without = [place for place, seed in zip(places, by_word, strict=True) if seed is None]
    raise UserError(
        f"{folder}: found {counted(len(files), 'file')}, and {len(without)} whose names do not say "
        "which seed "
        f"they are of ({', '.join(map(str, without[:2]))}); rename them or their folders so that "
        "each holds its seed, such as seed_0"
    )


_SEED = r"seed[ _\-=]*(\d+)"
# Files that other programs name by task and time.
_BY_FOLDER = re.compile(r"samples_|per_instance_stats|(result-)?\d{4}[_-]\d\d[_-]\d\d[T-]")


def _is_named_by_folder(place: Path) -> bool:
    return bool(_BY_FOLDER.match(place.name))


def _is_log(place: Path) -> bool:
    return bool(re.match(r"samples_|\d{4}-\d\d-\d\dT", place.name))


def _number(text: str, pattern: str) -> int | None:
    found = re.search(pattern, text, re.IGNORECASE)
    return int(found[1]) if found else None


def _by_task(rows: Rows, task: str | None, path: str) -> dict[str, Rows]:
    """Returns the rows of the tasks, without the column that names them."""
    if "task" not in rows.roles:
        if task is not None:
            raise UserError(f"{path} names no task; leave --task out")
        return {name_of(path): rows}
    column = rows.roles["task"]
    known = [str(name) for name in column.dropna().unique()]
    chosen = [name for name in known if task in (None, name, *re.split("[/:]", name))]
    if not chosen:
        raise UserError(f"{path}: found no task {task!r}, only {', '.join(known)}")
    rest = replace(rows, roles=rows.roles.drop(columns="task"))
    return {name: rest.where(column == name) for name in chosen}


def _read_file(path: Path, names: ColumnNames, seed: int | None) -> Rows:
    """Reads one file, recognised by its first bytes, under the names of `ColumnNames`."""
    try:
        if path.name == "per_instance_stats.json":
            return helm_rows(path, names, seed)
        if path.is_dir() or path.suffix == ".arrow" or is_parquet(path):
            return _standard(_read_columns(path), names, path, seed)
        with path.open("rb") as file:
            start = file.read(4)
        if start[:2] == b"PK":
            with open_archive(path) as archive:
                is_log = "header.json" in archive.names
                if is_log:
                    log = by_inspect(path) or samples_of_archive(archive)
                    return inspect_rows(path, log, names, seed)
            return rows_of_table(_read_npz(path, names, seed))
        data = read_bytes(path, f"expected {_KINDS}", is_packed=start[:2] == b"\x1f\x8b")
        utf_16 = _utf_16(data)
        text = data.decode(utf_16) if utf_16 else decoded(data, path)
        if text.strip() in ("", "[]", "{}"):
            raise UserError(f"{path} is empty; expected {_KINDS}")
        if text.lstrip()[:1] in ("{", "["):
            parsed = _parse_json(path, text)
            if is_inspect_log(parsed):
                return inspect_rows(path, by_inspect(path) or parsed, names, seed)
            if path.name.startswith("samples_") and isinstance(parsed, list):
                return lm_eval_rows(path, parsed, names, seed)
            return _standard(_table_of_json(path, parsed), names, path, seed)
        content = text.encode()
        del data, text  # each as large as the table
        return _standard(_read_text_table(content), names, path, seed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); expected {_KINDS}") from error


def _utf_16(data: bytes) -> str | None:
    """Returns the kind of UTF-16 of a text, None for another encoding; spreadsheets write it.

    It has zeros beside its letters, with or without a mark.
    """
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    even, odd = data[:20:2], data[1:20:2]
    for encoding, zeros, letters in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if len(zeros) > 1 and not any(zeros) and all(letters):
            return encoding
    return None


def _table_of_json(path: Path, content: Any) -> pandas.DataFrame:
    """Returns a list of rows, or an object of columns, as a table."""
    import pandas

    if isinstance(content, dict) and not any(map(_has_parts, content.values())):
        raise UserError(
            f"{path}: found one value per name ({', '.join(content)}), expected one per "
            "example; save the scores of the examples, too"
        )
    kinds = {type(part) for part in (content.values() if isinstance(content, dict) else content)}
    # One value beside columns is that of all rows.
    is_table = kinds == {dict} or (isinstance(content, dict) and dict not in kinds)
    lengths = (
        {len(part) for part in content.values() if isinstance(part, list)}
        if is_table and isinstance(content, dict)
        else set()
    )
    if not is_table or len(lengths) > 1:
        raise UserError(
            f"{path}: found {shortened(content)}, expected one object per example, or an object with a list "
            "of one length for each column; write the file anew"
        )
    return pandas.DataFrame(content)


def _read_text_table(content: bytes) -> pandas.DataFrame:
    """Reads CSV, separated by commas or semicolons, or TSV, in UTF-8.

    Where semicolons separate, the decimal sign of a column is the comma or the point.
    """
    import pandas
    from pandas.api.types import is_numeric_dtype

    first = re.search(rb"[^\r\n]*\S[^\r\n]*", content)
    header = first[0].decode() if first else ""
    separator = max("\t,;", key=header.count)  # a stray tab may stand between commas
    options: dict[str, Any] = {"sep": separator if separator in header else ",", "index_col": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            frame = pandas.read_csv(io.BytesIO(content), **options)
        except pandas.errors.ParserWarning as error:
            raise ValueError("rows have more cells than the header has names") from error
    if separator == ";":
        no_numbers = [name for name in frame.columns if not is_numeric_dtype(frame[name])]
        frame[no_numbers] = pandas.read_csv(io.BytesIO(content), **options, decimal=",")[no_numbers]
    # "NA" and "None" are missing numbers, but in a column of words they are words.
    words = [
        name
        for name in frame.columns
        if frame[name].isna().any() and frame[name].dropna().map(type).eq(str).all()
    ]
    if words:
        options |= {"usecols": words, "keep_default_na": False, "na_values": [""]}
        frame[words] = pandas.read_csv(io.BytesIO(content), **options)[words]
    for name in frame.columns if separator == "\t" else ():
        if not is_numeric_dtype(frame[name]) and any(
            isinstance(cell, str) and "\t" in cell and "\n" in cell for cell in frame[name].unique()
        ):
            raise ValueError(
                f"column {name!r} has a cell with tabs and ends of lines, as if a quotation mark were not "
                "closed: write such marks twice, in quoted cells, or leave the column out"
            )
    # pandas renames a second column of one name, which would then be passed over.
    written = next(csv.reader([header], delimiter=options["sep"]))
    if len(written) == frame.shape[1]:
        frame.columns = [
            name.strip() or own for name, own in zip(written, frame.columns, strict=True)
        ]
    return frame


def _standard(frame: pandas.DataFrame, names: ColumnNames, path: Path, seed: int | None) -> Rows:
    """Returns the rows of a table, with the task of each if a column holds it."""
    if set(frame.columns) >= _EXPORTED:
        return _trained(frame, names, str(path))
    rows = standard_rows(frame, names, str(path), seed)
    columns = [name for name in ("task", "evaluation_set") if name in frame]
    if columns and len(rows) == len(frame):
        parts = [frame[name].astype(str).reset_index(drop=True) for name in columns]
        rows = replace(rows, roles=rows.roles.assign(task=parts[0].str.cat(parts[1:], sep="/")))
    return rows


# Columns by which files of `evaluate.prediction_files.parquet` are recognised.
_EXPORTED = {"task", "evaluation_set", "epochs", "procedure", "pretrain_seed", "finetune_seed"}


def _trained(frame: pandas.DataFrame, names: ColumnNames, what: str) -> Rows:
    """Returns the predictions of trained models in an export, without those of early checkpoints."""
    of_runs = (*_EXPORTED - {"epochs"}, "step", "learning_rate", "data_seed")
    runs = [name for name in of_runs if name in frame]  # users drop columns that are all alike
    epochs = frame["epochs"].astype(float).fillna(np.inf)
    last = epochs == epochs.groupby([frame[name] for name in runs], dropna=False).transform("max")
    frame = frame[last].drop(columns="epochs").reset_index(drop=True)
    if "label" in frame and frame["label"].isna().all():
        frame = frame.drop(columns="label")
    columns = {
        "arm": "procedure", "seed": "pretrain_seed", "run": "finetune_seed", "example": "example_id",
        "prediction": "prediction", "label": "label",
    }  # fmt: skip
    given = {role: name for role, name in asdict(names).items() if name is not None}
    for role, name in given.items():
        if name not in frame:
            raise UserError(
                f"{what}: found no column {name!r} for --{role}, only {', '.join(frame.columns)}; name "
                "one of these"
            )
    columns = {
        role: name
        for role, name in {**columns, **given}.items()
        if name in frame and (role in given or name not in given.values())
    }
    roles = frame[[*columns.values()]].set_axis([*columns], axis=1)
    roles["task"] = frame["task"].str.cat(frame["evaluation_set"], sep="/")
    if not isinstance(roles["arm"].iloc[0], str):
        roles["arm"] = roles["arm"].astype(str)
    used = {"task", "evaluation_set", *columns.values()}
    further = frame[[name for name in frame if name not in used]]
    return Rows(roles, further, ReadAs(columns=columns))


def _parse_json(path: Path, text: str) -> Any:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    cure = "write the file anew"
    if len(lines) > 1 and _is_whole(lines[0][1]):
        return [parse_json(line, f"{path} line {number}", cure) for number, line in lines]
    return parse_json(text, str(path), cure)


def _is_whole(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _has_parts(value: Any) -> bool:
    return isinstance(value, list | dict)


def rows_in_memory(table: pandas.DataFrame, what: str, names: ColumnNames | None = None) -> Rows:
    """Returns a table in memory as `read_rows` returns a file of the same columns.

    Args:
      table: long, or with one column per run.
      what: names it in error messages.
      names: of columns, where they are not the usual ones.

    Example:
      >>> import pandas
      >>> table = pandas.DataFrame({"random_seed": [0, 1], "doc_id": ["a", "a"], "acc": [1, 0]})
      >>> rows_in_memory(table, "base").roles[["seed", "example", "score"]].to_numpy().tolist()
      [[0, 'a', 1], [1, 'a', 0]]
    """
    names = names or ColumnNames()
    return settled(standard_rows(table, names, what), names, what)


def is_table_of_runs(columns: Iterable[object]) -> bool:
    """Returns whether columns are those of predictions: with seeds, or with ids beside runs.

    Example:
      >>> is_table_of_runs(["seed", "id", "correct"]), is_table_of_runs(["id", "seed_0", "seed_1"])
      (True, True)
      >>> is_table_of_runs(["a1", "a2"])
      False
    """
    names = {str(name).lower() for name in columns}
    if names & {*USUAL_NAMES["seed"]}:
        return True
    of_examples = {*USUAL_NAMES["example"], *USUAL_NAMES["label"]}
    return bool(names & of_examples) and any(re.search(r"\d$", name) for name in names)


def _is_archive_of_arrays(file: Path) -> bool:
    """Returns whether a file is a `.npz`, and not a log in an archive."""
    with file.open("rb") as opened:
        if opened.read(2) != b"PK":
            return False
    with open_archive(file) as archive:
        return "header.json" not in archive.names


def _read_npz(path: Path, names: ColumnNames, seed: int | None) -> ArmTable:
    """Reads arrays [seeds, examples]; those of one row are of the seed that the file's name has."""
    table = table_of_arrays(read_arrays(path), str(path), asdict(names))
    if seed is None or len(table.keys) > 1 or table.read.columns["seed"] != POSITION:
        return table
    columns = {**table.read.columns, "seed": BY_NAME}
    return replace(table, keys=[(seed,)], read=replace(table.read, columns=columns))


def _read_columns(path: Path) -> pandas.DataFrame:
    """Reads Parquet, or a file or folder that Hugging Face `datasets` saved; a split is a task."""
    # Metadata that others wrote for pandas may be damaged; columns are read by name alone.
    frame: pandas.DataFrame = read_columnar(path).to_pandas(ignore_metadata=True)
    if (path.parent / "dataset_dict.json").is_file():
        frame["task"] = path.name
    return frame
