"""Tables of comparisons: what readers see, and every number in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from multiberts.runs.errors import counted
from multiberts.stats.formats import NONE, format_cell
from multiberts.stats.intervals import PValues
from multiberts.stats.presentation.metric_names import metric_label, score_format
from multiberts.stats.presentation.reported import ReportedComparison
from multiberts.stats.presentation.table_writer import Table

if TYPE_CHECKING:
    from multiberts.stats.results.comparison import ComparisonResult

INTERVALS = ("t", "percentile", "basic", "bca", "studentised")
TESTS = ("t", "percentile", "published", "sign_flip", "permutation")
# Columns of the table in full, one row per comparison.
FULL_COLUMNS = (
    "name", "evaluation_set", "metric", "design", "resample", "base_name", "experiment_name",
    "base_estimate", "experiment_estimate", "estimate", "standard_error", "degrees_of_freedom",
    "confidence_level",
    *(f"{kind}_{end}" for kind in INTERVALS for end in ("low", "high")),
    "bootstrap_mean", "base_bootstrap_mean", "experiment_bootstrap_mean", "bias",
    "bootstrap_standard_error",
    *(f"p_{test}_{side}" for test in TESTS for side in PValues._fields),
    "relative_difference", "cohens_d", "hedges_g", "probability_of_superiority", "cliffs_delta",
    "seed_floor", "below_seed_floor", "base_seeds", "experiment_seeds", "base_runs",
    "experiment_runs", "base_constant_seeds", "experiment_constant_seeds", "num_examples", "n_resamples",
    "rng", "degenerate_replicates",
)  # fmt: skip


def full_table(comparisons: Sequence[ComparisonResult]) -> Table:
    """Makes the table of `FULL_COLUMNS`; None where something does not apply."""
    rows = [_full_row(comparison) for comparison in comparisons]
    return Table(FULL_COLUMNS, [[row.get(name) for name in FULL_COLUMNS] for row in rows])


def _full_row(item: ComparisonResult) -> dict:
    values = {
        name: getattr(source, name)
        for source in (item, item.effect)
        for name in FULL_COLUMNS
        if hasattr(source, name)
    }
    for prefix, names in (("", INTERVALS), ("p_", TESTS)):
        for name in names:
            found = getattr(item, prefix + name)  # an Interval or PValues
            if found is not None:
                values |= {f"{prefix}{name}_{part}": x for part, x in found._asdict().items()}
    for place, (side, arm) in enumerate((("base", item.base), ("experiment", item.experiment))):
        if arm is not None:
            values |= {
                f"{side}_name": arm.name,
                f"{side}_estimate": arm.estimate,
                f"{side}_seeds": len(arm.seeds),
                f"{side}_runs": arm.num_runs,
                f"{side}_constant_seeds": len(arm.constant_seeds),
                f"{side}_bootstrap_mean": float(item.samples[:, place].mean()),
            }
    return values


def summary_table(items: Sequence[ReportedComparison]) -> Table:
    """Makes the table that readers see, with estimates and intervals in one cell.

    Rows of shares are in per cent, their differences in points; the name of the metric says so.

    Args:
      items: one per row.
    """
    rows = []
    for one in items:
        item = one.comparison
        shown = score_format(item.metric)
        estimate = f"{format_cell(item.estimate, shown)} ({format_cell(item.t, shown)})"
        sides = [format_cell(item.base.estimate, shown), NONE, NONE]
        if item.experiment is None:
            sides[0] = estimate
        else:
            sides[1:] = [format_cell(item.experiment.estimate, shown), estimate]
        p_values = [format_p(item.p_t), format_p(item.p_sign_flip), format_cell(one.adjusted, "p")]
        metric = metric_label(item.metric)
        rows.append([item.name, item.evaluation_set, metric, *sides, *p_values, one.result])
    levels = sorted({one.comparison.confidence_level for one in items})
    level = f"{levels[0]:.0%} CI" if len(levels) == 1 else "CI"
    columns = (
        "Compared", "Set", "Metric", "Base", "Experiment", f"Difference ({level})", "p (t)",
        "p (sign flip)", "p (Holm)", "Result",
    )  # fmt: skip
    return Table(columns, rows, note=unclear_beyond_zero(items))


def unclear_beyond_zero(items: Sequence[ReportedComparison]) -> str:
    """Explains intervals that exclude 0 beside the result "not clear"; nothing where there are none."""
    beyond = [
        one
        for one in items
        if one.result == "not clear" and not one.comparison.t.low <= 0 <= one.comparison.t.high
    ]
    if not beyond:
        return ""
    return (
        f"{counted(len(beyond), 'interval')} {'excludes' if len(beyond) == 1 else 'exclude'} 0 beside the "
        'result "not clear": intervals are of one comparison each, and results are judged by the p-value '
        "corrected for the number of comparisons (Holm), or for planned seeds that are missing."
    )


def format_p(p_values: PValues | None) -> str:
    """Formats the two-sided p, or a dash where there is no such test."""
    return format_cell(p_values.two_sided if p_values else None, "p")
