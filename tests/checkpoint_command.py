"""`multiberts checkpoint` without a process of its own."""

from __future__ import annotations

from itertools import takewhile

from multiberts.runs import console
from multiberts.runs.command_line.command import positional_texts
from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import annotations_of, check_arguments, value_of_flag


def checkpoint_command(name: str, *arguments: object) -> int:
    """Calls a command of `multiberts checkpoint`; flags come last, as `--name=value` or `--name value`."""
    command = COMMANDS[f"checkpoint {name}"]
    function = load(command.target)
    given = [str(argument) for argument in arguments]
    plain = [*takewhile(lambda text: not text.startswith("--"), given)]
    flags = [part for text in given[len(plain) :] for part in text.split("=", 1)]
    texts = positional_texts(plain, command.positional)
    texts |= {flag[2:]: [text] for flag, text in zip(flags[::2], flags[1::2], strict=True)}
    annotations = annotations_of(function)
    values = {name: value_of_flag(text, annotations[name]) for name, text in texts.items()}
    try:
        check_arguments(function, values)
        result = function(**values)
    except UserError as error:
        console.error(str(error))
        return 2
    if isinstance(result, str):
        console.report(result)
        return 0
    return int(result)
