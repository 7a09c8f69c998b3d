"""Reads the runs of one arm from labelled arrays, plain arrays, nested lists or data frames.

Everything becomes labelled arrays first (`labelled`), and these an arm (`arm_from_arrays`). What has
coordinates or an index is put in order by them; only what has none counts by position.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.register import metric_input, metric_variables
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.evaluate.readers.columns import POSITION, TEXT_NAMES, SliceNames
from multiberts.evaluate.readers.reading import (
    frame_of_arrays,
    frame_of_table,
    is_table_of_runs,
    read_frame,
)
from multiberts.runs.errors import UserError, counted
from multiberts.stats.errors import DataError
from multiberts.stats.metrics import MetricLike
from multiberts.stats.runs_table import Arm, RunsTable, check_kinds, make_arm, make_runs
from multiberts.stats.settings import Missing

if TYPE_CHECKING:
    import pandas
    import xarray

    from multiberts.evaluate.metrics.column_metric import Metric

# Coordinates along examples that identify them, and along runs what two runs can have in common.
_ID_NAMES = ("example_id", "example")
_LINEAGE_NAMES = ("parent", "procedure", "lineage")
_SEED_NAMES, _EXAMPLE_NAMES = {"seed", "pretrain_seed"}, {"example", "example_id"}


# --- Data frames ---------------------------------------------------------------------------------


def _dataset_of_rows(frame: pandas.DataFrame) -> xarray.Dataset:
    """Arranges the rows of one arm, under the names of `ColumnNames`, as a Dataset.

    A row that is missing becomes a cell that is NaN.
    """
    import pandas
    import xarray

    keys = ["seed", *(["run"] if "run" in frame else []), "example"]
    twice = frame.duplicated(keys)
    if twice.any():
        places = [f"{key} {frame.loc[twice, key].tolist()[0]!r}" for key in keys]
        raise DataError(
            f"found two rows of {', '.join(places)}; "
            "name the column that distinguishes them with --run=COLUMN or --arm=COLUMN"
        )
    kind = "prediction" if "prediction" in frame else "score"
    run_codes = frame.groupby(keys[:-1], sort=False).ngroup().to_numpy()
    first = np.unique(run_codes, return_index=True)[1]  # a row of each run
    example_codes, ids = pandas.factorize(frame["example"])
    values, shape = _plain(frame[kind]), (len(first), len(ids))
    if len(frame) == len(first) * len(ids):
        table = np.empty(shape, dtype=values.dtype)
    else:  # rows that are missing
        numeric = values.dtype.kind in "biuf"
        table = np.full(shape, np.nan) if numeric else np.full(shape, None, dtype=object)
    table[run_codes, example_codes] = values
    coordinates: dict[str, Any] = {"example_id": ("example", np.asarray(ids))}
    for name, column in zip(("pretrain_seed", "finetune_seed"), keys[:-1], strict=False):
        coordinates[name] = ("run", np.asarray(frame[column])[first])
    variables: dict[str, Any] = {kind: (("run", "example"), table)}
    for column in (name for name in ("label", "cluster") if name in frame):
        column_values = _plain(frame[column])
        of_examples = np.empty(len(ids), dtype=column_values.dtype)
        of_examples[example_codes] = column_values
        different = np.asarray(of_examples[example_codes] != column_values)
        different &= ~np.asarray(frame[column].isna())
        if different.any():
            where = np.asarray(ids).tolist()[example_codes[int(np.argmax(different))]]
            raise DataError(
                f"column {column!r}: found several values for the example {where!r}, expected "
                "the same in all its rows"
            )
        if column == "label":
            variables["label"] = ("example", of_examples)
        else:
            coordinates["cluster"] = ("example", of_examples)
    return xarray.Dataset(variables, coords=coordinates)


def _plain(column: pandas.Series | pandas.DataFrame) -> NDArray:
    """Returns values as NumPy's own types, NaN where a number is missing."""
    values = column.to_numpy()
    if values.dtype.kind == "O":
        kinds = [column.dtype] if column.ndim == 1 else list(column.dtypes)
        if all(hasattr(kind, "kind") and kind.kind in "biuf" for kind in kinds):
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values)


# --- Everything else as labelled arrays ----------------------------------------------------------


def arms_in(
    data: Any,
    what: str,
    by: str | None = None,
    *,
    task: str | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> dict[str, Any] | None:
    """Returns the arms, by name, of what may hold several; None of other data.

    Args:
      data: a file or folder; a table (a data frame of pandas or polars, a `datasets.Dataset`, a dict of
        columns) of usual names, long or with one column per run; a dict of arrays `predictions` or
        `scores` [seeds, examples], with `labels` [examples] and what else a `.npz` file may hold; or a
        dict of arms, whose values are anything but one score or prediction per example.
      what: names it in error messages.
      by: column of slices of the examples, which is kept.
      task: one of several tasks in files.
      columns: names of columns by role; None: a table is known by columns of usual names.

    Returns:
      Each arm's data, by name; "" where the data name none.
    """
    try:
        frame = _frame_in(
            data, what, SliceNames(**{"by": by, **(columns or {})}), task, columns is not None
        )
        if frame is not None:
            return arms_of_frame(frame, what)
    except UserError as error:
        raise DataError(
            in_python(str(error), " (keywords of stats.read)" * (columns is None))
        ) from error
    if isinstance(data, Mapping) and not all(map(_is_row, data.values())):
        return {str(name): own for name, own in data.items()}
    return None


def arms_of_arrays(data: Any) -> dict[str, Any]:
    """Returns the arms of a list or tuple of arrays, frames or Datasets; none of other data.

    A nested list of numbers is one arm, whatever its depth.
    """
    if not (isinstance(data, list | tuple) and len(data) > 1 and all(map(_is_whole, data))):
        return {}
    names = (
        ["base", "experiment"] if len(data) == 2 else [f"arm {n}" for n, _ in enumerate(data, 1)]
    )
    return dict(zip(names, data, strict=True))


def _is_whole(data: Any) -> bool:
    """Returns whether data are an array [seeds, examples], or another form with names of its own."""
    return getattr(data, "ndim", 0) == 2 or hasattr(data, "columns") or hasattr(data, "data_vars")


def in_python(message: str, which: str = "") -> str:
    """Returns a message to people at a command line as one to people in Python.

    Args:
      message: with flags such as `--seed=COLUMN`.
      which: added where the message names flags with values.

    Example:
      >>> in_python("found no column of seeds; name it with --seed=COLUMN", " (keywords of stats.read)")
      "found no column of seeds; name it with seed='COLUMN' (keywords of stats.read)"
    """
    changed, count = re.subn(r"--(\w+)=([^\s;()]*[^\s;(),])", r"\1='\2'", message)
    return re.sub(r"--(?=[a-z])", "", changed) + which * bool(count)


def _frame_in(
    data: Any, what: str, names: SliceNames, task: str | None, is_table: bool
) -> pandas.DataFrame | None:
    """Returns the rows of a file, folder, table or dict of columns; None of other data."""
    if isinstance(data, str | Path):
        if Path(data).is_dir() and next(iter(find_runs(data)), None) is not None:
            raise DataError(
                f"{what}: {data} holds finished runs; give an arm of stats.read({str(data)!r})"
            )
        return read_frame(str(data), names, task)
    if isinstance(data, Mapping):
        if {"predictions", "scores"} & {*data}:
            return frame_of_arrays({name: _as_array(own) for name, own in data.items()}, what)
        if is_table_of_runs(data) or (is_table and all(map(_is_row, data.values()))):
            import pandas

            columns = {name: _as_array(own) for name, own in data.items()}
            return frame_of_table(pandas.DataFrame(columns), what, names)
        return None
    if hasattr(data, "coords"):
        return None
    if hasattr(data, "to_pandas"):  # datasets.Dataset, pyarrow.Table, polars.DataFrame
        return frame_of_table(data.to_pandas(), what, names)
    if hasattr(data, "columns") and (is_table or is_table_of_runs(data.columns)):
        return frame_of_table(data, what, names)
    return None


def arms_of_frame(frame: pandas.DataFrame, what: str) -> dict[str, xarray.Dataset]:
    """Returns the arms of rows under the names of `ColumnNames`, by name ("" where none is named).

    Args:
      frame: as `evaluate.readers.reading.read_frame` returns it.
      what: names it in error messages.
    """
    for name in ("arm", "seed", "run", "example"):
        if name in frame and frame[name].isna().any():
            raise DataError(
                f"{what}: column {name!r}: found {counted(int(frame[name].isna().sum()), 'row')} without a "
                "value; fill them in or leave these rows out"
            )
    arms = {"": frame}
    if "arm" in frame:
        arms = {str(name): frame[frame["arm"] == name] for name in frame["arm"].unique()}
    try:
        return {name: _with_facts(_dataset_of_rows(rows), rows) for name, rows in arms.items()}
    except DataError as error:
        raise DataError(f"{what}: {error}") from error


def _with_facts(data: xarray.Dataset, frame: pandas.DataFrame) -> xarray.Dataset:
    """Returns runs with the texts and facts of their examples as coordinates, and what was read."""
    facts = frame.attrs["identifying"]
    texts = [name for name in frame.columns if str(name).lower() in TEXT_NAMES]
    names = [*dict.fromkeys([*texts, *facts])]
    of_examples = frame.drop_duplicates("example").set_index("example")[names]
    ids = data["example_id"].to_numpy()
    data = data.assign_coords(
        {name: ("example", of_examples.loc[ids, name].to_numpy(object)) for name in names}
    )
    if "by" in frame:
        if (frame.groupby("example")["by"].nunique() > 1).any():
            raise DataError(
                f"column {frame.attrs['columns']['by']!r}: found several values for one example, expected "
                "the same in all its rows"
            )
        values = frame.drop_duplicates("example").set_index("example")["by"].loc[ids]
        data = data.assign_coords({frame.attrs["columns"]["by"]: ("example", values.to_numpy())})
    identifying = [*facts, *(["cluster"] if "cluster" in frame else [])]
    return data.assign_attrs({**frame.attrs, "identifying": identifying})


def _is_row(data: Any) -> bool:
    """Returns whether data are one value per example, such as those of one seed."""
    if isinstance(data, str | Path) or hasattr(data, "coords") or hasattr(data, "columns"):
        return False
    values = _as_array(data)
    if hasattr(values, "ndim"):
        return bool(values.ndim == 1)
    return np.iterable(values) and all(isinstance(v, str) or not np.iterable(v) for v in values)


def _as_array(data: Any) -> Any:
    """Returns a tensor as a NumPy array, wherever it lies; anything else as it is."""
    if isinstance(data, list | tuple) and data and hasattr(data[0], "detach"):
        return [_as_array(part) for part in data]
    if not hasattr(data, "detach"):
        return data
    tensor = data.detach().cpu()
    # NumPy has no bfloat16.
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def labelled(
    name: str, data: Any, metric: MetricLike | None = None, by: str | None = None
) -> xarray.Dataset | xarray.DataArray:
    """Returns predictions or scores of any form as labelled arrays.

    Args:
      name: name of the arm in error messages.
      data: a Dataset or DataArray, as it is; a file or table (see `arms_in`) of one arm; a frame whose
        rows are seeds (the index, with the run as second level if there are several per seed) and
        whose columns are examples; a dict of arrays [examples] by seed; or an array, tensor or nested
        list [examples] of one seed, [seeds, examples] or [seeds, runs, examples] (of class probabilities
        with one more axis at the end), whose seeds are numbered from 0.
      metric: decides whether the last axis is classes.
      by: column of slices of the examples, which is kept.
    """
    if hasattr(data, "coords"):
        return cast("xarray.Dataset | xarray.DataArray", data)
    import xarray

    held = arms_in(data, name, by)
    if held is not None and len(held) != 1:
        raise DataError(
            f"{name}: found {counted(len(held), 'arm')} ({', '.join([*held][:9])}), expected one; give one "
            "arm as base and one as experiment, or all to stats.compare_arms"
        )
    if held is not None:
        [data] = held.values()
        return labelled(name, data, metric, by)
    if hasattr(data, "columns"):
        return _from_wide(name, data)
    seeds: Any = None
    if isinstance(data, Mapping):
        seeds, data = np.array([*data]), [*map(_as_array, data.values())]
    data = _as_array(data)
    if isinstance(data, bytes) or not np.iterable(data):
        raise DataError(
            f"{name}: found {type(data).__name__}, expected an xarray Dataset or DataArray, a data "
            "frame, a path, or an array [seeds, examples]"
        )
    try:
        values = np.asarray(data)
    except ValueError as error:
        raise DataError(
            f"{name}: found rows of different lengths, expected [seeds, examples]; put NaN where a "
            "prediction is missing and give missing='omit'"
        ) from error
    if values.ndim == 1:
        values = values[None]  # the examples of one seed
    classes = ["class"] if metric is not None and metric.uses == "scores" else []
    dims_of = {
        2: ["pretrain_seed", "example"],
        3: ["pretrain_seed", "finetune_seed", "example"],
    }
    if classes:
        dims_of[4], dims_of[3] = [*dims_of[3], "class"], ["pretrain_seed", "example", "class"]
    if values.ndim not in dims_of:
        shapes = " or ".join(f"[{', '.join(names)}]" for names in dims_of.values())
        raise DataError(f"{name}: found an array of shape {values.shape}, expected {shapes}")
    if values.ndim == 2:
        _refuse_tall(name, values.shape)
    coordinates = {"pretrain_seed": np.arange(len(values)) if seeds is None else seeds}
    by_order = {"columns": {"seed": POSITION}} if seeds is None else {}
    return xarray.DataArray(values, dims=dims_of[values.ndim], coords=coordinates, attrs=by_order)


def _from_wide(name: str, frame: pandas.DataFrame) -> xarray.DataArray:
    import xarray

    if set(frame.columns.names) & _SEED_NAMES or set(frame.index.names) & _EXAMPLE_NAMES:
        raise DataError(f"{name}: found seeds as columns, expected them as rows; give frame.T")
    if set(frame.index.names) == {None}:
        numeric = {dtype.kind in "biuf" for dtype in frame.dtypes}
        if not _is_default(frame.columns) and (len(numeric) > 1 or len(frame) > frame.shape[1] > 1):
            raise DataError(
                f"{name}: found columns {', '.join(map(str, frame.columns[:9]))} and no index of seeds; if a "
                "row is one prediction, name its columns, stats.read(frame, seed='COLUMN'), and if it is one "
                "seed, the index, frame.rename_axis('seed')"
            )
        _refuse_tall(name, frame.shape)
    coordinates: dict[str, Any] = {}
    for place, level in enumerate(("pretrain_seed", "finetune_seed")[: frame.index.nlevels]):
        coordinates[level] = ("run", np.asarray(frame.index.get_level_values(place)))
    if not _is_default(frame.columns):
        coordinates["example_id"] = ("example", np.asarray(frame.columns))
    unnamed = _is_default(frame.index) and frame.index.name is None
    attrs = {"columns": {"seed": POSITION}} if unnamed else {}
    return xarray.DataArray(_plain(frame), coordinates, ("run", "example"), attrs=attrs)


def _is_default(index: pandas.Index) -> bool:
    """Returns whether an index only counts from 0, as pandas does where none was given."""
    import pandas

    return isinstance(index, pandas.RangeIndex) and index.start == 0 and index.step == 1


def _refuse_tall(name: str, shape: tuple[int, ...]) -> None:
    """Refuses more seeds than examples, which is nearly always a transposed array."""
    if shape[0] > shape[1] > 1:
        raise DataError(
            f"{name}: found an array of shape {shape}, which would be {shape[0]} seeds x {shape[1]} "
            "examples; transpose it, or name its axes: xarray.DataArray(values, dims="
            "('pretrain_seed', 'example'))"
        )


# --- Values along the examples -------------------------------------------------------------------


def along_examples(what: str, values: Any, ids: NDArray | None, number: int) -> NDArray:
    """Returns one value per example, in the order of the predictions.

    Args:
      what: names the values in error messages.
      values: a DataArray, with a coordinate example_id or example or without; a Series, whose index
        is example ids unless it only counts from 0; a mapping by example id; or values in the
        order of the predictions.
      ids: of the predictions' examples, or None where these are known by position alone.
    """
    own: NDArray | None = None
    values = _as_array(values)
    if hasattr(values, "coords"):
        if values.dims != ("example",):
            raise DataError(f"{what} have dims {values.dims}, expected (example,)")
        array = values.to_numpy()
        own = _coordinate_ids(values)
    elif hasattr(values, "index") and hasattr(values, "to_numpy"):
        array = _plain(values)
        counted = _is_default(values.index)
        if not counted or (ids is not None and set(ids.tolist()) == set(range(len(array)))):
            own = np.asarray(values.index)
    elif isinstance(values, Mapping):
        own, array = _array_of(list(values)), _array_of(list(values.values()))
    else:
        array = values if isinstance(values, np.ndarray) else _array_of(list(values))
    if ids is None or own is None:
        if isinstance(values, Mapping):
            raise DataError(
                f"{what} are given by example id, but the predictions have none; give them a "
                "coordinate example_id, or values in their order"
            )
        return np.asarray(array)
    if own.shape == ids.shape and (own == ids).all():
        return np.asarray(array)
    place = {example: position for position, example in enumerate(own.tolist())}
    if len(place) != len(own):
        raise DataError(f"{what}: an example id appears twice; make the ids unique")
    wanted, known = ids.tolist(), set(ids.tolist())
    lacking = [example for example in wanted if example not in place]
    surplus = [example for example in place if example not in known]
    if lacking or surplus:
        raise DataError(
            f"{what}: {len(lacking)} of {number} examples have none"
            + (f" (such as {lacking[0]!r})" if lacking else "")
            + f", and {len(surplus)} are of other examples"
            + (f" (such as {surplus[0]!r})" if surplus else "")
            + "; give one for each example of the predictions"
        )
    return np.asarray(array)[[place[example] for example in wanted]]


def _array_of(values: list[Any]) -> NDArray:
    """Returns a one-dimensional array; tuples and lists stay whole, as references do."""
    if any(isinstance(value, list | tuple) for value in values):
        array = np.empty(len(values), dtype=object)
        array[:] = [tuple(value) if isinstance(value, list) else value for value in values]
        return array
    kinds = {isinstance(value, str) for value in values}
    return np.array(values, dtype=object if len(kinds) > 1 else None)


def _coordinate_ids(array: xarray.DataArray | xarray.Dataset) -> NDArray | None:
    return next((array.coords[k].to_numpy() for k in _ID_NAMES if k in array.coords), None)


def values_of_clusters(name: str, data: Any, clusters: Any, arm: Arm) -> tuple[NDArray, str]:
    """Returns the cluster of each example of an arm, and what the clusters are called.

    Args:
      name: name of the arm in error messages.
      data: the arm's labelled arrays.
      clusters: the name of a coordinate or variable of them, or values (see `along_examples`).
    """
    called = str(getattr(clusters, "name", None) or "")
    if isinstance(clusters, str):
        # A coordinate of either kind of array, or a variable of a Dataset.
        if clusters not in data.coords and clusters not in getattr(data, "data_vars", ()):
            raise DataError(
                f"{name}: found no coordinate {clusters!r} of examples, only "
                f"{', '.join(map(str, data.coords))}"
            )
        called, clusters = clusters, data[clusters]
    what = f"{name}: clusters {called!r}" if called else f"{name}: clusters"
    return along_examples(what, clusters, arm.example_ids, arm.num_examples), called


# --- An arm --------------------------------------------------------------------------------------


def arm_from_arrays(
    name: str,
    data: xarray.Dataset | xarray.DataArray,
    labels: Any = None,
    *,
    metric: MetricLike | None = None,
    missing: Missing = "refuse",
) -> Arm:
    """Builds an arm from labelled arrays.

    Args:
      name: name of the arm in error messages.
      data: a Dataset with `prediction` (or `scores`) and `label` as `evaluate.prediction_files.predictions`
        reads it, or a DataArray of predictions. Dims: `example`, and `run` with a coordinate
        `pretrain_seed`, or `pretrain_seed` and any further dims (such as `finetune_seed`),
        whose cells are runs. `scores` (logits) have one more dim, `class`. A cell that is NaN
        on every example is a missing run. A Dataset with `score` instead of `prediction` holds
        what the metric reads, as a DataArray does.
      labels: one per example, instead of the Dataset's own (see `along_examples`).
      metric: selects the variables of a Dataset, scores or texts where the metric reads these (see
        `evaluate.metrics.register.metric_input` and `metric_variables`). A DataArray already holds
        what the metric reads.
      missing: the meaning of a NaN prediction in a run that is not missing (see `make_arm`).
    """
    predictions, labels = _predictions_and_labels(name, data, labels, metric)
    dims = {str(dim) for dim in predictions.dims}
    if "example" not in dims or not {"run", "pretrain_seed"} & dims:
        raise DataError(
            f"{name}: found dims {predictions.dims}, expected example and run (with a coordinate "
            "pretrain_seed) or pretrain_seed; name the dims so, or give an array [seeds, examples]"
        )
    if not predictions.size:
        raise DataError(f"{name}: found no runs or no examples; give at least one of each")
    lineages = [(key, predictions[key]) for key in _LINEAGE_NAMES if key in predictions.coords]
    # Other coordinates may have types that cannot be sliced, such as pandas' Arrow strings.
    known = {"pretrain_seed", "finetune_seed", *_ID_NAMES}
    predictions = predictions.drop_vars([key for key in predictions.coords if key not in known])
    ids = _coordinate_ids(predictions)
    number = predictions.sizes["example"]
    given = np.zeros(number)
    if labels is not None:
        given = along_examples(f"{name}: labels", labels, ids, number)
    last = ["example", "class"] if "class" in dims else ["example"]
    run_dims = [dim for dim in predictions.dims if dim not in last]
    # The seed comes first, so that the dims below it are the levels to average over.
    run_dims.sort(key=lambda dim: dim not in ("pretrain_seed", "run"))
    values = predictions.transpose(*run_dims, *last).to_numpy()
    run_shape = values.shape[: len(run_dims)]
    values = values.reshape(-1, *values.shape[len(run_dims) :])  # [runs, examples, ...]
    cells = predictions.isel(dict.fromkeys(last, 0), drop=True).transpose(*run_dims)
    seeds = _of_runs(cells, "pretrain_seed")
    if seeds is None:
        raise DataError(f"{name}: found no coordinate pretrain_seed; add it along {run_dims[0]}")
    levels = _inner_levels(cells, run_shape)
    inner = len(values) // run_shape[0]  # runs per place along the first of the runs' dims
    lineage: list[frozenset] = [frozenset()] * len(values)
    for key, found in lineages:
        if found.dims == (run_dims[0],):
            ways = [
                _descent(key, value) for value in found.to_numpy().tolist() for _ in range(inner)
            ]
            lineage = [known | way for known, way in zip(lineage, ways, strict=True)]
    square = values.ndim == 2 and values.shape[0] == values.shape[1]
    if square and metric is not None and metric.uses == "scores":
        # P(class 1) [runs, examples], which would be taken for [examples, classes].
        values = np.stack([1 - values, values], axis=-1)
    rows = list(range(len(values)))
    if len(run_dims) > 1 and values.dtype.kind == "f":
        made = ~np.isnan(values.reshape(len(values), -1)).all(axis=1)
        values, rows = values[made], np.flatnonzero(made).tolist()
    arm = make_arm(
        name,
        values,
        given,
        [seeds[row] for row in rows],
        ids,
        inner_levels=levels and [levels[row] for row in rows],
        missing=missing,
    )
    if metric is not None and metric.uses_labels:
        check_kinds(name, arm)
    return replace(arm, lineage=tuple(lineage[row] for row in rows))


def _descent(key: str, value: Any) -> set[tuple[str, Hashable]]:
    """Returns the (kind, name) of what a value of a coordinate of lineage states."""
    if key != "lineage":
        return {(key, value)}
    found: set[tuple[str, Hashable]] = set()
    for (
        procedure,
        seed,
        step,
        sha256,
    ) in value:  # as evaluate.prediction_files.run_file.lineage_of returns it
        if procedure is not None and seed is not None:
            found.add(("training", (procedure, seed)))
        if sha256 is not None:
            found |= {("checkpoint", sha256), ("named", ((procedure, seed, step), sha256))}
    return found


def _predictions_and_labels(
    name: str, data: Any, labels: Any, metric: MetricLike | None
) -> tuple[xarray.DataArray, Any]:
    """Returns what the metric reads, and the labels, None where it needs none and none are given."""
    is_dataset = hasattr(data, "data_vars")  # a check by type would import xarray
    if is_dataset and not {"prediction", "score"} & set(data.data_vars):
        raise DataError(
            f"{name}: found the variables {', '.join(map(str, data.data_vars)) or 'none'}, expected "
            "prediction (or score) and label"
        )
    if is_dataset and metric is not None and "prediction" in data:
        names = metric_variables(cast("Metric", metric), data)
    else:
        names = ("label", "prediction")
    if labels is None and is_dataset and names[0] in data:
        own = data[names[0]]
        is_needed = metric is None or metric.uses_labels
        labels = own if is_needed or not own.isnull().all() else None
    if labels is None and (metric is None or metric.uses_labels):
        raise DataError(
            f"{name}: found no labels, which {metric.name if metric else 'a metric'} compares with "
            "the predictions; give labels (of a file, --label=COLUMN), or each example's own score "
            "(--score=COLUMN) and metric='mean'"
        )
    if not is_dataset:
        return data, labels
    if "prediction" not in data:
        return data["score"], labels
    predictions = data[names[1]]
    if metric is None or metric.uses in ("prediction", "text"):
        return predictions, labels
    import xarray

    scores = None
    if "scores" in data:
        scores = data["scores"].transpose(*predictions.dims, "class")
    try:
        given = metric_input(cast("Metric", metric), predictions, scores)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error
    dims = [*predictions.dims, "class"][: given.ndim]
    coords = {key: predictions.coords[key] for key in predictions.coords}
    return xarray.DataArray(given, dims=dims, coords=coords), labels


def _of_runs(cells: xarray.DataArray, coordinate: str) -> list[Hashable] | None:
    """Returns a coordinate of the runs, or None where there is none."""
    if coordinate not in cells.coords:
        return None
    values = cells[coordinate]
    if values.dims != cells.dims:
        import xarray

        values = xarray.broadcast(values, cells)[0].transpose(*cells.dims)
    return list(values.to_numpy().ravel().tolist())


def _inner_levels(
    cells: xarray.DataArray, run_shape: tuple[int, ...]
) -> list[tuple[Hashable, ...]] | None:
    """Returns the places below the seed: the dims after it, or the fine-tuning seeds of a list."""
    if len(run_shape) == 1:
        finetune_seeds = _of_runs(cells, "finetune_seed")
        return None if finetune_seeds is None else [(place,) for place in finetune_seeds]
    indices = np.indices(run_shape)[1:].reshape(len(run_shape) - 1, -1).T
    return [tuple(place) for place in indices.tolist()]


def runs_from_dataset(
    data: xarray.Dataset,
    variable: str = "correct",
    levels: Sequence[str] = ("pretrain_seed", "finetune_seed"),
) -> RunsTable:
    """Builds runs from the labelled arrays of `evaluate.prediction_files.predictions.read_predictions`.

    Args:
      data: dims (run, example); variables `prediction` and `label`; coordinates named in `levels`
        along run, `example_id` along example.
      variable: `correct`, 1 where the prediction is the label, or a variable of the Dataset with
        dims (run, example), such as `prediction`.
      levels: coordinates that form a run's key, outermost first.

    Raises:
      DataError: a variable, dim or coordinate is missing.

    Example:
      >>> import xarray
      >>> answers = [[1, 0, 1], [1, 1, 1], [0, 0, 1], [1, 0, 1]]
      >>> variables = {'prediction': (('run', 'example'), answers), 'label': ('example', [1, 0, 1])}
      >>> places = {'pretrain_seed': ('run', [0, 0, 1, 1]), 'finetune_seed': ('run', [0, 1, 0, 1])}
      >>> data = xarray.Dataset(variables, places)
      >>> runs_from_dataset(data).predictions.tolist()  # 1 where right
      [[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]
    """
    needed = ("prediction", "label") if variable == "correct" else (variable,)
    missing = [name for name in needed if name not in data] + [
        name for name in levels if name not in data.coords
    ]
    if missing:
        raise DataError(
            f"found no {', '.join(missing)} in the Dataset, expected variables {needed} and "
            f"coordinates {tuple(levels)}"
        )
    array = data[needed[0]]
    if set(array.dims) != {"run", "example"}:
        raise DataError(f"found {needed[0]} with dims {array.dims}, expected (run, example)")
    values = array.transpose("run", "example").to_numpy()
    if variable == "correct":
        values = (values == data["label"].to_numpy()).astype(np.uint8)
    keys = list(zip(*(data[name].to_numpy().tolist() for name in levels), strict=True))
    ids = data["example_id"].to_numpy() if "example_id" in data.coords else None
    return make_runs(values, keys, levels, ids)
