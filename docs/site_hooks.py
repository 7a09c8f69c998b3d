"""Built by mkdocs: the page of commands, the tutorial's pictures, and tables of the papers' statements."""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from multiberts.launch.plan.experiment import Experiment
from multiberts.runs.command_line.commands import COMMANDS, gin_name_of, load
from multiberts.runs.command_line.help import described_function, shell_lines, type_and_default
from multiberts.runs.figure_style import figure_bytes
from multiberts.runs.parameters import annotations_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGE = "reference/commands.md"
TUTORIAL = "tutorial.md"
STATEMENTS = "statements.md"

INTRODUCTION = """# Commands

`multiberts <command> --help` describes the common parameters, `--helpfull` all, as this page does. The
examples run in one folder: start with that of `world`.

A parameter is a flag (`--name=value`; one that is true or false needs no value: `--json`, `--nojson`), a
line of a Gin file (`--gin_file=...`: `evaluate.run_dir = "scores"`) or such a line on the command line
(`--gin_param=...`). Flags win over bindings on the command line, and these over files.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page of commands and the tutorial's pictures."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content="\n".join(commands_page())))
    for pictures in drawn(Path(config.docs_dir, TUTORIAL).read_text(encoding="utf-8")):
        for path, content in pictures.items():
            files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Shows below each block of the tutorial what it draws, and the papers' statements."""
    if page.file.src_uri == STATEMENTS:
        return _TABLE.sub(lambda name: statements_table(Path(config.docs_dir, name[1])), markdown)
    if page.file.src_uri != TUTORIAL:
        return markdown
    pictures = iter(drawn(markdown))
    return _BLOCK.sub(
        lambda block: "\n".join([block[0], "", *(f"![{p}]({p})" for p in next(pictures))]), markdown
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks flags, which the style keeps from being cut after their hyphens."""
    return re.sub(r"<code>(--[^\s<]+</code>)", r'<code class="flag">\1', html)


_TABLE = re.compile(r"\{\{ (\S+\.csv) \}\}")
_BLOCK = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)


def drawn(markdown: str) -> list[dict[str, bytes]]:
    """Runs a page's blocks in order.

    Returns:
      For each block, its figures: {path in the site: PNG}.
    """
    names: dict[str, Any] = {}
    figures: list[dict[str, bytes]] = []
    for block in _BLOCK.findall(markdown):
        before = dict(names)
        exec(compile(block, TUTORIAL, "exec"), names)
        figures.append(
            {
                f"tutorial/{name}.png": figure_bytes(value, "png")
                for name, value in names.items()
                if isinstance(value, Figure) and before.get(name) is not value
            }
        )
    return figures


def statements_table(file: Path) -> str:
    """Returns the table of a paper's statements in Markdown: below each, where it stands."""
    lines = ["| section | statement, and where it stands |", "|---|---|"]
    with file.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            where = [f"`{name}`" for name in row["where"].split("; ") if name]
            note = f"[{row['note']}](departures.md)" if row["status"] == "departs" else row["note"]
            here = f"*{row['status']}*: " + "; ".join(filter(None, [", ".join(where), note]))
            lines.append(f"| {row['section']} | {row['statement']}<br>{here} |")
    return "\n".join(lines)


def commands_page() -> Iterator[str]:
    """Yields the lines of the page on commands."""
    yield INTRODUCTION
    for name, command in COMMANDS.items():
        yield f"## {name}\n\n`multiberts {name}`: {command.summary}.\n"
        yield f"```shell\n{shell_lines(f'multiberts {name} {command.example}')}\n```\n"
        function = load(command.target)
        yield from _parameters(gin_name_of(function.__name__), function)
    yield "## The experiment\n\nSettings of `multiberts launch`, `launch.<name>` in Gin:\n"
    yield from _parameters("launch", Experiment)


def _parameters(gin_name: str, function: Callable[..., Any]) -> Iterator[str]:
    """Yields a function's description and a list of its parameters."""
    description, meanings, _ = described_function(function)
    annotations = annotations_of(function)
    shown = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "plan"
    }
    yield f"{description}\n"
    if not shown:
        return
    yield f"Parameters, as `--name=value` or `{gin_name}.name = value`:\n"
    for name, parameter in shown.items():
        kind = type_and_default(parameter, annotations[name])
        entry = f"- **`{name}`** ({kind}): {' '.join(meanings.get(name, []))}"
        yield re.sub("(`[^`]*`)|<", lambda found: found[1] or "&lt;", entry)
    yield ""
