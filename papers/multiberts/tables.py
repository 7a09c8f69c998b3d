"""Tables of the MultiBERTs paper (Sellam et al., ICLR 2022), from comparisons and prediction sets.

Every function returns a `report.presentation.table_writer.Table`, which writes Markdown, LaTeX and CSV.
`papers.multiberts.catalogue` names the paper's table of each comparison. The columns named `published` are
those that the paper prints; the recommended estimate, interval and p come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from multiberts.papers.multiberts.run_agreement import Agreement
from multiberts.report.prediction_sets import RunScores
from multiberts.report.presentation.formats import Cell
from multiberts.report.presentation.methods_paragraph import method_names
from multiberts.report.presentation.table_writer import DIFFERENCE, SCORE, Table
from multiberts.report.presentation.words import SOURCES
from multiberts.stats.compare.result import Comparison
from multiberts.stats.compare.tasks import TaskComparisons
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import Interval
from multiberts.stats.variance.components import VarianceComponents

Direction = Literal["greater", "less"]
_PREFIXES = {"Set": "", "Experiment": "experiment: ", "Base": "base: "}
CORRECTION_NAMES = {"bonferroni": "Bonferroni", "holm": "Holm", "bh": "BH", "by": "BY"}
COMPONENT_NAMES = {
    "seed": "pre-training seed",
    "run": "fine-tuning run",
    "example": "example",
    "residual": "seed x example",
    "run_residual": "run x example",
}


def comparison_table(
    comparisons: Sequence[Comparison], title: str = "", direction: Direction = "greater"
) -> Table:
    """Makes the columns of the paper's tables 1, 2 and 4, and the recommended ones.

    Args:
      title: a line above the table.
      direction: the side that the one-sided published p tests: `less` where the experiment is
        meant to lower the score, as in the tables of bias.
    """
    if direction not in get_args(Direction):
        raise DataError(f"found direction {direction!r}, expected greater or less")
    levels = sorted({item.confidence_level for item in comparisons})
    if len(levels) != 1:
        raise DataError(
            f"found {len(comparisons)} comparisons of confidence {levels}, expected comparisons of one level"
        )
    level = f"{levels[0]:.0%}"
    kinds = method_names([item.ci for item in comparisons])
    records: list[dict[str, Cell]] = []
    for item in comparisons:
        if item.experiment is None:
            raise DataError(
                f"{item.name or item.evaluation_set}: found a single design, expected a "
                "comparison of two arms; use report.presentation.comparison_tables"
            )
        base, experiment = (column.mean() for column in item.samples.T)
        records.append(
            {
                "Set": item.evaluation_set, "Metric": item.metric,
                "Resampled": SOURCES[item.resample], "Base": item.base.name,
                "Experiment": item.experiment.name, "Base seeds": len(item.base.seeds),
                "Experiment seeds": len(item.experiment.seeds),
                "Base score": item.base.estimate, "Experiment score": item.experiment.estimate,
                "Difference": item.estimate, f"Difference ({level} CI, {kinds})": item.ci,
                f"p ({kinds})": item.p_value,
                "p relies on normal seeds":
                    item.below_seed_floor if item.seed_floor is not None else None,
                "Base score, published": float(base),
                "Experiment score, published": float(experiment),
                "Difference, published": item.bootstrap_mean,
                f"Difference ({level} percentile, published)": item.intervals["percentile"],
                f"p ({direction}, published)":
                    getattr(item.p_values["published"], direction),
            }
        )  # fmt: skip
    formats = {name: "p" for name in records[0] if name.startswith("p (")}
    formats |= {name: SCORE for name in records[0] if " score" in name}
    formats |= {name: DIFFERENCE for name in records[0] if name.startswith("Difference")}
    return _without_repeats(Table.from_records(records, formats, title))


def _without_repeats(table: Table) -> Table:
    """Moves set, base and experiment from columns to the title if they are equal in all rows."""
    values = dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True))
    same = {name: values[name][0] for name in _PREFIXES if len(set(values[name])) == 1}
    columns = [column for column, name in enumerate(table.columns) if name not in same]
    title = [table.title, *(f"{_PREFIXES[name]}{value}" for name, value in same.items())]
    return Table(
        [table.columns[column] for column in columns],
        [[row[column] for column in columns] for row in table.rows],
        table.formats,
        ", ".join(filter(None, title)),
    )


def family_table(family: TaskComparisons) -> Table:
    """Makes a table of differences on several tasks, corrected p-values and the macro-average."""
    records: list[dict[str, Cell]] = []
    items = [*family.comparisons.items(), ("macro-average", family.macro_average)]
    level = f"{family.macro_average.confidence_level:.0%}"
    kinds = method_names([item.ci for _, item in items])
    for row, (task, item) in enumerate(items):
        if item.experiment is None:
            raise DataError("found tasks of a single design, expected comparisons of two arms")
        corrected = {
            f"p ({CORRECTION_NAMES[method]})": float(p_values[row])
            if item is not items[-1][1]
            else None
            for method, p_values in family.adjusted.items()
        }
        records.append(
            {
                "Task": task, "Metric": item.metric, item.base.name: item.base.estimate,
                item.experiment.name: item.experiment.estimate, "Difference": item.estimate,
                f"Difference ({level} CI, {kinds})": item.ci, f"p ({kinds})": item.p_value, **corrected,
            }
        )  # fmt: skip
    columns = list(records[0])
    formats = dict.fromkeys(columns[2:4], SCORE) | dict.fromkeys(columns[4:6], DIFFERENCE)
    return Table.from_records(records, formats | dict.fromkeys(columns[6:], "p"))


def agreement_table(agreements: Mapping[str, Agreement]) -> Table:
    """Makes a table of the agreement of two runs, in per cent, within and between seeds.

    Table 3 of the paper (appendix C); the intervals are ours.

    Args:
      agreements: agreement by evaluation set, see `papers.multiberts.run_agreement.agreement`.
    """
    kinds = {"classes": "equal answers", "correlation": "correlation"}
    records: list[dict[str, Cell]] = []
    levels = {part.interval.level for item in agreements.values()
              if (part := item.same_seed or item.different_seeds)}  # fmt: skip
    level = ", ".join(f"{level:.0%}" for level in sorted(levels))
    for name, item in agreements.items():
        record: dict[str, Cell] = {
            "Set": name, "Measure": kinds[item.kind], "Seeds": item.num_seeds,
            "Runs": item.num_runs,
        }  # fmt: skip
        for column, interval, estimate in (
            ("Same seed (%)", f"Same seed ({level} CI)", item.same_seed),
            ("Different seeds (%)", f"Different seeds ({level} CI)", item.different_seeds),
            ("Difference (points)", f"Difference ({level} CI)", item.difference),
        ):
            ends = estimate and [100 * end for end in estimate.interval]
            record[column] = 100 * estimate.value if estimate else None
            record[interval] = Interval(*ends) if ends else None
        records.append(record)
    columns = list(records[0])[4:] if records else []
    return Table.from_records(records, dict.fromkeys(columns, ".2f"))


def score_table(scores: Mapping[tuple[str, str], Sequence[RunScores]]) -> Table:
    """Makes a table of scores over pre-training seeds, their runs averaged.

    The numbers behind figures 1 and 2, and the spreads of appendix D.

    Args:
      scores: scored procedures by (evaluation set, measure).
    """
    records: list[dict[str, Cell]] = []
    for (name, measure), arms in scores.items():
        for arm in arms:
            of_seeds = arm.seed_scores
            spread = float(of_seeds.std(ddof=1)) if len(of_seeds) > 1 else None
            records.append(
                {
                    "Set": name, "Metric": measure, "Procedure": arm.name, "Seeds": len(of_seeds),
                    "Runs": arm.num_runs, "Mean": arm.mean, "SD over seeds": spread,
                    "Lowest seed": float(of_seeds.min()),
                    "Median seed": float(np.median(of_seeds)),
                    "Highest seed": float(of_seeds.max()),
                    "SD over runs of a seed": _deviation_of_runs(arm),
                    "SD if seeds did not matter": _deviation_without_seeds(arm),
                }
            )  # fmt: skip
    columns = list(records[0])[5:] if records else []
    return Table.from_records(records, dict.fromkeys(columns, SCORE))


def _deviation_of_runs(arm: RunScores) -> float | None:
    """Returns the deviation of runs pooled over seeds; None if no seed has two runs."""
    freedom = sum(len(scores) - 1 for scores in arm.by_seed.values())
    if not freedom:
        return None
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in arm.by_seed.values())
    return float(np.sqrt(squares / freedom))


def _deviation_without_seeds(arm: RunScores) -> float | None:
    """Returns the SD of means of random sets of runs that are as large as a seed's.

    Appendix D of the paper draws such sets with replacement; this is the limit of many draws.
    """
    if arm.num_runs == len(arm.by_seed):
        return None
    variance = np.concatenate(list(arm.by_seed.values())).var()
    return float(np.sqrt(variance * np.mean([1 / len(scores) for scores in arm.by_seed.values()])))


def component_table(components: Mapping[tuple[str, str], VarianceComponents]) -> Table:
    """Makes a table of the variances of one run's score on one example, by their source.

    Args:
      components: variance components by (evaluation set, measure).
    """
    rows: list[Sequence[Cell]] = []
    for (name, measure), parts in components.items():
        values = [getattr(parts, part) for part in COMPONENT_NAMES]
        cut = ", ".join(COMPONENT_NAMES[part] for part in parts.truncated) or "none"
        rows.append((name, measure, *values, parts.total, parts.seed_share, cut))
    names = [name.capitalize() for name in COMPONENT_NAMES.values()]
    columns = ("Set", "Metric", *names, "Total", "Share of seeds", "Estimated below 0")
    return Table(columns, rows, {"Share of seeds": ".3%"})
