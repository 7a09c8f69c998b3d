"""Names mean one thing in the tree: no module is called like its function, no class like another."""

from __future__ import annotations

import ast
import collections
import functools
from pathlib import Path

import pytest

import multiberts

pytestmark = pytest.mark.seconds

ROOT = Path(multiberts.__file__).resolve().parent
ROOMS = ("runs", "bert", "pretrain", "finetune", "evaluate", "stats", "launch")


@functools.cache
def modules() -> dict[Path, ast.Module]:
    paths = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {path: ast.parse(path.read_text()) for path in paths}


def definitions() -> list[tuple[Path, ast.stmt]]:
    return [(path, node) for path, module in modules().items() for node in module.body]


def test_no_module_has_the_name_of_a_function_in_it() -> None:
    same = [
        path.relative_to(ROOT)
        for path, node in definitions()
        if isinstance(node, ast.FunctionDef) and node.name == path.stem
    ]
    assert same == []


def test_a_class_name_means_one_thing() -> None:
    places = collections.defaultdict(list)
    for path, node in definitions():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_packages_hold_names_and_no_code() -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    code = [
        path.relative_to(ROOT)
        for path, node in definitions()
        if path.name == "__init__.py" and not isinstance(node, allowed)
    ]
    assert code == []


def test_no_folder_has_more_than_twenty_modules() -> None:
    sizes = collections.Counter(path.parent for path in modules())
    assert max(sizes.values()) <= 20


def test_functions_begin_their_docstring_with_a_verb() -> None:
    nouns = [
        (path.relative_to(ROOT), node.name)
        for path, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef)
        and (ast.get_docstring(node) or "").startswith(("The ", "What ", "Whether ", "Which "))
    ]
    assert nouns == []
