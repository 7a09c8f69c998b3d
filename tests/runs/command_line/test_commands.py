"""The table of commands: its examples work, each command says what it made, and the table is light."""

import inspect
import re
import shlex
import subprocess
from collections.abc import Callable

import pytest

from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.tests.tools import warm

RunPython = Callable[..., subprocess.CompletedProcess[str]]

# The examples that run one after the other in an empty folder.
IN_ORDER = (
    *("world", "compare", "reproduce", "import", "holdout", "prepare", "pretrain", "show"),
    *("checkpoint inspect", "checkpoint convert", "checkpoint compare"),
    *("finetune", "predict", "sweep", "evaluate", "export", "stats rates"),
    *("launch plan", "launch run", "launch status", "stats", "paper", "list"),
)
# They want an account, half a minute of training or two sizes of models.
NOT_RUN = {"push", "launch doctor", "stats instances"}


def test_examples_of_help_have_flags_of_their_command():
    assert {*IN_ORDER} | NOT_RUN == COMMANDS.keys()
    for name, command in COMMANDS.items():
        flags = load(command.arguments)(load(command.target)).flags().keys() | {"gin_file"}
        for argument in shlex.split(command.example):
            if argument.startswith("--"):
                assert argument[2:].partition("=")[0] in flags, name
            else:
                assert command.positional, name


@pytest.mark.slow
def test_examples_of_help_run_one_after_the_other(tmp_path):
    for name in IN_ORDER:
        given = [*name.split(), *shlex.split(COMMANDS[name].example)]
        done = warm.run(given, tmp_path, kind=warm.TENSORFLOW)
        assert done.returncode == 0, (name, done.stderr)
        written = re.findall(r"--(?:run_dir|root|html|path)=(\S+)", COMMANDS[name].example)
        assert all((tmp_path / path).exists() for path in written), name


def test_every_command_says_what_it_made():
    silent = set()
    for name, command in COMMANDS.items():
        returned = inspect.signature(load(command.target)).return_annotation
        if command.report is None and returned != "str":
            silent.add(name)
    # These print it themselves.
    assert silent == {
        *("checkpoint compare", "compare", "export", "stats rates", "predict", "push", "reproduce"),
        *("sweep", *(name for name in COMMANDS if name.startswith("launch "))),
    }


@pytest.mark.parametrize(
    "module", ["launch.status.snapshot", "launch.status.plan_report", "papers.page_run"]
)
def test_who_asks_for_a_name_loads_neither_gin_nor_absl(module: str, run_python: RunPython) -> None:
    heavy = "{'gin', 'absl', 'multiberts.runs.command_line.command'}"
    code = f"import sys, multiberts.{module}; print({heavy} & sys.modules.keys())"
    found = run_python("-c", code)
    assert found.stdout == "set()\n", found.stderr
