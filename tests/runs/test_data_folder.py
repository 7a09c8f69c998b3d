"""Paths `data:<path>` of Gin files: below the macro DATA, or one line that asks for it."""

import subprocess
from pathlib import Path

import gin
import pytest

from multiberts.runs.command_line.gin_files import in_data_folder, parse_gin
from multiberts.runs.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_parsed():
    gin.clear_config()
    yield
    gin.clear_config()


def test_paths_at_any_depth_are_put_below_the_folder():
    parse_gin([], ["DATA = '/folder'"])
    value = {"files": ["data:a/b.txt", "c.txt"], "folder": "data:d", "seed": 3, "none": None}
    assert in_data_folder(value) == {
        "files": ["/folder/a/b.txt", "c.txt"],
        "folder": "/folder/d",
        "seed": 3,
        "none": None,
    }


def test_without_the_macro_it_is_asked_for():
    assert in_data_folder(["a", {"b": 1}]) == ["a", {"b": 1}]
    with pytest.raises(UserError, match="'data:glue/RTE', but DATA"):
        in_data_folder({"data_dir": "data:glue/RTE"})


def test_nothing_that_is_shipped_names_a_folder_outside_the_checkout():
    found = subprocess.run(
        ["git", "grep", "-n", r"\.\./shared", "--", "configs", "README.md", "Makefile", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if found.returncode not in (0, 1):
        pytest.skip("needs git and a checkout")
    assert found.stdout == ""
