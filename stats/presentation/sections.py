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
from multiberts.runs.figure_style import GREY, save_figure
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
class WrittenReport:
    """Parts of a report.

    Attributes:
      written: by name of a section, its files relative to the folder.
      left_out: by name, why it could not be made.
    """

    written: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def write_content(folder: Path, name: str, content: Table | Figure) -> tuple[str, ...]:
    """Writes a table into `folder`/tables, or a figure into `folder`/figures.

    Returns:
      The files, relative to `folder`.
    """
    place = folder / ("tables" if isinstance(content, Table) else "figures") / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Table):
        texts = {"md": content.markdown(), "tex": content.latex(), "csv": content.csv()}
        files = [place.with_name(f"{name}.{ending}") for ending in texts]
        for file, text in zip(files, texts.values(), strict=True):
            file.write_text(text, encoding="utf-8")
    else:
        files = save_figure(content, place)
    return tuple(f"{file.parent.name}/{file.name}" for file in files)


def write_report(
    directory: Path,
    title: str,
    sections: Iterable[ReportSection],
    further_files: Mapping[str, Callable[[], str]] | None = None,
    made_by: Mapping[str, str] | None = None,
    findings: Sequence[str] = (),
) -> WrittenReport:
    """Writes all sections that can be made: `tables/`, `figures/`, `index.md` and the page `index.html`.

    Args:
      directory: is replaced where it is such a report already.
      sections: made and written in this order.
      further_files: by name, the text of files that are made after the sections.
      made_by: names and values for the page's end, such as the command.
      findings: what it comes to, in sentences, which stand before all sections.

    Returns:
      What was written, and what was left out and why.
    """
    if directory.exists() and not (directory / "index.md").is_file():
        raise UserError(f"{directory} exists and is not a report of this kind; give another folder")
    report = WrittenReport()
    lines = [f"# {title}", "", *(line for one in findings for line in (one, ""))]
    blocks: list[PageBlock] = []
    with replaced(directory) as folder:
        for name in ("tables", "figures"):
            (folder / name).mkdir(parents=True)
        for section in sections:
            try:
                content = section.make()
            except UserError as error:
                report.left_out[section.name] = str(error)
                continue
            report.written[section.name] = write_content(folder, section.name, content)
            blocks.append(_block(folder, section, content))
            shown = f"![{section.name}](figures/{section.name}.png)"
            if isinstance(content, Table):
                shown = content.markdown().rstrip("\n")
            lines += [f"## {section.name}", "", section.caption, "", shown, ""]
        if report.left_out:
            lines += ["## Left out", ""]
            lines += [f"- {name}: {reason}" for name, reason in report.left_out.items()]
        further_files = {
            "index.md": lambda: "\n".join(lines).rstrip() + "\n",
            "index.html": lambda: render(
                Path(__file__).with_name("sections.html.j2"),
                {"slug": slug},
                title=title,
                findings=[with_minus(one) for one in findings],
                blocks=blocks,
                left_out=report.left_out,
                made_with={**(made_by or {}), **made_with()},
            ),
            **(further_files or {}),
        }
        for name, text in further_files.items():
            (folder / name).write_text(text(), encoding="utf-8")
    return report


@dataclass(frozen=True)
class PageBlock:
    """A section as the page shows it.

    Attributes:
      html: the table or figure.
      rows: how many the table has; None of a figure.
    """

    name: str
    caption: str
    html: str
    rows: int | None


def _block(folder: Path, section: ReportSection, content: Table | Figure) -> PageBlock:
    if isinstance(content, Table):
        shown = _with_readable_names(content).html(f"table-{slug(section.name)}")
        return PageBlock(section.name, section.caption, shown, len(content.rows))
    return PageBlock(section.name, section.caption, figure_html(folder, section), None)


def _with_readable_names(table: Table) -> Table:
    """Returns a table for the page; its files keep the names of code."""

    def cell(column: str, value: Cell) -> Cell:
        if not isinstance(value, str):
            return value
        if column == "Metric":
            return metric_name(value)
        return readable(value, {}) if column in _NAMES else value

    return replace(table, rows=[[*map(cell, table.columns, row)] for row in table.rows])


def figure_html(folder: Path, section: ReportSection) -> str:
    """Returns HTML that holds the written figure of a section, in the colours of the page's scheme."""
    text = (folder / "figures" / f"{section.name}.svg").read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Nothing refers to groups; other ids become short, and unique in the page by the section's name.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    prefix = f"f{zlib.crc32(section.name.encode()):x}"
    numbers: dict[str, int] = {}

    def renamed(found: re.Match[str]) -> str:
        return f"{found[1]}{prefix}-{numbers.setdefault(found[2], len(numbers)):x}"

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
