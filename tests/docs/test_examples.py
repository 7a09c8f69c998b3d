"""The examples in docstrings run and print what they show; every public class and function has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from multiberts import stats
from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    facts_of,
    predictions_of,
    write_imported,
)
from multiberts.papers import b3, zhong
from multiberts.runs import ROOMS
from multiberts.runs.command_line.help import described_function
from multiberts.tests.tools import warm

ROOT = Path(__file__).parents[2]
# Its import takes longer than all examples.
OF_TENSORFLOW = {"bert.graph_tokenization", "bert.model.optimization"}
PACKAGES = (stats, b3, zhong)


def modules_with_examples() -> list[str]:
    """Returns the modules, below the package, whose docstrings hold an example."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    return sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if ">>> " in file.read_text()
    )


def public_names() -> list[str]:
    """Returns the paths, below the package, of what the page on Python describes."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    return re.findall(r"^::: multiberts\.(.+)$", page, flags=re.MULTILINE)


def public(name: str) -> Any:
    return resolve_name(f"multiberts.{name}")


@pytest.fixture
def with_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two finished runs of RTE, as the examples read them."""
    monkeypatch.chdir(tmp_path)
    ids = [f"rte/dev/{number}" for number in range(3)]
    for seed, predictions in enumerate(([1, 0, 1], [1, 1, 1])):
        scores = np.eye(2)[predictions]
        predictions = predictions_of(ids, [1, 0, 1], np.array(predictions), scores)
        run = ImportedRun(
            f"seed_{seed}",
            facts_of("RTE", "base", seed, 0, "an example"),
            (),
            lambda predictions=predictions: [ImportedSet("dev", predictions, ("accuracy",))],
        )
        write_imported("runs", "example", run)


class Runner(doctest.DocTestRunner):
    """Lets an example skip the test, as one that starts a process does with `--quick`."""

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, error: Any) -> None:
        if isinstance(error[1], pytest.skip.Exception):
            raise error[1]
        super().report_unexpected_exception(out, test, example, error)


def tried(name: str, **given: Any) -> tuple[int, int]:
    """Runs a module's examples; returns how many there are, and how many print something else."""
    module = importlib.import_module(f"multiberts.{name}")
    found = doctest.DocTestFinder().find(module, extraglobs=given)
    results = [Runner().run(test) for test in found]
    return sum(result.attempted for result in results), sum(result.failed for result in results)


@pytest.mark.parametrize(
    "name",
    [
        # It compiles; test_graph_tokenization.py compares the same words and ids.
        pytest.param(name, marks=pytest.mark.slow) if name == "bert.graph_tokenization" else name
        for name in modules_with_examples()
    ],
)
def test_examples_print_what_they_show(name: str, with_runs: None, request: Any) -> None:
    if name in OF_TENSORFLOW:
        attempted, failed = warm.call("docs.test_examples:tried", name, kind=warm.TENSORFLOW)
    else:
        attempted, failed = tried(name, getfixture=request.getfixturevalue)
    assert attempted > 0 and failed == 0


@pytest.mark.parametrize("name", public_names())
def test_what_is_public_has_an_example(name: str) -> None:
    assert ">>> " in public(name).__doc__


@pytest.mark.parametrize("name", public_names())
def test_what_is_public_describes_its_methods_and_parameters(name: str) -> None:
    value = public(name)
    if inspect.isclass(value):
        undescribed = [
            method
            for method, function in vars(value).items()
            if not method.startswith("_")
            if inspect.isroutine(function) or isinstance(function, property)
            if not function.__doc__
        ]
    else:
        described = described_function(value)[1]
        undescribed = [
            one.name
            for one in inspect.signature(value).parameters.values()
            if described and one.name not in described and one.kind is not one.VAR_KEYWORD
        ]
    assert undescribed == []


def test_the_page_on_python_has_every_name_that_the_statistics_export() -> None:
    exported = {
        f"{package.__name__}.{name}".replace(".papers.", ".stats.")
        for package in PACKAGES
        for name in package.__all__
    }
    of_page = {
        f"multiberts.{name}".replace("stats.compare.two_arms.", "stats.")
        for name in public_names()
        if name.startswith("stats.")
    }
    # Packages and a dictionary: the page has them in its text.
    others = {"multiberts.stats.b3", "multiberts.stats.zhong", "multiberts.stats.METRICS"}
    assert exported - others == of_page


def test_every_statistic_names_its_neighbours_and_its_source() -> None:
    """Readers and writers have no source; results and settings have that of the function that makes them."""
    statistics = {
        name: public(name)
        for name in public_names()
        if re.fullmatch(r"stats\.(\w+|.*\.compare)", name)
    }
    readers = {"stats.read", "stats.write_html"}
    without = [name for name, value in statistics.items() if "See also:" not in value.__doc__]
    functions = {name for name, value in statistics.items() if inspect.isfunction(value)} - readers
    unsourced = [name for name in functions if "Reference:" not in statistics[name].__doc__]
    assert (without, unsourced) == ([], [])
