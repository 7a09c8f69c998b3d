"""One side of a comparison: checked and sorted runs of several seeds on the same examples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.settings import Missing


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
      lineage: for each run the (kind, name) of what it descends from, such as ("parent", "seed_0"),
        or nothing where that is not known [runs]. Kinds: what the user named (`parent`,
        `procedure`); of a checkpoint its SHA-256 (`checkpoint`), the procedure and seed of its
        training (`training`), and (procedure, seed, step) with the SHA-256 (`named`).
      cluster_name: what the clusters are called, or nothing.
      left_out: seeds that pairing left out, because the other side lacks them.
    """

    predictions: NDArray
    labels: NDArray
    run_seeds: tuple[Hashable, ...]
    seeds: tuple[Hashable, ...]
    example_ids: NDArray | None = None
    inner_levels: tuple[tuple[Hashable, ...], ...] | None = None
    clusters: NDArray[np.int64] | None = None
    observed: NDArray[np.bool_] | None = None
    lineage: tuple[frozenset, ...] = ()
    cluster_name: str = ""
    left_out: tuple[Hashable, ...] = ()

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
            lineage=self.lineage and tuple(self.lineage[row] for row in kept),
        )

    def lineage_of(self, seed: Hashable) -> frozenset:
        """Returns everything that runs of a seed descend from, as far as it is known."""
        pairs = zip(self.run_seeds, self.lineage, strict=False)
        return frozenset().union(*(found for own, found in pairs if own == seed))

    def shares_parent(self, other: Arm, seed: Hashable) -> bool:
        """Returns whether runs of a seed descend from one checkpoint, or one training, on both sides.

        Two checkpoints of one name (procedure, seed and step) that hold different weights are not of
        one training.
        """
        own, others = self.lineage_of(seed), other.lineage_of(seed)
        shared = {kind for kind, _ in own & others}
        known = [dict(value for kind, value in side if kind == "named") for side in (own, others)]
        differ = any(known[1].get(name, sha256) != sha256 for name, sha256 in known[0].items())
        return bool(shared & {"parent", "checkpoint"}) or (bool(shared) and not differ)

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
    check_choice("missing", missing, Missing)
    if missing == "bound":
        raise DataError("missing='bound' is of one comparison (stats.compare); use missing='omit'")
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
    _refuse_nan(f"{name} labels", labels, "give every example a label, or leave the example out")
    observed = None
    if missing == "omit":
        predictions, observed = _observed(name, predictions)
    bad = _bad_cells(predictions)
    if bad is not None and bad.any():
        row, column = (int(place) for place in np.argwhere(bad)[0][:2])
        known = None if example_ids is None else np.asarray(example_ids).tolist()[column]
        example = f"number {column}" if known is None else repr(known)
        cure = "leave out runs that diverged and report it"
        if not bad[row].all():  # a row that is not there, or has no value
            cure = "complete them, give missing='omit' to leave them out, or missing='bound'"
        _refuse_nan(
            f"{name} predictions",
            predictions,
            cure,
            f", seed {run_seeds[row]!r}, example {example}",
        )
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


def _refuse_nan(what: str, values: NDArray, cure: str, called: str = "") -> None:
    bad = _bad_cells(values)
    if bad is not None and bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), values.shape))
        raise DataError(
            f"{what}: found {values[where]} at {where}{called} ({int(bad.sum())} in total), expected "
            f"finite values; {cure}"
        )


def check_kinds(name: str, arm: Arm) -> None:
    """Refuses arrays of objects where numbers meet texts, which are never equal.

    Arrays of one type are left to the metric, which says what it compares.

    Raises:
      DataError: labels and predictions differ in kind, or one of them is of both kinds.
    """
    labels, predictions = arm.labels, arm.predictions
    if "O" not in (labels.dtype.kind, predictions.dtype.kind):
        return
    found = {"labels": _kinds_of(labels), "predictions": _kinds_of(predictions)}
    for what, kinds in found.items():
        if len(kinds) > 1:
            raise DataError(f"{name} {what}: found numbers and texts mixed, expected one kind")
    if {"number", "text"} == found["labels"] | found["predictions"]:
        raise DataError(
            f"{name}: found labels that are {next(iter(found['labels']))}s and predictions that are "
            f"{next(iter(found['predictions']))}s, which are never equal; convert one of them"
        )


def _kinds_of(values: NDArray) -> set[str]:
    """Returns `number` or `text` for what an array holds, nothing for references, which are tuples."""
    if values.dtype.kind != "O":
        return {"text" if values.dtype.kind in "US" else "number"}
    types = set(map(type, values.flat))
    texts = {issubclass(kind, str | bytes) for kind in types if not issubclass(kind, tuple | list)}
    return {"text" if text else "number" for text in texts}


def align(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Puts the experiment's examples into the base's order.

    Raises:
      DataError: the two hold different examples or different labels, or one of them alone has
        example ids.
    """
    if (base.example_ids is None) != (experiment.example_ids is None):
        raise DataError(
            f"{'base' if experiment.example_ids is None else 'experiment'} alone has example ids; "
            "give both sides a coordinate example_id, or none"
        )
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
            f"base and experiment have different labels for {counted(different.size, 'example')}, "
            f"first {name}: "
            f"{base.labels[column]} and {experiment.labels[column]}; use one release of the data "
            "for both"
        )
    return base, experiment


def pair(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Keeps the seeds that both arms have, and notes in `left_out` those that are lost."""
    common = sorted_seeds([seed for seed in base.seeds if seed in experiment.seeds])
    return with_common_seeds(base, common), with_common_seeds(experiment, common)


def with_common_seeds(arm: Arm, common: Sequence[Hashable]) -> Arm:
    """Keeps these seeds of an arm, and notes in `left_out` those that are lost."""
    lost = tuple(seed for seed in arm.seeds if seed not in common)
    return replace(arm.with_seeds(common), left_out=lost) if lost else arm


def clustered(
    arm: Arm, clusters: Sequence[Hashable] | NDArray, name: str, cluster_name: str = ""
) -> Arm:
    """Groups the examples of an arm into clusters, which are then drawn as a whole.

    Args:
      arm: examples in the order of `clusters`.
      clusters: the cluster of each example, any hashable [examples].
      name: name of the arm in error messages.
      cluster_name: what the clusters are called in results.

    Raises:
      DataError: the number differs, a cluster is NaN, numbers and texts are mixed, or all examples
        are in one.
    """
    names = np.asarray(clusters)
    if names.shape != (arm.num_examples,):
        raise DataError(
            f"{name}: found clusters of shape {names.shape}, expected one for each of "
            f"{arm.num_examples} examples"
        )
    _refuse_nan(f"{name} clusters", names, "give every example a cluster")
    if len(_kinds_of(names)) > 1:
        raise DataError(f"{name} clusters: found numbers and texts mixed, expected one kind")
    distinct, codes = np.unique(names, return_inverse=True)
    if len(distinct) < 2:
        raise DataError(
            f"{name}: all examples are in the cluster {distinct.tolist()[0]!r}, expected several clusters; "
            "leave clusters out or give finer ones"
        )
    return replace(arm, clusters=codes.astype(np.int64), cluster_name=cluster_name)
