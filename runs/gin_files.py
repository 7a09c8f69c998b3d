"""Gin files as data: parsed with clear errors, refused where they would run code; and Gin's scopes."""

from __future__ import annotations

import contextlib
import inspect
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gin
from gin import config_parser

from multiberts.runs.errors import UserError, nearest

_BINDING = re.compile(r"^(?:(?P<scope>[\w/]+)/)?(?P<stage>\w+)\.(?P<parameter>\w+) =")
_MACRO = re.compile(r"%([A-Za-z_]\w*)")
# Begins the paths that a file gives below the folder of data, whose name is the macro DATA.
IN_DATA = "data:"
# The parameter that names modules with code, which a file may not set.
CODE = "task_modules"
# Where Gin or Python's tokeniser meets a text that is not a configuration.
_GIN_ERRORS = (
    *(ValueError, SyntaxError, OSError, AttributeError, TypeError),
    *(tokenize.TokenError, RecursionError, MemoryError),
)


def parse_gin(
    gin_files: Sequence[str],
    gin_params: Sequence[str],
    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    allow_imports: bool = False,
) -> None:
    """Parses Gin files, then single bindings, which win.

    Args:
      gin_files: paths; files that they include are looked for from the current directory.
      gin_params: bindings such as `pretrain.num_steps = 100`.
      functions: those that Gin binds by their names there, which are suggested where one is misspelt.
      allow_imports: whether the files may import modules, which runs their code.

    Raises:
      UserError: a file is missing, a line does not parse, imports a module, or names something that
        does not exist.
    """
    for path in gin_files:
        if not Path(path).is_file():
            raise UserError(f"--gin_file {path} does not exist; check the path")
    if not allow_imports:
        seen: set[str] = set()
        for path in gin_files:
            _refuse_code(Path(path).read_text(errors="replace"), path, seen)
        for text in gin_params:
            _refuse_code(text, f"--gin_param={text!r}", seen, is_typed=True)
    try:
        gin.parse_config_files_and_bindings(
            list(gin_files), list(gin_params), print_includes_and_imports=False
        )
    except _GIN_ERRORS as error:
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


class _Anything(config_parser.ParserDelegate):
    """Lets statements be read without looking up what they name."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> None:
        """Returns nothing for `@name`."""

    def macro(self, macro_name: str) -> None:
        """Returns nothing for `%NAME`."""


def _statements(text: str) -> Iterator[Any]:
    """Yields the statements of a text, up to an error, which Gin's own parser then reports."""
    with contextlib.suppress(*_GIN_ERRORS):
        yield from config_parser.ConfigParser(text, _Anything())


def _refuse_code(text: str, source: str, seen: set[str], is_typed: bool = False) -> None:
    """Refuses a text that would run code, itself or through a file that it includes.

    Args:
      text: of a file or of a binding.
      source: what holds it, for messages.
      seen: files that were looked at, which is added to.
      is_typed: whether the user typed it; then it may name modules with code.
    """
    trust = "give --allow_gin_imports if you trust the file"
    # With the parser that reads the files afterwards: what it takes for an include is one here.
    for statement in _statements(text):
        where = f"{source} line {statement.location.line_num}"
        if isinstance(statement, config_parser.ImportStatement):
            raise UserError(
                f"{where} imports a module, which would run its code; remove the line, or {trust}"
            )
        if getattr(statement, "arg_name", None) == CODE and not is_typed:
            raise UserError(
                f"{where} sets {CODE}, whose code would run; give it as --gin_param, or {trust}"
            )
        if isinstance(statement, config_parser.IncludeStatement):
            included = statement.filename
            if not Path(included).is_file():
                raise UserError(f"{where} includes {included}, which is missing; check the path")
            if included not in seen:
                seen.add(included)
                _refuse_code(Path(included).read_text(errors="replace"), included, seen)


def _in_plain_words(text: str, known: Mapping[str, Callable[..., Any]]) -> str:
    """Returns one line for an error of Gin's, with the nearest name where a name is unknown."""
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


def scope_of(name: str) -> str:
    """Returns the scope that holds what is set for one name: Gin has no `SST-2`, so there it is `SST_2`.

    Args:
      name: such as a task's.

    Example:
      >>> scope_of("SST-2")
      'SST_2'
    """
    return re.sub(r"\W", "_", name)


def scoped_bindings(stage: str, name: str) -> dict[str, Any]:
    """Returns what Gin binds to a stage in a name's scope, with the bindings without scope.

    Args:
      stage: name of the function that Gin binds.
      name: whose scope it is.
    """
    with gin.config_scope(scope_of(name)):
        return dict(gin.get_bindings(stage))


def refuse_unknown_scopes(
    known: Mapping[str, Iterable[str]], where: str, unused: Iterable[str] = ()
) -> None:
    """Refuses bindings that nothing would read.

    Args:
      known: the names of each stage.
      where: the function whose arguments name the scopes, for the message.
      unused: further names that may have bindings although nothing reads them now.

    Raises:
      UserError: a binding stands in another scope.
    """
    tolerated = {scope_of(name) for name in unused}
    for line in gin.config_str(max_line_length=10**6).splitlines():
        match = _BINDING.match(line)
        if match is None or match["stage"] not in known or match["scope"] is None:
            continue
        names = sorted(known[match["stage"]])
        if match["scope"] not in {*map(scope_of, names), *tolerated}:
            raise UserError(
                f"{match['scope']}/{match['stage']}.{match['parameter']} is set, but the names there are "
                f"{', '.join(names) or 'none'}; correct it or add it to {where}"
            )
