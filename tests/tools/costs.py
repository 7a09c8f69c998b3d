"""Costs of the tests: a table of CPU and wall seconds by folder, and the costliest tests, after a run.

CPU seconds are those of pytest's processes, of processes that they waited for, and of warm ones. A machine
that has other work makes wall seconds longer, and hardly CPU seconds. `--costs=FILE` writes both tables as
Markdown, too.

`--units=tests/lint/budget.toml` compares folders with the budgets there. Machines differ by a factor of two,
so it counts in units: a unit is what a fixed piece of work takes, about two CPU seconds. Each of
pytest-xdist's workers measures it before, after, and every 15 seconds between its tests, as other work on
the machine comes and goes. The mean counts, as a cost is the sum of what was done at the speed of each
time: the median took a machine that was busy for a third of the time for a free one. A folder above its
budget is named, and the run fails where one is above by a fifth and all together are above, too.
"""

from __future__ import annotations

import collections
import gc
import math
import resource
import statistics
import time
import tomllib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.tests.tools import warm

_SHOWN = 25
_CPU = "CPU seconds"
_UNITS = "units"
_TOLERANCE = 1.2
_BLAMED = 3
_SECONDS_BETWEEN = 15.0  # two measurements of a unit
_SOURCE = "\n".join(
    f"def f{number}(x):\n    return [k or {{'a': x}}['a'] for k in range(x)]"
    for number in range(900)
)


def seconds_used() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + warm.Process.seconds_of_all


def unit() -> float:
    """CPU seconds of a fixed piece of work: an eighth of it is done, of the kinds that tests do."""
    gc.disable()  # it would walk through all that tests have left in memory
    started = time.process_time()
    compile(_SOURCE, "unit", "exec")  # branches, as in a compiler
    counts = collections.Counter[str]()
    for number in range(350_000):
        counts[str(number % 1000)] += number
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((400, 400)).astype(np.float32)
    for _ in range(6):
        matrix = np.exp(-np.abs(np.sort(matrix @ matrix, axis=1))) - 0.5
        rng.permutation(200_000).sum()
    for _ in range(30_000):
        np.add(1.0, 2.0)
    gc.enable()
    return 8 * (time.process_time() - started)


def folder_of(test: str) -> str:
    """Returns `tests/bert` of a test there, and the file of a test that lies in no folder."""
    return "/".join(Path(test.partition("::")[0]).parts[:2])


def over_budget(
    seconds: Mapping[str, float], one_unit: float, budgets: Mapping[str, float]
) -> tuple[list[str], bool]:
    """Returns a line for each folder above its budget, and whether the tests as a whole cost too much.

    They do if a folder is above by a fifth, and all together are above the sum: on another kind of machine
    TensorFlow may be slower, and NumPy faster, without a test that grew.

    Args:
      seconds: CPU seconds by test.
      one_unit: CPU seconds of a unit.
      budgets: units by folder; the last one, `rest`, is that of all others together.
    """
    tests = collections.defaultdict[str, list[str]](list)
    for test in seconds:
        folder = folder_of(test)
        tests[folder if folder in budgets else "rest"].append(test)
    units = {folder: sum(seconds[name] for name in tests[folder]) / one_unit for folder in budgets}
    lines = []
    for folder, found in units.items():
        if found > budgets[folder]:
            costliest = sorted(tests[folder], key=lambda name: -seconds[name])[:_BLAMED]
            blamed = ", ".join(f"{name} ({seconds[name] / one_unit:.1f})" for name in costliest)
            lines.append(
                f"{folder} takes {found:.1f} units of {one_unit:.1f} CPU seconds, its budget in tests/lint/"
                f"budget.toml is {budgets[folder]:g}; make tests cheaper, of which the costliest are {blamed}"
            )
    is_above = any(found > _TOLERANCE * budgets[folder] for folder, found in units.items())
    return lines, is_above and sum(units.values()) > sum(budgets.values())


class Costs:
    """A plugin of pytest; under pytest-xdist of each worker, which measures, and of their parent."""

    def __init__(self, file: str | None, budgets: str | None):
        self._file = file
        self._budgets = budgets
        self._seconds = 0.0
        self._tests: dict[str, tuple[float, float]] = {}
        self._units: list[float] = []
        self._next_unit = math.inf
        self._above: list[str] = []
        self._kind = "note"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if self._measures_units(session):
            self._measure_unit()

    def _measure_unit(self) -> None:
        self._units.append(unit())
        self._next_unit = time.monotonic() + _SECONDS_BETWEEN

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._measures_units(session):
            self._measure_unit()
            getattr(session.config, "workeroutput", {})[_UNITS] = self._units
        if self._budgets and self._units and not hasattr(session.config, "workerinput"):
            budgets = tomllib.loads(Path(self._budgets).read_text())[_UNITS]
            seconds = {name: cpu for name, (cpu, _) in self._tests.items()}
            self._above, fails = over_budget(seconds, statistics.fmean(self._units), budgets)
            self._kind = "error" if fails else "note"
            if fails and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _measures_units(self, session: pytest.Session) -> bool:
        """True where tests run: in each worker, or in the only process."""
        is_parent = bool(session.config.getoption("numprocesses", None))
        return bool(self._budgets) and (hasattr(session.config, "workerinput") or not is_parent)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._units += getattr(node, "workeroutput", {}).get(_UNITS, [])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Notes what the test has used; what fixtures and imports used is the first test's."""
        if time.monotonic() > self._next_unit:
            self._measure_unit()
        self._seconds = seconds_used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = seconds_used()
        # Each report has a copy of the list, which goes to pytest-xdist's parent.
        report.user_properties = [*report.user_properties, (_CPU, now - self._seconds)]
        self._seconds = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cpu, wall = self._tests.get(report.nodeid, (0.0, 0.0))
        cpu += sum(value for name, value in report.user_properties if name == _CPU)
        self._tests[report.nodeid] = cpu, wall + report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        table = self._table()
        terminalreporter.section("costs")
        terminalreporter.write_line(table)
        for line in self._above:
            terminalreporter.write_line(f"\n{self._kind}: {line}", red=self._kind == "error")
        if self._file is not None:
            Path(self._file).parent.mkdir(parents=True, exist_ok=True)
            Path(self._file).write_text(f"{table}\n", encoding="utf-8")

    def _table(self) -> str:
        folders: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0, 0.0])
        for name, (cpu, wall) in self._tests.items():
            for place, value in enumerate((1, cpu, wall)):
                folders[folder_of(name)][place] += value
        lines = ["| folder | tests | CPU s | wall s |", "|---|---:|---:|---:|"]
        rows = sorted(folders.items(), key=lambda row: -row[1][1])
        rows.append(("all", [sum(column) for column in zip(*folders.values(), strict=True)]))
        lines += [f"| {name} | {n:.0f} | {cpu:.1f} | {wall:.1f} |" for name, (n, cpu, wall) in rows]
        if self._units:
            mean, (low, high) = statistics.fmean(self._units), np.quantile(self._units, [0.1, 0.9])
            lines += ["", f"A unit of this machine: {mean:.2f} CPU s ({low:.2f} to {high:.2f})."]
        lines += ["", "| test | CPU s | wall s |", "|---|---:|---:|"]
        costliest = sorted(self._tests.items(), key=lambda row: -row[1][0])[:_SHOWN]
        lines += [f"| {name} | {cpu:.1f} | {wall:.1f} |" for name, (cpu, wall) in costliest]
        return "\n".join(lines)
