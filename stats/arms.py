"""One side of a comparison: runs of several seeds on the same examples, checked and put in
order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runs.errors import UserError

if TYPE_CHECKING:
    import xarray


class DataError(UserError, ValueError):
    """Arrays that cannot be compared; a `ValueError` to a library's caller, one line to a
    command's."""


@dataclass(frozen=True)
class Arm:
    """Runs of one procedure.

    Attributes:
        predictions: [runs, examples].
        labels: [examples].
        run_seeds: the pre-training seed of each run [runs]; several runs of a seed are averaged.
        seeds: the distinct seeds, sorted.
        example_ids: [examples], or None where examples are known by position alone.
    """

    predictions: NDArray
    labels: NDArray
    run_seeds: tuple[Hashable, ...]
    seeds: tuple[Hashable, ...]
    example_ids: NDArray | None = None

    @property
    def num_examples(self) -> int:
        return len(self.labels)

    @property
    def seed_weights(self) -> NDArray[np.float64]:
        """[runs, seeds]: a product with it averages the runs of each seed."""
        member = np.array(
            [[run == seed for seed in self.seeds] for run in self.run_seeds], dtype=float
        )
        return member / member.sum(axis=0)

    def with_seeds(self, seeds: Sequence[Hashable]) -> Arm:
        """The runs of these seeds only."""
        kept = [row for row, seed in enumerate(self.run_seeds) if seed in seeds]
        return replace(
            self,
            predictions=self.predictions[kept],
            run_seeds=tuple(self.run_seeds[row] for row in kept),
            seeds=tuple(seed for seed in self.seeds if seed in seeds),
        )


def sorted_seeds(seeds: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Distinct seeds in sorted order, whatever their type, the same in every process."""
    return tuple(sorted(set(seeds), key=lambda seed: (isinstance(seed, str), seed)))


def make_arm(
    name: str,
    predictions: ArrayLike,
    labels: ArrayLike,
    run_seeds: Sequence[Hashable],
    example_ids: ArrayLike | None = None,
) -> Arm:
    """Checks arrays and makes an arm of them.

    Args:
        name: how error messages call this arm.
        predictions: [runs, examples].
        labels: [examples].
        run_seeds: [runs].
        example_ids: [examples], unique, or None.

    Raises:
        DataError: a shape is wrong (also: axes swapped), a value or seed is NaN, an id appears
            twice.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 2 or labels.ndim != 1:
        raise DataError(
            f"{name}: found predictions of shape {predictions.shape} and labels of shape "
            f"{labels.shape}, "
            "expected [runs, examples] and [examples]"
        )
    if predictions.shape != (len(run_seeds), len(labels)):
        swapped = predictions.shape == (len(labels), len(run_seeds))
        raise DataError(
            f"{name}: found predictions of shape {predictions.shape}, expected {len(run_seeds)} "
            "runs x "
            f"{len(labels)} examples; " + ("the axes are swapped: transpose them" if swapped else
            "give one row a run and one column a label")
        )  # fmt: skip
    if not predictions.size:
        raise DataError(f"{name}: found no runs or no examples; give at least one of each")
    for what, values in (("predictions", predictions), ("labels", labels)):
        _refuse_nan(f"{name} {what}", values)
    for position, seed in enumerate(run_seeds):
        if seed is None or seed != seed:
            raise DataError(
                f"{name}: run {position} has no pre-training seed; name one for every run"
            )
    ids = None if example_ids is None else np.asarray(example_ids)
    if ids is not None and len(set(ids.tolist())) != len(ids):
        seen: set[Any] = set()
        twice = next(i for i in ids.tolist() if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise DataError(f"{name}: example id {twice!r} appears twice; make the ids unique")
    return Arm(predictions, labels, tuple(run_seeds), sorted_seeds(run_seeds), ids)


def _refuse_nan(what: str, values: NDArray) -> None:
    if values.dtype.kind == "O":
        bad = np.array([value is None or value != value for value in values.flat])
    elif values.dtype.kind in "fc":
        bad = ~np.isfinite(values).ravel()
    else:
        return
    if bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), values.shape))
        raise DataError(
            f"{what}: found {values[where]} at {where} ({int(bad.sum())} such in all), expected "
            "finite "
            "values; leave out runs that diverged and say so"
        )


def arm_from_arrays(
    name: str, data: xarray.Dataset | xarray.DataArray, labels: xarray.DataArray | None = None
) -> Arm:
    """An arm from labelled arrays.

    Args:
        name: how error messages call this arm.
        data: a Dataset with `prediction` and `label` as `evaluate.predictions` reads it, or a
            DataArray of predictions. Dims: `example`, and `run` with a coordinate `pretrain_seed`,
            or `pretrain_seed` and any further dims (such as `finetune_seed`), whose cells are runs.
            A cell that is NaN on every example is a run that was not made.
        labels: dims (example,), for a DataArray.

    Raises:
        DataError: a dim, coordinate or value is missing or wrong.
    """
    if labels is None:
        if "label" not in data or "prediction" not in data:
            raise DataError(
                f"{name}: found no variables prediction and label; give both, or labels="
            )
        labels = cast("xarray.DataArray", data["label"])
    # Only a Dataset has variables of its own; a test by type would import xarray.
    is_dataset = hasattr(data, "data_vars")
    predictions = cast("xarray.DataArray", data["prediction"] if is_dataset else data)
    dims = set(predictions.dims)
    if "example" not in dims or not {"run", "pretrain_seed"} & dims:
        raise DataError(
            f"{name}: found dims {predictions.dims}, expected example and run (with a coordinate "
            "pretrain_seed) or pretrain_seed"
        )
    coordinates = predictions.coords
    ids = next(
        (coordinates[k].to_numpy() for k in ("example_id", "example") if k in coordinates), None
    )
    run_dims = [dim for dim in predictions.dims if dim != "example"]
    values = predictions.transpose(*run_dims, "example").to_numpy()
    values = values.reshape(-1, values.shape[-1])  # [runs, examples]
    seeds = _run_seeds(name, predictions, run_dims)
    if len(run_dims) > 1 and values.dtype.kind == "f":
        made = ~np.isnan(values).all(axis=1)
        values, seeds = values[made], [seed for seed, kept in zip(seeds, made, strict=True) if kept]
    return make_arm(name, values, labels.to_numpy(), seeds, ids)


def _run_seeds(name: str, data: xarray.DataArray, run_dims: list[Hashable]) -> list[Hashable]:
    import xarray

    if "pretrain_seed" not in data.coords:
        raise DataError(f"{name}: found no coordinate pretrain_seed; add it along {run_dims[0]}")
    cells = data.isel(example=0, drop=True).transpose(*run_dims)
    return (
        xarray.broadcast(data["pretrain_seed"], cells)[0]
        .transpose(*run_dims)
        .to_numpy()
        .ravel()
        .tolist()
    )


def align(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Puts the experiment's examples into the base's order.

    Raises:
        DataError: the two hold other examples or other labels.
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
        experiment = replace(
            experiment,
            predictions=experiment.predictions[:, order],
            labels=experiment.labels[order],
            example_ids=experiment.example_ids[order],
        )
    if base.num_examples != experiment.num_examples:
        raise DataError(
            f"base has {base.num_examples} examples and experiment {experiment.num_examples}, "
            "expected the "
            "same; evaluate both on the same examples"
        )
    different = np.flatnonzero(base.labels != experiment.labels)
    if different.size:
        column = int(different[0])
        name = column if base.example_ids is None else repr(base.example_ids.tolist()[column])
        raise DataError(
            f"base and experiment have other labels for {different.size} examples, first {name}: "
            f"{base.labels[column]} and {experiment.labels[column]}; use one release of the data "
            "for both"
        )
    return base, experiment


def pair(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Keeps the seeds that both arms have."""
    common = sorted_seeds([seed for seed in base.seeds if seed in experiment.seeds])
    return base.with_seeds(common), experiment.with_seeds(common)
