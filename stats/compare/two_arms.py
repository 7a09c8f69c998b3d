"""Compares two arms over seeds and examples; the result contains the estimate, intervals and tests."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from multiberts.stats.bootstrap.replicates import Replicates
from multiberts.stats.compare.comparison_spec import ComparisonSpec, Draws, family_draws
from multiberts.stats.compare.prepared_arms import TaskData, prepare_arms
from multiberts.stats.compare.result import Comparison, Names, Origin
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.errors import DataError
from multiberts.stats.metrics import MetricLike, ScoreFunction
from multiberts.stats.reading import arms_in, arms_of_arrays, named_arms
from multiberts.stats.settings import ComparisonSettings, Design, Missing, Resample, whole_number


def compare(
    base: Any,
    experiment: Any = None,
    metric: str | MetricLike | ScoreFunction | None = None,
    *,
    design: Design | None = None,
    labels: Any = None,
    clusters: Any = None,
    missing: Missing = "refuse",
    resample: Resample | None = None,
    less_is_better: bool | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    rng: int | np.random.Generator = 42,
) -> Comparison:
    """Compares two arms, or describes one.

    Further functions take the result: `same` (equality within a margin), `slices`, `one_seed` (with a
    borrowed spread of seeds), `reproduce`. `Comparison.named` names the arms.

    Args:
      base: predictions or scores in one of these forms: an array, tensor or nested list [seeds, examples] or
        [seeds, runs, examples]; in one dimension [examples] of one seed, if they are 0 and 1 or have labels,
        else scores of runs, with `resample="seeds"`; a dict of arrays [examples] by seed; a table of any
        library (pandas, polars, Dask, Arrow, `datasets`, structured arrays) with columns of usual names, one
        row per prediction or one column per run; a Series with seeds and ids in its index; beside an
        experiment a list of tables, one per seed; a frame with seeds as rows and examples as columns; the
        path of any file or folder that `multiberts compare` reads; an xarray Dataset (from
        `evaluate.prediction_files.predictions.read_predictions`) or DataArray with dims run or pretrain_seed,
        and example. Runs of one pre-training seed are averaged level by level; their number may differ.
      experiment: data of the other arm, aligned by example id. None if `base` contains both arms, the base
        first: a table, file or dict ({"RoBERTa": ..., "Ours": ...}), or a list or tuple of two arrays or
        frames. With one arm, such as a nested list, the design is `single`.
      metric: a key of `evaluate.metrics.register.METRICS`, a metric, or a function of (labels
        [examples], predictions [examples]), which is slow: it is called for every run of every replicate,
        and once with each example left out. By default the metric of the task or log, else `accuracy` for
        predictions with labels and `mean` for scores.
      design: `paired` uses the seeds that both arms have (repeated evaluations, known as logs in order of
        time, are unpaired); `unpaired` draws the seeds of each arm separately; `fixed_baseline` holds the
        base's runs fixed; `single` has no experiment. By default `paired`, but it must be given if pairing
        would leave out more seeds than it keeps; with seeds held fixed, unlike seeds are `unpaired`.
      labels: labels of the examples, which replace the arms' labels: a DataArray with example ids, a Series
        with an index, a mapping, a data frame of ids and labels or its path; all are sorted into the order of
        the predictions. Other values are matched by position and refused if the examples have ids.
      clusters: groups of examples that are drawn together, such as sentences of one template: the name of a
        coordinate or variable along `example`, or one value per example of the base, in the forms of
        `labels`. A table's column `cluster` or `template` is used by default.
      missing: `omit` leaves a NaN prediction out of its run's score, as if missing at random.
      resample: units that the result generalises to: new seeds and new examples (`both`), or `seeds` or
        `examples` with the other held fixed. By default `both`; `examples` for one run of each arm, and
        `seeds` for one score per run.
      less_is_better: True if lower scores are better, False if higher are. By default the name of their
        column decides (`test_loss`, `latency_ms`, `accuracy`); for other names nothing is called better.
      confidence_level: level of the intervals, in (0, 1).
      n_resamples: bootstrap replicates, 39 or more for intervals at 95 %.
      rng: whole number that identifies the bootstrap draws: equal numbers give equal results. A NumPy
        Generator supplies one number. None is not allowed, because results must be repeatable.

    Raises:
      DataError: incompatible arrays, or an arm with too few seeds to estimate their variance.

    Examples:
      >>> from multiberts import stats
      >>> base = [[1, 1, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0]]  # seeds x examples
      >>> experiment = [[1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]]
      >>> result = stats.compare(base, experiment, "accuracy", labels=[1, 0, 1, 0])
      >>> result.estimate, result.p_values["sign flip"].greater
      (0.25, 0.125)

    See also: `compare_tasks`, `compare_arms`, `read`, `Comparison`, `same`, `slices`, `one_seed`.

    Reference: Sellam et al. (2022), The MultiBERTs: BERT Reproductions for Robustness Analysis, section
    3.2; Satterthwaite (1946), An Approximate Distribution of Estimates of Variance Components.
    """
    settings = ComparisonSettings(
        design, resample, n_resamples, whole_number(rng), confidence_level
    )
    data, names = base, Names()
    arms: dict[str, Any] = {}
    if experiment is not None:
        arms = named_arms({"base": base, "experiment": experiment})
    elif design != "single":
        arms = arms_in(base, "base") or arms_of_arrays(base)
        if len(arms) > 2:
            raise DataError(
                f"found {len(arms)} arms ({', '.join([*arms][:9])}), expected two; give them to "
                "stats.compare_arms, or one as base and one as experiment"
            )
    if len(arms) == 2:
        (first, base), (second, experiment) = arms.items()
        names = Names(base=first, experiment=second)
    elif design in (None, "paired"):
        settings = replace(settings, design="single")
    task = TaskData(
        base, experiment, metric, labels, clusters, missing, less_is_better=less_is_better
    )
    return compare_task(task, settings, names, SharedArms(copies=True), data)


def compare_task(
    task: TaskData,
    settings: ComparisonSettings,
    names: Names,
    shared: SharedArms | None = None,
    data: Any = None,
) -> Comparison:
    """Compares the two arms of one task; see `compare`.

    Args:
      data: data of the base, with the columns for slices.
    """
    shared = shared or SharedArms()
    spec = ComparisonSpec.of(prepare_arms(task, settings, shared), settings, shared=shared)
    [result] = compare_specs([spec], settings, [names], data)
    return result


def compare_specs(
    specs: Sequence[ComparisonSpec],
    settings: ComparisonSettings,
    names: Sequence[Names],
    data: Any = None,
) -> list[Comparison]:
    """Compares the arms of each spec, with shared bootstrap draws."""
    family = family_draws([job for spec in specs for job in spec.jobs], settings)
    comparisons, num_arms = [], len(specs[0].jobs)
    for number, (spec, called) in enumerate(zip(specs, names, strict=True)):
        columns = slice(num_arms * number, num_arms * (number + 1))
        draws = functools.partial(_columns_of, family, columns)
        arms = spec.summaries(called.arms, draws)
        origin = Origin(
            arms, spec.settings, spec.score, spec.crossing, draws, spec.pairs, spec.unpaired,
            spec.without(arms), spec.pairing, is_defined=spec.is_defined, spec=spec, data=data,
        )  # fmt: skip
        comparisons.append(Comparison(called.name, called.evaluation_set, origin))
    return comparisons


def _columns_of(draws: Draws, columns: slice) -> Replicates:
    drawn = draws()
    return Replicates(drawn.scores[:, columns], drawn.undefined[:, columns])
