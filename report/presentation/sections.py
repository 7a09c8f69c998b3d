"""Reports: named tables and figures, written as files, Markdown and HTML."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.report.presentation.formats import Cell, with_minus
from multiberts.report.presentation.hover import mark, with_marks
from multiberts.report.presentation.provenance import made_with
from multiberts.report.presentation.readable_names import readable
from multiberts.report.presentation.table_writer import SCORE, Table
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import GREY, FigureKind, figure_bytes
from multiberts.runs.files import replaced
from multiberts.runs.web_page.rendering import render
from multiberts.stats.score import metric_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Columns with names in code.
_NAMES = (
    "Set",
    "Task",
    "Procedure",
    "Source",
    "Base",
    "Experiment",
    "Size",
    "Smaller",
    "Larger",
    "From",
)
_COLOURS_OF_THE_PAGE = {
    "#000000": "--ink", "black": "--ink", "#ffffff": "--ground", "white": "--ground", "#f2f2f2": "--raised",
    GREY: "--soft",
}  # fmt: skip


@dataclass(frozen=True)
class ReportSection:
    """A table or figure of a report.

    Attributes:
      name: file name without extension, and heading in Markdown.
      title: heading on the page and in its contents; empty: the name without underscores.
      caption: description, which also serves readers who cannot see a figure.
      make: function that makes the table or figure; raises UserError if the data do not allow it.
      is_detail: whether a page folds the figure of a comparison with its other intervals and tests.
    """

    name: str
    caption: str
    make: Callable[[], Table | Figure]
    is_detail: bool = False
    title: str = ""


@dataclass(frozen=True)
class Report:
    """A page of tables and figures.

    Attributes:
      sections: sections in the order of the page.
      findings: the main results, most important first, shown before the sections.
      further_files: functions by file name that make further text files, called after the sections are made.
    """

    title: str
    sections: Iterable[ReportSection]
    findings: Sequence[str] = ()
    further_files: Mapping[str, Callable[[], str]] = field(default_factory=dict)


def write_report(
    directory: Path,
    report: Report,
    made_by: Mapping[str, str] | None = None,
    kind: FigureKind = "svg",
) -> dict[str, str]:
    """Writes all possible sections: `tables/`, `figures/`, `index.md` and the page `index.html`.

    Args:
      directory: output folder; an existing report of this kind is replaced.
      made_by: facts by name for the end of the page, such as the command.
      kind: file format of the figures; the page always shows SVG.

    Returns:
      Reasons by name of the sections left out.
    """
    if directory.exists() and not (directory / "index.md").is_file():
        raise UserError(f"{directory} exists and is not a report of this kind; give another folder")
    left_out: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}  # headings of the sections left out
    lines = [f"# {report.title}", "", *(line for each in report.findings for line in (each, ""))]
    # (section, HTML, table or None)
    blocks: list[tuple[ReportSection, str, Table | None]] = []
    files: dict[str, bytes] = {}
    for section in report.sections:
        name = section.name
        try:
            content = section.make()
        except UserError as error:
            left_out[name] = str(error)
            reasons.setdefault(str(error), []).append(_heading(section))
            continue
        if isinstance(content, Table):
            texts = {"md": content.markdown(), "tex": content.latex(), "csv": content.csv()}
            files |= {f"tables/{name}.{ending}": text.encode() for ending, text in texts.items()}
            shown = texts["md"].rstrip("\n")
            # Few rows of many columns are shown on their side, which fits narrow screens.
            on_side = len(content.rows) < 6 and len(content.columns) > 9
            html = _with_readable_names(content).html(
                "" if on_side else f"table-{slug(name)}", on_side
            )
            blocks.append((section, html, content))
        else:
            shown = f"![{name}](figures/{name}.{kind})"
            html, files[f"figures/{name}.{kind}"] = drawn_figure(section, content, kind)
            blocks.append((section, html, None))
        lines += [f"## {name}", "", section.caption, "", shown, ""]
    if left_out:
        lines += ["## Left out", ""]
        lines += [f"- {name}: {reason}" for name, reason in left_out.items()]
    page = render(
        Path(__file__).with_name("sections.html.j2"),
        {"slug": slug, "heading": _heading, "readable": partial(readable, names={})},
        title=report.title,
        findings=list(map(with_minus, report.findings)),
        blocks=blocks,
        reasons=reasons,
        made_with={**(made_by or {}), **made_with()},
    )
    files["index.md"] = ("\n".join(lines).rstrip() + "\n").encode()
    files["index.html"] = page.encode()
    files |= {name: make().encode() for name, make in report.further_files.items()}
    with replaced(directory) as folder:
        for name, file in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(file)
    return left_out


def drawn_figure(section: ReportSection, figure: Figure, kind: FigureKind) -> tuple[str, bytes]:
    """Returns the HTML of a figure section (as SVG), and the content of the figure's file."""
    marks = mark(figure)
    svg = figure_bytes(figure)
    html = _figure_html(with_marks(svg.decode(), marks), section)
    return html, svg if kind == "svg" else figure_bytes(figure, kind)


def _with_readable_names(table: Table) -> Table:
    """Returns a table with readable names for the page; files keep the names in code."""

    def cell(column: str, value: Cell) -> Cell:
        if not isinstance(value, str):
            return value
        if column == "Metric" and SCORE not in table.formats.values():
            return metric_name(value)
        return readable(value, {}) if column in _NAMES else value

    return replace(table, rows=[[*map(cell, table.columns, row)] for row in table.rows])


def _heading(section: ReportSection) -> str:
    """Returns the heading of a section on the page."""
    title = section.title or readable(section.name, {})
    return title[:1].upper() + title[1:]


def _figure_html(svg: str, section: ReportSection) -> str:
    """Returns the HTML of a figure section in the page's colours."""
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Points of one look share their style, and hundredths of a pixel do, which keeps pages small.
    text = re.sub(
        r'<g (clip-path="[^"]*")>\s*((?:<use .*?(?:/>|</use>)\s*){2,})</g>', _with_one_style, text
    )
    text = re.sub(r'\b([dxy]="[^"]*")', lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[1]), text)
    # Remove unused ids of groups; the section's name makes other ids unique in the page.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    prefix = f"f{zlib.crc32(section.name.encode()):x}"
    numbers: dict[str, int] = {}

    def renamed(match: re.Match[str]) -> str:
        return f"{match[1]}{prefix}-{numbers.setdefault(match[2], len(numbers)):x}"

    text = re.sub(r'(\bid="|href="#|url\(#)([^")]+)', renamed, text)
    # Use fonts and the colours of text and background from the page.
    text = re.sub(r'; font-family: [^;"]*', "", text)
    for colour, variable in _COLOURS_OF_THE_PAGE.items():
        text = re.sub(rf"(fill|stroke): {colour}(?=[;\"])", rf"\1: var({variable})", text)
    caption = escape(with_minus(section.caption))
    # Scroll wide figures on narrow screens instead of shrinking text (10 units) below 8 px.
    [width] = re.findall(r'viewBox="0 0 ([\d.]+) ', text[: text.index(">")])
    wide = " wide" * (float(width) > 8 * 72)
    style = f"min-width: {0.8 * float(width):.0f}px"
    label = f'role="img" aria-label="{caption}" class="figure{wide}" style="{style}" '
    drawn = text.replace("<svg ", f"<svg {label}", 1)
    scrolls = '<div class="scroll" tabindex="0" role="group" aria-label="Figure">'
    # A heading that says all needs no caption below the figure.
    shown = f"<figcaption>{caption}</figcaption>" * (section.caption != f"{section.title}.")
    return f"<figure>{scrolls}{drawn}</div>{shown}</figure>"


def _with_one_style(points: re.Match[str]) -> str:
    styles = set(re.findall(r' style="[^"]*"', points[2]))
    if len(styles) != 1:
        return points[0]
    [style] = styles
    return f"<g {points[1]}{style}>{points[2].replace(style, '')}</g>"


def slug(text: str) -> str:
    """Returns text for a file name: lower case, with dashes for other characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
