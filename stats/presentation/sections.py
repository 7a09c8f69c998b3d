"""The model of every report: named tables and figures, written as files, Markdown and HTML."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import GREY, FigureKind, figure_bytes
from multiberts.runs.files import replaced
from multiberts.runs.web_page.rendering import render
from multiberts.stats.formats import Cell, with_minus
from multiberts.stats.metric_names import metric_name
from multiberts.stats.presentation.provenance import made_with
from multiberts.stats.presentation.readable_names import readable
from multiberts.stats.presentation.table_writer import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NAMES = ("Set", "Task", "Procedure")  # columns whose cells are names of code
_COLOURS_OF_THE_PAGE = {
    "#000000": "--ink", "black": "--ink", "#ffffff": "--ground", "white": "--ground", "#f2f2f2": "--raised",
    GREY: "--soft",
}  # fmt: skip


@dataclass(frozen=True)
class ReportSection:
    """A table or figure of a report.

    Attributes:
      name: of its files, without an ending; the heading in Markdown.
      caption: what it shows, also for readers who cannot see a figure.
      make: makes the table or figure; raises UserError where the data do not allow it.
      is_wide: whether a figure of a comparison stands below its words, not beside them.
    """

    name: str
    caption: str
    make: Callable[[], Table | Figure]
    is_wide: bool = False


@dataclass(frozen=True)
class Report:
    """A page of tables and figures.

    Attributes:
      sections: made and written in this order.
      findings: what it comes to, in sentences, which stand before all sections.
      further_files: by name, the text of files that are made after the sections.
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
    """Writes all sections that can be made: `tables/`, `figures/`, `index.md` and the page `index.html`.

    Args:
      directory: is replaced where it is such a report already.
      made_by: names and values for the page's end, such as the command.
      kind: of the files of figures; the page shows SVG.

    Returns:
      By the name of a section that is left out, why.
    """
    if directory.exists() and not (directory / "index.md").is_file():
        raise UserError(f"{directory} exists and is not a report of this kind; give another folder")
    left_out: dict[str, str] = {}
    lines = [f"# {report.title}", "", *(line for each in report.findings for line in (each, ""))]
    # Each with its HTML and the number of rows of a table.
    blocks: list[tuple[ReportSection, str, int | None]] = []
    files: dict[str, bytes] = {}
    for section in report.sections:
        name = section.name
        try:
            content = section.make()
        except UserError as error:
            left_out[name] = str(error)
            continue
        if isinstance(content, Table):
            texts = {"md": content.markdown(), "tex": content.latex(), "csv": content.csv()}
            files |= {f"tables/{name}.{ending}": text.encode() for ending, text in texts.items()}
            shown = texts["md"].rstrip("\n")
            html = _with_readable_names(content).html(f"table-{slug(name)}")
            blocks.append((section, html, len(content.rows)))
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
        {"slug": slug},
        title=report.title,
        findings=[with_minus(each) for each in report.findings],
        blocks=blocks,
        left_out=left_out,
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
    """Returns HTML that holds the figure of a section as SVG, and its file."""
    svg = figure_bytes(figure)
    return _figure_html(svg.decode(), section), svg if kind == "svg" else figure_bytes(figure, kind)


def _with_readable_names(table: Table) -> Table:
    """Returns a table for the page; its files keep the names of code."""

    def cell(column: str, value: Cell) -> Cell:
        if not isinstance(value, str):
            return value
        if column == "Metric":
            return metric_name(value)
        return readable(value, {}) if column in _NAMES else value

    return replace(table, rows=[[*map(cell, table.columns, row)] for row in table.rows])


def _figure_html(svg: str, section: ReportSection) -> str:
    """Returns HTML that holds the figure of a section, in the colours of the page's scheme."""
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Nothing refers to groups; other ids become short, and unique in the page by the section's name.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    prefix = f"f{zlib.crc32(section.name.encode()):x}"
    numbers: dict[str, int] = {}

    def renamed(match: re.Match[str]) -> str:
        return f"{match[1]}{prefix}-{numbers.setdefault(match[2], len(numbers)):x}"

    text = re.sub(r'(\bid="|href="#|url\(#)([^")]+)', renamed, text)
    # The list of fonts and the colours of ink and ground are those of the page.
    text = re.sub(r'; font-family: [^;"]*', "", text)
    for colour, variable in _COLOURS_OF_THE_PAGE.items():
        text = re.sub(rf"(fill|stroke): {colour}(?=[;\"])", rf"\1: var({variable})", text)
    caption = escape(with_minus(section.caption))
    # On a narrow screen a wide figure scrolls rather than that its letters, of ten units, become smaller
    # than eight pixels.
    [width] = re.findall(r'viewBox="0 0 ([\d.]+) ', text[: text.index(">")])
    label = f'role="img" aria-label="{caption}" class="figure" style="min-width: {0.8 * float(width):.0f}px" '
    drawn = text.replace("<svg ", f"<svg {label}", 1)
    scrolls = '<div class="scroll" tabindex="0" role="group" aria-label="Figure">'
    return f"<figure>{scrolls}{drawn}</div><figcaption>{caption}</figcaption></figure>"


def slug(text: str) -> str:
    """Returns text as part of a file name: lower case, with dashes for all other characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
