"""Writes a report: figures, tables and one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.report.analysis import ReportContent
from multiberts.report.evidence import (
    ComparedArms,
    compared_of,
    names_of_rows,
)
from multiberts.report.examples_by_seed import ExampleGrid
from multiberts.report.presentation import methods_paragraph, planning, ranking_words, words
from multiberts.report.presentation.comparison_tables import (
    full_table,
    metric_decimals,
    scores_by_task,
    summary_table,
)
from multiberts.report.presentation.formats import (
    NONE,
    Cell,
    format_cell,
    interval_decimals,
    metric_label,
    metric_meaning,
    score_format,
    with_decimals,
    with_minus,
)
from multiberts.report.presentation.provenance import data_facts, made_with
from multiberts.report.presentation.reported import ReportedComparison, against_base, tally
from multiberts.report.presentation.sections import drawn_figure, slug
from multiberts.report.presentation.table_writer import Table
from multiberts.report.selection import RULE_TEXTS, LearningRateRule
from multiberts.runs.errors import counted
from multiberts.runs.figure_style import FigureKind
from multiberts.runs.files import replaced, write_atomically
from multiberts.runs.web_page.rendering import render
from multiberts.stats.compare.result import Comparison, Readable, arms_of
from multiberts.stats.errors import DataError
from multiberts.stats.score import metric_name
from multiberts.stats.settings import ComparisonSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# File with the commit, data date and versions of a page, in its folder of tables.
MADE_WITH = "made_with.json"
COMPARISONS, RANKINGS = "comparisons.md", "rankings.md"
# Rows of *Made with*: comparisons chosen by default, and planned runs that are missing.
NOTE, MISSING = "Comparisons", "Missing runs"

MAX_EFFECT = 5  # larger values of Hedges' g have little meaning, because the seeds hardly vary
_NAMES = ("task", "procedure", "evaluation_set")  # columns whose cells are names in code
MOST_BYTES_OF_GRIDS = (
    400_000  # limit for packed examples in the page; above it each set has a separate page
)


def page_files(
    title: str,
    content: ReportContent,
    bootstrap: ComparisonSettings,
    rule: LearningRateRule,
    made_by: Mapping[str, str],
    name: str = "index",
    kind: FigureKind = "svg",
) -> dict[str, bytes]:
    """Returns the contents of `figures/`, `tables/`, the page and extra pages of large sets, by path.

    Args:
      made_by: facts by name for the end of the page, such as the command.
      name: file name of the page without extension; names of extra pages begin with it.
      kind: file format of the figures; the page always shows SVG.
    """
    files: dict[str, bytes] = {}
    drawn: dict[str, str] = {}
    for picture in content.pictures:
        drawn[picture.name], file = drawn_figure(picture, cast("Figure", picture.make()), kind)
        files[f"figures/{picture.name}.{kind}"] = file
    tables = _tables(content)
    listed = [item for compared in content.compared for item in compared.items]
    items = [item.comparison for item in listed]
    as_made = [item for each in content.compared for item in each.as_made or each.comparisons]
    answers = [item.answers for item in listed]
    summary = summary_table(listed)
    origin = {**made_by, **made_with()}
    texts = {
        MADE_WITH: json.dumps(origin, indent=1) + "\n",
        "comparisons.csv": full_table(
            as_made, answers, [*chain(*(each.without_base for each in content.compared))]
        ).csv(),
        COMPARISONS: summary.markdown(),
        "comparisons.tex": summary.latex(),
        **{f"{table_name}.csv": table.csv() for table_name, table in tables.items()},
    }
    if content.is_ranked:
        texts[RANKINGS] = "\n\n".join(
            f"{ranking.name}: {ranking_words.ranking_finding(ranking)}\n\n"
            f"{ranking.table().markdown().rstrip()}"
            for ranking in content.asked.rankings
        )
    files |= {f"tables/{file_name}": text.encode() for file_name, text in texts.items()}
    # Without texts a grid would only show ids.
    grids = [
        grid for compared in content.compared for grid in compared.grids.values() if grid.texts
    ]
    pages = {}
    if sum(len(grid.packed) for grid in grids) > MOST_BYTES_OF_GRIDS:
        pages = {f"{name}-examples-{number}.html": grid for number, grid in enumerate(grids, 1)}
    here = Path(__file__).parent
    filters = _filters(drawn, pages, metric_decimals(items), content.name_of)
    page = render(
        here / "report.html.j2",
        filters,
        title=title,
        content=content,
        tables=tables,
        bootstrap=bootstrap,
        rule=RULE_TEXTS[rule],
        note=summary.note,
        limits=words.unseen_failures_of_all(items),
        intervals=" ".join(methods_paragraph.about_intervals(items, arms_of(*items))[0]),
        made_with=origin,
        copies={
            "markdown": texts[COMPARISONS], "latex": texts["comparisons.tex"],
            "csv": texts["comparisons.csv"],
            "methods": methods_paragraph.methods(
                items, content.seeds_are, content.runs_are, listed[0].answers
            ),
        },
    )  # fmt: skip
    for file_name, grid in pages.items():
        text = render(
            here / "examples_page.html.j2", filters, grid=grid, back=f"{name}.html", title=title
        )
        files[file_name] = text.encode()
    return {**files, f"{name}.html": page.encode()}


def write_html(result: Readable, path: str | Path) -> None:
    """Writes a finished comparison as one HTML file, as `multiberts compare --html` does.

    Args:
      result: result of `compare`, or of `compare_tasks` (the page then starts with the mean over tasks).
      path: path of the file; an existing file is replaced.

    Examples:
      >>> from multiberts import stats
      >>> result = stats.compare([[1, 0, 1], [1, 1, 0]], [[1, 1, 1], [0, 1, 1]])
      >>> page = getfixture("tmp_path") / "page.html"
      >>> stats.write_html(result.named("RoBERTa", "Ours"), page)
      >>> "Ours against RoBERTa" in page.read_text()
      True

    See also: `compare`, `Comparison`.
    """
    items = [item for item in result.comparisons_shown() if isinstance(item, Comparison)]
    if not items:
        raise DataError(
            f"found {type(result).__name__}, which has no page; write result.table().html(), or give the "
            "data to the command: multiberts compare FILE --html=PAGE"
        )
    first = items[0]
    settings = ComparisonSettings(
        first.design, first.resample, first.n_resamples, first.rng, first.confidence_level
    )
    shown = []
    for item in items:
        names = [arm.name for arm in arms_of(item)]
        # Comparisons of tasks repeat the task in their name, and the mean has the same arms.
        is_named = item.name not in ("", item.evaluation_set) and not item.tasks
        called = item.name if is_named else " against ".join(dict.fromkeys(reversed(names)))
        where = item.evaluation_set or counted(item.num_examples, "example", ",")
        shown.append(item.named(name=called, evaluation_set=where))
    compared = [compared_of(shown, settings)]
    reads = [item.origin.spec.arms for item in items if item.origin and item.origin.spec]
    files = {Path(file) for arms in reads for arm in arms for file in arm.read.files or ()}
    made_by = {"Made by": f"{type(result).__name__}.to_html, in Python"}
    if files and all(file.is_file() for file in files):
        made_by |= data_facts([*files], "the files compared")
    content = ReportContent(compared, [], [], [], [], seeds_are="seeds", runs_are="runs")
    pages = page_files(compared[0].name, content, settings, "dev", made_by, name="page")
    write_atomically(Path(path), pages["page.html"].decode())


def write_page(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files of a page: replaces its folders, then writes the page."""
    for name in ("figures", "tables"):
        with replaced(path / name) as folder:
            folder.mkdir()
            for file, content in files.items():
                if file.startswith(f"{name}/"):
                    (folder / Path(file).name).write_bytes(content)
    for file, content in files.items():
        if "/" not in file:
            write_atomically(path / file, content)


def _filters(
    drawn: Mapping[str, str],
    pages: Mapping[str, ExampleGrid],
    decimals: Mapping[str, int | None],
    name_of: Callable[[str], str],
) -> dict[str, Callable[..., Any]]:
    """Returns the functions for the templates.

    Args:
      drawn: HTML of each figure by name.
      pages: grids with a separate page, by file name.
      name_of: function that converts a name in code to a readable one.
    """

    def number(cell: Cell, metric: str) -> str:
        shown = with_decimals(score_format(metric), decimals.get(metric))
        return with_minus(format_cell(cell, shown))

    names = {id(grid): file_name for file_name, grid in pages.items()}
    return {
        "number": number,
        "error": lambda item: with_minus(words.error_text(item, item.standard_error)),
        "estimate": lambda cell, item: with_minus(words.estimate_text(item, cell)),
        "p": lambda value: format_cell(value, "p"),
        "table": partial(_readable, name_of=name_of),
        "by_unit": _by_unit,
        "tally": lambda compared: tally(compared.items),
        "against_base": lambda compared: against_base(compared.items),
        "tests": lambda item: _tests(item).html(),
        "results": lambda content: sorted(
            {_dash(i.result) for c in content.compared for i in c.items}
        ),
        "metrics": _metrics,
        "name": metric_name,
        "warnings": _warnings,
        "scores_by_task": lambda compared: scores_by_task(
            compared.comparisons, compared.rankings[0]
        ).html(),
        "row_names": lambda compared: names_of_rows(compared.comparisons),
        "meaning": metric_meaning,
        "label": metric_label,
        "slug": slug,
        "embed": lambda picture: drawn[picture.name],
        "sentences": lambda item: [
            with_minus(text)
            for text in words.finding_sentences(item.comparison, item.adjusted, item.answers)
        ],
        # The page states the limits of all comparisons once.
        "needs": lambda item: [
            with_minus(text)
            for text in planning.needs_in_words(item.comparison, item.adjusted, item.answers)
            if text != words.unseen_failures(item.comparison)
        ],
        "note": lambda origin: origin.get(NOTE, ""),
        "ranking": lambda result: with_minus(ranking_words.ranking_finding(result)),
        "has_bias": lambda content: any(
            item.metric in OCCUPATION_MEASURES
            for each in content.compared
            for item in each.comparisons
        ),
        "effect": _effect,
        "minus": with_minus,
        "dash": _dash,
        "page_of": lambda grid: names.get(id(grid), ""),
    }


def _by_unit(compared: ComparedArms) -> dict[str, list[tuple[int, ReportedComparison]]]:
    """Returns the numbered comparisons by unit of their scores."""
    by_unit: dict[str, list[tuple[int, ReportedComparison]]] = {}
    for number, item in enumerate(compared.items, start=1):
        shares = bool(score_format(item.comparison.metric))
        unit = "in %, differences in points" if shares else "in the metric's own unit"
        by_unit.setdefault(unit, []).append((number, item))
    return by_unit


def _metrics(content: ReportContent) -> list[str]:
    """Returns the distinct metrics with a known meaning."""
    metrics = [item.metric for compared in content.compared for item in compared.comparisons]
    return [metric for metric in dict.fromkeys(metrics) if metric_meaning(metric)]


def _tests(item: Comparison) -> Table:
    two_sided = {name: p_values.two_sided for name, p_values in item.p_values.items()}
    rows: list[tuple[Cell, ...]] = [
        (text, item.ci if name == "t" else item.intervals.get(name), two_sided.get(name))
        for name, text in (
            ("t", f"{item.ci.method} (recommended)"), ("percentile", "percentile (as published)"),
            ("sign flip", "sign flips"), ("permutation", "permutations"),
        )
    ]  # fmt: skip
    defined = [row for row in rows if row[1] is not None or row[2] is not None]
    level = f"{item.confidence_level:.0%} interval"
    unit = score_format(item.metric, item.experiment is not None)
    unit = with_decimals(unit, interval_decimals(item.ci, item.metric))
    return Table(("Method", level, "two-sided p"), defined, {level: unit, "two-sided p": "p"})


def _tables(content: ReportContent) -> dict[str, Table]:
    """Returns the non-empty tables of the page by name of their CSV files."""
    runs: list[dict[str, Cell]] = [
        {
            "task": group.task, "procedure": group.procedure, "step": group.step,
            "learning_rate": ", ".join(f"{r:g}" if r else "-" for r in group.learning_rates),
            "seeds": len(group.seeds), "runs": len(group.runs),
        }
        for group in content.groups
    ]  # fmt: skip
    truths: list[dict[str, Cell]] = [
        {
            "procedure": item.base.name, "evaluation_set": item.evaluation_set,
            "metric": item.metric, "truth": row.truth, "estimate": item.estimate,
            "low": item.ci.low, "high": item.ci.high, "holds": row.in_interval,
        }
        for row in content.truths
        for item in [row.comparison]
    ]  # fmt: skip
    rates: list[dict[str, Cell]] = [
        {
            "task": choice.group.task, "procedure": choice.group.procedure,
            "step": choice.group.step, "learning_rate": choice.learning_rate,
            "rule": choice.rule, "evaluation_set": choice.evaluation_set, "metric": choice.metric,
            "means": " ".join(f"{rate:g}:{mean:.4f}" for rate, mean in choice.means.items()),
        }
        for choice in content.choices
    ]  # fmt: skip
    scores = dict.fromkeys(("truth", "estimate", "low", "high"), with_decimals("", 3))
    tables = {
        "runs": Table.from_records(runs, {}),
        "truth": Table.from_records(truths, scores),
        "learning_rates": Table.from_records(rates, {"learning_rate": "g"}),
    }
    return {name: table for name, table in tables.items() if table.rows}


def _warnings(content: ReportContent) -> dict[str, list[Comparison]]:
    """Returns each distinct warning with its comparisons."""
    by_text: dict[str, list[Comparison]] = {}
    for compared in content.compared:
        for item in compared.comparisons:
            for text in words.warnings(item, numbers=False):
                by_text.setdefault(text, []).append(item)
    return by_text


def _readable(table: Table, name_of: Callable[[str], str]) -> str:
    """Returns a table as HTML with readable names in headings and cells."""

    def name(column: str) -> str:
        return column.replace("_", " ").capitalize()

    def cell(column: str, value: Cell) -> Cell:
        if column == "metric":
            return metric_label(str(value))
        return name_of(str(value)) if column in _NAMES else value

    formats = {name(column): text for column, text in table.formats.items()}
    rows = [[*map(cell, table.columns, row)] for row in table.rows]
    columns = [*map(name, table.columns)]
    return replace(table, columns=columns, rows=rows, formats=formats).html()


def _effect(hedges_g: float) -> str:
    """Formats an effect size; huge values from seeds that hardly differ are truncated."""
    if abs(hedges_g) > MAX_EFFECT:
        return f"beyond {with_minus(str(-MAX_EFFECT if hedges_g < 0 else MAX_EFFECT))}"
    return with_minus(format_cell(hedges_g))


def _dash(result: str) -> str:
    return "–" if result == NONE else result
