"""Prediction sets: predictions of one task, evaluation set, procedure and step, and their scores.

They are the input of tables and figures; `report.selection.prediction_sets_of_runs` reads them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import (
    METRICS,
    counted_metrics,
    metric_input,
    metric_variables,
)
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES, occupation_scores
from multiberts.report.presentation.figures import Curve, OccupationScores
from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.pseudo_values import arm_table
from multiberts.stats.compare.prepared_arms import TaskData
from multiberts.stats.compare.result import Comparison, Names
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.compare.two_arms import compare_task
from multiberts.stats.errors import DataError, as_data_errors
from multiberts.stats.intervals import Interval
from multiberts.stats.reading import table_of
from multiberts.stats.runs_table import Arm, align, pair, sorted_seeds
from multiberts.stats.score import Score, may_be_averaged
from multiberts.stats.settings import ComparisonSettings, Missing
from multiberts.stats.variance.components import (
    VarianceComponents,
    nested_variance_components,
    variance_components,
)

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class RunScores:
    """The score of every run of one prediction set.

    Attributes:
      by_seed: scores of the runs by pre-training seed [runs of the seed], sorted by seed.
    """

    name: str
    by_seed: Mapping[Hashable, NDArray[np.float64]]

    @property
    def seeds(self) -> tuple[Hashable, ...]:
        """Returns the distinct pre-training seeds, sorted."""
        return tuple(self.by_seed)

    @property
    def seed_scores(self) -> NDArray[np.float64]:
        """Returns the mean score of each seed's runs [seeds], in the order of `seeds`."""
        return np.array([scores.mean() for scores in self.by_seed.values()])

    @property
    def mean(self) -> float:
        return float(self.seed_scores.mean())

    @property
    def num_runs(self) -> int:
        return sum(len(scores) for scores in self.by_seed.values())


@dataclass(frozen=True)
class PredictionSet:
    """Predictions of one procedure at one step of pre-training on one evaluation set.

    Attributes:
      step: pre-training step, or None if unknown.
      measures: names of the metrics, the task's main metric first.
      data: predictions from `evaluate.prediction_files.predictions.read_predictions`; for files of other
        programs, a table with predictions or scores only.
      missing: as in `stats.compare`.
      clusters: name of the coordinate with the clusters of examples, or None.
    """

    task: str
    evaluation_set: str
    procedure: str
    step: int | None
    measures: tuple[str, ...]
    data: xarray.Dataset
    missing: Missing = "refuse"
    clusters: str | None = None

    @property
    def set_name(self) -> str:
        """Returns the evaluation set's name for tables, with the task unless the name contains it."""
        task, name = self.task.lower(), self.evaluation_set.lower()
        if name.startswith(task) or task.endswith(name):
            return self.evaluation_set
        return f"{self.task}/{self.evaluation_set}"

    @property
    def steps_in_all(self) -> int | None:
        """Returns the total pre-training steps, including those of the initial checkpoint."""
        if self.step is None or "lineage" not in self.data.coords:
            return self.step
        before = {
            sum(step or 0 for _, _, step, _ in lineage[1:])
            for lineage in self.data["lineage"].to_numpy().tolist()
        }
        return self.step + (before.pop() if len(before) == 1 else 0)

    @property
    def seeds(self) -> list[Hashable]:
        """Returns the distinct pre-training seeds in order."""
        return table_of(self.name, self.data).seeds

    @property
    def name(self) -> str:
        return self.procedure if self.step is None else f"{self.procedure}, {step_name(self.step)}"

    def counts(self, measure: str) -> bool:
        """Returns whether a mean over tasks includes a metric: a main metric on the development set."""
        name = self.evaluation_set.lower()
        return (
            (name.startswith(("dev", "valid")) or name == self.task.lower())
            and measure in counted_metrics(self.task, self.measures)
            and may_be_averaged(measure)
        )

    def measured(self, measure: str) -> tuple[xarray.Dataset, Metric | RankMetric]:
        if measure in OCCUPATION_MEASURES:
            return occupation_scores(self.data, measure), OCCUPATION_MEASURES[measure].metric
        if measure not in METRICS:
            raise DataError(
                f"{self.set_name}: found metric {measure!r}, expected one of "
                f"{', '.join(sorted([*METRICS, *OCCUPATION_MEASURES]))}; correct the metrics in "
                "run.json"
            )
        return self.data, METRICS[measure]

    def scores_of_runs(self, measure: str) -> NDArray[np.float64]:
        """Returns the score of each run on all examples [runs]."""
        data, metric = self.measured(measure)
        with as_data_errors(f"{self.set_name}, {self.name}"):
            label, prediction = metric_variables(metric, data)
            inputs = metric_input(metric, data[prediction], data.get("scores"))
            return metric.score(data[label].to_numpy(), inputs)

    def run_scores(self, measure: str, name: str = "") -> RunScores:
        """Scores all runs by a measure, sorted by pre-training seed.

        Args:
          measure: a key of `METRICS` or `OCCUPATION_MEASURES`.
          name: name of the runs in figures; by default the prediction set's name.
        """
        scores = self.scores_of_runs(measure)
        seeds = self.data["pretrain_seed"].to_numpy().tolist()
        return RunScores(name or self.name, _by_seed(scores, seeds))

    def occupation_scores(
        self,
        measure: str,
        name: str,
        seeds: Sequence | None = None,
        truth: float | None = None,
        interval: Interval | None = None,
    ) -> OccupationScores:
        """Averages a measure of occupations over the runs of each seed.

        Args:
          measure: a key of `OCCUPATION_MEASURES`.
          seeds: pre-training seeds to show; by default all.
          truth: true slope, if known.
        """
        data, _ = self.measured(measure)
        means = data["prediction"].groupby("pretrain_seed").mean()
        if seeds is not None:
            means = means.sel(pretrain_seed=list(seeds))
        values = means.transpose("pretrain_seed", "example").to_numpy()
        return OccupationScores(name, data["label"].to_numpy(), values, truth, interval)

    def components(self, measure: str) -> VarianceComponents:
        """Estimates variance components of one run's score on one example.

        Fine-tuning runs are a separate component if a seed has several. For other metrics than means, the
        components are those of pseudo-values (see `stats.bootstrap.pseudo_values`).
        """
        arm, metric = self.arm(measure)
        keys = tuple((row,) for row in range(len(arm.keys)))  # treats each run as a seed
        runs = replace(arm, keys=keys, levels=arm.levels[:1])
        table = np.concatenate(list(arm_table(runs, metric).blocks()), axis=1)
        rows = _by_seed(table, arm.run_seeds)
        if max(map(len, rows.values())) > 1:
            return nested_variance_components(rows)
        return variance_components(table)

    def split(
        self, by: str, names: Mapping[Hashable, str] | None = None
    ) -> dict[str, PredictionSet]:
        """Splits the prediction set by a coordinate of its examples (or `label`), such as the parts of HANS.

        Args:
          by: `label`, or the name of a coordinate along `example`.
          names: name of each part in figures, by value.
        """
        variables = self.data.variables
        if by not in variables or variables[by].dims != ("example",):
            raise DataError(
                f"{self.set_name}: found no coordinate {by!r} of examples to split by, only "
                + ", ".join(
                    str(name) for name, item in variables.items() if item.dims == ("example",)
                )
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

    def difference_components(self, experiment: PredictionSet, measure: str) -> VarianceComponents:
        """Estimates components of the difference experiment - this set, to plan paired comparisons.

        Uses the common seeds; the runs of each seed are averaged.

        Args:
          measure: a key of `METRICS` or `OCCUPATION_MEASURES`.
        """
        base, metric = self.arm(measure)
        compared, _ = experiment.arm(measure)
        arms = pair(*align(base, compared))
        if len(arms[0].seeds) < 2:
            raise DataError(
                f"{self.set_name}: {self.name} and {experiment.name} have "
                f"{counted(len(arms[0].seeds), 'seed')} in common, expected at least two"
            )
        tables = [np.concatenate(list(arm_table(arm, metric).blocks()), axis=1) for arm in arms]
        return variance_components(tables[1] - tables[0])

    def arm(
        self, measure: str, shared: SharedArms | None = None
    ) -> tuple[Arm, Metric | RankMetric]:
        """Returns the runs, checked for the measure, and the metric."""
        data, metric = self.measured(measure)
        name = f"{self.set_name}, {self.name}"
        arm = (shared or SharedArms()).read(name, data, metric, self.missing)
        with as_data_errors(name):
            metric.bind(arm.labels, arm.predictions)
        return arm, metric


def _by_seed(values: NDArray, seeds: Sequence[Hashable]) -> dict[Hashable, NDArray]:
    """Groups values [runs, ...] by seed, sorted; `seeds` holds the seed of each run."""
    return {
        seed: values[[row for row, run_seed in enumerate(seeds) if run_seed == seed]]
        for seed in sorted_seeds(seeds)
    }


def step_name(step: int) -> str:
    """Formats a step as `2M steps`, `50k steps` or `600 steps`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if step and step % size == 0:
            return f"{step // size}{letter} steps"
    return counted(step, "step")


def compare_prediction_sets(
    base: PredictionSet,
    experiment: PredictionSet | None,
    measure: str,
    settings: ComparisonSettings,
    names: tuple[str, str] = ("base", "experiment"),
    name: str | None = None,
    shared: SharedArms | None = None,
) -> Comparison:
    """Compares two prediction sets by a measure (see `stats.compare`).

    Args:
      experiment: prediction set of the experiment; None in a single design.
      measure: a key of `METRICS` or `OCCUPATION_MEASURES`.
      names: names of the two arms in tables.
      name: name of the comparison; by default "<experiment> against <base>".
    """
    name = f"{names[1]} against {names[0]}" if name is None else name
    task = task_of(base, experiment, measure=measure)
    with as_data_errors(f"{name} on {base.set_name}, {measure}"):
        return compare_task(task, settings, Names(name, base.set_name, *names), shared)


def task_of(
    base: PredictionSet, experiment: PredictionSet | None = None, *, measure: str
) -> TaskData:
    """Returns the arms of a comparison by a measure."""
    data, metric = base.measured(measure)
    experiment_data = None if experiment is None else experiment.measured(measure)[0]
    clusters = base.clusters or (experiment.clusters if experiment else None)
    return TaskData(data, experiment_data, metric, clusters=clusters, missing=base.missing)


def curve_of_prediction_sets(
    prediction_sets: Sequence[PredictionSet], measure: str, all_steps: bool = True
) -> Curve:
    """Scores one procedure at its steps, for `report.presentation.figures.training_figure`.

    Args:
      prediction_sets: prediction sets of one procedure and evaluation set, each with a step.
      all_steps: whether to leave out seeds that lack a step, because otherwise the mean also changes with the
        set of seeds; if False, missing scores are NaN.
    """
    procedures = sorted({predictions.procedure for predictions in prediction_sets})
    if len(procedures) != 1 or any(predictions.step is None for predictions in prediction_sets):
        raise DataError(
            f"found prediction files of {', '.join(procedures) or 'no procedure'} at steps "
            f"{[predictions.step for predictions in prediction_sets]}, expected one procedure at known steps"
        )
    ordered = sorted(prediction_sets, key=lambda predictions: predictions.step or 0)
    run_scores = [predictions.run_scores(measure) for predictions in ordered]
    tables = [dict(zip(scores.seeds, scores.seed_scores, strict=True)) for scores in run_scores]
    seeds = sorted_seeds([seed for table in tables for seed in table])
    if all_steps:
        seeds = tuple(seed for seed in seeds if all(seed in table for table in tables))
    if not seeds:
        raise DataError(
            f"{ordered[0].set_name}: no seed of {procedures[0]} has every step of "
            f"{[predictions.step for predictions in ordered]}; leave steps out or add runs"
        )
    scores_of_seeds = {
        seed: np.array([table.get(seed, np.nan) for table in tables]) for seed in seeds
    }
    steps = np.array([predictions.steps_in_all for predictions in ordered])
    ends = Score.of(ordered[0].measured(measure)[1]).ends
    return Curve(procedures[0], steps, scores_of_seeds, ends)
