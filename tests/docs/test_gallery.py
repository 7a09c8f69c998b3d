"""The gallery: its blocks draw, and no figure of the statistics is missing."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from multiberts.runs import figure_style

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODULES = ("stats.presentation.figures", "stats.paper.figures", "stats.zhong.figures")


@pytest.mark.seconds
def test_every_block_but_the_first_draws_pictures(monkeypatch):
    monkeypatch.setitem(figure_style._SETTINGS, "savefig.dpi", 40)
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    first, *others = hooks.drawn((DOCS / "gallery.md").read_text(encoding="utf-8"))
    assert first == {} and all(others)
    pictures = {path: content for block in others for path, content in block.items()}
    assert len(pictures) == sum(map(len, others)) >= 25  # none under the name of another
    assert all(content.startswith(b"\x89PNG") for content in pictures.values())
    assert len(set(pictures.values())) == len(pictures)


def test_every_figure_is_named():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for name in MODULES:
        module = importlib.import_module(f"multiberts.{name}")
        figures = [
            function.__name__
            for _, function in inspect.getmembers(module, inspect.isfunction)
            if not function.__name__.startswith("_")
            and inspect.signature(function).return_annotation == "Figure"
        ]
        assert (
            figures and [found for found in figures if not re.search(rf"\b{found}\b", page)] == []
        )
