"""What `--help` says of each command, and of all."""

import inspect
import re
import shlex
import sys

import pytest

from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.runs.command_line.help import help_of
from multiberts.tests.tools import warm


def helped(name: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", [f"multiberts {name}"])
    command = COMMANDS[name]
    function = load(command.target)
    return help_of(function, load(command.arguments)(function).groups(), command, full)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_two_screens_and_names_what_helpfull_describes(name, monkeypatch):
    source = load(COMMANDS[name].arguments)(load(COMMANDS[name].target))
    full, short = (helped(name, is_full, monkeypatch) for is_full in (True, False))
    assert len(short.splitlines()) <= 80
    assert max(map(len, short.splitlines())) <= 100
    _, last = short.split("\n\nExample:\n")
    example = f"multiberts {name} {COMMANDS[name].example}"
    assert shlex.split(last.replace("\\\n", "")) == shlex.split(example)
    for word in ("Traceback", "Raises:", ">>>", "UserError"):
        assert word not in short
    for heading, function, kinds in source.groups():
        assert heading in full and heading in short
        for parameter in kinds.keys() & inspect.signature(function).parameters.keys():
            assert f"\n  --{parameter} (" in full
            assert re.search(rf"\b{parameter}\b", short)
    assert set(COMMANDS[name].common.split()) <= source.flags().keys()


def test_help_of_finetune_shows_the_options_of_tasks():
    shown = warm.run(["finetune", "--helpfull"]).stdout
    assert "squad-v1.1, questions:\n  doc_stride (int at least 1; default 128)\n      " in shown
    assert "  training_pairs ('pronouns' or 'mentions'; default 'pronouns')\n" in shown


def test_the_help_lists_every_command_once_the_comparison_first() -> None:
    listed = re.findall(r"^  (\S+(?: \S+)?)  ", warm.run(["--help"]).stdout, flags=re.MULTILINE)
    assert listed == [*COMMANDS] and listed[0] == "compare"


def test_commands_of_two_words_are_listed_by_their_first():
    for group in ("checkpoint", "launch"):
        listed = warm.run([group, "--help"])
        own = [name for name in COMMANDS if name.startswith(f"{group} ")]
        assert listed.returncode == 0 and all(f"\n  {name} " in listed.stdout for name in own)
        wrong = warm.run([group, own[0].split()[1][:-1]])
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
        assert f"did you mean {own[0]}" in wrong.stderr
    assert warm.run(["checkpoint"]).returncode == 2
