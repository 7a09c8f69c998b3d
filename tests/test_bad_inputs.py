"""Bad values at the door: a table of commands, parameters and values, and the one line each gets.

`bad_inputs.csv` has a row for each kind of fault: the command, the parameter, the value in Gin, and the line
on standard error. That a value of another type is refused holds for every parameter, and is tried without
a table. Every third row is tried in `make test`, all of them in `make test-all`. To try all, or those of
some commands, and count what came of them; or to write the lines anew (read the diff):

    python tests/test_bad_inputs.py [--write] [command ...]
"""

from __future__ import annotations

import collections
import csv
import functools
import inspect
import re
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multiberts.runs.command_line.commands import COMMANDS, gin_name_of, load
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import annotations_of, check_arguments, fits
from multiberts.tests.tools import warm

TABLE = Path(__file__).with_name("bad_inputs.csv")
COLUMNS = ("command", "parameter", "value", "line")
# None takes a second; a row that takes this long is called endless.
SECONDS_AT_MOST = 600
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
    "sentences",
    ["nowhere"],
    [3],
    {"a": "b"},
    [{"a": "b"}],
)
# What rows of `launch` change.
EXPERIMENT = (
    "launch.root = 'root'",
    "launch.corpora = ['text']",
    "launch.procedures = ['base']",
    "launch.pretrain_seeds = [0, 1]",
    "launch.tasks = ['facts']",
    "launch.learning_rates = [1e-3]",
    "prepare.sources = ['world:corpus.txt']",
    "prepare.source_format = 'sentences'",
    "make_world.num_documents = 30",
    "pretrain.model = {}",
    "pretrain.num_steps = 1000",
    "finetune.data_dir = 'world:facts'",
)


@functools.cache
def rows() -> list[dict[str, str]]:
    with TABLE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def parameters() -> Iterator[Any]:
    for number, row in enumerate(rows()):
        marks = () if number % 3 == 0 else pytest.mark.slow
        yield pytest.param(number, id=f"{row['parameter']}={row['value']}", marks=marks)


def bindings(row: dict[str, str]) -> list[str]:
    """Returns the Gin bindings of a call whose only fault is the row's value."""
    command = row["command"]
    if command.startswith(("launch", "sweep")):
        return [*EXPERIMENT, f"{row['parameter']} = {row['value']}"]
    function = load(COMMANDS[command].target)
    stage, tried = gin_name_of(function.__name__), row["parameter"].partition(".")[2]
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


def try_row(row: dict[str, str]) -> tuple[str, str]:
    """Returns what came of a row's command in an empty folder, and what it printed as an error."""
    given = [*row["command"].split(), *(f"--gin_param={binding}" for binding in bindings(row))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "folder")
        folder.mkdir()
        try:
            done = warm.run(given, folder, timeout=SECONDS_AT_MOST)
        except subprocess.TimeoutExpired:
            return ENDLESS, ""
        files = list(folder.iterdir())
    if done.returncode == 0:
        return SILENT, done.stderr
    if "Traceback" in done.stderr:
        return TRACEBACK, done.stderr
    found = (done.returncode, done.stdout, done.stderr, files)
    return CLEAR if found == (2, "", row["line"] + "\n", []) else OTHER, done.stderr


@pytest.mark.parametrize("number", parameters())
def test_a_bad_value_gets_one_line_and_leaves_nothing(number: int) -> None:
    row = rows()[number]
    assert try_row(row) == (CLEAR, row["line"] + "\n")


def obeyed() -> Iterator[Any]:
    """Yields the rows whose line says what would be right."""
    for number, row in enumerate(rows()):
        if (bindings_as_said := corrected(row)) is not None:
            marks = () if number % 11 == 0 else pytest.mark.slow
            name = f"{row['parameter']}={row['value']}"
            yield pytest.param(row, bindings_as_said, id=name, marks=marks)


def corrected(row: dict[str, str]) -> list[str] | None:
    """Returns a row's bindings with what its line says in place of the fault; None where it says nothing."""
    parameter, line, value = row["parameter"], row["line"], row["value"]
    others = [text for text in bindings(row)[:-1] if not text.startswith(f"{parameter} =")]
    said = re.search(r" is .*, expected (.*); (?:correct it|change it)$", line)
    if said is not None and (right := value_as_said(said[1])) is not None:
        return [*others, f"{parameter} = {right}"]
    near = re.search(r"'(\w+)'.*; did you mean ([\w-]+)", line)
    if near is not None:
        return [*others, f"{parameter} = {value}".replace(near[1], near[2], 1)]
    instead = re.search(r"; set ([\w.]+) instead$", line)
    if instead is not None:
        kept = [text for text in others if not text.startswith(f"{instead[1]} =")]
        return [*kept, f"{instead[1]} = {value if value != '3' else [3]}"]
    if "leave it out" in line:
        return others
    return None


def value_as_said(expected: str) -> str | None:
    """Returns a value, as Gin has it, that a line calls right; None where the line has no such value.

    Examples:
      >>> value_as_said("int at least 5 or None"), value_as_said("list of str"), value_as_said("'a' or 'b'")
      ('5', "['nowhere']", "'a'")
    """
    for words, form in (("list of ", "[{}]"), ("mapping of str to ", "{{'a': {}}}")):
        if expected.startswith(words):
            return form.format(value_as_said(expected.removeprefix(words)))
    quoted = re.match(r"'\w+'", expected)
    if quoted is not None:
        return quoted[0]
    low = re.search(r"at least ([\d.]+)", expected)
    high = re.search(r"at most ([\d.]+)", expected)
    kinds = {"str": "'nowhere'", "bool": "True", "any": "3", "int": "3", "float": "0.5"}
    kind = re.match(r"\w+", expected)
    if kind is None or kind[0] not in kinds:
        return None
    return low[1] if low else high[1] if high else kinds[kind[0]]


@pytest.mark.parametrize(("row", "right"), obeyed())
def test_what_a_line_calls_right_is_taken(row: dict[str, str], right: list[str]) -> None:
    """The next line, if there is one, is about something else."""
    command = row["command"].replace("launch run", "launch plan")
    with tempfile.TemporaryDirectory() as folder:
        given = [*command.split(), *(f"--gin_param={binding}" for binding in right)]
        done = warm.run(given, Path(folder), timeout=SECONDS_AT_MOST)
    assert "Traceback" not in done.stderr
    expected = row["line"].partition(", expected ")[2] or row["line"]
    again = [text for text in done.stderr.splitlines() if text.endswith(expected)]
    assert not [text for text in again if text.startswith(f"error: {row['parameter']} ")], again
    assert row["line"] not in again


def test_the_table_has_rows_for_every_command_with_parameters() -> None:
    expected = {
        name for name in COMMANDS if inspect.signature(load(COMMANDS[name].target)).parameters
    }
    assert {row["command"] for row in rows()} == expected


def test_a_value_of_no_known_type_is_refused_for_every_parameter() -> None:
    functions = [load(command.target) for command in COMMANDS.values()]
    tried = 0
    for function in functions:
        for name, annotation in annotations_of(function).items():
            if annotation is Any:
                continue
            with pytest.raises(UserError, match=rf"\.{name} is .*, expected .*; correct it"):
                check_arguments(function, {name: {3: object()}})
            tried += 1
    assert tried > 200


def main(commands: set[str], writes: bool) -> int:
    """Tries the rows of some commands (none: of all), prints how many had each outcome.

    Returns:
      The status to exit with: 1 if any row has another outcome than a clear line.
    """
    table = rows()
    wanted = [row for row in table if not commands or row["command"] in commands]
    counts = collections.Counter[str]()
    for row in wanted:
        kind, printed = try_row(row)
        counts[kind] += 1
        if kind == OTHER and writes and printed.count("\n") == 1:
            row["line"] = printed.strip()
        elif kind != CLEAR:
            print(f"{kind}: {row['parameter']} = {row['value']}: {printed.strip()[-300:]}")
    if writes:
        with TABLE.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    for kind in OUTCOMES:
        print(f"{kind:<28} {counts[kind]:>4} of {len(wanted)}")
    return int(counts[CLEAR] != len(wanted))


if __name__ == "__main__":
    given = set(sys.argv[1:])
    with warm.servers():
        sys.exit(main(given - {"--write"}, writes="--write" in given))
