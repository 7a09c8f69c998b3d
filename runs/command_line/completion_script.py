"""Completes commands, parameters and choices in bash and zsh: the command `completion`."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, Literal

from multiberts.runs.command_line.command import COMMANDS, GROUPS, Command, load
from multiberts.runs.parameters import is_boolean

_SHARED = ("--gin_file=", "--gin_param=", "--help", "-q", "-v")
# After a "=", which separates words in bash but not in zsh, the word before it is the parameter. In zsh
# no space follows unless the word brings it.
_SCRIPT = """\
# Completion of multiberts for bash and zsh, made by `multiberts completion`.
if [ -n "${{ZSH_VERSION-}}" ]; then
  autoload -Uz compinit bashcompinit && compinit && bashcompinit
fi
_multiberts() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" start="" words=""
  if [ "$word" = "=" ]; then word=""; before="${{COMP_WORDS[COMP_CWORD-1]}}="
  elif [ "$before" = "=" ]; then before="${{COMP_WORDS[COMP_CWORD-2]}}="
  else
    case "$word" in --*=*) start="${{word%%=*}}="; before="$start"; word="${{word#*=}}" ;; esac
  fi
  local command="${{COMP_WORDS[1]}}"
  case "$COMP_CWORD:$command" in
    [12]:*) ;;
    *:{groups}) command="$command-${{COMP_WORDS[2]}}" ;;
  esac
  case "$COMP_CWORD:$command:$before" in
    1:*) words="{commands}" ;;
{cases}
  esac
  COMPREPLY=($(compgen -P "$start" -W "$words" -- "$word"))
  if [ -n "${{ZSH_VERSION-}}" ]; then
    local replies=("${{COMPREPLY[@]}}"); COMPREPLY=()
    for word in "${{replies[@]}}"; do
      case "$word" in *=) COMPREPLY+=("$word") ;; *) COMPREPLY+=("$word ") ;; esac
    done
  else
    case "${{COMPREPLY[0]-}}" in *=) compopt -o nospace 2>/dev/null ;; esac
  fi
}}
if [ -n "${{ZSH_VERSION-}}" ]; then complete -o default -o nospace -F _multiberts multiberts
else complete -o default -F _multiberts multiberts; fi
"""


def completion() -> str:
    """Prints a script that completes commands, their parameters, and the choices that these have.

    For bash: `multiberts completion > ~/.local/share/bash-completion/completions/multiberts`. For zsh,
    write it to a file and `source` that in `.zshrc`.

    Example:
      >>> "pretrain" in completion()
      True
    """
    cases = [line for name, command in COMMANDS.items() for line in _cases(name, command)]
    for group in GROUPS:
        words = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")]
        cases.append(f'    *:{group}:*) words="{" ".join([*words, *_SHARED])}" ;;')
    first_words = dict.fromkeys(name.partition(" ")[0] for name in COMMANDS)
    return _SCRIPT.format(
        commands=" ".join([*first_words, "--help", "--version"]),
        groups="|*:".join(GROUPS),
        cases="\n".join(cases),
    )


def _cases(name: str, command: Command) -> Iterator[str]:
    """Yields the lines of the script for a command: of the choices first, as the first match counts."""
    annotations = load(command.arguments)(load(command.target)).flags()
    name = name.replace(" ", "-")
    if command.computes:
        annotations = {**annotations, "engine": Literal["tensorflow", "jax"]}
    for parameter, annotation in annotations.items():
        choices = " ".join(_choices(annotation))
        if choices:
            yield f'    *:{name}:--{parameter}=) words="{choices}" ;;'
    yield f"    *:{name}:*=) ;;"
    own = [f"--{name}{'=' * (not is_boolean(kind))}" for name, kind in annotations.items()]
    positional = [_choices(annotations[place.rstrip(".")]) for place in command.positional]
    words = [*(word for choices in positional for word in choices), *own, *_SHARED]
    yield f'    *:{name}:*) words="{" ".join(words)}" ;;'


def _choices(annotation: Any) -> tuple[str, ...]:
    """Returns the values that an annotation lists, also as one of several kinds."""
    if annotation is bool:
        return ("True", "False")
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return tuple(map(str, parts))
    return tuple(choice for part in parts for choice in _choices(part))
