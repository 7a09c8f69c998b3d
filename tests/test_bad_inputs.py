"""Bad values at the door: a table of commands, parameters and values, and the one line each gets.

`bad_inputs.csv` has a row for each: the command, the parameter, the value in Gin, and the line on
standard error. Every tenth row is tried in `make test`, all of them in `make test-all`. To try all, or
those of some commands, and count what came of them; or to write the lines anew after a change of
annotations (read the diff):

    python tests/test_bad_inputs.py [--write] [command ...]
"""

from __future__ import annotations

import collections
import csv
import inspect
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from multiberts.runs.command import COMMANDS, _load
from multiberts.runs.parameters import annotations_of, fits

TABLE = Path(__file__).with_name("bad_inputs.csv")
COLUMNS = ("command", "parameter", "value", "line")
PROGRAM = "from multiberts.runs.command import main; main()"
CLEAR, OTHER, TRACEBACK, SILENT, ENDLESS = OUTCOMES = (
    "clear line",
    "another line, or files left",
    "traceback",
    "silent",
    "endless",
)
# A value of each kind, for the parameters that a command needs besides the one that is tried.
PLACEHOLDERS: tuple[Any, ...] = (
    "nowhere",
    3,
    0.5,
    False,
    ["nowhere"],
    [3],
    {"a": "b"},
    [{"a": "b"}],
)


def rows() -> list[dict[str, str]]:
    with TABLE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def parameters() -> Iterator[Any]:
    for number, row in enumerate(rows()):
        marks = () if number % 10 == 0 else pytest.mark.slow
        yield pytest.param(row, id=f"{row['parameter']}={row['value']}", marks=marks)


def bindings(row: dict[str, str]) -> list[str]:
    """Returns the Gin bindings of a call whose only fault is the row's value."""
    function = _load(COMMANDS[row["command"]].target)
    stage, _, tried = row["parameter"].partition(".")
    annotations = annotations_of(function)
    needed = {
        name: next(
            value
            for value in (*PLACEHOLDERS, *typing.get_args(annotations[name]))
            if fits(value, annotations[name])
        )
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and name != tried
    }
    values = [f"{stage}.{name} = {value!r}" for name, value in needed.items()]
    return [*values, f"{row['parameter']} = {row['value']}"]


def outcome(row: dict[str, str], folder: Path) -> tuple[str, str]:
    """Returns what came of a row's command in an empty folder, and what it printed as an error."""
    given = [f"--gin_param={binding}" for binding in bindings(row)]
    try:
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, row["command"], *given],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return ENDLESS, ""
    if result.returncode == 0:
        return SILENT, result.stderr
    if "Traceback" in result.stderr:
        return TRACEBACK, result.stderr
    found = (result.returncode, result.stdout, result.stderr, list(folder.iterdir()))
    return CLEAR if found == (2, "", row["line"] + "\n", []) else OTHER, result.stderr


@pytest.mark.parametrize("row", parameters())
def test_a_bad_value_gets_one_line_and_leaves_nothing(tmp_path: Path, row: dict[str, str]) -> None:
    kind, printed = outcome(row, tmp_path)
    assert (kind, printed) == (CLEAR, row["line"] + "\n")


def test_the_table_has_rows_for_every_command_with_parameters() -> None:
    assert len(rows()) >= 475
    assert {row["command"] for row in rows()} == {
        name for name, command in COMMANDS.items() if not command.target.endswith(":main")
    }


def main(commands: set[str], writes: bool) -> int:
    """Tries the rows of some commands (none: of all), prints how many had each outcome.

    Returns:
      The status to exit with: 1 if any row has another outcome than a clear line.
    """

    def tried(row: dict[str, str]) -> tuple[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            return outcome(row, Path(folder))

    table = rows()
    wanted = [row for row in table if not commands or row["command"] in commands]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(tried, wanted))
    for row, (kind, printed) in zip(wanted, found, strict=True):
        if kind == OTHER and writes and printed.count("\n") == 1:
            row["line"] = printed.strip()
        elif kind != CLEAR:
            print(f"{kind}: {row['parameter']} = {row['value']}: {printed.strip()[-300:]}")
    if writes:
        with TABLE.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    counts = collections.Counter(kind for kind, _ in found)
    for kind in OUTCOMES:
        print(f"{kind:<28} {counts[kind]:>4} of {len(wanted)}")
    return int(counts[CLEAR] != len(wanted))


if __name__ == "__main__":
    given = set(sys.argv[1:])
    sys.exit(main(given - {"--write"}, writes="--write" in given))
