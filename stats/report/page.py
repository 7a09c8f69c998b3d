"""Writes a report: figures, tables and one HTML page that needs nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multiberts.runs.figure_style import save_figure
from multiberts.runs.files import replaced, write_atomically
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.presentation import ranking_words, wording
from multiberts.stats.presentation.comparison_tables import format_p, full_table, summary_table
from multiberts.stats.presentation.metric_names import metric_meaning
from multiberts.stats.presentation.sections import figure_html
from multiberts.stats.presentation.table_writer import Cell, Table, format_cell, with_minus
from multiberts.stats.report.analysis import ReportContent
from multiberts.stats.report.dumps import Bootstrap
from multiberts.stats.report.selection import RULE_TEXTS, LearningRateRule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_EFFECT = 5  # of Hedges' g, beyond which seeds hardly vary and the number says little


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
        made_with=made_with(),
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
                    ", ".join(f"{rate:g}" if rate else "-" for rate in group.learning_rates),
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


def _summary(content: ReportContent) -> Table:
    """Returns the table of all comparisons, for the head of the page."""
    first = content.compared[0].comparisons[0]
    records: list[dict[str, Cell]] = []
    for compared in content.compared:
        for place, item in enumerate(compared.shown):
            both = item.experiment is not None
            records.append(
                {
                    "Compared": item.name, "Evaluation set": item.evaluation_set,
                    "Metric": item.metric, "Base": item.base.estimate,
                    "Experiment": item.experiment.estimate if item.experiment else None,
                    "Difference": item.estimate if both else None,
                    f"{first.confidence:.0%} CI": item.t,
                    "p": item.p_t.two_sided if item.p_t else None,
                    "p (Holm)": compared.adjusted[place] if both else None,
                    "Result": compared.results[place] if both else "-",
                }
            )  # fmt: skip
    return Table.from_records(records, {"p": "p", "p (Holm)": "p"})


def _warnings(content: ReportContent) -> dict[str, list[Comparison]]:
    """Returns every warning once, with the comparisons that it concerns."""
    found: dict[str, list[Comparison]] = {}
    for compared in content.compared:
        for item in compared.shown:
            for text in wording.warnings(item, numbers=False):
                found.setdefault(text, []).append(item)
    return found


def made_with() -> dict[str, str]:
    """Returns the processor, the threads and the versions that the numbers of a page come from."""
    packages = ("multiberts", "numpy", "scipy", "xarray", "matplotlib")
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {
        "Processor": _processor(),
        "Processor cores": str(os.cpu_count()),
        **{name: value for name, value in threads.items() if value},
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _processor() -> str:
    """Returns the name of the processor; its kind, such as x86_64, where no name is known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _readable(table: Table) -> str:
    """HTML of a table whose columns are named for machines."""

    def name(column: str) -> str:
        return column.replace("_", " ").capitalize()

    formats = {name(column): text for column, text in table.formats.items()}
    return replace(
        table, columns=[name(column) for column in table.columns], formats=formats
    ).html()


def _effect(hedges_g: float) -> str:
    """Formats an effect size; over seeds that hardly differ it has no meaning but its size."""
    if abs(hedges_g) > MAX_EFFECT:
        return f"beyond {with_minus(str(-MAX_EFFECT if hedges_g < 0 else MAX_EFFECT))}"
    return with_minus(format_cell(hedges_g))


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
        "summary": lambda content: _summary(content).html(),
        "warnings": _warnings,
        "meaning": metric_meaning,
        "embed": partial(figure_html, path),
        "finding": lambda item, adjusted: with_minus(wording.finding(item, adjusted)),
        "ranking": lambda result: with_minus(ranking_words.finding(result)),
        "effect": _effect,
        "minus": with_minus,
    }
    return environment.get_template("report.html.j2").render(**values)
