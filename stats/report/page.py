"""Writes a report: figures, tables and one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiberts.runs import figure_style
from multiberts.runs.files import replaced, write_atomically
from multiberts.stats.presentation import tables, wording
from multiberts.stats.report.analysis import Content, Picture, Settings
from multiberts.stats.report.selection import RULE_TEXTS, Group


def write_page(path: Path, title: str, content: Content, settings: Settings) -> list[str]:
    """Writes `figures/`, `tables/` and `index.html` into a run directory.

    Returns:
      What was written, relative to `path`.
    """
    pictures = [
        picture
        for section in content.sections
        for group in (section.overview, *section.pictures.values())
        for picture in group
    ] + content.curves
    written: list[str] = []
    with replaced(path / "figures") as folder:
        folder.mkdir()
        for picture in pictures:
            files = figure_style.save_figure(picture.figure, folder / picture.name)
            written += [f"figures/{file.name}" for file in files]
    with replaced(path / "tables") as folder:
        folder.mkdir()
        for name, text in _tables(content).items():
            (folder / name).write_text(text, encoding="utf-8")
            written.append(f"tables/{name}")
    page = _render(path, title, content, settings)
    write_atomically(path / "index.html", page)
    return [*written, "index.html"]


def _tables(content: Content) -> dict[str, str]:
    items = [item for section in content.sections for item in section.comparisons]
    texts = {
        "comparisons.csv": tables.csv_table(items),
        "comparisons.md": tables.markdown_table(items),
        "comparisons.tex": tables.latex_table(items),
        "runs.csv": _csv(
            ("task", "procedure", "step", "learning_rate", "seeds", "runs"),
            [_group_cells(group) for group in content.groups],
        ),
    }
    if content.truths:
        rows = [
            (
                row.comparison.base.name, row.comparison.evaluation_set, row.comparison.metric,
                row.truth, row.comparison.estimate, row.comparison.t.low, row.comparison.t.high,
                row.holds,
            )
            for row in content.truths
        ]  # fmt: skip
        header = (
            "procedure",
            "evaluation_set",
            "metric",
            "truth",
            "estimate",
            "low",
            "high",
            "holds",
        )
        texts["truth.csv"] = _csv(header, rows)
    if content.choices:
        texts["learning_rates.csv"] = _csv(
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
        )  # fmt: skip
    return texts


def _group_cells(group: Group) -> tuple:
    rates = ", ".join("-" if rate is None else f"{rate:g}" for rate in group.learning_rates)
    return group.task, group.procedure, group.step, rates, len(group.seeds), len(group.runs)


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


def _render(path: Path, title: str, content: Content, settings: Settings) -> str:
    """The page: one file, pictures inside, no script, nothing fetched."""
    import jinja2

    def embed(picture: Picture) -> dict[str, str]:
        data = (path / "figures" / f"{picture.name}.svg").read_bytes()
        source = "data:image/svg+xml;base64," + base64.b64encode(data).decode()
        return {"source": source, "text": picture.text, "file": f"figures/{picture.name}.png"}

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "number": lambda value: _with_minus(tables.format_number(value)),
        "interval": lambda interval: _with_minus(tables.format_interval(interval)),
        "p": tables.format_p,
        "embed": embed,
        "finding": lambda item: _with_minus(wording.finding(item)),
        "warnings": wording.warnings,
        "cells": _group_cells,
    }
    return environment.get_template("report.html.j2").render(
        title=title,
        content=content,
        settings=settings,
        rule=RULE_TEXTS[settings.learning_rate_rule],
    )


def _with_minus(text: str) -> str:
    """A true minus sign before negative numbers; a hyphen breaks at the end of a line."""
    return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
