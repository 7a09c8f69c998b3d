"""The commands of the README and of the page on the stages, run literally and in order in an empty folder."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/stages.md")
# Installs, runs of make, and what needs the demo, which tests of its own run in small.
NOT_RUN = ("pip install", "make ", "multiberts launch")


def blocks() -> list[tuple[str, str]]:
    """Returns the pages' blocks in order, as ("sh" or "python", text)."""
    found: list[tuple[str, str]] = []
    kind, lines = "", []
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    for line in [line for text in texts for line in (*text.splitlines(), "")]:
        if line.startswith("```"):
            if kind == "python":
                found.append((kind, "\n".join(lines)))
            kind, lines = ("", []) if kind == "python" else ("python", [])
        elif kind == "python" or line.startswith("    ") or (kind == "sh" and not line):
            kind = kind or "sh"
            lines.append(line)
        elif kind == "sh":
            found.append((kind, textwrap.dedent("\n".join(lines)).strip()))
            kind, lines = "", []
    return found


def run_blocks() -> list[tuple[str, str]]:
    return [
        (kind, text) for kind, text in blocks() if kind == "python" or not text.startswith(NOT_RUN)
    ]


def test_the_blocks_are_found() -> None:
    texts = [
        text
        for kind, text in run_blocks()
        if kind == "sh" and text.startswith(("multiberts", "for "))
    ]
    for command in ("compare", "prepare", "pretrain", "finetune", "sweep", "evaluate", "stats"):
        assert any(f"multiberts {command} " in text for text in texts), command


def test_the_readme_is_one_screen() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120 and len(text.split()) <= 900


@pytest.mark.slow
def test_the_blocks_run_in_order(tmp_path: Path) -> None:
    """In an empty folder, as from an installed wheel."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/multiberts"
    call = "from multiberts.runs.command_line.command import main; main()"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{call}" "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for kind, text in run_blocks():
        start = [sys.executable, "-c"] if kind == "python" else ["bash", "-euc"]
        if kind == "sh" and not text.startswith(("multiberts", "for ")):
            continue  # a picture in letters
        done = subprocess.run(
            [*start, text], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    print(f"{spent:.0f} CPU seconds")
    assert (tmp_path / "results/answer.html").is_file()
    assert (tmp_path / "results/report/index.html").is_file()
