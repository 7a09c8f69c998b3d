"""Tables of the MultiBERTs paper (Sellam et al., ICLR 2022), from comparisons and dumps.

Every function gives a `stats.presentation.table_writer.Table`, which writes Markdown, LaTeX and CSV.
`stats.paper.comparisons` says which of the paper's tables a comparison stands in; the columns here
hold what the paper prints (bootstrap mean of the difference, percentile interval, one-sided p)
beside the plug-in estimates and the recommended interval and p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.bootstrap.task_family import TaskComparisons
from multiberts.stats.instances.run_agreement import Agreement, Estimate
from multiberts.stats.paper.comparisons import SOURCES
from multiberts.stats.planning.components import VarianceComponents
from multiberts.stats.presentation.table_writer import Cell, Table
from multiberts.stats.report.dumps import RunScores
from multiberts.stats.report.selection import Choice

Direction = Literal["greater", "less"]
_SAID = {"Set": "", "Experiment": "experiment ", "Base": "base "}
COMPONENT_NAMES = {
    "seed": "pre-training seed",
    "run": "fine-tuning run",
    "example": "example",
    "residual": "seed x example",
    "run_residual": "run x example",
}


def comparison_table(
    comparisons: Sequence[Comparison],
    title: str = "",
    direction: Direction = "greater",
) -> Table:
    """Comparisons in the columns of the paper's tables 1, 2 and 4, and ours beside them.

    Args:
      comparisons: of one level of confidence.
      title: stands above.
      direction: the side that the one-sided published p tests: `less` where the experiment is
        meant to lower the score, as in the tables of bias.

    Raises:
      DataError: no comparisons, a single design among them, or different levels.
    """
    if direction not in get_args(Direction):
        raise DataError(f"found direction {direction!r}, expected greater or less")
    _check_comparisons(comparisons)
    level = f"{comparisons[0].confidence:.0%}"
    rows: list[Sequence[Cell]] = []
    for item in comparisons:
        assert item.experiment and item.p_t and item.p_published
        base, experiment = (column.mean() for column in item.samples.T)
        rows.append(
            (
                item.evaluation_set, item.metric, SOURCES[item.resample], item.base.name,
                item.experiment.name, len(item.base.seeds), len(item.experiment.seeds),
                item.base.estimate, item.experiment.estimate, item.estimate, item.t,
                item.p_t.two_sided, float(base), float(experiment), item.bootstrap_mean,
                item.percentile, getattr(item.p_published, direction),
                item.below_seed_floor if item.seed_floor is not None else None,
            )
        )  # fmt: skip
    columns = (
        "Set", "Metric", "Resampled", "Base", "Experiment", "Base seeds", "Experiment seeds",
        "Base score", "Experiment score", "Difference", f"Difference ({level} CI, t)", "p (t)",
        "Base mean", "Experiment mean", "Mean difference", f"Mean difference ({level} percentile)",
        f"p (published, {direction})", "p below seed floor",
    )  # fmt: skip
    formats = {columns[11]: ".2g", columns[16]: ".3f"}
    return _without_repeats(Table(columns, rows, formats, title))


def _check_comparisons(comparisons: Sequence[Comparison]) -> None:
    if not comparisons:
        raise DataError("found no comparisons to write a table of, expected one at least")
    for item in comparisons:
        if item.experiment is None:
            raise DataError(
                f"{item.name or item.evaluation_set}: found a single design, expected a "
                "comparison of two sides; use stats.presentation.tables"
            )
    levels = sorted({item.confidence for item in comparisons})
    if len(levels) > 1:
        raise DataError(f"found confidence {levels} in one table, expected one level for all")


def _without_repeats(table: Table) -> Table:
    """Leaves out set, base and experiment where all rows have the same, and says them above."""
    kept = list(range(len(table.columns)))
    same: dict[str, Cell] = {}
    for name in ("Set", "Base", "Experiment"):
        place = table.columns.index(name)
        values = {row[place] for row in table.rows}
        if len(values) == 1:
            kept.remove(place)
            same[name] = values.pop()
    parts = [table.title]
    parts += [f"{word}{same[name]}" for name, word in _SAID.items() if name in same]
    return Table(
        [table.columns[place] for place in kept],
        [[row[place] for place in kept] for row in table.rows],
        table.formats,
        ", ".join(filter(None, parts)),
    )


def family_table(family: TaskComparisons, title: str = "") -> Table:
    """Differences on several tasks with corrected two-sided p-values, and their macro-average."""
    rows: list[Sequence[Cell]] = []
    methods = list(family.adjusted)
    items = [*family.comparisons.items(), ("macro-average", family.macro_average)]
    for place, (task, item) in enumerate(items):
        if item.experiment is None or item.p_t is None:
            raise DataError("found tasks of a single design, expected comparisons of two sides")
        corrected: list[Cell] = [
            float(family.adjusted[method][place]) if place < len(family.comparisons) else None
            for method in methods
        ]
        rows.append(
            (
                task, item.metric, item.base.estimate, item.experiment.estimate, item.estimate,
                item.t, item.p_t.two_sided, *corrected,
            )
        )  # fmt: skip
    first = items[0][1]
    assert first.experiment is not None
    level = f"{first.confidence:.0%}"
    names = {"bonferroni": "Bonferroni", "holm": "Holm", "bh": "BH", "by": "BY", "max_t": "max-T"}
    columns = [
        "Task", "Metric", first.base.name, first.experiment.name, "Difference",
        f"Difference ({level} CI, t)", "p (t)", *(f"p ({names[method]})" for method in methods),
    ]  # fmt: skip
    return Table(columns, rows, dict.fromkeys(columns[6:], ".2g"), title)


def agreement_table(agreements: Mapping[str, Agreement], title: str = "") -> Table:
    """Agreement of two runs in per cent, with the same and with different pre-training seeds.

    The paper's table of instance-level agreement (appendix); the intervals are ours.

    Args:
      agreements: by evaluation set, see `stats.instances.run_agreement.agreement`.
      title: stands above.
    """
    rows: list[Sequence[Cell]] = []
    for name, item in agreements.items():
        rows.append(
            (
                name,
                {"classes": "equal answers", "correlation": "correlation"}[item.kind],
                item.num_seeds,
                item.num_runs,
                *_percent_cells(item.same_seed),
                *_percent_cells(item.different_seeds),
                *_percent_cells(item.difference),
            )
        )
    columns = (
        "Set", "Measure", "Seeds", "Runs", "Same seed (%)", "Same seed (% CI)",
        "Different seeds (%)", "Different seeds (% CI)", "Difference", "Difference (CI)",
    )  # fmt: skip
    return Table(columns, rows, dict.fromkeys(columns[4:], ".2f"), title)


def _percent_cells(estimate: Estimate | None) -> tuple[Cell, Cell]:
    if estimate is None:
        return None, None
    low, high = estimate.interval
    return 100 * estimate.value, type(estimate.interval)(100 * low, 100 * high)


def score_table(scores: Mapping[tuple[str, str], Sequence[RunScores]], title: str = "") -> Table:
    """Scores over pre-training seeds, their runs averaged.

    The numbers behind the paper's figures of GLUE and SQuAD scores.

    Args:
      scores: by (evaluation set, measure), the procedures that were scored.
      title: stands above.
    """
    rows: list[Sequence[Cell]] = []
    for (name, measure), arms in scores.items():
        for arm in arms:
            several = len(arm.seeds) > 1
            rows.append(
                (
                    name, measure, arm.name, len(arm.seeds), arm.num_runs, arm.mean,
                    float(arm.seed_scores.std(ddof=1)) if several else None,
                    float(arm.seed_scores.min()), float(np.median(arm.seed_scores)),
                    float(arm.seed_scores.max()), _deviation_of_runs(arm),
                )
            )  # fmt: skip
    columns = (
        "Set", "Metric", "Procedure", "Seeds", "Runs", "Mean", "SD over seeds", "Lowest seed",
        "Median seed", "Highest seed", "SD over runs of a seed",
    )  # fmt: skip
    return Table(columns, rows, dict.fromkeys(columns[5:], ".4f"), title)


def _deviation_of_runs(arm: RunScores) -> float | None:
    """Pooled over seeds; None where no seed has two runs."""
    freedom = sum(len(scores) - 1 for scores in arm.by_seed.values())
    if not freedom:
        return None
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in arm.by_seed.values())
    return float(np.sqrt(squares / freedom))


def component_table(
    components: Mapping[tuple[str, str], VarianceComponents], title: str = ""
) -> Table:
    """Variances of one run's score on one example, by where they come from.

    Args:
      components: by (evaluation set, measure).
      title: stands above.
    """
    rows: list[Sequence[Cell]] = []
    for (name, measure), found in components.items():
        values = [getattr(found, part) for part in COMPONENT_NAMES]
        cut = ", ".join(COMPONENT_NAMES[part] for part in found.truncated) or "none"
        rows.append((name, measure, *values, found.total, found.seed_share, cut))
    names = [name.capitalize() for name in COMPONENT_NAMES.values()]
    columns = ("Set", "Metric", *names, "Total", "Share of seeds", "Estimated below 0")
    return Table(columns, rows, {"Share of seeds": ".3%"}, title)


def learning_rate_table(choices: Sequence[Choice], title: str = "") -> Table:
    """Which learning rate was chosen for every task, procedure and step, by the mean over runs."""
    rows: list[Sequence[Cell]] = [
        (
            choice.group.task,
            choice.group.procedure,
            choice.group.step,
            choice.evaluation_set,
            choice.metric,
            f"{rate:g}",
            mean,
            rate == choice.learning_rate,
        )
        for choice in choices
        for rate, mean in choice.means.items()
    ]
    columns = (
        "Task", "Procedure", "Step", "Set", "Metric", "Learning rate", "Mean score", "Chosen",
    )  # fmt: skip
    return Table(columns, rows, {"Mean score": ".4f"}, title)
