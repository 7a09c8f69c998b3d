"""Pages that mkdocs builds from the code: each command with its parameters."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from multiberts.launch.command import COMMANDS as LAUNCH_COMMANDS
from multiberts.launch.plan.experiment import make_plan
from multiberts.launch.sweeping import sweep
from multiberts.runs.command import COMMANDS, described_function
from multiberts.runs.parameters import annotations_of, described

PAGE = "reference/commands.md"

INTRODUCTION = """# Commands

`multiberts <command> --help` prints the same as this page. A parameter is a flag (`--name=value`), a binding
on the command line (`--gin_param="function.name = value"`) or a line of a Gin file (`--gin_file=...`);
flags win over bindings, and bindings over files.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated page."""
    files.append(File.generated(config, PAGE, content="\n".join(commands_page())))
    return files


def commands_page() -> Iterator[str]:
    """Yields the lines of the page on commands."""
    yield INTRODUCTION
    for name, command in COMMANDS.items():
        yield f"## {name}\n\n`multiberts {name}`: {command.summary}.\n"
        module, _, function_name = command.target.partition(":")
        function = getattr(importlib.import_module(f"multiberts.{module}"), function_name)
        if name == "launch":
            yield "Settings of the experiment, `launch.<name>` in Gin:\n"
            yield from _parameters("launch", make_plan)
            for part, launch_command in LAUNCH_COMMANDS.items():
                yield f"### launch {part}\n\n`multiberts launch {part}`: {launch_command.summary}.\n"
                yield from _parameters(launch_command.gin_name, launch_command.load())
        elif name == "sweep":
            yield from _parameters("sweep", sweep)
        elif function_name == "main":
            yield f"{inspect.getdoc(importlib.import_module(function.__module__))}\n"
        else:
            yield from _parameters(function.__name__, function)


def _parameters(gin_name: str, function: Callable[..., Any]) -> Iterator[str]:
    """Yields a function's description and a table of its parameters, by their name in Gin."""
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
    yield f"| {gin_name}. | type | default | meaning |\n|---|---|---|---|"
    for name, parameter in shown.items():
        required = parameter.default is parameter.empty
        default = "required" if required else f"`{_short(parameter.default)}`"
        cells = [f"`{name}`", described(annotations[name]), default]
        yield "| " + " | ".join(map(_cell, [*cells, " ".join(meanings.get(name, []))])) + " |"
    yield ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
