"""Gin files as data: parsed with clear errors, and refused where they would run code."""

from __future__ import annotations

import difflib
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin

from multiberts.runs.errors import UserError

_MACRO = re.compile(r"%([A-Za-z_]\w*)")
# Begins the paths that a file gives below the folder of data, whose name is the macro DATA.
IN_DATA = "data:"


def parse_gin(
    gin_files: Sequence[str],
    gin_params: Sequence[str],
    functions: Iterable[Callable[..., Any]] = (),
    allow_imports: bool = False,
) -> None:
    """Parses Gin files, then single bindings, which win.

    Args:
      gin_files: paths; files that they include are looked for from the current directory.
      gin_params: bindings such as `pretrain.num_steps = 100`.
      functions: those that Gin binds, whose names are suggested where a name is misspelt.
      allow_imports: whether the files may import modules, which runs their code.

    Raises:
      UserError: a file is missing, a line does not parse, imports a module, or names something that
        does not exist.
    """
    for path in gin_files:
        if not Path(path).is_file():
            raise UserError(f"--gin_file {path} does not exist; check the path")
    if not allow_imports:
        for path in gin_files:
            _refuse_imports(Path(path).read_text(errors="replace"), path, set())
        for text in gin_params:
            _refuse_imports(text, f"--gin_param={text!r}", set())
    try:
        gin.parse_config_files_and_bindings(
            list(gin_files), list(gin_params), print_includes_and_imports=False
        )
    except (ValueError, SyntaxError, OSError, AttributeError, TypeError) as error:
        raise UserError(_in_plain_words(" ".join(str(error).split()), functions)) from error


def in_data_folder(value: Any) -> Any:
    """Returns a value with its paths `data:<path>`, at any depth, put below the macro DATA.

    Raises:
      UserError: there is such a path, and DATA is not set.
    """
    if isinstance(value, Mapping):
        return {name: in_data_folder(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_data_folder(item) for item in value]
    if not isinstance(value, str) or not value.startswith(IN_DATA):
        return value
    try:
        folder = gin.query_parameter("DATA/gin.macro.value")
    except ValueError as error:
        raise UserError(
            f"the configuration reads {value!r}, but DATA, the folder of data, is not set; give "
            "--gin_param=\"DATA = 'folder'\""
        ) from error
    return str(Path(folder) / value.removeprefix(IN_DATA))


def _refuse_imports(text: str, where: str, seen: set[str]) -> None:
    """Refuses statements that import, in a text and in what it includes."""
    for line, statement in _statements(text):
        first = statement[0]
        if first in ("import", "from"):
            raise UserError(
                f"{where} line {line} imports a module, which would run its code; remove the line, or "
                "give --allow_gin_imports if you trust the file"
            )
        if first == "include" and len(statement) > 1:
            path = statement[1].strip("'\"")
            if path not in seen and Path(path).is_file():
                seen.add(path)
                _refuse_imports(Path(path).read_text(errors="replace"), path, seen)


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields each logical line's number and its first two tokens."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
    statement: list[str] = []
    number = 1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                if statement:
                    yield number, statement
                statement = []
            elif token.type not in skipped and len(statement) < 2:
                number = token.start[0] if not statement else number
                statement.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        # Gin's own parser says what is wrong with the text.
        if statement:
            yield number, statement


def _in_plain_words(text: str, functions: Iterable[Callable[..., Any]]) -> str:
    """Returns one line for an error of Gin's, with the nearest name where a name is unknown."""
    known = {function.__name__: function for function in functions}
    if match := re.search(r"'([\w.]+)' doesn't have a parameter named '(\w+)'", text):
        name, parameter = match[1].rpartition(".")[2], match[2]
        choices = inspect.signature(known[name]).parameters if name in known else ()
        return f"{name} has no parameter {parameter!r}; {nearest(parameter, choices)}"
    if match := re.search(r"No configurable matching '([\w.]+)'", text):
        return f"Gin knows no {match[1]!r} here; {nearest(match[1], known)}"
    if "No bindings specified for" in text:
        defined = set(re.findall(r"\b([A-Za-z_]\w*) = ", text))
        missing = list(dict.fromkeys(re.findall(r"'(\w+)/gin\.macro'", text)))
        missing += [name for name in _MACRO.findall(text) if name not in {*defined, *missing}]
        missing = list(dict.fromkeys(missing))
        return (
            f"the configuration uses {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} "
            f"not set; give --gin_param={missing[0] + ' = ...'!r}"
        )
    return f"in the Gin configuration: {text}; correct that line"


def nearest(name: str, choices: Iterable[str]) -> str:
    """Returns the cure for an unknown name: the nearest known ones, or all of them.

    Example:
      >>> nearest("num_stepz", ["num_steps", "model"])
      'did you mean num_steps?'
    """
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"expected one of {', '.join(choices)}" if choices else "correct the name"
