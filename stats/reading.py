"""Reads the runs of one arm from files, labelled arrays, plain arrays, nested lists or data frames.

All forms are converted to a table of runs by examples (`table_of`), and then to an arm (`arm_of`). Data are
matched by their coordinates or index, or else by position.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import is_binary
from multiberts.evaluate.metrics.register import (
    METRICS,
    default_metric,
    known_name,
    metric_input,
    metric_variables,
    values_of_cells,
)
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.evaluate.readers.columns import RowNames, SliceNames
from multiberts.evaluate.readers.layout import name_of_all
from multiberts.evaluate.readers.log_folders import only_task
from multiberts.evaluate.readers.reading import (
    NoTaskError,
    check_names_of_tasks,
    described_paths,
    is_counted,
    is_table_of_runs,
    labels_by_id,
    read_arms_by_task,
    refuse_where,
    tasks_in_memory,
)
from multiberts.evaluate.readers.rows import (
    ONE_SCORE,
    POSITION,
    USUAL_NAMES,
    ArmTable,
    ReadAs,
    arms_of_rows,
    plain,
    table_of_arrays,
)
from multiberts.runs.errors import UserError, counted, in_keywords, listed
from multiberts.stats.errors import DataError, as_data_errors
from multiberts.stats.metrics import MetricLike, ScoreFunction, named_metric
from multiberts.stats.runs_table import Arm, check_kinds, indices_of, make_arm
from multiberts.stats.settings import Missing, Resample

if TYPE_CHECKING:
    import pandas
    import xarray

    from multiberts.evaluate.metrics.column_metric import Metric

GivenMetric = str | MetricLike | ScoreFunction
# Coordinates that identify examples, and coordinates with the lineage of runs.
_ID_NAMES = ("example_id", "example")
_LINEAGE_NAMES = ("parent", "procedure", "lineage")
_VALUES = ("prediction", "score", "label")
# Suffix of messages about keywords that the called function does not have.
_OF_READ = " (keywords of stats.read)"
_FORMS = "an xarray Dataset or DataArray, a data frame, a path, or an array or nested list [seeds, examples]"
_NUMBER = (numbers.Real, Decimal, np.bool_)
_CELL = (*_NUMBER, str, bytes, tuple, list, type(None))
_FLAT = ReadAs(columns={"seed": POSITION, "example": "one dimension"})  # of runs or of examples
_SEED_NAMES, _EXAMPLE_NAMES = {"seed", "pretrain_seed"}, {"example", "example_id"}


def arms_in(
    data: Any,
    label: str,
    by: str | None = None,
    *,
    task: str | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> dict[str, Any] | None:
    """Returns the arms by name from data that may contain several arms; None for other data.

    Args:
      data: data in the forms of `stats.read`, a list of frames, one per arm, or a dict of arms with values
        other than one score or prediction per example.
      label: name of the data in error messages.
      by: column of slices to keep.
      task: task to read, if files or a column `task` have several.
      columns: names of columns by role; None: a table is recognised by usual names of columns.

    Returns:
      Data of each arm by name, "" if the data name none.
    """
    if hasattr(data, "coords"):  # before the check for mappings, which include Datasets
        return None
    data = opened(data, {by, *(columns or {}).values()})
    if isinstance(data, list) and len(data) > 1 and all(hasattr(each, "columns") for each in data):
        return named_arms(arms_of_arrays(data), by, columns)
    tables = tasks_in(data, label, by, task=task, columns=columns)
    if tables is not None and len(tables) > 1:
        try:
            check_names_of_tasks(tables, label)
            only_task([*tables], label)
        except UserError as error:
            line = in_keywords(str(error), _OF_READ * (columns is None))
            raise DataError(f"{line}, or give all to stats.compare_tasks") from error
    if tables is not None:
        return dict(next(iter(tables.values())))
    if isinstance(data, Mapping) and not all(map(_is_row, data.values())):
        return {str(name): arm for name, arm in data.items()}
    return None


def tasks_in(
    data: Any,
    label: str,
    by: str | None = None,
    *,
    task: str | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> dict[str, dict[str, ArmTable]] | None:
    """Returns the arms of a file, folder or table by task ("" if unnamed); None for other data.

    The arguments are those of `arms_in`.
    """
    names = SliceNames(**{"by": by, **(columns or {})})
    with as_data_errors(which=_OF_READ * (columns is None)):
        if isinstance(data, str | Path) or _are_paths(data):
            if holds_runs(data):
                raise DataError(
                    f"{label}: {data} holds finished runs; give an arm of stats.read({str(data)!r})"
                )
            return read_arms_by_task(data, names, task)
        table: Any = None
        data = opened(data, {*asdict(names).values()})
        if isinstance(data, Mapping):
            if {"predictions", "scores"} & {*data}:
                if task is not None:
                    raise NoTaskError(label)
                refuse_where(label, names.where)
                arrays = {name: np.asarray(opened(column)) for name, column in data.items()}
                return {"": {"": table_of_arrays(arrays, label)}}
            if is_table_of_runs(data) or (columns is not None and all(map(_is_row, data.values()))):
                table = _frame_of({name: opened(it, by_index=False) for name, it in data.items()})
        elif hasattr(data, "columns"):
            told = data.attrs.get("told")
            if columns is not None or told is not None or is_table_of_runs(data.columns):
                table, names = data, replace(names, **(told or {}) | names.told)
        if table is None:
            return None
        by_task = tasks_in_memory(table, label, names, task)
        return {task_name: arms_of_rows(rows, label) for task_name, rows in by_task.items()}


def named_arms(
    data_of: Mapping[str, Any],
    by: str | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Returns the data of several arms by the names in the data, as tables if possible.

    Args:
      data_of: data by role, such as base; the roles replace missing names, or all names if two are equal.
    """
    named: list[tuple[str, Any]] = []
    for role, given in data_of.items():
        data = _of_one_arm(given)
        arms = arms_in(data, role, by, columns=columns) or {}
        table = next(iter(arms.values())) if len(arms) == 1 else data
        named.append((name_carried(data, arms) or role, table))
    names = distinct_names([name for name, _ in named], [*data_of])
    return dict(zip(names, (table for _, table in named), strict=True))


def distinct_names(names: Sequence[str], roles: Sequence[str]) -> Sequence[str]:
    """Returns the names of arms, or their roles if two names are equal."""
    return names if len({*names}) == len(names) else roles


def name_carried(data: Any, arms: Collection[str]) -> str:
    """Returns the name in the data of one arm, or "".

    The name is the single value of a column of models, `attrs["name"]`, or the name of a file or folder.

    Args:
      arms: names of arms in the data.
    """
    named = getattr(data, "attrs", {}).get("name")
    if len(arms) == 1 and (name := next(iter(arms))):
        return name
    if isinstance(named, str) and named:
        return named
    return name_of_all([str(data)]) if isinstance(data, str | Path) else ""


def arms_of_arrays(data: Any) -> dict[str, Any]:
    """Returns the arms of a list or tuple of arrays, frames or Datasets; empty for other data.

    Nested lists of numbers are always one arm.
    """
    data = opened(data)
    arms = data if isinstance(data, list) and len(data) > 1 else []
    if not all(getattr(arm, "ndim", 0) == 2 or hasattr(arm, "data_vars") for arm in arms):
        return {}
    names = ["base", "experiment"] if len(arms) == 2 else [f"arm {n + 1}" for n in range(len(arms))]
    return dict(zip(names, arms, strict=True))


def opened(data: Any, extra_names: Collection[str | None] = (), *, by_index: bool = True) -> Any:
    """Returns tables and arrays of any library as those of pandas and NumPy; other data unchanged.

    Masked cells become NaN, and levels of an index with seeds, ids or arms become columns. A Series without
    seeds stays as it is if its index has ids, and is an array otherwise.

    Args:
      extra_names: unusual names of columns.
      by_index: whether rows and indices are of predictions; if not, they stay as they are.
    """
    if isinstance(data, str | Path | Mapping | ArmTable) or hasattr(data, "coords"):
        return data
    if isinstance(data, list | tuple):
        if by_index and data and all(isinstance(row, Mapping) for row in data):
            return _frame_of(data)
        cells = str | int | float | list | tuple
        return [it if isinstance(it, cells) else opened(it, by_index=by_index) for it in data]
    for method in ("to_pandas", "collect", "compute"):  # lazy tables have the last two
        if callable(getattr(data, method, None)):
            return opened(getattr(data, method)(), extra_names, by_index=by_index)
    if hasattr(data, "detach") and hasattr(data, "cpu"):
        tensor = data.detach().cpu()
        # NumPy has no bfloat16.
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    if not hasattr(data, "iloc"):  # of another library than pandas
        if hasattr(data, "__arrow_c_stream__"):
            data = import_module("pyarrow").table(data).to_pandas()
        elif hasattr(data, "__dataframe__"):
            data = import_module("pandas.api.interchange").from_dataframe(data)
    if isinstance(data, np.ma.MaskedArray):
        empty = np.array(np.nan if data.dtype.kind in "biuf" else None)
        data = np.where(data.mask, empty, data.data)
    if isinstance(data, np.ndarray):
        return _frame_of(data.ravel()) if data.dtype.names else _as_numbers(data)
    return _by_index(data, extra_names) if by_index and hasattr(data, "iloc") else data


def _frame_of(rows: Any) -> pandas.DataFrame:
    return import_module("pandas").DataFrame(rows)


def _as_numbers(values: NDArray) -> NDArray:
    """Returns an array of objects that are all numbers, or missing, as numbers."""
    kinds = {*map(type, values.flat)} if values.dtype.kind == "O" else set()
    missing = {kind for kind in kinds if kind.__name__ in ("NoneType", "NAType")}
    if kinds == missing or not all(issubclass(kind, _NUMBER) for kind in kinds - missing):
        return values
    if not missing and all(issubclass(kind, int | np.integer | np.bool_) for kind in kinds):
        return values.astype(int)
    flat = [np.nan if type(value) in missing else float(value) for value in values.flat]
    return np.array(flat).reshape(values.shape)


def _by_index(data: Any, extra_names: Collection[str | None]) -> Any:
    """Returns a frame or Series with columns in its index as a frame; see `opened`.

    The attribute `told` of a frame from a Series has the names that its reader would not know, by role.
    """
    present = [str(name) for name in getattr(data, "columns", ())]
    levels = [name for name in data.index.names if name is not None and str(name) not in present]
    role_of = {
        name: role
        for role in ("arm", "run", "seed", "example")
        for name in levels
        if str(name).lower() in USUAL_NAMES[role]
    }
    roles, is_told = {*role_of.values()}, bool({*levels} & {*extra_names})
    if hasattr(data, "columns"):
        of_rows = {name for role in ("seed", "example", *_VALUES) for name in USUAL_NAMES[role]}
        is_long = {"seed", "example"} <= roles or (roles and of_rows & {*map(str.lower, present)})
        return data.reset_index(level=levels) if levels and (is_long or is_told) else data
    if not (is_told or {"seed", "run"} & roles):
        if data.index.nlevels > 1:
            raise DataError(
                f"found a Series whose index has the levels {listed(data.index.names)}, none of seeds; name "
                "them so, series.rename_axis(['seed', 'example'])"
            )
        return data if levels or data.index.dtype.kind not in "iu" else plain(data)
    others = [name for name in levels if name not in {*role_of, *extra_names}]
    told = {"example": others[0]} if len(others) == 1 and "example" not in roles else {}
    called = "score" if data.name is None else data.name
    if str(called).lower() not in {each for role in _VALUES for each in USUAL_NAMES[role]}:
        told["score"] = called
    frame = data.rename(called).reset_index()
    frame.attrs["told"] = told
    return frame


def _of_one_arm(data: Any) -> Any:
    """Returns a list of tables, one per seed, as one table; other data opened."""
    data = opened(data)
    if not (isinstance(data, list) and data and all(hasattr(each, "columns") for each in data)):
        return data
    names = [{str(name).lower() for name in each.columns} for each in data]
    if not all(map(is_table_of_runs, names)):
        return data
    table = import_module("pandas").concat(data, keys=range(len(data)), names=[POSITION])
    if any({*USUAL_NAMES["seed"]} & each for each in names):
        return table.reset_index(drop=True)
    table = table.reset_index(level=0).reset_index(drop=True)
    table.attrs["told"] = {"seed": POSITION}
    return table


def holds_runs(data: Any) -> bool:
    is_folder = isinstance(data, str | Path) and Path(data).is_dir()
    return is_folder and next(iter(find_runs(data)), None) is not None


def _are_paths(data: Any) -> bool:
    """Returns whether the data are a list of existing files or folders, such as from `glob`."""
    return (
        isinstance(data, list | tuple)
        and len(data) > 0
        and all(isinstance(path, str | Path) and os.path.exists(path) for path in data)
    )


def _is_row(data: Any) -> bool:
    """Returns whether the data are one value per example, such as one seed's scores."""
    values = opened(data)
    if isinstance(values, str | Path | Mapping) or hasattr(values, "coords"):
        return False
    if hasattr(values, "ndim"):
        return values.ndim == 1  # type: ignore[no-any-return]
    return np.iterable(values) and all(isinstance(v, str) or not np.iterable(v) for v in values)


# --- A table of one arm --------------------------------------------------------------------------


def table_of(
    name: str, data: Any, metric: MetricLike | None = None, by: str | None = None
) -> ArmTable:
    """Returns predictions or scores of any form as a table of runs by examples.

    Args:
      data: data of one arm in the forms of `stats.compare`, or a finished table (returned unchanged). In an
        array with axes of runs, a run with only NaN is missing.
      metric: metric that selects the variables of a Dataset (such as scores or texts), and decides whether
        the last axis of an array is classes.
      by: column of slices to keep.
    """
    if isinstance(data, ArmTable):
        return data
    if hasattr(data, "coords"):
        return _of_labelled_arrays(name, data, metric)
    with as_data_errors(name):
        data = _of_one_arm(data)
    arms = arms_in(data, name, by)
    if arms is not None and len(arms) != 1:
        raise DataError(
            f"{name}: found {counted(len(arms), 'arm')} ({', '.join([*arms][:9])}), expected one; give one "
            "arm as base and one as experiment, or all to stats.compare_arms"
        )
    if arms is not None:
        [data] = arms.values()
        return table_of(name, data, metric, by)
    if hasattr(data, "columns"):
        return _of_wide_frame(name, data)
    seeds: Sequence[Hashable] | None = None
    if isinstance(data, Mapping):
        seeds, data = np.array([*data]).tolist(), [*map(opened, data.values())]
    rows = data if isinstance(data, list) else [data]
    if rows and all(hasattr(row, "iloc") for row in rows):  # Series by ids
        frame = _frame_of(rows).reset_index(drop=True)
        table = _of_wide_frame(name, frame if seeds is None else frame.set_axis(seeds))
        return table if isinstance(data, list) else replace(table, read=_FLAT)
    values = _array_in(name, data)
    if is_flat := values.ndim == 1:
        values = values[None]  # the examples of one seed
    last = ["class"] if metric is not None and metric.uses == "scores" else []
    dims_of = {
        len(dims): dims
        for runs in ([], ["finetune_seed"])
        for classes in {(), tuple(last)}
        if (dims := ["pretrain_seed", *runs, "example", *classes])
    }
    if last:
        dims_of[3] = ["pretrain_seed", "example", "class"]
    if values.ndim not in dims_of:
        shapes = " or ".join(f"[{', '.join(names)}]" for names in dims_of.values())
        raise DataError(f"{name}: found an array of shape {values.shape}, expected {shapes}")
    if values.ndim == 2:
        _refuse_tall(name, values.shape)
    if not values.size:
        raise DataError(f"{name}: found no runs or no examples; give at least one of each")
    run_shape = values.shape[: dims_of[values.ndim].index("example")]
    named = range(run_shape[0]) if seeds is None else seeds
    keys = [(seed, *index) for seed in named for index in np.ndindex(run_shape[1:])]
    read = _FLAT if is_flat else ReadAs(columns={"seed": POSITION} if seeds is None else {})
    return _without_missing_runs(ArmTable(values, "", keys, read=read), len(run_shape))


def _array_in(name: str, data: Any, expected: str = _FORMS) -> NDArray:
    """Returns numbers or texts as an array; refuses other data."""
    is_sequence = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    found = type(data).__name__
    if (is_sequence and not isinstance(data, bytes | bytearray)) or hasattr(data, "__array__"):
        try:
            values = _as_numbers(np.asarray(data))
        except ValueError as error:
            raise DataError(
                f"{name}: found rows of different lengths, expected [seeds, examples]; put NaN where a "
                "prediction is missing and give missing='omit'"
            ) from error
        kinds = {*map(type, values.flat)} if values.dtype.kind == "O" else set()
        odd = [kind.__name__ for kind in kinds if not issubclass(kind, _CELL)]
        if values.ndim and values.dtype.kind in "biufOUST" and not odd:
            return values
        found += f" of {min(odd, default=str(values.dtype))}" * bool(values.ndim)
    called = getattr(data, "name", None)
    path = f"; give its path, {called!r}" * (hasattr(data, "read") and isinstance(called, str))
    raise DataError(f"{name}: found {found}, expected {expected}{path}")


def runs_or_examples(
    name: str, table: ArmTable, metric: MetricLike | None, resample: Resample | None
) -> ArmTable:
    """Returns scores in one dimension as scores of runs if seeds are resampled, and asks otherwise."""
    if not may_be_of_runs(table) or (metric is not None and metric.uses_labels):
        return table
    number = table.values.shape[1]
    if resample != "seeds":
        raise DataError(
            f"{name}: found {counted(number, 'score')} in one dimension; give resample='seeds' if each is "
            "the score of a run, or [scores] (one row) if they are the examples of one run"
        )
    read = ReadAs(columns={"seed": POSITION, "example": ONE_SCORE})
    return ArmTable(table.values.T, "", [(seed,) for seed in range(number)], read=read)


def may_be_of_runs(table: ArmTable) -> bool:
    """Returns whether values in one dimension may be scores of runs: those of 0 and 1 are of examples."""
    is_flat = table.read is _FLAT and table.values.dtype.kind in "biuf"
    return is_flat and not is_binary(table.values[~np.isnan(table.values)])


def _without_missing_runs(table: ArmTable, num_dims: int) -> ArmTable:
    """Flattens a table with several dims of runs to one row per existing run; of one dim, all are kept."""
    values = table.values
    values = values.reshape(-1, *values.shape[num_dims:])
    rows = np.arange(len(values))
    if num_dims > 1 and values.dtype.kind == "f":
        rows = np.flatnonzero(~np.isnan(values.reshape(len(values), -1)).all(axis=1))
        values = values[rows] if len(rows) < len(values) else values
    keys = [table.keys[row] for row in rows.tolist()]
    lineage = table.lineage and [table.lineage[row] for row in rows.tolist()]
    return replace(table, values=values, keys=keys, lineage=lineage)


def _of_wide_frame(name: str, frame: pandas.DataFrame) -> ArmTable:
    if set(frame.columns.names) & _SEED_NAMES or set(frame.index.names) & _EXAMPLE_NAMES:
        raise DataError(f"{name}: found seeds as columns, expected them as rows; give frame.T")
    if set(frame.index.names) == {None}:
        numeric = {dtype.kind in "biuf" for dtype in frame.dtypes}
        if not is_counted(frame.columns) and (len(numeric) > 1 or len(frame) > frame.shape[1] > 1):
            raise DataError(
                f"{name}: found columns {', '.join(map(str, frame.columns[:9]))} and no index of seeds; if a "
                "row is one prediction, name its columns, stats.read(frame, seed='COLUMN'), and if it is one "
                "seed, the index, frame.rename_axis('seed')"
            )
        _refuse_tall(name, frame.shape)
    levels = [
        np.asarray(frame.index.get_level_values(level)).tolist()
        for level in range(min(2, frame.index.nlevels))
    ]
    ids = None if is_counted(frame.columns) else np.asarray(frame.columns)
    unnamed = is_counted(frame.index) and frame.index.name is None
    read = ReadAs(columns={"seed": POSITION}) if unnamed else ReadAs()
    return ArmTable(_as_numbers(plain(frame)), "", list(zip(*levels, strict=True)), ids, read=read)


def _refuse_tall(name: str, shape: tuple[int, ...]) -> None:
    """Refuses more seeds than examples, because the array is probably transposed."""
    if shape[0] > shape[1] > 1:
        raise DataError(
            f"{name}: found an array of shape {shape}, which would be {shape[0]} seeds x {shape[1]} "
            "examples; transpose it, or name its axes: xarray.DataArray(values, dims="
            "('pretrain_seed', 'example'))"
        )


# --- Values along the examples -------------------------------------------------------------------


def along_examples(label: str, values: Any, ids: NDArray | None, number: int) -> NDArray:
    """Returns one value per example, in the order of the predictions.

    Args:
      label: name of the values in error messages.
      values: a DataArray, possibly with a coordinate example_id or example; a Series, with example ids in its
        index unless this is 0, 1, 2, ...; a mapping by example id; or values in the order of the predictions,
        if these have no ids or consecutive numbers.
      ids: example ids of the predictions, or None if examples are known by position only.
    """
    value_ids: NDArray | None = None
    values = opened(values, by_index=False)
    if hasattr(values, "coords"):
        if values.dims != ("example",):
            raise DataError(f"{label} have dims {values.dims}, expected (example,)")
        array = values.to_numpy()
        value_ids = _coordinate_ids(values)
    elif hasattr(values, "index") and hasattr(values, "to_numpy"):
        array = plain(values)
        counted = is_counted(values.index)
        if not counted or (ids is not None and set(ids.tolist()) == set(range(len(array)))):
            value_ids = np.asarray(values.index)
    elif isinstance(values, Mapping):
        value_ids, array = _array_of(list(values)), _array_of(list(values.values()))
    else:
        with as_data_errors(label):
            values = _array_of(values) if isinstance(values, list) else values
        array = _array_in(label, values, "one value per example, as an array, list, Series or dict")
    if ids is None or value_ids is None:
        if isinstance(values, Mapping):
            raise DataError(
                f"{label} are given by example id, but the predictions have none; give them a "
                "coordinate example_id, or values in their order"
            )
        if ids is not None and len(array) == number and not _only_count(ids):
            raise DataError(
                f"{label} are in an order of their own, and the examples have ids (such as "
                f"{ids.tolist()[0]!r}), whose order may be another; give them by id: "
                "a table with a column of ids, a Series whose index they are, or a dict"
            )
        return np.asarray(array)
    if value_ids.shape == ids.shape and (value_ids == ids).all():
        return np.asarray(array)
    if len({*value_ids.tolist()}) != len(value_ids):
        raise DataError(f"{label}: an example id appears twice; make the ids unique")
    wanted, id_list = ids.tolist(), value_ids.tolist()
    order, lacking = indices_of(wanted, id_list)
    _, surplus = indices_of(id_list, wanted)
    if lacking or surplus:
        raise DataError(
            f"{label}: {len(lacking)} of {number} examples have none"
            + (f" (such as {lacking[0]!r})" if lacking else "")
            + f", and {len(surplus)} are of other examples"
            + (f" (such as {surplus[0]!r})" if surplus else "")
            + "; give one for each example of the predictions, and no others"
        )
    return np.asarray(array)[order]


def _only_count(ids: NDArray) -> bool:
    """Returns whether ids are 0, 1, 2, ... or 1, 2, 3, ..., which makes another order unlikely."""
    numbers = ids if ids.dtype.kind in "iu" else np.array([str(name).strip() for name in ids])
    if numbers.dtype.kind == "U" and not np.char.isdecimal(numbers).all():
        return False
    shifts = {*(numbers.astype(np.int64) - np.arange(len(ids))).tolist()}
    return len(shifts) == 1 and shifts <= {0, 1}


def labels_of(labels: Any) -> Any:
    """Returns a table (or file) of ids and labels as a Series by id; other labels unchanged."""
    is_path, labels = isinstance(labels, str | Path), opened(labels, by_index=False)
    if not is_path and (hasattr(labels, "coords") or not hasattr(labels, "columns")):
        return labels
    try:
        return labels_by_id(labels, RowNames(), f"labels {labels}" if is_path else "labels")[0]
    except UserError as error:
        line, _, cure = in_keywords(str(error)).partition("; ")
        if "no column" in line:  # no keywords name these columns
            cure = "give a Series by id: table.set_index('ID')['LABEL']"
        raise DataError(f"{line}; {cure}") from error


def labelled(
    name: str, table: ArmTable, labels: Any, called: str = "", *, has_metric: bool
) -> ArmTable:
    """Replaces the labels of a table.

    Args:
      labels: labels from `labels_of` (see `along_examples`).
      called: name of the labels' column.
      has_metric: whether a metric was given; without one, scores are not compared with labels.
    """
    if table.kind == "score" and not has_metric:
        raise DataError(
            f"{name}: found scores ({table.read.columns.get('score', 'score')!r}), which are not compared "
            "with labels; give no labels, or name the predictions with prediction='COLUMN'"
        )
    label = f"{name}: labels{called and f' ({called})'}"
    number = table.values.shape[1]
    values = along_examples(label, labels, table.example_ids, number)
    if values.shape != (number,):
        raise DataError(
            f"{label}: found labels of shape {values.shape} for {number} examples; give one for each, or a "
            "table of ids and labels, with names of its columns in the first line"
        )
    columns, unused = dict(table.read.columns), [*table.read.unused]
    if called:
        unused += [columns["label"]] if "label" in columns else []
        columns["label"] = called
    return replace(table, labels=values, read=replace(table.read, columns=columns, unused=unused))


def _array_of(values: list[Any]) -> NDArray:
    """Returns a one-dimensional array; tuples and lists, such as several references, stay whole."""
    if any(isinstance(value, list | tuple) for value in values):
        array = np.empty(len(values), dtype=object)
        array[:] = [tuple(value) if isinstance(value, list) else value for value in values]
        return array
    kinds = {isinstance(value, str) for value in values}
    return np.array(values, dtype=object if len(kinds) > 1 else None)


def _coordinate_ids(array: xarray.DataArray | xarray.Dataset) -> NDArray | None:
    return next((array.coords[k].to_numpy() for k in _ID_NAMES if k in array.coords), None)


def values_of_clusters(name: str, clusters: Any, arm: Arm) -> tuple[NDArray, str]:
    """Returns the cluster of each example of an arm, and the name of the clusters.

    Args:
      clusters: name of a column of the examples, or values (see `along_examples`).
    """
    if isinstance(clusters, str):
        if clusters not in arm.of_examples:
            raise DataError(
                f"{name}: found no coordinate {clusters!r} of examples, only "
                f"{', '.join(arm.of_examples) or 'none'}"
            )
        return arm.of_examples[clusters], clusters
    called = str(getattr(clusters, "name", None) or "")
    label = f"{name}: clusters {called!r}" if called else f"{name}: clusters"
    values = along_examples(label, clusters, arm.example_ids, arm.num_examples)
    if values.ndim > 1:
        raise DataError(
            f"{label}: found an array of shape {values.shape}, expected one value per example"
        )
    return values, called


# --- A metric ------------------------------------------------------------------------------------


def metric_as_read(metric: GivenMetric | None) -> MetricLike | None:
    """Returns the metric for reading arms; None if there is none or it is only a name of scores."""
    is_of_scores = isinstance(metric, str) and known_name(metric) not in METRICS
    return None if metric is None or is_of_scores else named_metric(metric)


def metric_of(tables: Mapping[str, ArmTable], asked: GivenMetric | None) -> GivenMetric:
    """Returns the requested metric, that of the task or log, or else `mean` of scores or `accuracy`.

    Args:
      tables: table of each arm by name.
      asked: requested metric; a name of scores, such as acc in a log, stands for their mean.
    """
    scores = {table.read.columns.get("score", "") for table in tables.values()}
    is_of_scores = isinstance(asked, str) and {known_name(asked)} == {*map(known_name, scores)}
    if asked is not None and not is_of_scores:
        return asked
    logged = {table.read.logged_metric: name for name, table in tables.items()}
    logged.pop("", None)
    if len(logged) > 1:
        named = " and ".join(f"{metric} of {name}" for metric, name in logged.items())
        raise DataError(f"found the metrics {named}; name one, metric='{min(logged)}'")
    # Plain arrays are predictions if there are labels, else scores.
    are_labelled = any(table.labels is not None for table in tables.values())
    kinds = ("prediction", "") if are_labelled else ("prediction",)
    metrics: set[str] = set()
    for name, table in tables.items():
        classes = table.values if table.kind in kinds else None
        with as_data_errors(name):
            metrics.add(default_metric(classes, table.labels, "".join(logged)))
    return max(metrics)  # `mean` if both kinds occur, which is refused later


# --- An arm --------------------------------------------------------------------------------------


def arm_of(
    name: str, data: Any, *, metric: MetricLike | None = None, missing: Missing = "refuse"
) -> Arm:
    """Builds an arm.

    Args:
      data: see `table_of`.
      metric: metric that selects the variables of a Dataset (see `evaluate.metrics.register.metric_input`
        and `metric_variables`).
      missing: treatment of a NaN prediction in an existing run (see `make_arm`).
    """
    table = table_of(name, data, metric)
    values, number = _as_taken_by(metric, name, table.values, table), table.values.shape[1]
    needs_labels = metric is None or metric.uses_labels
    if table.labels is None and needs_labels:
        read = table.read
        others = {*read.unused, *table.of_examples} - {*read.columns.values(), *read.columns}
        raise DataError(
            f"{name}{f' ({described_paths(read.files)})' if read.files else ''}: found no labels"
            f"{f' (other columns: {listed(map(repr, sorted(others)))})' if others else ''}, which "
            f"{metric.name if metric else 'a metric'} compares with the predictions; give labels (of a "
            "table, label='COLUMN', or of one of ids and labels, labels='FILE'), or each example's own score "
            "(of a table, score='COLUMN') with metric='mean'"
        )
    labels = np.zeros(number)
    if table.labels is not None and (needs_labels or not _is_empty(table.labels)):
        labels = np.asarray(table.labels)
        if not _is_empty(labels):  # missing labels differ from empty answers
            labels = _as_taken_by(metric, name, labels, table)
    square = values.ndim == 2 and values.shape[0] == values.shape[1]
    if square and metric is not None and metric.uses == "scores":
        # P(class 1) [runs, examples] would be mistaken for [examples, classes].
        values = np.stack([1 - values, values], axis=-1)
    arm = make_arm(
        name,
        values,
        labels,
        [key[0] for key in table.keys],
        table.example_ids,
        inner_levels=[key[1:] for key in table.keys],
        missing=missing,
    )
    if metric is not None and metric.uses_labels:
        check_kinds(name, arm)
    columns = {} if table.labels is None else {"label": labels}
    return replace(
        arm,
        lineage=tuple(table.lineage),
        of_examples={**columns, **table.of_examples},
        read=table.read,
    )


def _as_taken_by(metric: MetricLike | None, name: str, cells: NDArray, table: ArmTable) -> NDArray:
    """Converts the cells of a table for a metric; arrays are returned unchanged."""
    if "prediction" not in table.read.columns:
        return cells
    with as_data_errors(name):
        return values_of_cells(metric, cells, "prediction" if cells is table.values else "label")


def _is_empty(values: NDArray) -> bool:
    return all(value is None or value != value for value in values)


def _of_labelled_arrays(name: str, data: Any, metric: MetricLike | None) -> ArmTable:
    """Returns a DataArray, or the variables of a Dataset that a metric reads, as a table."""
    kind, predictions, labels = _read_by(metric, name, data)
    dims = {str(dim) for dim in predictions.dims}
    if "example" not in dims or not {"run", "pretrain_seed"} & dims:
        raise DataError(
            f"{name}: found dims {predictions.dims}, expected example and run (with a coordinate "
            "pretrain_seed) or pretrain_seed; name the dims so, or give an array [seeds, examples]"
        )
    lineages = [(key, predictions[key]) for key in _LINEAGE_NAMES if key in predictions.coords]
    of_examples = {
        str(key): variable.to_numpy()
        for key, variable in {**data.coords, **getattr(data, "data_vars", {})}.items()
        if variable.dims == ("example",) and key not in _ID_NAMES
    }
    # Drop other coordinates, whose types may not allow slicing, such as pandas' Arrow strings.
    read_by = {"pretrain_seed", "finetune_seed", *_ID_NAMES}
    predictions = predictions.drop_vars([key for key in predictions.coords if key not in read_by])
    if not predictions.size:
        raise DataError(f"{name}: found no runs or no examples; give at least one of each")
    ids, number = _coordinate_ids(predictions), predictions.sizes["example"]
    gold = None if labels is None else along_examples(f"{name}: labels", labels, ids, number)
    last = ["example", "class"] if "class" in dims else ["example"]
    run_dims = [dim for dim in predictions.dims if dim not in last]
    # Put the seed first, so that the dims below it are the levels to average over.
    run_dims.sort(key=lambda dim: dim not in ("pretrain_seed", "run"))
    values = predictions.transpose(*run_dims, *last).to_numpy()
    run_shape = values.shape[: len(run_dims)]
    cells = predictions.isel(dict.fromkeys(last, 0), drop=True).transpose(*run_dims)
    seeds, by = _of_runs(cells, "pretrain_seed"), dict[str, str]()
    if seeds is None and run_dims[0] == "pretrain_seed":
        seeds, by = [index[0] for index in np.ndindex(run_shape)], {"seed": POSITION}
    if seeds is None:
        raise DataError(f"{name}: found no coordinate pretrain_seed; add it along {run_dims[0]}")
    # Levels below the seed: indices along later dims, or the fine-tuning seeds of a list of runs.
    levels: list[tuple[Hashable, ...]] = [index[1:] for index in np.ndindex(run_shape)]
    finetune_seeds = _of_runs(cells, "finetune_seed") if len(run_shape) == 1 else None
    if finetune_seeds is not None:
        levels = [(seed,) for seed in finetune_seeds]
    inner = len(seeds) // run_shape[0]  # runs per index of the first dim of runs
    lineage: list[frozenset] = [frozenset()] * len(seeds)
    for key, variable in lineages:
        if variable.dims == (run_dims[0],):
            ways = [
                _descent(key, value) for value in variable.to_numpy().tolist() for _ in range(inner)
            ]
            lineage = [so_far | way for so_far, way in zip(lineage, ways, strict=True)]
    keys = [(seed, *level) for seed, level in zip(seeds, levels, strict=True)]
    read = ReadAs.of(data.attrs)
    of_task = [*data.attrs.get("metrics", ())]  # for finished runs, the main metric first
    if kind == "prediction" and of_task and of_task[0] in METRICS:
        read = replace(read, logged_metric=str(of_task[0]))
    read = replace(read, columns={**read.columns, **by})
    table = ArmTable(values, kind, keys, ids, gold, of_examples, lineage, read)
    return _without_missing_runs(table, len(run_dims))


def _descent(key: str, value: Any) -> set[tuple[str, Hashable]]:
    """Returns the (kind, name) pairs of ancestors in a lineage coordinate."""
    if key != "lineage":
        return {(key, value)}
    lineage: set[tuple[str, Hashable]] = set()
    # The format is that of evaluate.prediction_files.run_file.lineage_of.
    for procedure, seed, step, sha256 in value:
        if procedure is not None and seed is not None:
            lineage.add(("training", (procedure, seed)))
        if sha256 is not None:
            lineage |= {("checkpoint", sha256), ("named", ((procedure, seed, step), sha256))}
    return lineage


def _read_by(
    metric: MetricLike | None, name: str, data: Any
) -> tuple[str, xarray.DataArray, xarray.DataArray | None]:
    """Returns the kind of a metric's input (predictions or scores), the values, and the labels."""
    if not hasattr(data, "data_vars"):  # a check by type would import xarray
        return "", data, None
    if not {"prediction", "score"} & set(data.data_vars):
        raise DataError(
            f"{name}: found the variables {', '.join(map(str, data.data_vars)) or 'none'}, expected "
            "prediction (or score) and label"
        )
    if "prediction" not in data:
        return "score", data["score"], data.get("label")
    label, prediction = "label", "prediction"
    if metric is not None:
        with as_data_errors(name):
            label, prediction = metric_variables(cast("Metric", metric), data)
    predictions, labels = data[prediction], data.get(label)
    if metric is None or metric.uses in ("prediction", "text"):
        return "prediction", predictions, labels
    import xarray

    scores = None
    if "scores" in data:
        scores = data["scores"].transpose(*predictions.dims, "class")
    with as_data_errors(name):
        values = metric_input(cast("Metric", metric), predictions, scores)
    dims = [*predictions.dims, "class"][: values.ndim]
    coords = {key: predictions.coords[key] for key in predictions.coords}
    return "prediction", xarray.DataArray(values, dims=dims, coords=coords), labels


def _of_runs(cells: xarray.DataArray, coordinate: str) -> list[Hashable] | None:
    """Returns a coordinate of the runs, or None."""
    if coordinate not in cells.coords:
        return None
    values = cells[coordinate]
    if values.dims != cells.dims:
        import xarray

        values = xarray.broadcast(values, cells)[0].transpose(*cells.dims)
    return list(values.to_numpy().ravel().tolist())
