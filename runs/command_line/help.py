"""Text of `multiberts --help`, and of `--help` and `--helpfull` of each command."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from multiberts.runs.command_line.commands import COMMANDS, PURPOSES, Command, load
from multiberts.runs.parameters import described, required_of

# A group of parameters: its heading, the function and the annotations.
Group = tuple[str, Callable[..., Any], Mapping[str, Any]]
FULL_HELP = {"-helpfull", "--helpfull"}
HELP = {"-h", "-help", "--help", "-helpshort", "--helpshort"} | FULL_HELP
_WIDTH = 100
_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}
_ON_ALL = """\
`multiberts <command> --help` describes the common parameters and ends with an example;
--helpfull describes all. The examples use each other's outputs in one folder: start with
world, then holdout, prepare, pretrain, finetune and sweep. With -q a command prints results,
warnings and errors alone; with -v its parameters and time, too, and where an error came from.
pretrain, finetune, predict and sweep take --engine=tensorflow or --engine=jax.
Output files that multiberts did not write are replaced only with --overwrite."""


def overview(group: str = "") -> str:
    """Returns what `multiberts --help` prints, or `--help` of a group of commands."""
    listed = {name: one for name, one in COMMANDS.items() if f"{name} ".startswith(group)}
    width = max(map(len, listed))
    given = "[--parameter=value ...] [--gin_file=...] [--gin_param=...]"
    lines = [f"usage: multiberts {f'{group} <command>'.strip()} {given}", ""]
    for title, commands in PURPOSES.items():
        rows = [f"  {name:<{width}}  {listed[name].summary}" for name in commands if name in listed]
        lines += [*([] if group else [f"{title}:"]), *rows, ""] if rows else []
    return "\n".join([*lines, _ON_ALL])


def help_of(
    function: Callable[..., Any], groups: Iterable[Group], command: Command, full: bool = True
) -> str:
    """Returns what `--help` prints, or `--helpfull`: description, parameters by group, an example."""
    description, _, notes = described_function(function)
    required = required_of(function)
    texts = {name: name.upper().replace("...", " ...") for name in command.positional}
    names = [t if n.removesuffix("...") in required else f"[{t}]" for n, t in texts.items()]
    usage = " ".join([sys.argv[0], *names, "[--parameter=value ...] [--gin_file=...]"])
    parts = [f"usage: {usage}", *_filled(description)]
    common = {*command.common.split(), *required}
    further: set[str] = set()
    for heading, described_one, kinds in groups:
        shown = kinds
        if command.common and not full:
            further |= inspect.signature(described_one).parameters.keys() & kinds.keys() - common
            shown = {name: kinds[name] for name in kinds.keys() & common}
        parts.append("\n".join([heading, *parameter_lines(described_one, shown)]))
    if further:
        parts += _filled(f"Also, described by --helpfull: {', '.join(sorted(further))}.")
    parts += _filled(notes)
    if full and command.notes:
        parts.append(load(command.notes)())
    if command.example:
        parts.append(f"Example:\n  {shell_lines(f'{sys.argv[0]} {command.example}')}")
    return "\n\n".join(parts)


def shell_lines(call: str) -> str:
    """Returns a long command line on several, as a shell takes it."""
    return " \\\n    ".join(textwrap.wrap(call, _WIDTH - 6, **_WHOLE_WORDS))


def _filled(text: str) -> Iterator[str]:
    """Yields the paragraphs of a text; those without indented lines are filled anew."""
    for paragraph in filter(None, text.split("\n\n")):
        yield paragraph if "\n " in paragraph else _wrapped(paragraph)


def _wrapped(text: str, indent: str = "", further_indent: str = "") -> str:
    indents: Any = {"initial_indent": indent, "subsequent_indent": further_indent or indent}
    return textwrap.fill(text, _WIDTH, **indents, **_WHOLE_WORDS)


def parameter_lines(
    function: Callable[..., object], annotations: Mapping[str, Any], prefix: str = "--"
) -> Iterator[str]:
    """Yields the lines of `--help` on the parameters of a function or dataclass in `annotations`."""
    meanings = described_function(function)[1]
    for name, parameter in inspect.signature(function).parameters.items():
        if name in annotations:
            kind = type_and_default(parameter, annotations[name])
            yield _wrapped(f"{prefix}{name} ({kind})", "  ", " " * 6)
            if name in meanings:
                yield _wrapped(" ".join(meanings[name]), " " * 6)


def type_and_default(parameter: inspect.Parameter, annotation: Any) -> str:
    if parameter.default is parameter.empty:
        return f"{described(annotation)}; required"
    # The last is the text of a dataclass's default factory.
    if parameter.default in (None, ()) or repr(parameter.default) == "<factory>":
        return f"{described(annotation).removesuffix(' or None')}; optional"
    return f"{described(annotation)}; default {parameter.default!r}"


def described_function(function: Callable[..., object]) -> tuple[str, dict[str, list[str]], str]:
    """Returns a docstring's description, the lines on each parameter, and what follows them."""
    parts = re.split(r"\n\n(?:Args|Attributes):\n", inspect.getdoc(function) or "", maxsplit=1)
    section, _, notes = parts[-1].partition("\n\n") if len(parts) > 1 else ("", "", "")
    meanings: dict[str, list[str]] = {}
    entry: list[str] = []
    for line in section.splitlines():
        # Several parameters may share an entry.
        if match := re.match(r"  (\w+(?:, \w+)*): (.*)", line):
            entry = [match[2]]
            meanings |= dict.fromkeys(match[1].split(", "), entry)
        else:
            entry.append(line.strip())
    return _for_users(parts[0]), meanings, _for_users(notes)


def _for_users(text: str) -> str:
    """Strips Returns, Raises and Example for --help."""
    for_programs = r"(Returns|Raises|Example|Examples):\n"
    sections = re.split(r"\n\n(?=[A-Z]\w+:\n)", text)
    return "\n\n".join(section for section in sections if not re.match(for_programs, section))
