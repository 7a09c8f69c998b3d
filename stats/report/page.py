"""Writes a report: figures, tables and one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multiberts.runs.figure_style import save_figure
from multiberts.runs.files import replaced, write_atomically
from multiberts.stats.presentation import wording
from multiberts.stats.presentation.comparison_tables import format_p, full_table, summary_table
from multiberts.stats.presentation.sections import figure_html
from multiberts.stats.presentation.table_writer import Cell, Table, format_cell, with_minus
from multiberts.stats.report.analysis import ComparedProcedures, ReportContent
from multiberts.stats.report.dumps import Bootstrap
from multiberts.stats.report.selection import RULE_TEXTS, LearningRateRule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_page(
    path: Path, title: str, content: ReportContent, bootstrap: Bootstrap, rule: LearningRateRule
) -> list[str]:
    """Writes `figures/`, `tables/` and `index.html` into a run directory.

    Args:
      path: the run directory.
      title: heading of the page.
      content: what the page shows.
      bootstrap: how its comparisons were made.
      rule: how its learning rates were chosen.

    Returns:
      What was written, relative to `path`.
    """
    written: list[str] = []
    with replaced(path / "figures") as folder:
        folder.mkdir()
        for picture in content.pictures:
            files = save_figure(cast("Figure", picture.make()), folder / picture.name)
            written += [f"figures/{file.name}" for file in files]
    tables = _tables(content)
    items = [item for compared in content.compared for item in compared.comparisons]
    summary = summary_table(items)
    texts = {
        "comparisons.csv": full_table(items).csv(),
        "comparisons.md": summary.markdown(),
        "comparisons.tex": summary.latex(),
        **{f"{name}.csv": table.csv() for name, table in tables.items()},
    }
    with replaced(path / "tables") as folder:
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            written.append(f"tables/{name}")
    page = _render(
        path,
        title=title,
        content=content,
        tables=tables,
        bootstrap=bootstrap,
        rule=RULE_TEXTS[rule],
    )
    write_atomically(path / "index.html", page)
    return [*written, "index.html"]


def _tables(content: ReportContent) -> dict[str, Table]:
    """Tables of the page, by the name of their CSV files; those without rows are left out."""
    tables = {
        "runs": Table(
            ("task", "procedure", "step", "learning_rate", "seeds", "runs"),
            [
                (
                    group.task, group.procedure, group.step,
                    ", ".join("-" if rate is None else f"{rate:g}" for rate in group.learning_rates),
                    len(group.seeds), len(group.runs),
                )
                for group in content.groups
            ],
        ),
        "truth": Table(
            (
                "procedure", "evaluation_set", "metric", "truth", "estimate", "low", "high",
                "holds",
            ),
            [
                (
                    row.comparison.base.name, row.comparison.evaluation_set, row.comparison.metric,
                    row.truth, row.comparison.estimate, *row.comparison.t, row.in_interval,
                )
                for row in content.truths
            ],
        ),
        "learning_rates": Table(
            (
                "task", "procedure", "step", "learning_rate", "rule", "evaluation_set", "metric",
                "means",
            ),
            [
                (
                    choice.group.task, choice.group.procedure, choice.group.step,
                    choice.learning_rate, choice.rule, choice.evaluation_set, choice.metric,
                    " ".join(f"{rate:g}:{mean:.4f}" for rate, mean in choice.means.items()),
                )
                for choice in content.choices
            ],
            {"learning_rate": "g"},
        ),
    }  # fmt: skip
    return {name: table for name, table in tables.items() if table.rows}


def _summary(compared: ComparedProcedures) -> Table:
    """Returns the table of one requested comparison, for the head of the page."""
    first = compared.comparisons[0]
    level = f"{first.confidence:.0%} CI"
    rows: list[Sequence[Cell]]
    if first.experiment is None:
        rows = [
            (item.evaluation_set, item.metric, item.estimate, item.t)
            for item in compared.comparisons
        ]
        return Table(("Evaluation set", "Metric", "Estimate", level), rows)
    rows = []
    for item, adjusted in zip(compared.comparisons, compared.adjusted, strict=True):
        assert item.experiment is not None and item.p_t is not None
        verdict = "higher" if item.estimate > 0 else "lower"
        rows.append(
            (
                item.evaluation_set, item.metric, item.base.estimate, item.experiment.estimate,
                item.estimate, item.t, item.p_t.two_sided, adjusted,
                verdict if item.significant else "not clear",
            )
        )  # fmt: skip
    columns = (
        "Evaluation set", "Metric", first.base.name, first.experiment.name, "Difference", level,
        "p", "p (Holm)", "Result",
    )  # fmt: skip
    return Table(columns, rows, {"p": "p", "p (Holm)": "p"})


def _readable(table: Table) -> str:
    """HTML of a table whose columns are named for machines."""

    def name(column: str) -> str:
        return column.replace("_", " ").capitalize()

    formats = {name(column): text for column, text in table.formats.items()}
    return replace(
        table, columns=[name(column) for column in table.columns], formats=formats
    ).html()


def _render(path: Path, **values: Any) -> str:
    """Returns the page: one file, pictures inside, no script, nothing fetched."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "number": lambda cell: with_minus(format_cell(cell)),
        "p": format_p,
        "table": _readable,
        "summary": lambda compared: _summary(compared).html(),
        "embed": partial(figure_html, path),
        "finding": lambda item: with_minus(wording.finding(item)),
        "warnings": wording.warnings,
    }
    return environment.get_template("report.html.j2").render(**values)
