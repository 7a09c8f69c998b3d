"""The comparisons of the MultiBERTs paper, made from dumps (Sellam et al., ICLR 2022).

Which number a table or figure has in the paper is said where its published notebooks say it:
tables 1 and 2 and figure 3 are of section 4 (coreference, gender bias), table 4 and figures 5 and 6
of appendix D, the tables of 1M against 2M steps and of the original BERT of appendices E.1 and E.2.

By default the draws are the published library's, so that from the same predictions come the same
samples; the recommended interval and p stand beside the published ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.comparison import TaskResults, compare
from multiberts.stats.bootstrap.conclusion import Comparison, Design, DrawOrder
from multiberts.stats.bootstrap.score_tables import Resample
from multiberts.stats.bootstrap.task_family import TaskComparisons, compare_tasks
from multiberts.stats.report.dumps import Dump, step_name

if TYPE_CHECKING:
    import xarray

ACCURACY = "accuracy"
BIAS = "bias_correlation"
# What is resampled, and how tables call it.
SOURCES: dict[Resample, str] = {
    "both": "seeds and examples",
    "seeds": "seeds only",
    "examples": "examples only",
}


@dataclass(frozen=True)
class Bootstrap:
    """How comparisons are made; the defaults are the paper's.

    Attributes:
      num_bootstrap, bootstrap_seed, confidence, draws: see `stats.compare`.
    """

    num_bootstrap: int = 1000
    bootstrap_seed: int = 42
    confidence: float = 0.95
    draws: DrawOrder = "published"


def compare_dumps(
    base: Dump,
    experiment: Dump,
    measure: str,
    design: Design,
    bootstrap: Bootstrap,
    resample: Resample = "both",
) -> Comparison:
    """`stats.compare` of two dumps under a measure, with names from the dumps.

    Raises:
      DataError: the dumps do not fit together.
    """
    names = _names(base, experiment)
    base_data, metric = base.measured(measure)
    return _compare(
        (base_data, experiment.measured(measure)[0]),
        metric,
        design,
        resample,
        bootstrap,
        base.set_name,
        names,
    )


def _compare(
    sides: tuple[xarray.Dataset, xarray.Dataset],
    metric: Metric | RankMetric,
    design: Design,
    resample: Resample,
    bootstrap: Bootstrap,
    set_name: str,
    names: tuple[str, str],
) -> Comparison:
    try:
        return compare(
            *sides,
            metric,
            design,
            resample=resample,
            num_bootstrap=bootstrap.num_bootstrap,
            bootstrap_seed=bootstrap.bootstrap_seed,
            confidence=bootstrap.confidence,
            draws=bootstrap.draws,
            studentised=False,
            name=f"{names[1]} against {names[0]}",
            evaluation_set=set_name,
            base_name=names[0],
            experiment_name=names[1],
        )
    except ValueError as error:
        raise DataError(
            f"{names[1]} against {names[0]} on {set_name}, {metric.name}: {error}"
        ) from error


def _names(base: Dump, experiment: Dump) -> tuple[str, str]:
    if base.procedure != experiment.procedure:
        return base.procedure, experiment.procedure
    if base.step == experiment.step or base.step is None or experiment.step is None:
        return f"{base.name} (base)", f"{experiment.name} (experiment)"
    return step_name(base.step), step_name(experiment.step)


def compare_measures(
    base: Dump,
    experiment: Dump,
    measures: Sequence[str] = (ACCURACY, BIAS),
    design: Design = "paired",
    bootstrap: Bootstrap | None = None,
) -> list[Comparison]:
    """Several measures of two dumps.

    With accuracy and bias correlation on Winogender this is the paper's table 1 (incremental CDA
    against base, paired); unpaired, the first rows of its table 2 (full CDA against incremental).
    """
    bootstrap = bootstrap or Bootstrap()
    return [compare_dumps(base, experiment, name, design, bootstrap) for name in measures]


def compare_sources(
    base: Dump,
    experiment: Dump,
    measure: str = BIAS,
    design: Design = "unpaired",
    bootstrap: Bootstrap | None = None,
) -> list[Comparison]:
    """One measure with seeds and examples resampled, seeds alone, and examples alone.

    With the bias correlation of full against incremental CDA this is the rest of the paper's
    table 2.
    """
    bootstrap = bootstrap or Bootstrap()
    return [
        compare_dumps(base, experiment, measure, design, bootstrap, source) for source in SOURCES
    ]


def compare_checkpoints(
    dump: Dump,
    base_seed: Hashable,
    experiment_seed: Hashable,
    measure: str = BIAS,
    bootstrap: Bootstrap | None = None,
) -> Comparison:
    """Two pre-training seeds of one procedure, examples alone resampled.

    The paper's table 4: such a comparison speaks about these two checkpoints and about no
    procedure.

    Raises:
      DataError: the dump lacks a seed.
    """
    data, metric = dump.measured(measure)
    seeds = data["pretrain_seed"].to_numpy().tolist()
    sides = []
    for seed in (base_seed, experiment_seed):
        rows = [row for row, own in enumerate(seeds) if own == seed]
        if not rows:
            raise DataError(
                f"{dump.set_name} of {dump.name} has no pre-training seed {seed!r}, only "
                f"{sorted(set(seeds), key=str)}; choose two of these"
            )
        sides.append(data.isel(run=rows))
    return _compare(
        (sides[0], sides[1]),
        metric,
        "unpaired",
        "examples",
        bootstrap or Bootstrap(),
        dump.set_name,
        (f"seed {base_seed}", f"seed {experiment_seed}"),
    )


def compare_steps(
    pairs: Sequence[tuple[Dump, Dump]], bootstrap: Bootstrap | None = None
) -> list[Comparison]:
    """Early against late checkpoints of the same seeds, by each set's first measure.

    The paper's table of 1M against 2M steps on MNLI, RTE and MRPC (appendix E.1).

    Args:
      pairs: (early, late) dumps of an evaluation set each.
      bootstrap: how.
    """
    bootstrap = bootstrap or Bootstrap()
    return [
        compare_dumps(early, late, early.measures[0], "paired", bootstrap) for early, late in pairs
    ]


def compare_with_checkpoint(
    pairs: Sequence[tuple[Dump, Dump]], bootstrap: Bootstrap | None = None
) -> list[Comparison]:
    """A procedure against one published checkpoint that is taken as it is, by every measure.

    The paper's table of SQuAD 2.0 against the original BERT (appendix E.2). There the one seed of
    the base was drawn with replacement, which leaves it as it is: a fixed baseline.

    Args:
      pairs: (checkpoint, procedure) dumps of an evaluation set each.
      bootstrap: how.
    """
    bootstrap = bootstrap or Bootstrap()
    return [
        compare_dumps(base, experiment, measure, "fixed_baseline", bootstrap)
        for base, experiment in pairs
        for measure in experiment.measures
        if measure in base.measures
    ]


def compare_family(
    pairs: Sequence[tuple[Dump, Dump]],
    design: Design = "paired",
    bootstrap: Bootstrap | None = None,
) -> TaskComparisons:
    """Two procedures on several evaluation sets with shared draws of seeds, by each set's first
    measure: the macro-average and p-values corrected for the number of sets.

    Args:
      pairs: (base, experiment) dumps of an evaluation set each.
      design: of all.
      bootstrap: how.

    Raises:
      DataError: no pairs, or the dumps do not fit together.
    """
    bootstrap = bootstrap or Bootstrap()
    tasks: Mapping[str, TaskResults] = {
        base.set_name: TaskResults(
            base.measured(base.measures[0])[0],
            experiment.measured(base.measures[0])[0],
            base.measured(base.measures[0])[1],
        )
        for base, experiment in pairs
    }
    names = _names(*pairs[0]) if pairs else ("base", "experiment")
    return compare_tasks(
        tasks,
        design,
        num_bootstrap=bootstrap.num_bootstrap,
        bootstrap_seed=bootstrap.bootstrap_seed,
        confidence=bootstrap.confidence,
        draws=bootstrap.draws,
        base_name=names[0],
        experiment_name=names[1],
    )
