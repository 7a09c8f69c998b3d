"""Reads predictions that other programs wrote, recognised by their content, as one table."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.readers.columns import (
    BY_MODEL,
    BY_NAME,
    BY_TIME,
    NUMBERED,
    POSITION,
    USUAL_NAMES,
    ColumnNames,
    is_doubtful,
    settled,
    standard_frame,
    warn_of_numbers,
)
from multiberts.evaluate.readers.harness_logs import (
    UnfinishedLogError,
    by_inspect,
    helm_frame,
    inspect_frame,
    is_inspect_log,
    lm_eval_frame,
    task_of_samples,
)
from multiberts.runs import console
from multiberts.runs.archives import Archive, open_archive, read_arrays
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import decoded, parse_json, read_bytes
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import is_parquet, read_columnar

if TYPE_CHECKING:
    import pandas

# Endings of the files that a folder is searched for.
_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".npz", ".eval", ".arrow")
_KINDS = "CSV, TSV, JSON, JSON lines, Parquet, .npz or an evaluation log"


def read_frame(
    path: str, names: ColumnNames | None = None, task: str | None = None
) -> pandas.DataFrame:
    """Reads predictions or scores of many runs, one row per run and example.

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

    Returns:
      Columns seed, example, prediction or score, and arm, run, label, cluster and texts where known.
      `attrs` has what was read as what, see `evaluate.readers.columns.settled`, and `files`.
    """
    frames = read_frames(path, names or ColumnNames(), task)
    if len(frames) > 1:
        raise UserError(
            f"{path} holds {len(frames)} tasks ({', '.join([*frames][:20])}); choose one with "
            "--task=NAME"
        )
    [frame] = frames.values()
    for name in ("procedure", "step", "learning_rate"):  # of an export, where an arm has several
        if name in frame and (frame.groupby("arm")[name].nunique() > 1).any():
            frame["arm"] = frame["arm"].astype(str) + f", {name} " + frame[name].astype(str)
    return frame


def read_frames(
    path: str, names: ColumnNames, task: str | None = None, *, may_name: bool = False
) -> dict[str, pandas.DataFrame]:
    """Reads predictions of one task or all, by task; see `read_frame`.

    Args:
      path: see `read_frame`.
      task: the one that is wanted; None: all.
      may_name: whether `task` is the name for files that name none.

    Returns:
      Rows by task; by the path's name where the files name no task. `source_file` is where each was
      found. From files of `multiberts export`: the rows of trained models, with all columns.
    """
    import pandas

    start = Path(path)
    if start.is_file():
        number = _number(start.name, _SEED)
        files, seeds = [start], [None if number is None else FileSeed(number, is_named=True)]
    elif start.is_dir():
        files = _files_in(start, task)
        seeds = _seeds_of(files, start)
    else:
        raise UserError(f"{path} does not exist; check the path")
    files, seeds, parts = _read_files(files, seeds, names)
    for file, seed, part in zip(files, seeds, parts, strict=True):
        _refuse_other_seed(file, seed, part)
    if all(part.attrs.get("log") is not None for part in parts):
        _arrange_logs(files, seeds, parts, start)
    columns: dict[str, str] = {}
    for part, seed in zip(parts, seeds, strict=True):
        columns |= part.attrs["columns"]
        if seed and not seed.is_named and columns["seed"] == BY_NAME:
            columns["seed"] = NUMBERED
    found = pandas.concat(parts, ignore_index=True)
    if may_name and "task" not in found:
        found["task"] = task or name_of(start)
    tasks = {
        own: settled(rows, names, path, columns)
        for own, rows in _by_task(found, task, path).items()
    }
    for own, rows in tasks.items():
        rows.attrs |= {"files": [*map(str, files)], "task": own if "task" in found else ""}
        _warn_of_near_misses(rows, path)
    return tasks


def _read_files(
    files: Sequence[Path], seeds: Sequence[FileSeed | None], names: ColumnNames
) -> tuple[list[Path], list[FileSeed | None], list[pandas.DataFrame]]:
    """Reads each file; one of several logs whose evaluation did not end is left out."""
    read: list[tuple[Path, FileSeed | None, pandas.DataFrame]] = []
    for file, seed in zip(files, seeds, strict=True):
        try:
            part = _read_file(file, names, seed.number if seed else None)
        except UnfinishedLogError as error:
            if file == files[-1] and not read:
                raise
            console.warn(f"{str(error).partition(',')[0]}; it is left out")
        else:
            read.append((file, seed, part.assign(source_file=str(file))))
    return [file for file, *_ in read], [seed for _, seed, _ in read], [part for *_, part in read]


def _arrange_logs(
    files: Sequence[Path],
    seeds: Sequence[FileSeed | None],
    parts: Sequence[pandas.DataFrame],
    start: Path,
) -> None:
    """Gives logs of one or several models their arms, seeds and runs, in place.

    Arms differ in model, settings or folder. Logs of one arm are its seeds in order of time, or, where
    their paths name seeds, runs of these.
    """
    facts = []
    for file, part in zip(files, parts, strict=True):
        parents = file.relative_to(start).parent.parts if start.is_dir() else ()
        folder = "/".join(filter(None, (_RUN_WORDS.sub("", parent) for parent in parents)))
        facts.append({"folder": folder, **part.attrs["log"]})
    names = [
        name for name in dict.fromkeys(name for own in facts for name in own) if name != "when"
    ]
    by_task: dict[str, list[dict[str, str]]] = {}
    for own, part in zip(facts, parts, strict=True):
        by_task.setdefault(part["task"].iloc[0], []).append(own)
    # Settings that only distinguish one task from another do not make an arm.
    differing = [
        name
        for name in names
        if any(
            len({own.get(name) for own in alike}) > 1
            for alike in ([facts] if name in ("folder", "model") else by_task.values())
        )
    ]
    repeats: dict[tuple, list[int]] = {}
    for place, (own, seed, part) in enumerate(zip(facts, seeds, parts, strict=True)):
        arm = ", ".join(
            own[name] if name in ("folder", "model") else f"{name}={own[name]}"
            for name in differing
            if own.get(name)
        )
        if differing:
            part["arm"] = arm
            part.attrs["columns"]["arm"] = BY_MODEL
        key = (arm, part["task"].iloc[0], seed.number if seed else None)
        repeats.setdefault(key, []).append(place)
    for (arm, _, seed_number), places in repeats.items():
        ordered = sorted(places, key=lambda place: (facts[place]["when"], files[place]))
        earlier = 0  # runs of earlier logs
        for number, place in enumerate(ordered, 1):
            part = parts[place]
            if seed_number is None:
                part["seed"] = number
                part.attrs["columns"]["seed"] = BY_TIME
            elif len(ordered) > 1:
                epochs = part.get("run", 1)
                part["run"] = earlier + epochs
                earlier += np.max(epochs)
                part.attrs["columns"]["run"] = BY_TIME
        _warn_of_repeats([parts[place] for place in ordered], arm or name_of(start))


def _warn_of_repeats(parts: Sequence[pandas.DataFrame], arm: str) -> None:
    """Warns where an evaluation was repeated and nothing changed: it shows nothing about seeds."""
    scores = {tuple(part.sort_values("example")["score"]) for part in parts}
    if len(parts) > 1 and len(scores) == 1:
        console.warn(
            f"the {len(parts)} logs of {arm} have the same score on every example, so they are one result "
            "several times: the interval is about these examples and says nothing about other seeds"
        )


@dataclass(frozen=True)
class FileSeed:
    """The number in the name of a file, and whether the word "seed" stands before it."""

    number: int
    is_named: bool


def _refuse_other_seed(file: Path, seed: FileSeed | None, rows: pandas.DataFrame) -> None:
    if seed is None or not seed.is_named:
        return
    held = rows["seed"].unique().tolist()
    numbers = {
        int(found[0])
        for value in held
        if (
            found := re.search(
                r"\d+(?=\D*$)", f"{value:.0f}" if isinstance(value, float) else str(value)
            )
        )
    }
    if numbers and seed.number not in numbers:
        raise UserError(
            f"{file}: the path names seed {seed.number}, but its column of seeds "
            f"({rows.attrs['columns']['seed']!r}) says {', '.join(map(str, held[:5]))}; correct the one that "
            "is wrong"
        )


def _warn_of_near_misses(frame: pandas.DataFrame, path: str) -> None:
    """Warns where a predicted class is a label but for spaces or capitals: it counts as wrong."""
    if not {"prediction", "label"} <= {*frame.columns}:
        return
    predictions, labels = (
        {value for value in frame[name].unique() if isinstance(value, str)}
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


def _files_in(folder: Path, task: str | None) -> list[Path]:
    """Returns the files of predictions in a folder, at any depth; of `datasets` their folders."""
    samples = sorted(folder.rglob("samples_*.jsonl"))
    if samples:
        known = sorted({task_of_samples(path) for path in samples})
        if task not in (None, *known):
            raise UserError(f"{folder}: found no task {task!r}, only {', '.join(known)}")
        return [path for path in samples if task in (None, task_of_samples(path))]
    for pattern in ("per_instance_stats.json", "data-*.arrow"):
        files = sorted(folder.rglob(pattern))
        if files:
            return files if pattern.endswith(".json") else sorted({file.parent for file in files})
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
        if all(map(_is_log, places)) and (
            None in last or len({re.sub(r"\d+$", "", name) for name in names}) > 1
        ):
            return [None] * len(files)  # of several models, or of one at several times
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
# Parts of a folder's name that number runs, and do not name a model.
_RUN_WORDS = re.compile(
    r"^\d+$|[ _\-.]*(?<![a-z])(seed|run|repeat|rep|trial)[ _\-=]*\d+", re.IGNORECASE
)
# Files that other programs name by task and time.
_BY_FOLDER = re.compile(r"samples_|per_instance_stats|(result-)?\d{4}[_-]\d\d[_-]\d\d[T-]")


def _is_named_by_folder(place: Path) -> bool:
    return bool(_BY_FOLDER.match(place.name))


def _is_log(place: Path) -> bool:
    return bool(re.match(r"samples_|\d{4}-\d\d-\d\dT", place.name))


def _number(text: str, pattern: str) -> int | None:
    found = re.search(pattern, text, re.IGNORECASE)
    return int(found[1]) if found else None


def _by_task(frame: pandas.DataFrame, task: str | None, path: str) -> dict[str, pandas.DataFrame]:
    """Returns the rows of the tasks, without the column that names them."""
    if "task" not in frame:
        if task is not None:
            raise UserError(f"{path} names no task; leave --task out")
        return {name_of(path): frame}
    known = [str(name) for name in frame["task"].dropna().unique()]
    chosen = [name for name in known if task in (None, name, *name.split("/"))]
    if not chosen:
        raise UserError(f"{path}: found no task {task!r}, only {', '.join(known)}")
    return {
        name: frame[frame["task"] == name].drop(columns="task").reset_index(drop=True)
        for name in chosen
    }


def _read_file(path: Path, names: ColumnNames, seed: int | None) -> pandas.DataFrame:
    """Reads one file, recognised by its first bytes, under the names of `ColumnNames`."""
    try:
        if path.name == "per_instance_stats.json":
            return helm_frame(path, names, seed)
        if path.is_dir() or path.suffix == ".arrow" or is_parquet(path):
            return _standard(_read_columns(path), names, path, seed)
        with path.open("rb") as file:
            start = file.read(4)
        if start[:2] == b"PK":
            with open_archive(path) as archive:
                is_log = "header.json" in archive.names
                if is_log:
                    log = by_inspect(path) or _samples_of_archive(archive)
                    return inspect_frame(path, log, names, seed)
            return _standard(_read_npz(path), names, path, seed)
        data = read_bytes(path, f"expected {_KINDS}", is_packed=start[:2] == b"\x1f\x8b")
        utf_16 = _utf_16(data)
        text = data.decode(utf_16) if utf_16 else decoded(data, path)
        if text.strip() in ("", "[]", "{}"):
            raise UserError(f"{path} is empty; expected {_KINDS}")
        if text.lstrip()[:1] in ("{", "["):
            content = _parse_json(path, text)
            if is_inspect_log(content):
                return inspect_frame(path, by_inspect(path) or content, names, seed)
            if path.name.startswith("samples_") and isinstance(content, list):
                return lm_eval_frame(path, content, names, seed)
            return _standard(_table_of_json(path, content), names, path, seed)
        frame = _read_text_table(text)
        return _standard(frame, names, path, seed)
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


def _read_text_table(text: str) -> pandas.DataFrame:
    """Reads CSV, separated by commas or semicolons, or TSV.

    Where semicolons separate, the decimal sign of a column is the comma or the point.
    """
    import pandas
    from pandas.api.types import is_numeric_dtype

    header = next((line for line in text.splitlines() if line.strip()), "")
    separator = max("\t,;", key=header.count)  # a stray tab may stand between commas
    options: dict[str, Any] = {"sep": separator if separator in header else ",", "index_col": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            frame = pandas.read_csv(io.StringIO(text), **options)
        except pandas.errors.ParserWarning as error:
            raise ValueError("rows have more cells than the header has names") from error
    if separator == ";":
        no_numbers = [name for name in frame.columns if not is_numeric_dtype(frame[name])]
        frame[no_numbers] = pandas.read_csv(io.StringIO(text), **options, decimal=",")[no_numbers]
    # "NA" and "None" are missing numbers, but in a column of words they are words.
    words = [
        name
        for name in frame.columns
        if frame[name].isna().any() and frame[name].dropna().map(type).eq(str).all()
    ]
    if words:
        options |= {"usecols": words, "keep_default_na": False, "na_values": [""]}
        frame[words] = pandas.read_csv(io.StringIO(text), **options)[words]
    for name in frame.columns if separator == "\t" else ():
        if (
            frame[name]
            .map(lambda cell: isinstance(cell, str) and "\t" in cell and "\n" in cell)
            .any()
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


def _standard(
    frame: pandas.DataFrame, names: ColumnNames, path: Path, seed: int | None
) -> pandas.DataFrame:
    """Returns a table under standard names, with the task of each row if a column holds it."""
    if set(frame.columns) >= _EXPORTED:
        return _trained(frame, names, str(path))
    chosen = standard_frame(frame, names, str(path), seed)
    columns = [name for name in ("task", "evaluation_set") if name in frame]
    if columns and len(chosen) == len(frame):
        parts = [frame[name].astype(str) for name in columns]
        chosen["task"] = parts[0].str.cat(parts[1:], sep="/")
    return chosen


# Columns by which files of `evaluate.prediction_files.parquet` are recognised.
_EXPORTED = {"task", "evaluation_set", "epochs", "procedure", "pretrain_seed", "finetune_seed"}


def _trained(frame: pandas.DataFrame, names: ColumnNames, what: str) -> pandas.DataFrame:
    """Returns the predictions of trained models in an export, without those of early checkpoints."""
    of_runs = (*_EXPORTED - {"epochs"}, "step", "learning_rate", "data_seed")
    runs = [name for name in of_runs if name in frame]  # users drop columns that are all alike
    epochs = frame["epochs"].astype(float).fillna(np.inf)
    last = epochs == epochs.groupby([frame[name] for name in runs], dropna=False).transform("max")
    frame = frame[last].drop(columns="epochs").reset_index(drop=True)
    if "label" in frame and frame["label"].isna().all():
        frame = frame.drop(columns="label")
    frame["task"] = frame["task"].str.cat(frame["evaluation_set"], sep="/")
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
    frame = frame.drop(columns="evaluation_set").rename(
        columns={name: role for role, name in columns.items()}
    )
    if not isinstance(frame["arm"].iloc[0], str):
        frame["arm"] = frame["arm"].astype(str)
    frame.attrs = {"columns": columns}
    return frame


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


def _samples_of_archive(archive: Archive) -> dict[str, Any]:
    """Reads the members of an Inspect log as the JSON form has them."""
    cure = "write the log anew"
    read: Callable[[str], Any] = lambda name: parse_json(  # noqa: E731
        archive.read(name), f"{archive.path}, {name},", cure
    )
    samples = [
        read(name)
        for name in sorted(archive.names)
        if name.startswith("samples/") and name.endswith(".json")
    ]
    header = read("header.json")
    if not isinstance(header, dict):
        raise UserError(f"{archive.path}, header.json, holds no fields by name; {cure}")
    return {**header, "samples": samples}


def _has_parts(value: Any) -> bool:
    return isinstance(value, list | dict)


def frame_of_table(
    table: pandas.DataFrame, what: str, names: ColumnNames | None = None
) -> pandas.DataFrame:
    """Returns a table in memory as `read_frame` returns a file of the same columns.

    Args:
      table: long, or with one column per run.
      what: names it in error messages.
      names: of columns, where they are not the usual ones.

    Example:
      >>> import pandas
      >>> table = pandas.DataFrame({"random_seed": [0, 1], "doc_id": ["a", "a"], "acc": [1, 0]})
      >>> frame_of_table(table, "base")[["seed", "example", "score"]].to_numpy().tolist()
      [[0, 'a', 1], [1, 'a', 0]]
    """
    names = names or ColumnNames()
    chosen = standard_frame(table, names, what)
    return settled(chosen, names, what, chosen.attrs["columns"])


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


def frame_of_arrays(found: Mapping[str, NDArray], what: str) -> pandas.DataFrame:
    """Returns arrays `predictions` or `scores` [seeds, examples] as one row per prediction.

    Args:
      found: these, and optionally `labels` [examples], `seeds`, `example_ids` and `clusters`.
      what: names them in error messages.

    Example:
      >>> import numpy as np
      >>> arrays = {"scores": np.array([[1, 0]]), "seeds": np.array([7])}
      >>> frame_of_arrays(arrays, "base")[["seed", "score"]].to_numpy().tolist()
      [[7, 1], [7, 0]]
    """
    frame = _rows_of_arrays(found, what)
    chosen = standard_frame(frame, ColumnNames(), what)
    return settled(chosen, ColumnNames(), what, chosen.attrs["columns"])


def _read_npz(path: Path) -> pandas.DataFrame:
    """Reads arrays [seeds, examples] as one row per prediction."""
    return _rows_of_arrays(read_arrays(path), str(path))


def _rows_of_arrays(found: Mapping[str, NDArray], path: str) -> pandas.DataFrame:
    import pandas

    value = next((name for name in ("predictions", "scores") if name in found), None)
    if value is None or found[value].ndim != 2:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in found.items())
        raise UserError(
            f"{path}: found {shapes or 'no array'}, expected `predictions` or `scores` "
            "[seeds, examples]; save each arm's under these names, in a file of its own"
        )
    num_seeds, num_examples = found[value].shape
    lengths = {
        "seeds": num_seeds,
        **dict.fromkeys(("labels", "clusters", "example_ids"), num_examples),
    }
    for name, array in found.items():
        if name in lengths and array.shape != (lengths[name],):
            raise UserError(
                f"{path}: {name} has the shape {list(array.shape)}, but {value} are [{num_seeds}, "
                f"{num_examples}], expected [{lengths[name]}]; save them anew"
            )
        if name in (value, *lengths) and array.dtype.kind not in "biufU":
            raise UserError(
                f"{path}: {name} has the type {array.dtype}, expected numbers or texts; save them anew"
            )
    table = found[value]
    seeds = found.get("seeds", np.arange(table.shape[0]))
    columns = {
        "seed": np.repeat(seeds, table.shape[1]),
        value.removesuffix("s"): table.ravel(),
    }
    roles = {"labels": "label", "clusters": "cluster", "example_ids": "example"}
    for name, role in roles.items():
        if name in found:
            columns[role] = np.tile(found[name], table.shape[0])
    frame = pandas.DataFrame(columns)
    read = {
        value.removesuffix("s"): value,
        **{roles[name]: name for name in roles if name in found},
    }
    frame.attrs["columns"] = {**read, "seed": "seeds" if "seeds" in found else POSITION}
    return frame


def _read_columns(path: Path) -> pandas.DataFrame:
    """Reads Parquet, or a file or folder that Hugging Face `datasets` saved; a split is a task."""
    # Metadata that others wrote for pandas may be damaged; columns are read by name alone.
    frame: pandas.DataFrame = read_columnar(path).to_pandas(ignore_metadata=True)
    if (path.parent / "dataset_dict.json").is_file():
        frame["task"] = path.name
    return frame
