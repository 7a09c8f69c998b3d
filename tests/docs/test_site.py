"""The site: its Python blocks run, every page is in its menu, and it builds without a warning."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Pages whose blocks other tests run, with what the blocks should give.
ELSEWHERE = {
    "docs/paper.md",
    "docs/statistics.md",
    "docs/tasks.md",
    "docs/studies.md",  # tests/docs/test_studies.py makes its runs
    "docs/tutorial.md",
    "docs/zhong.md",
}


def pages_with_blocks() -> list[str]:
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    names = {str(page.relative_to(ROOT)) for page in pages if "```python" in page.read_text()}
    return sorted(names - ELSEWHERE)


def test_the_tutorial_shows_what_its_blocks_draw() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    pictures = hooks.drawn((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    assert [len(drawn) for drawn in pictures] == [0, 0, 1, 1, 1, 1, 1, 1]
    files = [content for drawn in pictures for content in drawn.values()]
    assert all(content.startswith(b"\x89PNG") for content in files)
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("page", pages_with_blocks())
def test_the_blocks_of_a_page_run_in_their_order(page: str, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    with contextlib.chdir(tmp_path):
        for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
            exec(compile(block, page, "exec"), names)


def test_every_page_is_in_the_menu() -> None:
    menu = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    pages = {page for page in pages if not page.endswith(".template.md")}
    assert menu == pages | {"reference/commands.md"}


def test_every_file_that_a_page_names_is_there() -> None:
    """A path below the checkout, or below a room, as the table of the architecture shortens them."""
    rooms = [ROOT, *(folder for folder in ROOT.iterdir() if (folder / "__init__.py").is_file())]
    # The page on tasks names the files that its reader writes.
    pages = [page for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")] if page.name != "tasks.md"]
    named = {
        (page.name, path)
        for page in pages
        if page.name != "CHANGELOG.md"
        for path in re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|gin|toml|j2))`", page.read_text())
    }
    assert len(named) > 30
    lost = [found for found in named if not any((room / found[1]).is_file() for room in rooms)]
    assert lost == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or not importlib.util.find_spec("mkdocstrings"):
        pytest.skip("needs mkdocs (the extra docs)")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    commands = (tmp_path / "site" / "reference" / "commands.html").read_text()
    assert "pretrain_seed" in commands and "launch doctor" in commands
    python = (tmp_path / "site" / "reference" / "python.html").read_text()
    in_index, after_see_also = (
        '<a href="#multiberts.stats.same"><code>',
        'title="same" href="#multiberts.stats.same"',
    )
    assert in_index in python and after_see_also in python
    # Three attributes that share an entry in their docstring have one each.
    assert "<blockquote>" not in python  # unknown headings of sections
    assert "(evaluation_set, metric)" not in python
