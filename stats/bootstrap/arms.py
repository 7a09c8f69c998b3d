"""One side of a comparison: checked and sorted runs of several seeds on the same examples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    import xarray

    from multiberts.evaluate.metrics.column_metric import Metric
    from multiberts.evaluate.metrics.ranks import RankMetric


Missing = Literal["refuse", "omit"]


class DataError(UserError, ValueError):
    """Arrays that cannot be compared; a `ValueError` in a library, one line in a command."""


def check_choice(what: str, value: object, choices: Any) -> None:
    """Refuses a value that is not one of a `Literal`'s.

    Raises:
      DataError: it is not one of the choices.
    """
    if value not in get_args(choices):
        raise DataError(f"found {what} {value!r}, expected one of {', '.join(get_args(choices))}")


@dataclass(frozen=True)
class Arm:
    """Runs of one procedure.

    Attributes:
      predictions: [runs, examples], or [runs, examples, classes] for probabilities.
      labels: [examples].
      run_seeds: the pre-training seed of each run [runs]; several runs of a seed are averaged.
      seeds: the distinct seeds, sorted.
      example_ids: [examples], or None where examples are known by position alone.
      inner_levels: for each run its place below the seed, such as (finetune_seed, epoch) [runs].
        Runs are averaged level by level, innermost first, so that a fine-tuning run with more
        epochs has the same weight. None gives all runs of a seed equal weight.
      clusters: code of the cluster of each example, 0 to G - 1 [examples], or None where
        examples are drawn one by one.
      observed: bool [runs, examples], False where a cell is missing; None where none is missing.
    """

    predictions: NDArray
    labels: NDArray
    run_seeds: tuple[Hashable, ...]
    seeds: tuple[Hashable, ...]
    example_ids: NDArray | None = None
    inner_levels: tuple[tuple[Hashable, ...], ...] | None = None
    clusters: NDArray[np.int64] | None = None
    observed: NDArray[np.bool_] | None = None

    @property
    def num_examples(self) -> int:
        """Returns the number of examples."""
        return len(self.labels)

    @property
    def num_units(self) -> int:
        """Returns the number of clusters, or of examples where these are drawn one by one."""
        return self.num_examples if self.clusters is None else int(self.clusters.max()) + 1

    @property
    def seed_weights(self) -> NDArray[np.float64]:
        """Weights [runs, seeds] that average the runs of each seed, level by level."""
        inner = self.inner_levels or ((),) * len(self.run_seeds)
        paths = [(seed, *levels) for seed, levels in zip(self.run_seeds, inner, strict=True)]
        weights = np.ones(len(paths))
        for depth in range(1, len(paths[0]) + 1):
            # The number of children of each node at this depth; runs with one path share it.
            children: dict[tuple, set] = {}
            for run, path in enumerate(paths):
                child: Hashable = path[depth] if depth < len(path) else run
                children.setdefault(path[:depth], set()).add(child)
            weights /= [len(children[path[:depth]]) for path in paths]
        column = {seed: position for position, seed in enumerate(self.seeds)}
        table = np.zeros((len(paths), len(self.seeds)))
        table[range(len(paths)), [column[seed] for seed in self.run_seeds]] = weights
        return table

    def with_seeds(self, seeds: Sequence[Hashable]) -> Arm:
        """Returns the runs of these seeds only."""
        kept = [row for row, seed in enumerate(self.run_seeds) if seed in seeds]
        return replace(
            self,
            predictions=self.predictions[kept],
            run_seeds=tuple(self.run_seeds[row] for row in kept),
            seeds=tuple(seed for seed in self.seeds if seed in seeds),
            inner_levels=self.inner_levels and tuple(self.inner_levels[row] for row in kept),
            observed=None if self.observed is None else self.observed[kept],
        )

    def with_examples(self, order: Sequence[int]) -> Arm:
        """Returns the examples at these positions, in this order."""
        assert self.clusters is None, "clusters are set after alignment"
        return replace(
            self,
            predictions=self.predictions[:, order],
            labels=self.labels[order],
            example_ids=None if self.example_ids is None else self.example_ids[order],
            observed=None if self.observed is None else self.observed[:, order],
        )


def sorted_seeds(seeds: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Sorts distinct seeds of any type, in the same order in every process."""
    return tuple(sorted(set(seeds), key=lambda seed: (isinstance(seed, str), seed)))


def make_arm(
    name: str,
    predictions: ArrayLike,
    labels: ArrayLike,
    run_seeds: Sequence[Hashable],
    example_ids: ArrayLike | None = None,
    *,
    inner_levels: Sequence[tuple[Hashable, ...]] | None = None,
    missing: Missing = "refuse",
) -> Arm:
    """Checks arrays and builds an arm from them.

    Args:
      name: name of the arm in error messages.
      predictions: [runs, examples], or [runs, examples, classes].
      labels: [examples].
      run_seeds: [runs].
      example_ids: [examples], unique, or None.
      inner_levels: each run's place below its seed (see `Arm`), or None.
      missing: whether a prediction that is NaN (or None) is refused, or is a missing cell, which
        its run's score leaves out.

    Raises:
      DataError: a shape is wrong (or the axes are swapped), a value or seed is NaN, an id appears
        twice, or a run has no cell at all.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim not in (2, 3) or labels.ndim != 1:
        raise DataError(
            f"{name}: found predictions of shape {predictions.shape} and labels of shape "
            f"{labels.shape}, expected [runs, examples] and [examples]"
        )
    if predictions.shape[:2] != (len(run_seeds), len(labels)):
        swapped = predictions.shape[:2] == (len(labels), len(run_seeds))
        cure = "transpose them" if swapped else "give one row per run and one column per label"
        raise DataError(
            f"{name}: found predictions of shape {predictions.shape}, expected {len(run_seeds)} "
            f"runs x {len(labels)} examples; {'the axes are swapped: ' * swapped}{cure}"
        )
    if not predictions.size:
        raise DataError(f"{name}: found no runs or no examples; give at least one of each")
    _refuse_nan(f"{name} labels", labels)
    observed = None
    if missing == "omit":
        predictions, observed = _observed(name, predictions)
    _refuse_nan(f"{name} predictions", predictions)
    for position, seed in enumerate(run_seeds):
        if seed is None or seed != seed:
            raise DataError(f"{name}: run {position} has no pre-training seed; give every run one")
    ids = None if example_ids is None else np.asarray(example_ids)
    if ids is not None and len(set(ids.tolist())) != len(ids):
        seen: set[Any] = set()
        twice = next(i for i in ids.tolist() if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise DataError(f"{name}: example id {twice!r} appears twice; make the ids unique")
    levels = None if inner_levels is None else tuple(tuple(place) for place in inner_levels)
    if levels is not None and {len(place) for place in levels} != {len(levels[0])}:
        raise DataError(f"{name}: found runs with different numbers of levels below the seed")
    return Arm(
        predictions, labels, tuple(run_seeds), sorted_seeds(run_seeds), ids, levels, None, observed
    )


def _observed(name: str, predictions: NDArray) -> tuple[NDArray, NDArray[np.bool_] | None]:
    """Fills missing cells, and returns the predictions and where they are not missing.

    A missing cell gets the run's first prediction, which any metric accepts, and no weight.
    """
    bad = _bad_cells(predictions)
    if bad is None or not bad.any():
        return predictions, None
    bad = np.asarray(bad.reshape(*predictions.shape[:2], -1).any(axis=-1))  # [runs, examples]
    empty = np.flatnonzero(bad.all(axis=1))
    if empty.size:
        raise DataError(f"{name}: run {int(empty[0])} has no prediction at all; leave it out")
    first = np.argmin(bad, axis=1)
    filled = predictions.copy()
    rows, columns = np.nonzero(bad)
    filled[rows, columns] = predictions[rows, first[rows]]
    return filled, ~bad


def _bad_cells(values: NDArray) -> NDArray[np.bool_] | None:
    """Finds values that are NaN, infinite or None; returns None for types without such values."""
    if values.dtype.kind == "O":
        flat = np.array([value is None or value != value for value in values.flat], dtype=bool)
        return flat.reshape(values.shape)
    return ~np.isfinite(values) if values.dtype.kind in "fc" else None


def _refuse_nan(what: str, values: NDArray) -> None:
    bad = _bad_cells(values)
    if bad is not None and bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), values.shape))
        raise DataError(
            f"{what}: found {values[where]} at {where} ({int(bad.sum())} in total), expected finite "
            "values; leave out runs that diverged and report it"
        )


def arm_from_arrays(
    name: str,
    data: xarray.Dataset | xarray.DataArray,
    labels: xarray.DataArray | None = None,
    *,
    metric: Metric | RankMetric | None = None,
    missing: Missing = "refuse",
) -> Arm:
    """Builds an arm from labelled arrays.

    Args:
      name: name of the arm in error messages.
      data: a Dataset with `prediction` (or `scores`) and `label` as `evaluate.dumps.predictions`
        reads it, or a DataArray of predictions. Dims: `example`, and `run` with a coordinate
        `pretrain_seed`, or `pretrain_seed` and any further dims (such as `finetune_seed`),
        whose cells are runs. `scores` (logits) have one more dim, `class`. A cell that is NaN
        on every example is a missing run.
      labels: dims (example,), for a DataArray.
      metric: selects the variables of a Dataset, scores or texts where the metric reads these (see
        `evaluate.metrics.register.metric_input` and `metric_variables`). A DataArray already holds
        what the metric reads.
      missing: the meaning of a NaN prediction in a run that is not missing (see `make_arm`).

    Raises:
      DataError: a dim, coordinate or value is missing or wrong.
    """
    predictions, labels = _predictions_and_labels(name, data, labels, metric)
    dims = set(predictions.dims)
    if "example" not in dims or not {"run", "pretrain_seed"} & dims:
        raise DataError(
            f"{name}: found dims {predictions.dims}, expected example and run (with a coordinate "
            "pretrain_seed) or pretrain_seed"
        )
    # Other coordinates may have types that cannot be sliced, such as pandas' Arrow strings.
    known = {"pretrain_seed", "finetune_seed", "example_id", "example"}
    predictions = predictions.drop_vars([key for key in predictions.coords if key not in known])
    coordinates = predictions.coords
    ids = next(
        (coordinates[k].to_numpy() for k in ("example_id", "example") if k in coordinates), None
    )
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
    if len(run_dims) > 1 and values.dtype.kind == "f":
        made = ~np.isnan(values.reshape(len(values), -1)).all(axis=1)
        values, seeds, levels = (
            values[made],
            [seed for seed, kept in zip(seeds, made, strict=True) if kept],
            levels and [place for place, kept in zip(levels, made, strict=True) if kept],
        )
    return make_arm(
        name, values, labels.to_numpy(), seeds, ids, inner_levels=levels, missing=missing
    )


def _predictions_and_labels(
    name: str,
    data: xarray.Dataset | xarray.DataArray,
    labels: xarray.DataArray | None,
    metric: Metric | RankMetric | None,
) -> tuple[xarray.DataArray, xarray.DataArray]:
    needed = f"{name}: found no variables prediction and label; give both, or labels="
    # Only a Dataset has variables of its own; a check by type would import xarray.
    if not hasattr(data, "data_vars"):
        if labels is None:
            raise DataError(needed)
        return cast("xarray.DataArray", data), labels
    if (labels is None and "label" not in data) or "prediction" not in data:
        raise DataError(needed)
    from multiberts.evaluate.metrics.register import metric_input, metric_variables

    names = ("label", "prediction") if metric is None else metric_variables(metric, data)
    if labels is None:
        labels = cast("xarray.DataArray", data[names[0]])
    predictions = cast("xarray.DataArray", data[names[1]])
    if metric is None or metric.uses in ("prediction", "text"):
        return predictions, labels
    import xarray

    scores = None
    if "scores" in data:
        scores = data["scores"].transpose(*predictions.dims, "class")
    try:
        given = metric_input(metric, predictions, scores)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error
    dims = [*predictions.dims, "class"][: given.ndim]
    coords = {key: predictions.coords[key] for key in predictions.coords}
    return xarray.DataArray(given, dims=dims, coords=coords), labels


def _of_runs(cells: xarray.DataArray, coordinate: str) -> list[Hashable] | None:
    """Returns a coordinate of the runs, or None where there is none."""
    import xarray

    if coordinate not in cells.coords:
        return None
    values = xarray.broadcast(cells[coordinate], cells)[0].transpose(*cells.dims)
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


def align(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Puts the experiment's examples into the base's order.

    Raises:
      DataError: the two hold different examples or different labels.
    """
    if base.example_ids is not None and experiment.example_ids is not None:
        place = {example: column for column, example in enumerate(experiment.example_ids.tolist())}
        missing = [example for example in base.example_ids.tolist() if example not in place]
        if missing or base.num_examples != experiment.num_examples:
            raise DataError(
                f"base has {base.num_examples} examples and experiment {experiment.num_examples}, "
                f"{len(missing)} of base's are not in experiment"
                + (f" (such as {missing[0]!r})" if missing else "")
                + "; evaluate both on the same examples"
            )
        order = [place[example] for example in base.example_ids.tolist()]
        if order != list(range(experiment.num_examples)):
            experiment = experiment.with_examples(order)
    if base.num_examples != experiment.num_examples:
        raise DataError(
            f"base has {base.num_examples} examples and experiment {experiment.num_examples}, "
            "expected the same; evaluate both on the same examples"
        )
    different = np.flatnonzero(base.labels != experiment.labels)
    if different.size:
        column = int(different[0])
        name = column if base.example_ids is None else repr(base.example_ids.tolist()[column])
        raise DataError(
            f"base and experiment have different labels for {different.size} examples, first {name}: "
            f"{base.labels[column]} and {experiment.labels[column]}; use one release of the data "
            "for both"
        )
    return base, experiment


def pair(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Keeps the seeds that both arms have."""
    common = sorted_seeds([seed for seed in base.seeds if seed in experiment.seeds])
    return base.with_seeds(common), experiment.with_seeds(common)


def clustered(arm: Arm, clusters: Sequence[Hashable] | NDArray, name: str) -> Arm:
    """Groups the examples of an arm into clusters, which are then drawn as a whole.

    Args:
      arm: examples in the order of `clusters`.
      clusters: the cluster of each example, any hashable [examples].
      name: name of the arm in error messages.

    Raises:
      DataError: the number differs, a cluster is NaN, or all examples are in one.
    """
    names = np.asarray(clusters)
    if names.shape != (arm.num_examples,):
        raise DataError(
            f"{name}: found clusters of shape {names.shape}, expected one for each of "
            f"{arm.num_examples} examples"
        )
    _refuse_nan(f"{name} clusters", names)
    distinct, codes = np.unique(names, return_inverse=True)
    if len(distinct) < 2:
        raise DataError(
            f"{name}: all examples are in the cluster {distinct[0]!r}, expected several clusters; "
            "leave clusters out or give finer ones"
        )
    return replace(arm, clusters=codes.astype(np.int64))
