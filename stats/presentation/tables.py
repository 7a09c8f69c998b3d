"""Tables of comparisons: Markdown, CSV and LaTeX from the same rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.bootstrap.intervals import Interval, PValues
from multiberts.stats.presentation.table_writer import Table

# Columns of the CSV file, one row a comparison; all numbers in full.
CSV_COLUMNS = (
    "name",
    "evaluation_set",
    "metric",
    "design",
    "resample",
    "base_name",
    "experiment_name",
    "base_estimate",
    "experiment_estimate",
    "estimate",
    "standard_error",
    "degrees_of_freedom",
    "confidence",
    "t_low",
    "t_high",
    "percentile_low",
    "percentile_high",
    "basic_low",
    "basic_high",
    "bca_low",
    "bca_high",
    "studentised_low",
    "studentised_high",
    "bootstrap_mean",
    "base_bootstrap_mean",
    "experiment_bootstrap_mean",
    "bias",
    "bootstrap_standard_error",
    *(
        f"p_{test}_{side}"
        for test in ("t", "percentile", "published", "sign_flip", "permutation")
        for side in ("greater", "less", "two_sided")
    ),
    "relative_difference",
    "cohens_d",
    "hedges_g",
    "probability_of_superiority",
    "cliffs_delta",
    "seed_floor",
    "below_seed_floor",
    "base_seeds",
    "experiment_seeds",
    "base_runs",
    "experiment_runs",
    "num_examples",
    "num_bootstrap",
    "bootstrap_seed",
    "degenerate_replicates",
)

_HEADER = (
    "Compared",
    "Set",
    "Metric",
    "Base",
    "Experiment",
    "Difference",
    "p (t)",
    "p (sign flip)",
)


def format_number(value: float) -> str:
    """Three decimals; four below 0.1, fewer where numbers are large."""
    size = abs(value)
    if 0 < size < 5e-5:
        return f"{value:.1e}"
    decimals = 4 if size < 0.1 else 3 if size < 10 else 2 if size < 100 else 1
    return f"{value:.{decimals}f}" if value else "0"


def format_interval(interval: Interval) -> str:
    """`low to high`: a dash between negative numbers misleads."""
    return f"{format_number(interval.low)} to {format_number(interval.high)}"


def format_p(p_values: PValues | None) -> str:
    """The two-sided p, or a dash where there is no such test."""
    if p_values is None:
        return "-"
    return "< 0.0001" if p_values.two_sided < 1e-4 else f"{p_values.two_sided:.2g}"


def rows(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """One dict a comparison, with the keys of `CSV_COLUMNS`; None where something does not
    apply."""
    return [_row(comparison) for comparison in comparisons]


def _row(item: Comparison) -> dict[str, object]:
    experiment = item.experiment
    values: dict[str, object] = dict.fromkeys(CSV_COLUMNS)
    values |= {column: getattr(item, column) for column in CSV_COLUMNS if hasattr(item, column)}
    values |= {
        column: getattr(item.effect, column)
        for column in CSV_COLUMNS
        if hasattr(item.effect, column)
    }
    for kind in ("t", "percentile", "basic", "bca", "studentised"):
        interval: Interval | None = getattr(item, kind)
        if interval is not None:
            values |= {f"{kind}_{end}": getattr(interval, end) for end in interval._fields}
    for test in ("t", "percentile", "published", "sign_flip", "permutation"):
        p_values: PValues | None = getattr(item, f"p_{test}")
        if p_values is not None:
            values |= {f"p_{test}_{side}": getattr(p_values, side) for side in p_values._fields}
    values |= {
        "base_name": item.base.name,
        "base_estimate": item.base.estimate,
        "base_seeds": len(item.base.seeds),
        "base_runs": item.base.num_runs,
        "base_bootstrap_mean": float(item.samples[:, 0].mean()),
    }
    if experiment is not None:
        values |= {
            "experiment_name": experiment.name,
            "experiment_estimate": experiment.estimate,
            "experiment_seeds": len(experiment.seeds),
            "experiment_runs": experiment.num_runs,
            "experiment_bootstrap_mean": float(item.samples[:, 1].mean()),
        }
    return values


def csv_table(comparisons: Sequence[Comparison]) -> str:
    """Every number in full, one row a comparison, with a header."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(comparisons))
    return stream.getvalue()


def display_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """The cells that readers see, under `display_header`."""
    cells: list[tuple[str, ...]] = []
    for item in comparisons:
        single = item.experiment is None
        estimate = f"{format_number(item.estimate)} ({format_interval(item.t)})"
        cells.append(
            (
                item.name,
                item.evaluation_set,
                item.metric,
                estimate if single else format_number(item.base.estimate),
                "-" if item.experiment is None else format_number(item.experiment.estimate),
                "-" if single else estimate,
                format_p(item.p_t),
                format_p(item.p_sign_flip),
            )
        )
    return cells


def display_header(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Names of the columns of `display_rows`."""
    levels = sorted({item.confidence for item in comparisons})
    level = f" ({levels[0]:.0%} CI)" if len(levels) == 1 else " (CI)"
    return tuple(f"{name}{level}" if name == "Difference" else name for name in _HEADER)


def table(comparisons: Sequence[Comparison], title: str = "") -> Table:
    """What readers see, as a `Table`."""
    return Table(display_header(comparisons), display_rows(comparisons), title=title)


def markdown_table(comparisons: Sequence[Comparison]) -> str:
    """A Markdown table."""
    return table(comparisons).markdown()


def latex_table(comparisons: Sequence[Comparison]) -> str:
    """A LaTeX tabular with rules of the booktabs package."""
    return table(comparisons).latex()
