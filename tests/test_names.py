"""Names mean one thing in the tree: no module is called like its function, no class like another."""

from __future__ import annotations

import ast
import collections
import functools
import re
from pathlib import Path

import pytest

import multiberts
from multiberts.runs import ROOMS

pytestmark = pytest.mark.seconds

ROOT = Path(multiberts.__file__).resolve().parent
NOUNS = "The|What|Whether|Which"


@functools.cache
def modules() -> dict[Path, str]:
    """Their texts: to parse all of them would take seconds."""
    paths = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {path: path.read_text() for path in paths}


def defined(kind: str) -> list[tuple[Path, str]]:
    """Names of the functions or classes of each module, without those within others."""
    pattern = re.compile(rf"^{kind} (\w+)", re.MULTILINE)
    return [(path, name) for path, text in modules().items() for name in pattern.findall(text)]


def test_no_module_has_the_name_of_a_function_in_it() -> None:
    functions = defined("def")
    assert len(functions) > 1000
    assert [path.relative_to(ROOT) for path, name in functions if name == path.stem] == []


def test_a_class_name_means_one_thing() -> None:
    places = collections.defaultdict(list)
    for path, name in defined("class"):
        places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_packages_hold_names_and_no_code() -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    code = [
        path.relative_to(ROOT)
        for path, text in modules().items()
        if path.name == "__init__.py"
        for node in ast.parse(text).body
        if not isinstance(node, allowed)
    ]
    assert code == []


def test_no_folder_has_more_than_twenty_modules() -> None:
    sizes = collections.Counter(path.parent for path in modules())
    assert max(sizes.values()) <= 20


def test_functions_begin_their_docstring_with_a_verb() -> None:
    nouns = [
        (path.relative_to(ROOT), node.name)
        for path, text in modules().items()
        if re.search(rf'^ +"""({NOUNS}) ', text, re.MULTILINE)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and re.match(rf"({NOUNS}) ", ast.get_docstring(node) or "")
    ]
    assert nouns == []
