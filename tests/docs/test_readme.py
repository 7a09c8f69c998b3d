"""The commands of README and stages, and those of the page on tasks, run in order in an empty folder."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (("README.md", "docs/stages.md"), ("docs/tasks.md",))
# Installs, runs of make, and what needs the demo, which tests of its own run in small.
NOT_RUN = ("pip install", "make ", "multiberts launch")
# A file's name in the line before it, or none; a fenced block; or an indented one.
BLOCK = re.compile(
    r"(?:^`([\w./]+)`:\n\n)?^```(\w*)\n((?s:.*?))^```$|((?:^    .*\n|^\n(?=    ))+)", re.MULTILINE
)

# Forty commands, of which each would import TensorFlow anew.
COMMAND = """
import os, sys
from multiberts.tests.tools import warm
given = [warm.COMMAND, [sys.argv[1:]], os.getcwd()]
sys.exit(warm.Process(*given, kind=warm.TENSORFLOW, stdout=1, stderr=2).wait())
"""


def blocks(pages: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns the pages' blocks in order, as ("sh" or "python" or a file's name, text)."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    return [
        (name or language, fenced) if fenced else ("sh", textwrap.dedent(indented).strip())
        for name, language, fenced, indented in BLOCK.findall(text)
    ]


def run_blocks(pages: tuple[str, ...]) -> list[tuple[str, str]]:
    return [
        (kind, text)
        for kind, text in blocks(pages)
        if kind != "sh"
        or (text.startswith(("multiberts", "for ", "export ")) and not text.startswith(NOT_RUN))
    ]


def test_the_blocks_are_found() -> None:
    texts = [text for kind, text in run_blocks(PAGES[0]) if kind == "sh"]
    for command in ("compare", "prepare", "pretrain", "finetune", "sweep", "evaluate", "stats"):
        assert any(f"multiberts {command} " in text for text in texts), command
    assert {"reviews.gin", "my_tasks/review_stars.py"} <= {kind for kind, _ in blocks(PAGES[1])}


def test_the_readme_is_one_screen() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120 and len(text.split()) <= 900


@pytest.mark.slow
@pytest.mark.parametrize("pages", PAGES, ids=lambda pages: pages[-1])
def test_the_blocks_run_in_order(tmp_path: Path, pages: tuple[str, ...]) -> None:
    """In an empty folder, as from an installed wheel."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/multiberts"
    command.write_text(f"#!{sys.executable}\n{COMMAND}")
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        # Half the time went into making programs fast that run 40 steps.
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for kind, text in run_blocks(pages):
        if kind not in ("python", "sh"):
            (tmp_path / kind).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / kind).write_text(text)
            continue
        start = [sys.executable, "-c"] if kind == "python" else ["bash", "-euc"]
        # A page exports a folder relative to that of its reader.
        text = text.replace("export PYTHONPATH=", "export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}")
        done = subprocess.run(
            [*start, text], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    print(f"{spent:.0f} CPU seconds")
    if "README.md" in pages:
        assert (tmp_path / "results/answer.html").is_file()
        assert (tmp_path / "results/report/index.html").is_file()
