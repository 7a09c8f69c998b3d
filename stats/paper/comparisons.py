"""The comparisons of the MultiBERTs paper, made from dumps (Sellam et al., ICLR 2022).

Numbers of tables and figures are those of the paper's published notebooks: tables 1 and 2 and
figure 3 belong to section 4 (coreference, gender bias), table 4 and figures 5 and 6 to appendix D,
the tables of 1M against 2M steps and of the original BERT to appendices E.1 and E.2.

By default the draws are those of the published library, so that the same predictions give the same
samples; the recommended interval and p stand alongside the published ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.comparison import TaskResults
from multiberts.stats.bootstrap.conclusion import Comparison, Design
from multiberts.stats.bootstrap.score_tables import Resample
from multiberts.stats.bootstrap.task_family import TaskComparisons, compare_tasks
from multiberts.stats.report.dumps import Bootstrap, Dump, compare_dumps, step_name

ACCURACY = "accuracy"
BIAS = "bias_correlation"
# What is resampled, and how tables call it.
SOURCES: dict[Resample, str] = {
    "both": "seeds and examples",
    "seeds": "seeds only",
    "examples": "examples only",
}
PAPER = Bootstrap()

DumpPairs = Sequence[tuple[Dump, Dump]]


def _compare(
    base: Dump,
    experiment: Dump,
    measure: str,
    design: Design,
    bootstrap: Bootstrap,
    resample: Resample = "both",
    names: tuple[str, str] | None = None,
) -> Comparison:
    return compare_dumps(
        base, experiment, measure, bootstrap, *(names or _names(base, experiment)),
        design=design, resample=resample, studentised=False,
    )  # fmt: skip


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
    bootstrap: Bootstrap = PAPER,
) -> list[Comparison]:
    """Compares several measures of two dumps.

    With accuracy and bias correlation on Winogender this is the paper's table 1 (incremental CDA
    against base, paired); unpaired, the first rows of its table 2 (full CDA against incremental).
    """
    return [_compare(base, experiment, name, design, bootstrap) for name in measures]


def compare_sources(
    base: Dump,
    experiment: Dump,
    measure: str = BIAS,
    design: Design = "unpaired",
    bootstrap: Bootstrap = PAPER,
) -> list[Comparison]:
    """Compares one measure with seeds and examples resampled, seeds alone, and examples alone.

    With the bias correlation of full against incremental CDA this is the rest of the paper's
    table 2.
    """
    return [_compare(base, experiment, measure, design, bootstrap, source) for source in SOURCES]


def compare_checkpoints(
    dump: Dump,
    base_seed: Hashable,
    experiment_seed: Hashable,
    measure: str = BIAS,
    bootstrap: Bootstrap = PAPER,
) -> Comparison:
    """Compares two pre-training seeds of one procedure, with only examples resampled.

    The paper's table 4: such a comparison is about these two checkpoints, not about a procedure.

    Raises:
      DataError: the dump lacks a seed.
    """
    seeds = dump.data["pretrain_seed"].to_numpy().tolist()
    sides = []
    for seed in (base_seed, experiment_seed):
        rows = [row for row, own in enumerate(seeds) if own == seed]
        if not rows:
            raise DataError(
                f"{dump.set_name} of {dump.name} has no pre-training seed {seed!r}, only "
                f"{sorted(set(seeds), key=str)}; choose two of these"
            )
        sides.append(replace(dump, data=dump.data.isel(run=rows)))
    names = (f"seed {base_seed}", f"seed {experiment_seed}")
    return _compare(sides[0], sides[1], measure, "unpaired", bootstrap, "examples", names)


def compare_steps(pairs: DumpPairs, bootstrap: Bootstrap = PAPER) -> list[Comparison]:
    """Compares early with late checkpoints of the same seeds, by each set's first measure.

    The paper's table of 1M against 2M steps on MNLI, RTE and MRPC (appendix E.1).

    Args:
      pairs: (early, late) dumps, one pair per evaluation set.
      bootstrap: how.
    """
    return [_compare(early, late, early.measures[0], "paired", bootstrap) for early, late in pairs]


def compare_with_checkpoint(pairs: DumpPairs, bootstrap: Bootstrap = PAPER) -> list[Comparison]:
    """Compares a procedure with one published checkpoint, taken as it is, by every measure.

    The paper's table of SQuAD 2.0 against the original BERT (appendix E.2). There the one seed of
    the base was drawn with replacement, which leaves it as it is: a fixed baseline.

    Args:
      pairs: (checkpoint, procedure) dumps, one pair per evaluation set.
      bootstrap: how.
    """
    return [
        _compare(base, experiment, measure, "fixed_baseline", bootstrap)
        for base, experiment in pairs
        for measure in experiment.measures
        if measure in base.measures
    ]


def compare_family(
    pairs: DumpPairs, design: Design = "paired", bootstrap: Bootstrap = PAPER
) -> TaskComparisons:
    """Compares two procedures on several evaluation sets with shared draws of seeds.

    Uses each set's first measure. The result has the macro-average, and p-values corrected for the
    number of sets.

    Args:
      pairs: (base, experiment) dumps, one pair per evaluation set.
      design: of all.
      bootstrap: how.

    Raises:
      DataError: there are no pairs, or the dumps do not fit together.
    """
    tasks = {}
    for base, experiment in pairs:
        data, metric = base.measured(base.measures[0])
        tasks[base.set_name] = TaskResults(data, experiment.measured(base.measures[0])[0], metric)
    names = _names(*pairs[0]) if pairs else ("base", "experiment")
    return compare_tasks(
        tasks, design, **asdict(bootstrap), base_name=names[0], experiment_name=names[1]
    )
