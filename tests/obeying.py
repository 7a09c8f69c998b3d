"""Carries out the cures that commands print, as a person does who knows their own data.

A person has files and a command, and knows which of their columns holds what (`knows`), as the attempts in
`tests/test_obeying.py` and `tests/test_obeying_training.py` have them. They read the refusal, do what its
cure says, run the command again, and go on until there is an answer or a refusal that has no cure for them. A
cure that leads back to a line they have seen, or that cannot be done with what there is, is a dead end.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multiberts.report.compare_command import compare_files
from multiberts.runs import console
from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.runs.errors import UserError, in_flags
from multiberts.runs.parameters import annotations_of, value_of_flag
from multiberts.tests.checkpoint_command import checkpoint_command
from multiberts.tests.tools import eager, warm

ANSWER, REFUSAL, DEAD_END = "answer", "refusal", "dead end"
MOST_STEPS = 8
_FLAG = re.compile(r"--(\w+)(?:=('[^']*'|\"[^\"]*\"|[^\s;()]*[^\s;(),.]))?")
_PLACEHOLDER = re.compile(r"[A-Z_]+|\.+")
_MEANT = re.compile(r"did you mean (\w+)")
# Words that only Python has.
_PYTHON = re.compile(r"\b[a-z_]+='|\bstats\.\w|\bxarray\b|\bDataFrame\b|\bin Python\b")

Files = Callable[[Path], object]


@dataclass(frozen=True)
class Attempt:
    """A person's attempt at an answer.

    Attributes:
      files: writes what the person has into a folder.
      command: `compare` or another command and what follows it, given in that folder.
      knows: by flag, the value that is right for these files.
      repairs: by a pattern of the refusal, what a person does with the files; it may return a new command.
      says: pattern of the answer, or of the refusal at the end, whose cause no person can take away.
      ends: `ANSWER` or `REFUSAL`.
    """

    files: Files
    command: str
    says: str
    knows: Mapping[str, str] = field(default_factory=dict)
    repairs: Mapping[str, Callable[[Path], str | None]] = field(default_factory=dict)
    ends: str = ANSWER


@dataclass(frozen=True)
class Chain:
    """What came of an attempt: every refusal on the way, and the text that it ended with."""

    outcome: str
    refusals: tuple[str, ...]
    text: str


def compared(command: str, folder: Path) -> str:
    """Returns what a command line of `compare` answers in a folder, in this process.

    Raises:
      UserError: it was refused.
    """
    known, given, paths = annotations_of(compare_files), {}, []
    for word in shlex.split(command)[1:]:
        flag, _, value = word.partition("=")
        if flag.startswith("--"):
            name = flag.removeprefix("--")
            given[name] = value_of_flag([value], known[name])
        else:
            paths.append(word)
    expanded = [
        str(path.relative_to(folder))
        for pattern in paths
        for path in (sorted(folder.glob(pattern)) if "*" in pattern else [folder / pattern])
    ]
    with contextlib.chdir(folder):
        return compare_files(results=expanded[0], experiment=expanded[1:], **given)


def answered(command: str, folder: Path) -> str:
    """Returns what a command line prints in a folder.

    Raises:
      UserError: it was refused.
    """
    words = shlex.split(command)
    console.note_once.cache_clear()  # what this process has said, a new command would say again
    if words[0] == "compare":
        return compared(command, folder)
    if words[0] == "checkpoint":  # in this process, which may have imported PyTorch
        printed = io.StringIO()
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stderr(printed),
            contextlib.redirect_stdout(printed),
        ):
            status = checkpoint_command(*words[1:])
        if status == 2:
            raise UserError(printed.getvalue().rpartition("error: ")[2].strip())
        return printed.getvalue()
    # Of all commands, these alone train, a step or two.
    trains = words[0] in ("finetune", "predict")
    target, kind = (eager.COMMAND, warm.TENSORFLOW) if trains else (warm.COMMAND, warm.PLAIN)
    done = warm.run(words, folder, target=target, kind=kind)
    if done.returncode == 2:
        raise UserError(done.stderr.rpartition("error: ")[2].strip())
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def obey(attempt: Attempt, folder: Path) -> Chain:
    """Gives a person's command, and does what each refusal says."""
    folder.mkdir(parents=True, exist_ok=True)
    attempt.files(folder)
    command, refusals = attempt.command, []
    repairs = dict(attempt.repairs)
    for _ in range(MOST_STEPS):
        try:
            return Chain(ANSWER, tuple(refusals), answered(command, folder))
        except UserError as error:
            line = in_flags(str(error))
        if line in refusals:
            return Chain(DEAD_END, tuple(refusals), line)
        refusals.append(line)
        repair = next((pattern for pattern in repairs if re.search(pattern, line)), None)
        changed = _with_flags(command, line, attempt.knows)
        if changed is None and repair is not None:
            changed = repairs.pop(repair)(folder) or command
        if changed is None:
            is_end = attempt.ends == REFUSAL and re.search(attempt.says, line)
            return Chain(REFUSAL if is_end else DEAD_END, tuple(refusals[:-1]), line)
        command = changed
    return Chain(DEAD_END, tuple(refusals), refusals[-1])


def faults_of(line: str, command: str = "compare") -> list[str]:
    """Returns what a line of a command must not have: words of Python, and flags that there are not."""
    flags = annotations_of(load(COMMANDS[command].target))
    unknown = [f"--{name}" for name, _ in _flags_in(line) if name not in flags]
    return unknown + _PYTHON.findall(line)


def _flags_in(line: str) -> list[tuple[str, str]]:
    """Returns the flags that a line names, but for those of other commands."""
    return _FLAG.findall(re.sub("`multiberts [^`]*`", "", line))


def _with_flags(command: str, line: str, knows: Mapping[str, str]) -> str | None:
    """Returns a command changed by a way out that a person can go; None: there is none."""
    cure = line.partition("; ")[2] or line
    words = shlex.split(command)
    ways = [{name: knows[name] for name, _ in _flags_in(line) if name in knows}]
    ways = [] if _flags_in(cure) else ways  # the flag is named before: "name one of these"
    for way in re.split(r"; | or |, (?=give )|, otherwise ", cure):
        flags = dict(_flags_in(way))
        if "leave --" in way and all(f"--{name}" in command for name in flags):
            return _without(command, flags)
        # An example of a value stands for the one that is known to be right.
        is_open = "such as" in way
        values = {
            name: knows.get(name, value.strip("'\"") if is_open and value else None)
            if is_open or not value or _PLACEHOLDER.fullmatch(value)
            else value.strip("'\"")
            for name, value in flags.items()
        }
        if values and None not in values.values():
            ways.append(values)
    meant = _MEANT.search(cure)
    if meant is not None:
        wrong = re.search(r"'([^']*)'", line)
        if wrong is not None and f"={wrong[1]}" in command:
            return command.replace(f"={wrong[1]}", f"={meant[1]}")
    # A way that this person knows to be right, or else one that is not known to be wrong.
    ways.sort(key=lambda way: sum(knows.get(name) != value for name, value in way.items()))
    columns = {value: name for name, value in knows.items()}
    right = [
        way
        for way in ways
        if any(f"--{name}={value}" not in words for name, value in way.items())
        and all(
            knows.get(name, value) == value and columns.get(value, name) == name
            for name, value in way.items()
        )
    ]
    if not right:
        return None
    return _without(command, right[0]) + "".join(
        f" --{name}={shlex.quote(str(value))}" for name, value in right[0].items()
    )


def _without(command: str, names: Mapping[str, object] | Sequence[str]) -> str:
    words = shlex.split(command)
    return shlex.join(word for word in words if word.partition("=")[0][2:] not in names)
