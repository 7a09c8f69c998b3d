"""Tables of comparisons: Markdown, CSV and LaTeX from the same rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from stats.comparison import Comparison
from stats.intervals import Interval, PValues

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
    "bootstrap_mean",
    "bootstrap_standard_error",
    "p_t_two_sided",
    "p_percentile_greater",
    "p_percentile_less",
    "p_percentile_two_sided",
    "p_sign_flip_two_sided",
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
    experiment, percentile = item.experiment, item.p_percentile
    values = {column: getattr(item, column) for column in CSV_COLUMNS if hasattr(item, column)}
    values |= {
        "base_name": item.base.name,
        "experiment_name": experiment.name if experiment else None,
        "base_estimate": item.base.estimate,
        "experiment_estimate": experiment.estimate if experiment else None,
        "t_low": item.t.low,
        "t_high": item.t.high,
        "percentile_low": item.percentile.low,
        "percentile_high": item.percentile.high,
        "p_t_two_sided": item.p_t.two_sided if item.p_t else None,
        "p_percentile_greater": percentile.greater if percentile else None,
        "p_percentile_less": percentile.less if percentile else None,
        "p_percentile_two_sided": percentile.two_sided if percentile else None,
        "p_sign_flip_two_sided": item.p_sign_flip.two_sided if item.p_sign_flip else None,
        "base_seeds": len(item.base.seeds),
        "experiment_seeds": len(experiment.seeds) if experiment else None,
        "base_runs": item.base.num_runs,
        "experiment_runs": experiment.num_runs if experiment else None,
    }
    return {column: values[column] for column in CSV_COLUMNS}


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


def markdown_table(comparisons: Sequence[Comparison]) -> str:
    """A Markdown table."""
    table = [display_header(comparisons), *display_rows(comparisons)]
    table = [tuple(cell.replace("|", "\\|") for cell in row) for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADER))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
}


def _latex(cell: str) -> str:
    escaped = "".join(_LATEX_ESCAPES.get(character, character) for character in cell)
    if cell == "-":
        return "--"
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


def latex_table(comparisons: Sequence[Comparison]) -> str:
    """A LaTeX tabular with rules of the booktabs package."""
    header, *body = [display_header(comparisons), *display_rows(comparisons)]
    lines = [r"\begin{tabular}{lllrrrrr}", r"\toprule"]
    lines += [" & ".join(map(_latex, header)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(_latex, row)) + r" \\" for row in body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
