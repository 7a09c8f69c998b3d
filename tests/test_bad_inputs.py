"""Bad values at the door: a table of commands, parameters and values, and the one line each gets.

`bad_inputs.csv` has a row for each: the command, the parameter, the value in Gin, and the line on
standard error. Every tenth row is tried in `make test`, all of them in `make test-all`.
"""

from __future__ import annotations

import csv
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multiberts.runs.command import COMMANDS, _load
from multiberts.runs.parameters import annotations_of, fits

TABLE = Path(__file__).with_name("bad_inputs.csv")
PROGRAM = "from multiberts.runs.command import main; main()"
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


def rows() -> Iterator[Any]:
    with TABLE.open(newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream)):
            marks = () if number % 10 == 0 else pytest.mark.slow
            yield pytest.param(row, id=f"{row['parameter']}={row['value']}", marks=marks)


@pytest.mark.parametrize("row", rows())
def test_a_bad_value_gets_one_line_and_leaves_nothing(tmp_path: Path, row: dict[str, str]) -> None:
    function = _load(COMMANDS[row["command"]].target)
    stage, _, tried = row["parameter"].partition(".")
    annotations = annotations_of(function)
    needed = {
        name: next(value for value in PLACEHOLDERS if fits(value, annotations[name]))
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and name != tried
    }
    bindings = [f"{stage}.{name} = {value!r}" for name, value in needed.items()]
    bindings.append(f"{row['parameter']} = {row['value']}")
    result = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, row["command"]),
            *(f"--gin_param={binding}" for binding in bindings),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (result.returncode, result.stdout, result.stderr) == (2, "", row["line"] + "\n")
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_rows_for_every_command_with_parameters() -> None:
    with TABLE.open(newline="") as stream:
        tried = {row["command"] for row in csv.DictReader(stream)}
    assert tried == {
        name for name, command in COMMANDS.items() if not command.target.endswith(":main")
    }
