"""The page on Python: its index, and docstrings as griffe reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

PAGE = "reference/python.md"  # below this folder
_BLOCK = re.compile(r"^(?:## (.+)|::: multiberts\.(\S+))$", re.MULTILINE)
_SHARED = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)", re.MULTILINE)
_SEE_ALSO = re.compile(r"^ *See also: .*(?:\n.+)*", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    if page.file.src_uri != PAGE:
        return markdown
    return markdown.replace("<!-- index -->", "\n".join(index(markdown)))


def index(markdown: str) -> Iterator[str]:
    """Yields a list for each heading: every name on the page with the first line of its docstring."""
    for heading, name in _BLOCK.findall(markdown):
        if heading:
            yield f"\n**{heading}**\n"
        else:
            summary = resolve_name(f"multiberts.{name}").__doc__.split("\n\n")[0]
            yield f"- [`{short_name(name)}`](#multiberts.{name}): {' '.join(summary.split())}"


def short_name(name: str) -> str:
    """Returns a public name as code has it after its import: `stats.compare`, `Predictor`."""
    return re.sub(r"^(stats\.)compare\.two_arms\.|^(?:evaluate|finetune|runs)\..*\.", r"\1", name)


class Docstrings(griffe.Extension):
    """One entry per parameter where several share one, and links to the names after `See also`."""

    def __init__(self) -> None:
        names = [
            name
            for _, name in _BLOCK.findall(Path(__file__).parent.joinpath(PAGE).read_text())
            if name
        ]
        self.paths = {name.rpartition(".")[2]: f"multiberts.{name}" for name in reversed(names)}

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = _SHARED.sub(_one_each, obj.docstring.value)
            obj.docstring.value = _SEE_ALSO.sub(
                lambda line: re.sub(r"`(\w+)`", self._linked, line[0]), text
            )

    def _linked(self, name: re.Match[str]) -> str:
        path = self.paths.get(name[1])
        return f"[{name[0]}][{path}]" if path else name[0]


def _one_each(entry: re.Match[str]) -> str:
    indent, names, text = entry.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))
