"""The examples in docstrings run and print what they show; every public class and function has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    facts_of,
    predictions_of,
    write_imported,
)
from multiberts.runs.command_line.command import described_function
from multiberts.tests import warm

ROOT = Path(__file__).parents[2]
# Its import takes longer than all examples.
OF_TENSORFLOW = {"bert.graph_tokenization", "bert.model.optimization"}
ROOMS = ("runs", "bert", "pretrain", "finetune", "evaluate", "stats", "launch")


def modules_with_examples() -> list[str]:
    """Returns the modules, below the package, whose docstrings hold an example."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    return sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if ">>> " in file.read_text()
    )


def public_modules() -> list[str]:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    names = re.findall(r"^::: multiberts\.(.+)$", page, flags=re.MULTILINE)
    return [name for name in names if name != "stats.compare.question.compare"]  # in stats, too


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yields what the page shows of a module: its own classes and functions, or those it exports."""
    exported = getattr(module, "__all__", None)
    for name in vars(module) if exported is None else exported:
        value = getattr(module, name)
        is_own = exported is not None or getattr(value, "__module__", None) == module.__name__
        if (
            is_own
            and not name.startswith("_")
            and (inspect.isclass(value) or inspect.isroutine(value))
        ):
            yield name, value


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


def tried(name: str, **given: Any) -> tuple[int, int]:
    """Runs a module's examples; returns how many there are, and how many print something else."""
    module = importlib.import_module(f"multiberts.{name}")
    found = doctest.DocTestFinder().find(module, extraglobs=given)
    results = [doctest.DocTestRunner().run(test) for test in found]
    return sum(result.attempted for result in results), sum(result.failed for result in results)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_print_what_they_show(name: str, with_runs: None, request: Any) -> None:
    if name in OF_TENSORFLOW:
        attempted, failed = warm.call("docs.test_examples:tried", name, kind=warm.TENSORFLOW)
    else:
        attempted, failed = tried(name, getfixture=request.getfixturevalue)
    assert attempted > 0 and failed == 0


@pytest.mark.parametrize("name", public_modules())
def test_what_is_public_has_an_example(name: str) -> None:
    module = importlib.import_module(f"multiberts.{name}")
    # Protocols and typed dictionaries say what others provide: docs/tasks.md goes through an example.
    missing = [
        public
        for public, value in public_names(module)
        if ">>> " not in (value.__doc__ or "")
        and not getattr(value, "_is_protocol", False)
        and not hasattr(value, "__required_keys__")
    ]
    assert missing == []


@pytest.mark.parametrize("name", public_modules())
def test_what_is_public_describes_its_methods_and_parameters(name: str) -> None:
    module = importlib.import_module(f"multiberts.{name}")
    undescribed = []
    for public, value in public_names(module):
        if inspect.isclass(value):
            undescribed += [
                f"{public}.{method}"
                for method, function in vars(value).items()
                if not method.startswith("_")
                if inspect.isroutine(function) or isinstance(function, property)
                if not function.__doc__
            ]
            continue
        described = described_function(value)[1]
        undescribed += [
            f"{public}({one.name})"
            for one in inspect.signature(value).parameters.values()
            if described and one.name not in described and one.kind is not one.VAR_KEYWORD
        ]
    assert undescribed == []


def test_every_statistic_names_its_neighbours_and_its_source() -> None:
    """Readers and writers have no source; results and settings have that of the function that makes them."""
    statistics = dict(public_names(importlib.import_module("multiberts.stats")))
    readers = {"read", "write_html"}
    without = [name for name, value in statistics.items() if "See also:" not in value.__doc__]
    functions = {name for name, value in statistics.items() if inspect.isfunction(value)} - readers
    unsourced = [name for name in functions if "Reference:" not in statistics[name].__doc__]
    assert (without, unsourced) == ([], [])
