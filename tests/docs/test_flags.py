"""Every command of the docs and of the headers of configurations has the flags that it is given there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multiberts.runs.command_line.commands import COMMANDS, load

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "configs").rglob("*.gin")),
]
SHARED = {"gin_file", "gin_param", "help", "helpfull", "engine", "allow_gin_imports"}


def flags_of(name: str) -> set[str]:
    command = COMMANDS[name]
    annotations = load(command.arguments)(load(command.target)).flags()
    return {*annotations, *(f"no{flag}" for flag in annotations)} | SHARED


def given(page: Path) -> list[tuple[str, str]]:
    """Returns each flag with its command; a command may go on after a line's end."""
    text = re.sub(r"\\\n#?", " ", page.read_text(encoding="utf-8"))
    text = text.replace("multiberts launch --", "multiberts launch run --")
    commands = re.findall(
        r"multiberts ((?:checkpoint |launch |stats (?!-))?[a-z]+) ([^\n`|;]*)", text
    )
    return [
        (name, flag)
        for name, rest in commands
        if name in COMMANDS
        for flag in re.findall(r"(?<!\S)--([a-z_]+)", rest)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_exist(page: Path) -> None:
    assert [(name, flag) for name, flag in given(page) if flag not in flags_of(name)] == []


def test_commands_are_found() -> None:
    assert sum(len(given(page)) for page in PAGES) > 100
