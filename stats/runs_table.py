"""Runs with seeds on the same examples: checked, sorted and averaged level by level."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.readers.rows import ReadAs
from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.settings import Missing

Key = tuple[Hashable, ...]
LEVELS = ("pretrain_seed", "finetune_seed", "checkpoint")


@dataclass(frozen=True)
class RunsTable:
    """Runs with seeds on the same examples.

    The key of a run identifies its sources of randomness: the pre-training seed, then the levels below. Runs
    share the sources of the common first parts of their keys. Seeds may have different numbers of runs.

    Attributes:
      predictions: predictions or example scores [runs, examples], or probabilities [runs, examples,
        classes].
      keys: key of each run, outermost level first [runs].
      levels: names of the parts of a key.
      example_ids: example ids [examples], or None if the examples have positions only.
    """

    predictions: NDArray
    keys: tuple[Key, ...]
    levels: tuple[str, ...]
    example_ids: NDArray | None = None

    @property
    def num_examples(self) -> int:
        return int(self.predictions.shape[1])

    @property
    def run_seeds(self) -> tuple[Hashable, ...]:
        """Returns the pre-training seed of each run [runs]."""
        return tuple(key[0] for key in self.keys)

    @cached_property
    def seeds(self) -> tuple[Hashable, ...]:
        """Returns the distinct pre-training seeds, sorted."""
        return sorted_seeds(self.run_seeds)

    def groups(self, depth: int) -> dict[Key, list[int]]:
        """Groups the rows of runs with the same first `depth` parts of their keys, sorted by these."""
        rows: dict[Key, list[int]] = {}
        for row in sorted(range(len(self.keys)), key=lambda row: _sortable(self.keys[row][:depth])):
            rows.setdefault(self.keys[row][:depth], []).append(row)
        return rows

    def weights(self, depth: int = 1) -> NDArray[np.float64]:
        """Returns weights [runs, groups] that average the levels below the first `depth`.

        Averaging starts with the innermost level, so that all seeds have equal weights, and so have all
        fine-tuning runs of a seed, for any number of runs below. Runs with equal keys have equal weights.
        """
        weights = np.ones(len(self.keys))
        for level in range(depth, len(self.levels) + 1):
            # Number of children of each node at this level, shared by runs of one key.
            children: dict[Key, set] = {}
            for run, key in enumerate(self.keys):
                child: Hashable = key[level] if level < len(key) else run
                children.setdefault(key[:level], set()).add(child)
            weights /= [len(children[key[:level]]) for key in self.keys]
        groups = self.groups(depth)
        table = np.zeros((len(self.keys), len(groups)))
        for column, rows in enumerate(groups.values()):
            table[rows, column] = weights[rows]
        return table

    def averaged(self, depth: int = 1) -> RunsTable:
        """Averages the levels below the first `depth` (see `weights`)."""
        if len(self.levels) <= depth:
            return self
        means = np.ascontiguousarray(self.weights(depth).T) @ self.predictions
        keys, levels = tuple(self.groups(depth)), self.levels[:depth]
        return replace(self, predictions=means, keys=keys, levels=levels)

    def mean(self) -> NDArray[np.float64]:
        """Averages the scores of each example over all levels [examples]."""
        return np.asarray(self.averaged(1).predictions.mean(axis=0, dtype=np.float64))

    def _with_runs(self, rows: Sequence[int]) -> Self:
        keys = tuple(self.keys[row] for row in rows)
        return replace(self, predictions=self.predictions[rows], keys=keys)

    def with_seeds(self, seeds: Sequence[Hashable]) -> Self:
        """Returns only the runs of these pre-training seeds."""
        return self._with_runs([row for row, seed in enumerate(self.run_seeds) if seed in seeds])

    def with_examples(self, order: Sequence[int]) -> Self:
        ids = None if self.example_ids is None else self.example_ids[order]
        return replace(self, predictions=self.predictions[:, order], example_ids=ids)


@dataclass(frozen=True, kw_only=True)
class Arm(RunsTable):
    """Runs of one arm, with labels.

    Attributes:
      labels: labels [examples].
      clusters: cluster of each example, 0 to G - 1 [examples], or None if examples are drawn one by one.
      observed: whether a cell is not missing, bool [runs, examples]; None if no cell is missing.
      lineage: (kind, name) pairs of the ancestors of each run, such as ("parent", "seed_0"), or empty if
        unknown [runs]. Kinds are the user's `parent` and `procedure`, and for checkpoints the SHA-256
        (`checkpoint`), the procedure and seed of training (`training`), and (procedure, seed, step) with the
        SHA-256 (`named`).
      cluster_name: name of the clusters, or empty.
      left_out: seeds left out by pairing, because the other arm lacks them.
      of_examples: further columns [examples] by name, such as texts.
      read: record of the files and columns that were read.
    """

    labels: NDArray
    clusters: NDArray[np.int64] | None = None
    observed: NDArray[np.bool_] | None = None
    lineage: tuple[frozenset, ...] = ()
    cluster_name: str = ""
    left_out: tuple[Hashable, ...] = ()
    of_examples: Mapping[str, NDArray] = field(default_factory=dict)
    read: ReadAs = field(default_factory=ReadAs)

    @property
    def num_units(self) -> int:
        return self.num_examples if self.clusters is None else int(self.clusters.max()) + 1

    @property
    def cluster_sizes(self) -> NDArray[np.float64] | None:
        """Returns the number of examples of each cluster; None without clusters."""
        return None if self.clusters is None else np.bincount(self.clusters).astype(np.float64)

    @property
    def seed_weights(self) -> NDArray[np.float64]:
        """Returns weights [runs, seeds] that average the runs of each seed level by level."""
        return self.weights(1)

    def _with_runs(self, rows: Sequence[int]) -> Self:
        return replace(
            super()._with_runs(rows),
            observed=None if self.observed is None else self.observed[rows],
            lineage=self.lineage and tuple(self.lineage[row] for row in rows),
        )

    def with_examples(self, order: Sequence[int]) -> Self:
        clusters = self.clusters
        if clusters is not None:  # renumbered, because some clusters may be left out
            clusters = np.unique(clusters[order], return_inverse=True)[1]
        return replace(
            super().with_examples(order),
            labels=self.labels[order],
            clusters=clusters,
            observed=None if self.observed is None else self.observed[:, order],
            of_examples={name: values[order] for name, values in self.of_examples.items()},
        )

    def lineage_of(self, seed: Hashable) -> frozenset:
        """Returns all known ancestors of a seed's runs."""
        pairs = zip(self.run_seeds, self.lineage, strict=False)
        return frozenset().union(*(ancestors for run_seed, ancestors in pairs if run_seed == seed))

    def shares_parent(self, partner: Arm, seed: Hashable) -> bool:
        """Returns whether runs of a seed descend from the same checkpoint or training in both arms.

        Checkpoints with equal names (procedure, seed, step) but different weights are from different
        trainings.
        """
        first, second = self.lineage_of(seed), partner.lineage_of(seed)
        shared = {kind for kind, _ in first & second}
        named = [dict(value for kind, value in arm if kind == "named") for arm in (first, second)]
        differ = any(named[1].get(name, sha256) != sha256 for name, sha256 in named[0].items())
        return bool(shared & {"parent", "checkpoint"}) or (bool(shared) and not differ)


def sorted_seeds(seeds: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Returns the distinct seeds of any type in a reproducible order."""
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
      predictions: predictions [runs, examples], or probabilities [runs, examples, classes].
      labels: labels [examples].
      run_seeds: pre-training seed of each run [runs].
      example_ids: [examples], unique, or None.
      inner_levels: parts of each run's key below its seed, or None.
      missing: whether a NaN (or None) prediction is refused, or left out of its run's score.
    """
    check_choice("missing", missing, Missing)
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
        row, column = (int(index) for index in np.argwhere(bad)[0][:2])
        example_id = None if example_ids is None else np.asarray(example_ids).tolist()[column]
        example = f"number {column}" if example_id is None else repr(example_id)
        cure = "leave out runs that diverged and report it"
        if not bad[row].all():  # a missing row or value
            cure = "complete them, or give missing='omit' to leave them out"
        _refuse_nan(
            f"{name} predictions",
            predictions,
            cure,
            f", seed {run_seeds[row]!r}, example {example}",
        )
    for position, seed in enumerate(run_seeds):
        if seed is None or seed != seed:
            raise DataError(f"{name}: run {position} has no pre-training seed; give every run one")
    levels = inner_levels or ((),) * len(run_seeds)
    keys = tuple((seed, *level) for seed, level in zip(run_seeds, levels, strict=True))
    if {len(key) for key in keys} != {len(keys[0])}:
        raise DataError(f"{name}: found runs with different numbers of levels below the seed")
    return Arm(
        predictions,
        keys,
        _level_names(None, len(keys[0])),
        _checked_ids(name, example_ids, predictions.shape[1]),
        labels=labels,
        observed=observed,
    )


def make_runs(
    scores: ArrayLike,
    keys: Sequence[Hashable],
    levels: Sequence[str] | None = None,
    example_ids: ArrayLike | None = None,
) -> RunsTable:
    """Checks scores and keys, and sorts the runs.

    Args:
      scores: finite scores [runs, examples].
      keys: key of each run [runs]: a tuple, outermost level first, or a seed if there is one level.
      levels: names of the levels; by default the first names of `LEVELS`.
      example_ids: [examples], unique, or None.
    """
    scores = np.asarray(scores)
    if scores.ndim != 2 or not scores.size:
        raise DataError(f"found scores of shape {scores.shape}, expected [runs, examples]")
    if len(keys) != len(scores):
        raise DataError(
            f"found {len(keys)} keys for scores of shape {scores.shape}, expected one key per run; "
            "transpose the scores if the axes are swapped"
        )
    tuples = [key if isinstance(key, tuple) else (key,) for key in keys]
    depths = sorted({len(key) for key in tuples})
    if len(depths) > 1 or depths[0] == 0:
        raise DataError(f"found keys of {depths} parts, expected the same number of parts for all")
    names = _level_names(levels, depths[0])
    if len(set(tuples)) != len(tuples):
        twice = next(key for number, key in enumerate(tuples) if key in tuples[:number])
        raise DataError(
            f"two runs have the key {twice} ({', '.join(names)}); leave one out or add a level that "
            "distinguishes them"
        )
    if scores.dtype.kind not in "biuf":
        raise DataError(f"found scores of type {scores.dtype}, expected numbers")
    bad = _bad_cells(scores)
    if bad is not None and bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        cure = "leave out runs that diverged and report it"
        _refuse_nan("scores", scores, cure, f", run {tuples[row]}, example {column}")
    ids = _checked_ids("runs", example_ids, scores.shape[1])
    order = sorted(range(len(tuples)), key=lambda row: _sortable(tuples[row]))
    in_order = order == list(range(len(order)))
    return RunsTable(
        scores if in_order else scores[order], tuple(tuples[row] for row in order), names, ids
    )


def _sortable(key: Key) -> tuple:
    """Returns a sort key that puts numbers before text."""
    return tuple((isinstance(part, str), part) for part in key)


def _level_names(levels: Sequence[str] | None, depth: int) -> tuple[str, ...]:
    if levels is None:
        usual = LEVELS[:depth]
        return usual + tuple(f"level_{level + 1}" for level in range(len(usual), depth))
    if len(levels) != depth:
        raise DataError(f"found {len(levels)} names of levels {tuple(levels)} for keys of {depth}")
    return tuple(levels)


def _checked_ids(name: str, example_ids: ArrayLike | None, number: int) -> NDArray | None:
    """Checks that example ids are complete and unique; None stays None."""
    if example_ids is None:
        return None
    ids = np.asarray(example_ids)
    if len(ids) != number:
        raise DataError(f"{name}: found {len(ids)} example ids, expected one for each of {number}")
    in_order = ids.dtype.kind in "iufU" and bool((ids[1:] > ids[:-1]).all())
    if not in_order and len(set(ids.tolist())) != len(ids):
        seen: set[Any] = set()
        twice = next(i for i in ids.tolist() if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise DataError(f"{name}: example id {twice!r} appears twice; make the ids unique")
    return ids


def _observed(name: str, predictions: NDArray) -> tuple[NDArray, NDArray[np.bool_] | None]:
    """Fills missing cells; also returns whether each cell is observed.

    Missing cells get the run's first prediction, which is valid for any metric, and weight 0.
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
    """Returns whether each value is NaN, infinite or None; None for types without such values."""
    if values.dtype.kind == "O":
        flat = np.array([value is None or value != value for value in values.flat], dtype=bool)
        return flat.reshape(values.shape)
    return ~np.isfinite(values) if values.dtype.kind in "fc" else None


def _refuse_nan(label: str, values: NDArray, cure: str, called: str = "") -> None:
    bad = _bad_cells(values)
    if bad is not None and bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), values.shape))
        raise DataError(
            f"{label}: found {values[where]} at {where}{called} ({int(bad.sum())} in total), expected "
            f"finite values; {cure}"
        )


def check_kinds(name: str, arm: Arm) -> None:
    """Refuses arrays of objects with both numbers and texts, which are never equal.

    The metric checks arrays of one type.
    """
    labels, predictions = arm.labels, arm.predictions
    if "O" not in (labels.dtype.kind, predictions.dtype.kind):
        return
    kinds_of = {"labels": _kinds_of(labels), "predictions": _kinds_of(predictions)}
    for role, kinds in kinds_of.items():
        if len(kinds) > 1:
            raise DataError(f"{name} {role}: found numbers and texts mixed, expected one kind")
    if {"number", "text"} == kinds_of["labels"] | kinds_of["predictions"]:
        raise DataError(
            f"{name}: found labels that are {next(iter(kinds_of['labels']))}s and predictions that are "
            f"{next(iter(kinds_of['predictions']))}s, which are never equal; convert one of them"
        )


def _kinds_of(values: NDArray) -> set[str]:
    """Returns the kinds of values in an array, `number` or `text`; none for tuples of references."""
    if values.dtype.kind != "O":
        return {"text" if values.dtype.kind in "US" else "number"}
    types = set(map(type, values.flat))
    texts = {issubclass(kind, str | bytes) for kind in types if not issubclass(kind, tuple | list)}
    return {"text" if text else "number" for text in texts}


_Table = TypeVar("_Table", bound=RunsTable)


def in_order_of(first: RunsTable, runs: _Table, names: tuple[str, str]) -> _Table:
    """Sorts the examples of runs in the order of the first table."""
    left, right = names
    if (first.example_ids is None) != (runs.example_ids is None):
        named, unknown = (left, right) if runs.example_ids is None else (right, left)
        raise DataError(
            f"{named} has example ids and {unknown} has none; give both a coordinate example_id, or none"
        )
    lacking: list[Any] = []
    if first.example_ids is not None and runs.example_ids is not None:
        if np.array_equal(first.example_ids, runs.example_ids):
            return runs
        order, lacking = indices_of(first.example_ids.tolist(), runs.example_ids.tolist())
    if lacking or first.num_examples != runs.num_examples:
        mismatch = ", expected the same"
        if lacking:
            mismatch = f", {len(lacking)} of {left}'s are not in {right} (such as {lacking[0]!r})"
        raise DataError(
            f"{left} has {first.num_examples} examples and {right} {runs.num_examples}{mismatch}; evaluate "
            "both on the same examples"
        )
    if first.example_ids is None:
        return runs
    return runs.with_examples(order)


def indices_of(wanted: Sequence[Any], ids: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """Returns the index of each wanted id in `ids`, and the ids that are missing.

    If some are missing, integers and their texts count as the same ids.

    Examples:
      >>> indices_of(["0", "1"], [1, 0]), indices_of(["a"], ["b"])
      (([1, 0], []), ([], ['a']))
    """
    index_of = {example: index for index, example in enumerate(ids)}
    keys = wanted
    if not all(map(index_of.__contains__, wanted)):
        keys = _as_numbers(wanted)
        index_of = {example: index for index, example in enumerate(_as_numbers(ids))}
    pairs = list(zip(wanted, keys, strict=True))
    indices = [index_of[key] for _, key in pairs if key in index_of]
    return indices, [example for example, key in pairs if key not in index_of]


def _as_numbers(ids: Sequence[Any]) -> Sequence[Any]:
    """Converts texts of integers to integers, unless two ids would become equal."""
    numbers = [int(name) if isinstance(name, str) and name.isdecimal() else name for name in ids]
    return numbers if len({*numbers}) == len({*ids}) else ids


def align(base: Arm, experiment: Arm) -> tuple[Arm, Arm]:
    """Sorts the experiment's examples in the order of the base."""
    experiment = in_order_of(base, experiment, ("base", "experiment"))
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
    """Keeps the common seeds of both arms; `left_out` lists the others."""
    common = common_seeds([base, experiment])
    return with_common_seeds(base, common), with_common_seeds(experiment, common)


def common_seeds(arms: Iterable[Arm]) -> tuple[Hashable, ...]:
    """Returns the common seeds of all arms, sorted."""
    return sorted_seeds([*set.intersection(*({*arm.seeds} for arm in arms))])


def with_common_seeds(arm: Arm, common: Sequence[Hashable]) -> Arm:
    """Keeps these seeds of an arm; `left_out` lists the others."""
    lost = tuple(seed for seed in arm.seeds if seed not in common)
    return replace(arm.with_seeds(common), left_out=lost) if lost else arm


def clustered(
    arm: Arm, clusters: Sequence[Hashable] | NDArray, name: str, cluster_name: str = ""
) -> Arm:
    """Groups the examples of an arm into clusters, to be drawn as a whole.

    Args:
      arm: arm with its examples in the order of `clusters`.
      clusters: cluster of each example [examples], of any hashable type.
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
