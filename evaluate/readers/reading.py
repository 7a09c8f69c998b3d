"""Reads other programs' predictions, recognised by their content, as one table."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.evaluate.readers.columns import (
    ColumnNames,
    RowNames,
    account_for,
    chosen_rows,
    columns_by_role,
    may_be_ids,
    parting,
    settled,
    standard_rows,
    stripped,
    with_plain_cells,
)
from multiberts.evaluate.readers.harness_logs import helm_rows, lm_eval_rows
from multiberts.evaluate.readers.inspect_logs import (
    UnfinishedLogError,
    by_inspect,
    inspect_rows,
    samples_of_archive,
)
from multiberts.evaluate.readers.layout import (
    KINDS,
    SourceFile,
    by_name,
    is_known_task,
    name_of_all,
    root_of,
    source_files,
    tasks_of_logs,
    warn_of_doubtful,
    warn_of_left_out,
)
from multiberts.evaluate.readers.log_folders import arrange_logs, chosen_tasks, only_task
from multiberts.evaluate.readers.other_kinds import (
    TABLE,
    NoPredictionsError,
    refuse_archive,
    refuse_fields,
)
from multiberts.evaluate.readers.rows import (
    BY_NAME,
    FACT_NAMES,
    NUMBERED,
    ONE_RUN,
    POSITION,
    SPLITS,
    TASK_NAMES,
    TEXT_NAMES,
    USUAL_NAMES,
    ArmTable,
    ReadAs,
    Rows,
    arms_of_rows,
    columns_of,
    number_of,
    rows_of_table,
    table_of_arrays,
)
from multiberts.runs import console
from multiberts.runs.archives import open_archive, read_arrays
from multiberts.runs.errors import UserError, counted, listed, memory_error
from multiberts.runs.files import MOST_BYTES_NEEDED, decoded, read_bytes, refuse_bytes
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import parse_json_rows, read_columnar, rows_under_data, separator_of

if TYPE_CHECKING:
    import pandas


def read_arms_by_task(
    path: str | Path | Sequence[str | Path],
    names: ColumnNames | None = None,
    task: str | None = None,
) -> dict[str, dict[str, ArmTable]]:
    """Reads predictions or scores of many runs, by task and arm ("" if the files name none).

    Args:
      path: a table, arrays, a log, or a folder of them, as docs/compare_models.md lists them; or several of
        these that belong together (see `evaluate.readers.layout.are_seeds_of_arms`).
      task: one of several tasks, by default all, named by a column, a harness, or names of files.
    """
    paths = _listed(path)
    file = Path(paths[0])
    if len(paths) == 1 and file.is_file() and _is_of_arrays(file):
        [source] = source_files(paths)
        refuse_where(file, (names or ColumnNames()).where)
        table = _read_npz(file, names or ColumnNames(), source.seed)
        if task is not None:
            raise NoTaskError(file)
        if source.seed is not None:
            _refuse_other_seed(file, source.seed, table.seeds, table.read.columns["seed"])
        return {"": {"": replace(table, read=replace(table.read, files=paths))}}
    by_task = read_tasks(paths, names or ColumnNames(), task)
    where = described_paths(paths)
    return {name: arms_of_rows(_with_steps(rows), where) for name, rows in by_task.items()}


class NoTaskError(UserError):
    """A task was requested, but the files do not name tasks."""

    def __init__(self, where: object):
        super().__init__(f"{where} names no task; leave --task out")


def refuse_where(path: str | Path, where: str | None) -> None:
    if where is not None:
        raise UserError(f"{path} has no columns for --where={where}; leave it out")


def _listed(path: str | Path | Sequence[str | Path]) -> list[str]:
    paths = [path] if isinstance(path, str | Path) else path
    return [os.path.expanduser(entry) for entry in paths]


def described_paths(path: str | Path | Sequence[str | Path]) -> str:
    """Returns the name of the files at paths for messages."""
    paths = _listed(path)
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _with_steps(rows: Rows) -> Rows:
    """Returns the rows of an export with an arm per procedure, step and rate, if an arm has several."""
    for name in ("procedure", "step", "learning_rate"):
        if name in rows.further:
            column, arms = rows.further[name], rows.roles["arm"]
            if (column.groupby(arms).nunique() > 1).any():
                arms = arms.astype(str) + f", {name} " + column.astype(str)
                rows = replace(rows, roles=rows.roles.assign(arm=arms))
    return rows


def check_names_of_tasks(tasks: Mapping[str, Mapping[str, ArmTable]], where: str) -> None:
    """Refuses unknown tasks of one arm that only file names give.

    They are probably models: seed0_base.csv, seed0_new.csv.
    """
    arms = {name for of_task in tasks.values() for name in of_task}
    columns = [table.read.columns for of_task in tasks.values() for table in of_task.values()]
    are_by_name = any(roles.get("task") == BY_NAME for roles in columns)
    if len(arms) == 1 and are_by_name and not all(map(is_known_task, tasks)):
        only_task([*tasks], where, ", or let models' names come before the seed (base_seed0.csv)")


def read_tasks(
    path: str | Path | Sequence[str | Path],
    names: ColumnNames,
    task: str | None = None,
    *,
    may_name: bool = False,
) -> dict[str, Rows]:
    """Reads predictions of one task or all, by task; see `read_arms_by_task`.

    Args:
      task: the wanted task; None: all.
      may_name: whether `task` names the task of files without a task's name.

    Returns:
      Rows by task, "" without a name; with `may_name`, the column `source_file` has each row's file. Files
      of `multiberts export` give the rows of trained models, with all columns.
    """
    import pandas

    paths = _listed(path)
    if task is None and (of_logs := tasks_of_logs(paths)):
        return _read_each_task(paths, names, of_logs, may_name)
    where, root = described_paths(paths), root_of(paths)
    chosen = f"rows with {names.where}" * bool(names.where)
    sources, names = _of_split(source_files(paths, task), names)
    sources, parts = _read_files(sources, names, where)
    for source, part in zip(sources, parts, strict=True):
        if not part.read.chosen:
            refuse_where(source.path, names.where)
        if source.seed is not None and not source.is_numbered:
            seeds_of_rows = part.roles["seed"].unique().tolist()
            _refuse_other_seed(source.path, source.seed, seeds_of_rows, part.read.columns["seed"])
    if all(part.log is not None for part in parts):
        files = [Path(os.path.abspath(source.path)) for source in sources]
        seeds = [source.seed for source in sources]
        parts = arrange_logs(files, seeds, parts, Path(os.path.abspath(root)), name_of_all(paths))
    elif len(sources) > 1:
        for source, part in zip(sources, parts, strict=True):
            if part.read.columns["seed"] == ONE_RUN:
                raise UserError(
                    f"{where}: found no column of seeds in {source.path}; let the names of files have "
                    "their seed (seed_0.csv), or give each file if these are runs of different models"
                )
        if all(source.seed is None or source.is_numbered for source in sources) and all(
            part.read.columns["seed"] != BY_NAME for part in parts
        ):
            sources = by_name(sources, root)
            if _shared(sources, _named_by_files(sources, parts)):
                sources = by_name(sources, root, with_numbers=True)
        parts = _named_by_files(sources, parts)
        if shared := _shared(sources, parts):
            raise UserError(
                f"{where}: {shared}, and nothing says how they differ; keep one of them here, or let their "
                "names say: models before the seed (base_seed0.csv), tasks after it (seed0_rte.csv)"
            )
    columns: dict[str, str] = {}
    for part, source in zip(parts, sources, strict=True):
        columns |= part.read.columns
        if source.is_numbered and columns["seed"] == BY_NAME:
            columns["seed"] = NUMBERED
    if columns["seed"] == NUMBERED:
        warn_of_doubtful(sources, root)
    roles, further = (
        pandas.concat([getattr(part, name) for part in parts], ignore_index=True)
        for name in ("roles", "further")
    )
    if may_name:
        lengths = [len(part) for part in parts]
        source_paths = np.array([str(source.path) for source in sources], object)
        further["source_file"] = np.repeat(source_paths, lengths)
        if "task" not in roles:
            roles["task"] = task or name_of_all(paths)
    possible_ids = dict.fromkeys(name for part in parts for name in part.possible_ids)
    unused = dict.fromkeys(name for part in parts for name in part.read.unused)
    distinguishing = dict.fromkeys(name for part in parts for name in part.distinguishing)
    [sense, *others] = {part.read.more_is_better for part in parts}
    read = ReadAs(
        columns=columns, unused=[*unused], chosen=chosen, more_is_better=None if others else sense
    )
    rows = Rows(roles, further, read, [*possible_ids], distinguishing=[*distinguishing])
    tasks: dict[str, Rows] = {}
    for task_name, unsettled in _by_task(rows, task, where).items():
        part = settled(unsettled, names, where)
        metric_of_file = {
            str(source.path): each.read.logged_metric
            for source, each in zip(sources, parts, strict=True)
            if "task" not in each.roles or task_name in each.roles["task"].unique()
        }
        logged = next(iter(metric_of_file.values()), "") or part.read.logged_metric
        read = replace(part.read, task=task_name, files=[*metric_of_file], logged_metric=logged)
        tasks[task_name] = replace(part, read=read)
        _warn_of_near_misses(part, where)
    return tasks


def _of_split(
    sources: Sequence[SourceFile], names: ColumnNames
) -> tuple[Sequence[SourceFile], ColumnNames]:
    """Returns the files of the split that `--where` names, if names of files do, and other conditions."""
    wanted = re.search(r"(^|,)split=([^,]*)", names.where or "")
    splits = [*dict.fromkeys(each.split for each in sources if each.split)]
    if wanted is None or not splits:
        return sources, names
    if wanted[2] not in splits:
        raise UserError(
            f"found no split {wanted[2]!r} in the names of files, only {listed(splits)}; give one of these, "
            f"such as --where=split={splits[0]}"
        )
    others = (names.where or "").replace(wanted[0], "").strip(",")
    found = [replace(each, split="") for each in sources if each.split == wanted[2]]
    return found, replace(names, where=others or None)


def _read_each_task(
    paths: Sequence[str], names: ColumnNames, tasks: Sequence[str], may_name: bool
) -> dict[str, Rows]:
    """Reads logs of several tasks, without tasks whose logs have no scores of examples."""
    by_task: dict[str, Rows] = {}
    refused: NoPredictionsError | None = None
    for task in tasks:
        try:
            by_task |= read_tasks(paths, names, task, may_name=may_name)
        except NoPredictionsError as error:
            console.warn(f"task {task} is left out: {error}")
            refused = error
        except UserError as error:
            raise UserError(f"{error}, and this task alone with --task={task}") from error
    if refused and not by_task:
        raise refused
    return by_task


def _read_files(
    sources: Sequence[SourceFile], names: ColumnNames, where: str
) -> tuple[list[SourceFile], list[Rows]]:
    """Reads each file; files without predictions and unfinished logs are skipped if others are left."""
    parts: list[Rows] = []
    read_sources: list[SourceFile] = []
    without: list[Path] = []
    for source in sources:
        try:
            # The number in a single file's name may be a year.
            is_seed = len(sources) > 1 or not source.is_numbered
            parts.append(_read_file(source.path, names, source.seed if is_seed else None))
        except (UnfinishedLogError, NoPredictionsError) as error:
            if source == sources[-1] and not parts:
                raise
            if isinstance(error, NoPredictionsError):
                without.append(source.path)
            else:
                console.warn(f"{str(error).partition(',')[0]}; it is left out")
        else:
            read_sources.append(source)
    warn_of_left_out(without, where)
    return read_sources, parts


def _named_by_files(sources: Sequence[SourceFile], parts: Sequence[Rows]) -> list[Rows]:
    """Adds arm, task and run from each file's path to its rows, if no column has them."""
    of_files: dict[str, set[str]] = {}
    for source, part in zip(sources, parts, strict=True):
        arms = {*map(str, part.roles["arm"].unique())} if "arm" in part.roles else {""}
        of_files.setdefault(source.arm, set()).update(arms)
    arm_names = set.union(*of_files.values())
    # Files of different arms have equal names in their columns of arms.
    are_alike = sum(map(len, of_files.values())) > len(arm_names)
    named = []
    for source, part in zip(sources, parts, strict=True):
        if source.arm and len(arm_names) == 1:
            part = part.with_role("arm", source.arm, BY_NAME)
        elif source.arm and are_alike and "arm" in part.roles:
            both = source.arm + ", " + part.roles["arm"].astype(str)
            part = part.with_role("arm", both, part.read.columns.get("arm", BY_NAME))
        if source.task and "task" not in part.roles:
            part = part.with_role("task", source.task, BY_NAME)
        if source.run is not None and "run" not in part.roles:
            part = part.with_role("run", source.run, BY_NAME)
        if source.split and "split" not in part.roles and part.log is None:
            part = part.with_role("split", source.split, BY_NAME)
        named.append(part)
    return named


def _shared(sources: Sequence[SourceFile], parts: Sequence[Rows]) -> str:
    """Returns in words which two files hold the same seed, unless their ids differ; otherwise ""."""
    first: dict[tuple, tuple[Path, Rows]] = {}
    for source, part in zip(sources, parts, strict=True):
        keys = [name for name in ("arm", "task", "seed", "run") if name in part.roles]
        keys += parting(part.roles)
        for key in part.roles[keys].drop_duplicates().itertuples(index=False, name=None):
            path, first_part = first.setdefault(key, (source.path, part))
            if first_part is part or (
                all("example" in rows.roles for rows in (part, first_part))
                and not part.roles["example"].isin(first_part.roles["example"]).any()
            ):
                continue
            called = ", ".join(f"{name} {value}" for name, value in zip(keys, key, strict=True))
            return f"{path} and {source.path} both hold {called}"
    return ""


def _refuse_other_seed(file: Path, number: int, seeds: Sequence[object], column: str) -> None:
    numbers = {whole for seed in seeds if isinstance(whole := number_of(seed), int)}
    if numbers and number not in numbers:
        raise UserError(
            f"{file}: the path names seed {number}, but its column of seeds ({column!r}) says "
            f"{', '.join(map(str, seeds[:5]))}; correct the one that is wrong"
        )


def _warn_of_near_misses(rows: Rows, path: str) -> None:
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
            f"{path}: the prediction {near[0]!r} differs from the label {alike[near[0].strip().lower()]!r} "
            "only in spaces or capitals, but accuracy counts it as wrong; if it is right, write both alike"
        )


def _by_task(rows: Rows, task: str | None, path: str) -> dict[str, Rows]:
    if "task" not in rows.roles:
        rows = account_for(rows, path)
        if task is not None:
            raise NoTaskError(path)
        return {"": rows}
    column = rows.roles["task"]
    tasks = [str(name) for name in column.dropna().unique()]
    if task is None and column.isna().any():
        raise UserError(
            f"{path}: some files name no task, others {listed(tasks)}; choose one, such as "
            f"--task={tasks[0]}, or let the names of all files have one (seed0_rte.csv)"
        )
    without_names = replace(rows, roles=rows.roles.drop(columns="task"))
    return {
        name: account_for(without_names.where(column == name), path)
        for name in chosen_tasks(task, tasks, path)
    }


def _read_file(
    path: Path, names: ColumnNames, seed: int | None, standard: Callable[..., Any] | None = None
) -> Any:
    """Reads one file, recognised by its first bytes; `standard` converts a table to rows."""
    standard = standard or _standard
    try:
        if path.name == "per_instance_stats.json":
            return helm_rows(path, names, seed)
        if path.is_dir() or _first_bytes(path)[:4] in (b"PAR1", _ARROW_STREAM):
            return standard(_read_columns(path), names, path, seed)
        if _is_of_arrays(path):
            return rows_of_table(_read_npz(path, names, seed))
        if _first_bytes(path)[:2] == b"PK":
            with open_archive(path) as archive:
                log = by_inspect(path) or samples_of_archive(archive)
            return inspect_rows(path, log, names, seed)
        data = read_bytes(path, f"expected {KINDS}")
        refuse_bytes(path, data[:MOST_BYTES_NEEDED], TABLE)
        text = decoded(data, path)
        if text.strip() in ("", "[]", "{}"):
            raise UserError(f"{path} is empty; expected {KINDS}")
        if text.lstrip()[:1] in ("{", "["):
            parsed, _ = parse_json_rows(path, text, "write the file again")
            if isinstance(parsed, dict) and {"eval", "samples"} <= {*parsed}:
                return inspect_rows(path, by_inspect(path) or parsed, names, seed)
            if path.name.startswith("samples_") and isinstance(parsed, list):
                return lm_eval_rows(path, parsed, names, seed)
            return standard(_table_of_json(path, parsed), names, path, seed)
        content = text.encode()
        del data, text  # frees copies of the table
        try:
            frame = _read_text_table(content)
        except ValueError:
            # GLUE's TSV does not double quotation marks in texts; its cells have no tabs and line ends.
            if len({line.count(b"\t") or line for line in content.splitlines() if line}) > 1:
                raise
            frame = _read_text_table(content, quoting=csv.QUOTE_NONE)
        return standard(frame, names, path, seed)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        refused = UserError(f"{path}: cannot be read ({error}); expected {KINDS}")
        raise memory_error(error, path) or refused from error


_ARROW_STREAM = b"\xff" * 4


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def _table_of_json(path: Path, content: Any) -> pandas.DataFrame:
    import pandas

    content = rows_under_data(content)
    is_object = isinstance(content, dict)
    parts: list[Any] = [*content.values()] if is_object else content
    first = parts[0] if parts else None
    first = first[0] if isinstance(first, list) and first else first
    for fields in (content, first):
        refuse_fields(path, fields if isinstance(fields, dict) else ())
    if is_object and not any(isinstance(part, list | dict) for part in parts):
        if len(parts) > 1 and all(isinstance(part, str) for part in parts):
            raise NoPredictionsError(
                f"{path} holds a text for each of {len(content)} names, as SQuAD's scorer takes answers; "
                "make runs of it with `multiberts import --layout=squad` and compare these"
            )
        raise NoPredictionsError(
            f"{path}: found one value per name ({shortened(', '.join(content))}), expected one per "
            "example; save the scores of the examples, too"
        )
    kinds = {*map(type, parts)}
    # A single value beside columns applies to all rows.
    is_table = kinds <= {dict} or (is_object and dict not in kinds)
    lengths = {len(part) for part in parts if isinstance(part, list)}
    if not is_table or len(lengths) > 1:
        refuse = NoPredictionsError if is_object and not is_table else UserError
        raise refuse(
            f"{path}: found {shortened(content)}, expected one object per example, or an object with a list "
            "of one length for each column; write the file again"
        )
    return pandas.DataFrame(content)


def _read_text_table(content: bytes, **options: Any) -> pandas.DataFrame:
    """Reads CSV, separated by commas or semicolons, or TSV, in UTF-8.

    With semicolons, the decimal sign of a column is a comma or a point.
    """
    import pandas
    from pandas.api.types import is_numeric_dtype

    content = re.sub(rb"\A\s*\"?sep=[,;\t|]\"?\r?\n", b"", content)  # a hint for Excel
    first = re.search(rb"[^\r\n]*\S[^\r\n]*", content)
    header = first[0].decode() if first else ""
    options |= {"sep": separator_of(header), "index_col": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            frame = pandas.read_csv(io.BytesIO(content), **options)
        except pandas.errors.ParserWarning as error:
            raise ValueError("rows have more cells than the header has names") from error
    if options["sep"] == ";":
        no_numbers = [name for name in frame.columns if not is_numeric_dtype(frame[name])]
        frame[no_numbers] = pandas.read_csv(io.BytesIO(content), **options, decimal=",")[no_numbers]
    # "NA" and "None" are missing numbers. In a column of words they may be a class, an answer or a country;
    # a missing word is an empty cell.
    words = [
        name
        for name in frame.columns
        if frame[name].isna().any() and frame[name].dropna().map(type).eq(str).all()
    ]
    if words:
        options |= {"usecols": words, "keep_default_na": False, "na_values": [""]}
        frame[words] = pandas.read_csv(io.BytesIO(content), **options)[words]
    for name in frame.columns if options["sep"] == "\t" else ():
        if not is_numeric_dtype(frame[name]) and any(
            isinstance(cell, str) and "\t" in cell and "\n" in cell for cell in frame[name].unique()
        ):
            raise ValueError(
                f"column {name!r} has a cell with tabs and ends of lines, as if a quotation mark were not "
                "closed: write such marks twice, in quoted cells, or leave the column out"
            )
    # pandas renames duplicate columns, which would then be ignored silently.
    written = next(csv.reader([header], delimiter=options["sep"]))
    if len(written) == frame.shape[1]:
        frame.columns = [
            name.strip() or unique for name, unique in zip(written, frame.columns, strict=True)
        ]
    return frame


def _standard(
    frame: pandas.DataFrame, names: ColumnNames, path: Path | str, seed: int | None
) -> Rows:
    """Returns the rows of a table, with their tasks if a column has them."""
    refuse_fields(Path(path), frame.columns)
    if not len(frame):
        raise UserError(f"{path} has no rows below the names of its columns; write the predictions")
    frame = chosen_rows(frame, names, str(path))
    chosen = f"rows with {names.where}" * bool(names.where)
    if set(frame.columns) >= _EXPORTED:
        rows = _trained(frame, names, str(path))
        return replace(rows, read=replace(rows.read, chosen=chosen))
    frame = _with_rows_of_tasks(frame, names)
    rows = standard_rows(frame, names, str(path), seed)
    unused = [name for name in rows.read.unused if f"{name}=" not in chosen]
    read = replace(rows.read, chosen=chosen, unused=unused)
    rows = replace(rows, distinguishing=_distinguishing(frame, rows), read=read)
    columns = [name for name in ("task", "evaluation_set") if name in frame] or [
        name
        for name in TASK_NAMES
        if name in frame
        and frame[name].nunique() > 1
        and not frame[name].drop_duplicates().astype(str).str.fullmatch(SPLITS).any()
    ][:1]
    columns = [name for name in columns if name not in rows.read.columns.values()]
    parts = parting(frame, {*columns, *rows.read.columns.values(), *names.told.values()})
    # A table with a column per run repeats its rows for each run.
    indices = np.arange(len(rows)) % len(frame)
    repeated = {name: part.take(indices).reset_index(drop=True) for name, part in parts.items()}
    if columns:
        tasks = [frame[name].astype(str).take(indices).reset_index(drop=True) for name in columns]
        repeated["task"] = tasks[0].str.cat(tasks[1:], sep="/")
    if repeated:
        rows = replace(rows, roles=rows.roles.assign(**repeated))
    return rows


def _with_rows_of_tasks(frame: pandas.DataFrame, names: ColumnNames) -> pandas.DataFrame:
    """Converts a table of runs with a column of scores per known task to a row per task.

    Beside ids or labels such columns are models, named after their training task.
    """
    of_tasks = [
        name for name in frame if is_known_task(str(name)) and frame[name].dtype.kind in "iuf"
    ]
    user_roles = {*names.told}
    usual = {name for role in ("prediction", "label", "example") for name in USUAL_NAMES[role]}
    if len(of_tasks) < 2 or user_roles - {"arm", "seed", "run"} or {"task", *usual} & {*frame}:
        return frame
    others = [name for name in frame if name not in of_tasks]
    return frame.melt(others, of_tasks, "task", "score")


def _distinguishing(frame: pandas.DataFrame, rows: Rows) -> list[str]:
    used = {*rows.read.columns.values(), *TEXT_NAMES, *FACT_NAMES, "task", "evaluation_set"}
    others = [name for name in frame if name not in used]
    if not others or "example" not in rows.roles or len(rows) != len(frame):
        return []
    keys = [name for name in ("arm", "task", "seed", "run", "example") if name in rows.roles]
    roles = rows.roles[keys]
    twice = roles.duplicated(keep=False).to_numpy()
    if not twice.any():
        return []
    repeated = roles[twice].reset_index(drop=True)
    columns = frame[others][twice].reset_index(drop=True)
    return [
        str(name)
        for name in columns.columns[np.argsort(columns.nunique().to_numpy(), kind="stable")]
        if not repeated.assign(**{"": columns[name]}).duplicated().any()
    ]


# Columns that only files of `evaluate.exporting` have.
_EXPORTED = {"task", "evaluation_set", "epochs", "procedure", "pretrain_seed", "finetune_seed"}


def _trained(frame: pandas.DataFrame, names: ColumnNames, where: str) -> Rows:
    """Returns an export's predictions of trained models, without early checkpoints."""
    of_runs = (*_EXPORTED - {"epochs"}, "step", "learning_rate", "data_seed")
    runs = [name for name in of_runs if name in frame]  # users drop constant columns
    epochs = frame["epochs"].astype(float).fillna(np.inf)
    last = epochs == epochs.groupby([frame[name] for name in runs], dropna=False).transform("max")
    frame = frame[last].drop(columns="epochs").reset_index(drop=True)
    if "label" in frame and frame["label"].isna().all():
        frame = frame.drop(columns="label")
    user_names = names.told
    columns, _ = columns_by_role(frame, user_names, where)
    # Scores and clusters are further columns unless the user names them.
    columns = {
        role: name
        for role, name in columns.items()
        if role in user_names or role not in ("score", "cluster")
    }
    if user_names.get("by") in frame:
        columns["by"] = user_names["by"]
    roles = frame[[*columns.values()]].set_axis([*columns], axis=1)
    roles["task"] = frame["task"].str.cat(frame["evaluation_set"], sep="/")
    if not isinstance(roles["arm"].iloc[0], str):
        roles["arm"] = roles["arm"].astype(str)
    used = {"task", "evaluation_set", *columns.values()}
    further = frame[[name for name in frame if name not in used]]
    return Rows(roles, further, ReadAs(columns=columns))


def tasks_in_memory(
    table: pandas.DataFrame, where: str, names: ColumnNames | None = None, task: str | None = None
) -> dict[str, Rows]:
    """Returns the rows of a table in memory by task, like `read_tasks`.

    Examples:
      >>> import pandas
      >>> table = pandas.DataFrame({"random_seed": [0, 1], "doc_id": ["a", "a"], "acc": [1, 0]})
      >>> [rows] = tasks_in_memory(table, "base").values()
      >>> rows.roles[["seed", "example", "score"]].to_numpy().tolist()
      [[0, 'a', 1], [1, 'a', 0]]
    """
    names = names or ColumnNames()
    rows = _standard(table, names, where, None)
    by_task = _by_task(rows, task, where)
    return {name: settled(task_rows, names, where) for name, task_rows in by_task.items()}


def labels_by_id(
    table: Any, names: RowNames, where: str, usual_id: str = ""
) -> tuple[pandas.Series, str]:
    """Returns the labels of a table by id, and a description of their source.

    Without a column of ids the labels are by position. A missing `names.example` is ignored, as only the
    predictions may have it; `usual_id` is their column of ids.
    """
    import pandas

    if isinstance(table, str | Path):
        [source, *others] = source_files([str(table)])
        if others:
            raise UserError(f"{where} is a folder of {len(others) + 1} files; give one table")
        table = _read_file(source.path, ColumnNames(), None, lambda frame, *_: frame)
    if isinstance(table, Rows):  # of logs and arrays
        table = table.frame()
    frame = table.to_pandas() if hasattr(table, "to_pandas") else table
    if not is_counted(frame.index):
        frame = frame.reset_index(names=frame.index.name or "example_id")
    user_names = {} if names.label is None else {"label": names.label}
    if ids := [name for name in (names.example or "", usual_id) if name in frame]:
        user_names["example"] = ids[0]
    columns, _ = columns_by_role(frame, user_names, where)
    if "label" not in columns:
        raise UserError(
            f"{where}: found no column of labels among {columns_of(frame)}; name it with --label=COLUMN"
        )
    roles = {role: name for role, name in columns.items() if role in ("example", "label")}
    frame = with_plain_cells(frame, roles, where)
    labels = frame[columns["label"]]
    called = f"{columns['label']} of {where}"
    if "example" not in columns:
        order = np.arange(len(frame))
        others = frame.drop(columns=columns["label"])
        rivals = [name for name in others if may_be_ids(others[name], order)]
        if rivals:
            raise UserError(
                f"{where}: found no column of ids, but {str(rivals[0])!r} differs in every row; write the "
                f"ids of the predictions into a column {usual_id or 'example_id'!r}"
            )
        return labels.reset_index(drop=True), f"{called}, by order of rows"
    by_id = labels.set_axis(pandas.Index(stripped(frame[columns["example"]])))
    by_id = by_id[~pandas.MultiIndex.from_arrays([by_id.index, by_id.array]).duplicated()]
    twice = by_id.index[by_id.index.duplicated()]
    if len(twice):
        first = ", ".join(repr(label) for label in by_id[twice[:1]].tolist()[:3])
        raise UserError(
            f"{where}: found several labels for {counted(twice.nunique(), 'id')} in {columns['example']!r}, "
            f"such as {first} for {twice.tolist()[0]!r}; keep one row for each id"
        )
    return by_id, called


def is_counted(index: pandas.Index) -> bool:
    """Returns whether an index counts from 0, as pandas' default index."""
    import pandas

    return isinstance(index, pandas.RangeIndex) and index.start == 0 and index.step == 1


def is_table_of_runs(columns: Iterable[object]) -> bool:
    """Returns whether a table has predictions by its columns: seeds, or ids beside runs or values.

    Examples:
      >>> is_table_of_runs(["seed", "id", "correct"]), is_table_of_runs(["id", "seed_0", "seed_1"])
      (True, True)
      >>> is_table_of_runs(["a1", "a2"])
      False
    """
    names = {str(name).lower() for name in columns}
    of_examples = {*USUAL_NAMES["example"], *USUAL_NAMES["label"]}
    values = {*USUAL_NAMES["prediction"], *USUAL_NAMES["score"]}
    if names & {*USUAL_NAMES["seed"]}:
        return True
    has_values = bool(names & values) or any(re.search(r"\d$", name) for name in names)
    return has_values and bool(names & of_examples)


def _is_of_arrays(file: Path) -> bool:
    start = _first_bytes(file)
    if start[:2] != b"PK":
        return start[:6] == b"\x93NUMPY"
    with open_archive(file) as archive:
        if "header.json" in archive.names:
            return False
        refuse_archive(file, archive.names)
    return True


def _read_npz(path: Path, names: ColumnNames, seed: int | None) -> ArmTable:
    """Reads arrays [seeds, examples]; a single row has the seed of the file's name."""
    arrays = read_arrays(path)
    if "" in arrays:  # of a .npy
        words = re.split(r"[^a-z]+", path.stem.lower())
        if {"pred", "preds", "prediction", "predictions"} & {*words}:
            raise UserError(
                f"{path} is called predictions, and one array has no labels beside them; save both in one "
                "file, np.savez('seed_0.npz', y_pred=..., y_true=...), or each example's score"
            )
        arrays = {"scores": arrays[""]}
    table = table_of_arrays(arrays, str(path), names.told)
    if seed is None or len(table.keys) > 1 or table.read.columns["seed"] != POSITION:
        return table
    columns = {**table.read.columns, "seed": BY_NAME}
    return replace(table, keys=[(seed,)], read=replace(table.read, columns=columns))


def _read_columns(path: Path) -> pandas.DataFrame:
    """Reads Parquet, or a file or folder saved by Hugging Face `datasets`; its only split is a task."""
    # Other programs' metadata for pandas may be damaged, so columns are read by name only.
    frame: pandas.DataFrame = read_columnar(path).to_pandas(ignore_metadata=True)
    described_splits = path.parent / "dataset_dict.json"
    if described_splits.is_file() and len(json.loads(described_splits.read_text())["splits"]) == 1:
        frame["task"] = path.name
    return frame
