"""Tables of comparisons and rankings: a readable summary, and a table of all unrounded numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high
from typing import Any

from multiberts.report.presentation.answer import FurtherAnswer
from multiberts.report.presentation.formats import (
    NONE,
    Cell,
    format_cell,
    interval_decimals,
    metric_label,
    score_format,
    with_decimals,
)
from multiberts.report.presentation.ranking_words import rank_text
from multiberts.report.presentation.reported import ReportedComparison
from multiberts.report.presentation.table_writer import Table
from multiberts.runs.errors import counted
from multiberts.stats.compare.ranking import ArmComparisons
from multiberts.stats.compare.result import Comparison
from multiberts.stats.intervals import PValues
from multiberts.stats.results import flat_values
from multiberts.stats.score import metric_name

TESTS = ("t", "percentile", "published", "sign_flip", "permutation")
# Columns of the full table (one row per comparison): joined keys of `to_dict`, and a few counts.
FULL_COLUMNS = (
    "name", "evaluation_set", "metric", "design", "resample", "base_name", "experiment_name",
    "base_estimate", "experiment_estimate", "estimate", "ci_low", "ci_high", "ci_level", "ci_method",
    "p_value", "statistic", "df", "standard_error",
    "intervals_percentile_low", "intervals_percentile_high",
    "bootstrap_mean", "base_bootstrap_mean", "experiment_bootstrap_mean", "bias",
    "bootstrap_standard_error",
    *(f"p_values_{test}_{alternative}" for test in TESTS for alternative in PValues._fields),
    "hedges_g", "seed_floor", "below_seed_floor",
    "base_num_seeds", "experiment_num_seeds", "base_num_runs", "experiment_num_runs",
    "base_num_constant_seeds", "experiment_num_constant_seeds", "num_examples", "n_resamples", "rng",
    "degenerate_replicates",
)  # fmt: skip


def full_table(
    comparisons: Sequence[Comparison],
    answers: Sequence[Sequence[FurtherAnswer]] = (),
    rankings: Sequence[ArmComparisons] = (),
) -> Table:
    """Makes the table of `FULL_COLUMNS` and the answers' columns; inapplicable cells are None.

    Args:
      answers: answers to further questions about each comparison.
      rankings: rankings without a base, whose differences follow.
    """
    rows = [_full_row(comparison) for comparison in comparisons]
    further = [
        {name: value for answer in of_row for name, value in answer.columns().items()}
        for of_row in answers or [()] * len(rows)
    ]
    every = [row | extra for row, extra in zip(rows, further, strict=True)]
    every += [flat_values(record) for result in rankings for record in difference_records(result)]
    columns = [*FULL_COLUMNS, *dict.fromkeys(name for extra in further for name in extra)]
    if rankings:
        columns += ["p_bonferroni", "p_holm"]
    return Table(columns, [[row.get(name) for name in columns] for row in every])


def difference_records(result: ArmComparisons) -> list[dict[str, Any]]:
    """Returns the differences of a ranking with the keys of `Comparison.to_dict`; none with a base.

    Intervals hold for all pairs together; `p_value` is of one pair, the others are corrected.
    """
    about = {"evaluation_set": result.name, "metric": result.metric, "design": result.design}
    return [
        {
            "name": f"{item.experiment} against {item.base}", **about, "resample": result.resample,
            "base": {"name": item.base}, "experiment": {"name": item.experiment},
            "estimate": item.estimate,
            "ci": {**item.ci._asdict(), "level": item.ci.level, "method": item.ci.method},
            "p_value": item.p_values["uncorrected"], "df": item.df,
            "standard_error": item.standard_error, "p_bonferroni": item.p_value,
            "p_holm": item.p_values["holm"],
        }
        for item in (result.differences if result.against is None else ())
    ]  # fmt: skip


def _full_row(item: Comparison) -> dict:
    values = flat_values(item.to_dict())
    for index, (role, arm) in enumerate((("base", item.base), ("experiment", item.experiment))):
        if arm is not None:
            values |= {
                f"{role}_num_seeds": len(arm.seeds),
                f"{role}_num_constant_seeds": len(arm.constant_seeds),
                f"{role}_bootstrap_mean": float(item.samples[:, index].mean()),
            }
    return values


def metric_decimals(items: Sequence[Comparison]) -> dict[str, int | None]:
    """Returns the number of decimals of each metric in a table; None: chosen per number."""
    digits: dict[str, list[int]] = {}
    for item in items:
        number = interval_decimals(item.ci, item.metric)
        digits.setdefault(item.metric, []).extend([] if number is None else [number])
    return {metric: median_high(numbers) if numbers else None for metric, numbers in digits.items()}


def summary_table(items: Sequence[ReportedComparison]) -> Table:
    """Makes the summary table, with an estimate and its interval in one cell.

    Shares are in per cent and their differences in points, as stated with the metric's name.

    Args:
      items: comparisons, one per row.
    """
    rows = []
    decimals = metric_decimals([row.comparison for row in items])
    for row in items:
        item = row.comparison
        shown = with_decimals(score_format(item.metric), decimals[item.metric])
        estimate = f"{format_cell(item.estimate, shown)} ({format_cell(item.ci, shown)})"
        scores = [format_cell(item.base.estimate, shown), NONE]
        if item.experiment is None:
            scores, estimate = [estimate, NONE], NONE
        else:
            scores[1] = format_cell(item.experiment.estimate, shown)
        p = format_cell(row.adjusted, "p")
        metric = metric_label(item.metric)
        rows.append([item.name, item.evaluation_set, metric, estimate, p, row.result, *scores])
    levels = sorted({row.comparison.confidence_level for row in items})
    level = f"{levels[0]:.0%} CI" if len(levels) == 1 else "CI"
    columns = (
        "Compared", "Set", "Metric", f"Difference ({level})", p_heading(items), "Result", "Base",
        "Experiment",
    )  # fmt: skip
    return Table(
        columns, rows, note=" ".join(filter(None, [unclear_beyond_zero(items), _of_means(items)]))
    )


def p_heading(items: Sequence[ReportedComparison]) -> str:
    """Returns the heading of the p that decides; that of a single comparison needs no correction."""
    return "p (Holm)" if sum(row.adjusted is not None for row in items) > 1 else "p"


def _of_means(items: Sequence[ReportedComparison]) -> str:
    if not any(reported.comparison.tasks and reported.adjusted is not None for reported in items):
        return ""
    return "A mean over tasks is a question of its own: its p is not corrected for the number of tasks."


def unclear_beyond_zero(items: Sequence[ReportedComparison]) -> str:
    """Explains intervals that exclude 0 although the result is "not clear"; empty if there are none."""
    beyond = [
        reported
        for reported in items
        if reported.result == "not clear"
        and not reported.comparison.ci.low <= 0 <= reported.comparison.ci.high
    ]
    if not beyond:
        return ""
    return (
        f"{counted(len(beyond), 'interval')} {'excludes' if len(beyond) == 1 else 'exclude'} 0 beside the "
        'result "not clear": intervals are of one comparison each, and results are judged by the p-value '
        "corrected for the number of comparisons (Holm)."
    )


def scores_by_task(comparisons: Sequence[Comparison], ranking: ArmComparisons) -> Table:
    """Returns the score of each arm, best first, on each task and metric, and their mean."""
    columns: dict[str, str] = {}
    scores: dict[str, dict[str, Cell]] = {arm.name: {} for arm in ranking.arms}
    metrics = {item.metric for item in comparisons if not item.tasks}
    for item in comparisons:
        named = f", {metric_name(item.metric)}" if len(metrics) > 1 and not item.tasks else ""
        columns[item.evaluation_set + named] = score_format(item.metric)
        scores.setdefault(item.base.name, {})[item.evaluation_set + named] = item.base.estimate
    records: list[dict[str, Cell]] = [
        {"arm": name, **{column: cells.get(column) for column in columns}}
        for name, cells in scores.items()
    ]
    return Table.from_records(
        records, {name: with_decimals(unit, 1) if unit else "" for name, unit in columns.items()}
    )


def arms_table(result: ArmComparisons) -> Table:
    """Makes the table of the arms, starting with the best."""
    level, metric = f"{result.confidence_level:.0%}", metric_name(result.metric)
    records: list[dict[str, Cell]] = [
        {
            "rank": arm.rank,
            "arm": arm.name,
            metric: arm.estimate,
            f"{level} CI": arm.ci,
            f"{level} ranks": rank_text(arm),
            **({"group": "".join(arm.groups)} if arm.groups else {}),
            "seeds": len(arm.seeds),
        }
        for arm in result.arms
    ]
    shown = with_decimals(
        score_format(result.metric), interval_decimals(result.arms[0].ci, result.metric)
    )
    return Table.from_records(records, dict.fromkeys((metric, f"{level} CI"), shown))


def differences_table(result: ArmComparisons) -> Table:
    level = f"simultaneous {result.confidence_level:.0%} CI"
    records = [
        {
            "arm": item.experiment,
            "against": item.base,
            "difference": item.estimate,
            level: item.ci,
            "p": item.p_values["uncorrected"],
            "p (Bonferroni)": item.p_value,
            "p (Holm)": item.p_values["holm"],
            "result": "clear" if item.clear else "not clear",
        }
        for item in result.differences
    ]
    shown = with_decimals(
        score_format(result.metric, True), interval_decimals(result.arms[0].ci, result.metric)
    )
    formats = dict.fromkeys(("difference", level), shown)
    return Table.from_records(
        records, formats | dict.fromkeys(("p", "p (Bonferroni)", "p (Holm)"), "p")
    )
