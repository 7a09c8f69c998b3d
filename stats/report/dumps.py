"""Dumps of predictions, one for every task, evaluation set, procedure and step, and their scores.

Tables and figures start from these: from finished runs on disk (`dumps_of_runs`) or from labelled
arrays at hand (`dumps_of_datasets`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import (
    OCCUPATION_MEASURES,
    occupation_metric,
    occupation_scores,
)
from multiberts.stats.bootstrap.arm_scores import arm_table
from multiberts.stats.bootstrap.arms import Arm, DataError, align, arm_from_arrays, pair
from multiberts.stats.bootstrap.resampling import seed_scores
from multiberts.stats.planning.components import (
    VarianceComponents,
    nested_variance_components,
    variance_components,
)
from multiberts.stats.report.selection import (
    Choice,
    Group,
    PredictionReader,
    Run,
    choose_learning_rate,
    make_groups,
)

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class RunScores:
    """The score of every run of one dump.

    Attributes:
      name: how figures call the runs.
      seeds: the distinct pre-training seeds, sorted.
      by_seed: by seed, the scores of its runs [runs of the seed].
      seed_scores: the score of each seed, its runs averaged [seeds], in the order of `seeds`.
    """

    name: str
    seeds: tuple[Hashable, ...]
    by_seed: Mapping[Hashable, NDArray[np.float64]]
    seed_scores: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(self.seed_scores.mean())

    @property
    def num_runs(self) -> int:
        return sum(len(scores) for scores in self.by_seed.values())


@dataclass(frozen=True)
class Dump:
    """Predictions of one procedure at one step of pre-training on one evaluation set.

    Attributes:
      task, evaluation_set, procedure: what the runs are and were given.
      step: of pre-training, or None where it is not known.
      measures: names of the metrics, the task's own first.
      data: as `evaluate.dumps.predictions.read_predictions` gives it.
    """

    task: str
    evaluation_set: str
    procedure: str
    step: int | None
    measures: tuple[str, ...]
    data: xarray.Dataset

    @property
    def set_name(self) -> str:
        """How tables call the evaluation set."""
        from multiberts.stats.report.analysis import set_name

        return set_name(self.task, self.evaluation_set)

    @property
    def name(self) -> str:
        return self.procedure if self.step is None else f"{self.procedure}, {step_name(self.step)}"

    def measured(self, measure: str) -> tuple[xarray.Dataset, Metric | RankMetric]:
        """Predictions as a measure needs them, and its metric.

        Raises:
          DataError: there is no such measure.
          UserError: the dump lacks what an occupation measure needs.
        """
        if measure in OCCUPATION_MEASURES:
            return occupation_scores(self.data, measure), occupation_metric(measure)
        if measure not in METRICS:
            raise DataError(
                f"{self.set_name}: found measure {measure!r}, expected one of "
                f"{', '.join(sorted([*METRICS, *OCCUPATION_MEASURES]))}"
            )
        return self.data, METRICS[measure]

    def run_scores(self, measure: str, name: str = "") -> RunScores:
        """Scores of all runs under a measure, each on all examples.

        Args:
          measure: a key of `METRICS` or `OCCUPATION_MEASURES`.
          name: how figures call the runs; the dump's own name unless given.
        """
        arm, metric = self._arm(measure)
        apart = _runs_as_seeds(arm)
        scores = seed_scores(apart, metric)
        members: dict[Hashable, list[int]] = {seed: [] for seed in arm.seeds}
        for row, seed in enumerate(arm.run_seeds):
            members[seed].append(row)
        return RunScores(
            name or self.name,
            arm.seeds,
            {seed: scores[rows] for seed, rows in members.items()},
            scores @ arm.seed_weights,
        )

    def components(self, measure: str) -> VarianceComponents:
        """Variance components of one run's score on one example.

        With fine-tuning runs apart where some seed has several. Of a metric that is no mean they
        are those of its pseudo-values (see `stats.bootstrap.arm_scores`).

        Raises:
          DataError: fewer than two seeds or examples.
        """
        arm, metric = self._arm(measure)
        table = np.concatenate(list(arm_table(_runs_as_seeds(arm), metric).blocks()), axis=1)
        rows = {
            seed: table[[row for row, own in enumerate(arm.run_seeds) if own == seed]]
            for seed in arm.seeds
        }
        if max(map(len, rows.values())) > 1:
            return nested_variance_components(rows)
        return variance_components(table)

    def split(self, by: str, names: Mapping[Hashable, str] | None = None) -> dict[str, Dump]:
        """The dump cut by a coordinate of its examples (or `label`), such as the parts of HANS.

        Args:
          by: `label`, or the name of a coordinate along `example`.
          names: by value of it, how figures call the part.

        Raises:
          DataError: there is no such coordinate.
        """
        found = self.data.variables
        if by not in found or found[by].dims != ("example",):
            raise DataError(
                f"{self.set_name}: found no coordinate {by!r} of examples to split by, only "
                + ", ".join(str(name) for name, item in found.items() if item.dims == ("example",))
            )
        values = self.data[by].to_numpy()
        parts = {}
        for value in np.unique(values).tolist():
            name = (names or {}).get(value, f"{by} {value:g}" if by == "label" else str(value))
            rows = np.flatnonzero(values == value)
            parts[name] = replace(
                self,
                evaluation_set=f"{self.evaluation_set}, {name}",
                data=self.data.isel(example=rows),
            )
        return parts

    def difference_components(self, experiment: Dump, measure: str) -> VarianceComponents:
        """Components of the difference experiment - this dump, for planning paired comparisons.

        Of the seeds that both have, the runs of each averaged.

        Raises:
          DataError: the dumps do not fit together, or have fewer than two seeds in common.
        """
        own, metric = self._arm(measure)
        other, _ = experiment._arm(measure)
        sides = pair(*align(own, other))
        if len(sides[0].seeds) < 2:
            raise DataError(
                f"{self.set_name}: {self.name} and {experiment.name} have "
                f"{len(sides[0].seeds)} seeds in common, expected two at least"
            )
        tables = [np.concatenate(list(arm_table(side, metric).blocks()), axis=1) for side in sides]
        return variance_components(tables[1] - tables[0])

    def _arm(self, measure: str) -> tuple[Arm, Metric | RankMetric]:
        """The runs, checked to suit the measure."""
        data, metric = self.measured(measure)
        name = f"{self.set_name}, {self.name}"
        arm = arm_from_arrays(name, data, metric=metric)
        try:
            metric.bind(arm.labels, arm.predictions)
        except ValueError as error:
            raise DataError(f"{name}: {error}") from error
        return arm, metric


def step_name(step: int) -> str:
    """`2M steps`, `50k steps`, `600 steps`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if step and step % size == 0:
            return f"{step // size}{letter} steps"
    return f"{step} steps"


def _runs_as_seeds(arm: Arm) -> Arm:
    """The arm with every run by itself."""
    places = tuple(range(len(arm.run_seeds)))
    return replace(arm, run_seeds=places, seeds=places, inner_levels=None)


def dumps_of_runs(runs: Sequence[Run]) -> tuple[list[Dump], list[Choice]]:
    """Reads finished runs, with one learning rate chosen a task, procedure and step.

    Args:
      runs: as `Run(*found) for found in evaluate.dumps.run_file.find_runs(folder)`.

    Returns:
      A dump for every evaluation set of every group, and how learning rates were chosen.

    Raises:
      UserError: a file is damaged, runs do not belong together, or a run has no seed.
    """
    from multiberts.evaluate.dumps.predictions import read_predictions

    reader = PredictionReader(read_predictions)
    dumps, choices = [], []
    for group in make_groups(runs):
        kept, choice = choose_learning_rate(group, reader)
        choices += [choice] if choice is not None else []
        dumps += [_dump_of_group(kept, name, reader) for name in kept.evaluation_sets()]
    return dumps, choices


def _dump_of_group(group: Group, evaluation_set: str, reader: PredictionReader) -> Dump:
    return Dump(
        group.task,
        evaluation_set,
        group.procedure,
        group.step,
        tuple(group.evaluation_sets()[evaluation_set]),
        reader(group, evaluation_set),
    )


def dumps_of_datasets(datasets: Iterable[xarray.Dataset]) -> list[Dump]:
    """Cuts labelled arrays into dumps of one procedure and step each.

    Args:
      datasets: as `evaluate.dumps.predictions.read_predictions` gives them: dims (run, example),
        coordinates procedure, step and pretrain_seed along run, attributes task,
        evaluation_set and metrics. A step of -1 is not known.

    Raises:
      DataError: an attribute or coordinate is missing, runs of one procedure and step have
        several learning rates, or two datasets hold the same.
    """
    found: dict[tuple, Dump] = {}
    for number, data in enumerate(datasets, start=1):
        for dump in _dumps_of_dataset(number, data):
            key = (dump.task, dump.evaluation_set, dump.procedure, dump.step)
            if key in found:
                raise DataError(
                    f"dataset {number}: {dump.set_name} of {dump.name} was in an earlier dataset; "
                    "give all runs of a procedure and step in one"
                )
            found[key] = dump
    return list(found.values())


def _dumps_of_dataset(number: int, data: xarray.Dataset) -> list[Dump]:
    missing = [name for name in ("task", "evaluation_set", "metrics") if name not in data.attrs]
    missing += [name for name in ("procedure", "step", "pretrain_seed") if name not in data.coords]
    if missing or not len(data.attrs["metrics"]):
        raise DataError(
            f"dataset {number} lacks {', '.join(missing) or 'metrics'}; expected a dataset as "
            "multiberts.evaluate.dumps.predictions.read_predictions gives it"
        )
    kinds = list(
        zip(map(str, data["procedure"].to_numpy()), data["step"].to_numpy().tolist(), strict=True)
    )
    dumps = []
    for kind in dict.fromkeys(kinds):
        rows = [row for row, own in enumerate(kinds) if own == kind]
        part = data.isel(run=rows)
        dump = Dump(
            str(data.attrs["task"]),
            str(data.attrs["evaluation_set"]),
            kind[0],
            None if kind[1] in (-1, "") else int(kind[1]),
            tuple(data.attrs["metrics"]),
            part,
        )
        if "learning_rate" in part.coords:
            rates = sorted(set(part["learning_rate"].to_numpy().tolist()))
            if len(rates) > 1:
                raise DataError(
                    f"dataset {number}: {dump.set_name} of {dump.name} has learning rates {rates}, "
                    "expected one; choose it and give its runs alone"
                )
        dumps.append(dump)
    return dumps
