"""Nested runs: pre-training seeds, their fine-tuning runs, and the checkpoints of these.

A run is identified by a key such as (pretrain_seed, finetune_seed, checkpoint), outermost first. Two
runs whose keys begin with the same parts share that randomness. The numbers of runs below a seed may
differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import sorted_seeds

if TYPE_CHECKING:
    import xarray

Key = tuple[Hashable, ...]
LEVELS = ("pretrain_seed", "finetune_seed", "checkpoint")


@dataclass(frozen=True)
class NestedRuns:
    """The scores of runs that form a tree.

    Attributes:
      scores: [runs, examples], such as 1 where the run is right.
      keys: [runs], one tuple per run, outermost level first; sorted.
      levels: the names of the levels.
      example_ids: [examples], or None where examples are known by position alone.
    """

    scores: NDArray
    keys: tuple[Key, ...]
    levels: tuple[str, ...]
    example_ids: NDArray | None = None

    @property
    def num_examples(self) -> int:
        """Returns the number of examples."""
        return int(self.scores.shape[1])

    @property
    def seeds(self) -> tuple[Hashable, ...]:
        """Returns the distinct values of the outermost level, sorted."""
        return sorted_seeds([key[0] for key in self.keys])

    def groups(self, depth: int) -> dict[Key, list[int]]:
        """Groups the rows of runs that share the first `depth` parts of their keys."""
        found: dict[Key, list[int]] = {}
        for row, key in enumerate(self.keys):
            found.setdefault(key[:depth], []).append(row)
        return found

    def averaged(self, depth: int = 1) -> NestedRuns:
        """Averages the levels below the first `depth`, innermost first.

        So every seed has the same weight, and every fine-tuning run within a seed, however many
        runs there are below it.
        """
        runs = self
        while len(runs.levels) > depth:
            inner = len(runs.levels) - 1
            groups = runs.groups(inner)
            weights = np.zeros((len(groups), len(runs.keys)))
            for row, members in enumerate(groups.values()):
                weights[row, members] = 1 / len(members)
            runs = replace(
                runs, scores=weights @ runs.scores, keys=tuple(groups), levels=runs.levels[:inner]
            )
        return runs

    def mean(self) -> NDArray[np.float64]:
        """Averages every example over all levels [examples]."""
        return np.asarray(self.averaged(1).scores.mean(axis=0, dtype=np.float64))

    def with_seeds(self, seeds: Sequence[Hashable]) -> NestedRuns:
        """Returns the runs of these outermost seeds only."""
        kept = [row for row, key in enumerate(self.keys) if key[0] in seeds]
        return replace(self, scores=self.scores[kept], keys=tuple(self.keys[row] for row in kept))


Runs: TypeAlias = "NestedRuns | ArrayLike"


def make_nested_runs(
    scores: ArrayLike,
    keys: Sequence[Hashable],
    levels: Sequence[str] | None = None,
    example_ids: ArrayLike | None = None,
) -> NestedRuns:
    """Checks scores and keys, and sorts the runs.

    Args:
      scores: finite numbers [runs, examples].
      keys: [runs], a tuple per run, outermost level first, or a seed where there is one level.
      levels: names of the levels; by default those of `LEVELS`, as many as a key has parts.
      example_ids: [examples], unique, or None.

    Raises:
      DataError: a shape is wrong, keys differ in length or repeat, a score is not finite.
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
        twice = next(key for place, key in enumerate(tuples) if key in tuples[:place])
        raise DataError(
            f"two runs have the key {twice} ({', '.join(names)}); leave one out or add a level that "
            "distinguishes them"
        )
    if scores.dtype.kind not in "biuf":
        raise DataError(f"found scores of type {scores.dtype}, expected numbers")
    if scores.dtype.kind == "f" and not np.isfinite(scores).all():
        row, column = np.argwhere(~np.isfinite(scores))[0].tolist()
        raise DataError(
            f"found {scores[row, column]} in run {tuples[row]}, example {column}; expected finite "
            "scores; leave out runs that diverged and report it"
        )
    ids = None if example_ids is None else np.asarray(example_ids)
    if ids is not None and (len(ids) != scores.shape[1] or len(set(ids.tolist())) != len(ids)):
        raise DataError(
            f"found {len(ids)} example ids, {len(set(ids.tolist()))} of them different, for "
            f"{scores.shape[1]} examples; give every example a unique id"
        )
    order = sorted(range(len(tuples)), key=lambda row: _sortable(tuples[row]))
    in_order = order == list(range(len(order)))
    return NestedRuns(
        scores if in_order else scores[order], tuple(tuples[row] for row in order), names, ids
    )


def _sortable(key: Key) -> tuple:
    """Returns a sort key: numbers before text, the same order in every process."""
    return tuple((isinstance(part, str), part) for part in key)


def _level_names(levels: Sequence[str] | None, depth: int) -> tuple[str, ...]:
    if levels is None:
        known = LEVELS[:depth]
        return known + tuple(f"level_{place + 1}" for place in range(len(known), depth))
    if len(levels) != depth:
        raise DataError(f"found {len(levels)} names of levels {tuple(levels)} for keys of {depth}")
    return tuple(levels)


def nested_runs_from_array(
    scores: ArrayLike, levels: Sequence[str] | None = None, example_ids: ArrayLike | None = None
) -> NestedRuns:
    """Builds runs from an array with one axis per level.

    Args:
      scores: [pretrain_seeds, examples], [pretrain_seeds, finetune_seeds, examples] or with
        further levels before the examples. A cell that is NaN on every example is a missing run.
      levels: names of all axes but the last.
      example_ids: [examples] or None.
    """
    scores = np.asarray(scores)
    if scores.ndim < 2 or not scores.size:
        raise DataError(
            f"found scores of shape {scores.shape}, expected [pretrain_seeds, ..., examples]"
        )
    keys: list[Key] = list(np.ndindex(scores.shape[:-1]))
    table = scores.reshape(-1, scores.shape[-1])
    if table.dtype.kind == "f":
        made = ~np.isnan(table).all(axis=1)
        table, keys = table[made], [key for key, kept in zip(keys, made, strict=True) if kept]
    return make_nested_runs(table, keys, levels, example_ids)


def nested_runs_from_dataset(
    data: xarray.Dataset,
    variable: str = "correct",
    levels: Sequence[str] = ("pretrain_seed", "finetune_seed"),
) -> NestedRuns:
    """Builds runs from the labelled arrays of `evaluate.dumps.predictions.read_predictions`.

    Args:
      data: dims (run, example); variables `prediction` and `label`; coordinates named in `levels`
        along run, `example_id` along example.
      variable: `correct`, 1 where the prediction is the label, or a variable of the Dataset with
        dims (run, example), such as `prediction`.
      levels: coordinates that form a run's key, outermost first.

    Raises:
      DataError: a variable, dim or coordinate is missing.
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
    return make_nested_runs(values, keys, levels, ids)


def as_nested_runs(runs: Runs) -> NestedRuns:
    """Converts an array [pretrain_seeds, ..., examples] to runs; returns runs unchanged."""
    return runs if isinstance(runs, NestedRuns) else nested_runs_from_array(runs)


def aligned(*sizes: Runs) -> list[NestedRuns]:
    """Sorts the examples of all into the order of the first.

    Raises:
      DataError: they hold different examples, or only some of them have example ids.
    """
    first, *others = (as_nested_runs(runs) for runs in sizes)
    without = [place for place, runs in enumerate((first, *others)) if runs.example_ids is None]
    # Positions say nothing about runs that are known by id: their order may be another one.
    if 0 < len(without) <= len(others):
        raise DataError(
            f"found no example ids in set {without[0] + 1} of {len(others) + 1} sets of runs, where others "
            "have them; give every set a coordinate example_id, or none"
        )
    return [first, *(_in_order_of(first, runs) for runs in others)]


def _in_order_of(first: NestedRuns, runs: NestedRuns) -> NestedRuns:
    if first.num_examples != runs.num_examples:
        raise DataError(
            f"found {first.num_examples} and {runs.num_examples} examples, expected the same; "
            "evaluate all on the same examples"
        )
    if first.example_ids is None or runs.example_ids is None:
        return runs
    place = {example: column for column, example in enumerate(runs.example_ids.tolist())}
    wanted = first.example_ids.tolist()
    missing = [example for example in wanted if example not in place]
    if missing:
        raise DataError(
            f"{len(missing)} examples, such as {missing[0]!r}, are in one set of runs only; "
            "evaluate all on the same examples"
        )
    order = [place[example] for example in wanted]
    return replace(
        runs, scores=runs.scores[:, order], example_ids=cast(NDArray, runs.example_ids)[order]
    )
