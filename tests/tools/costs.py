"""What the tests cost: a table of CPU and wall seconds by folder, and the costliest tests, after a run.

CPU seconds are those of pytest's processes, of processes that they waited for, and of warm ones. A machine
that has other work makes wall seconds longer, and hardly CPU seconds. `--costs=FILE` writes both tables as
Markdown, too.
"""

from __future__ import annotations

import collections
import resource
from collections.abc import Generator
from pathlib import Path

import pytest

from multiberts.tests.tools import warm

_SHOWN = 25
_CPU = "CPU seconds"


def seconds_used() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + warm.Process.seconds_of_all


class Costs:
    """A plugin of pytest; under pytest-xdist of each worker, which measures, and of their parent."""

    def __init__(self, file: str | None):
        self._file = file
        self._seconds = 0.0
        self._tests: dict[str, tuple[float, float]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Notes what the test has used; what fixtures and imports used is the first test's."""
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
        if self._file is not None:
            Path(self._file).parent.mkdir(parents=True, exist_ok=True)
            Path(self._file).write_text(f"{table}\n", encoding="utf-8")

    def _table(self) -> str:
        folders: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0, 0.0])
        for name, (cpu, wall) in self._tests.items():
            folder = "/".join(Path(name.partition("::")[0]).parts[:2])
            for place, value in enumerate((1, cpu, wall)):
                folders[folder][place] += value
        lines = ["| folder | tests | CPU s | wall s |", "|---|---:|---:|---:|"]
        rows = sorted(folders.items(), key=lambda row: -row[1][1])
        rows.append(("all", [sum(column) for column in zip(*folders.values(), strict=True)]))
        lines += [f"| {name} | {n:.0f} | {cpu:.1f} | {wall:.1f} |" for name, (n, cpu, wall) in rows]
        lines += ["", "| test | CPU s | wall s |", "|---|---:|---:|"]
        costliest = sorted(self._tests.items(), key=lambda row: -row[1][0])[:_SHOWN]
        lines += [f"| {name} | {cpu:.1f} | {wall:.1f} |" for name, (cpu, wall) in costliest]
        return "\n".join(lines)
