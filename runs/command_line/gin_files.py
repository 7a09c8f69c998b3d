"""Gin files as data: parsed with clear errors, refused where they would run code; and Gin's scopes."""

from __future__ import annotations

import contextlib
import graphlib
import inspect
import io
import itertools
import os
import re
import shlex
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gin
from gin import config_parser

import multiberts
from multiberts.runs import console
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.files import decoded
from multiberts.runs.parameters import expanded, with_texts

_BINDING = re.compile(r"^(?:(?P<scope>[\w/]+)/)?(?P<stage>\w+)\.(?P<parameter>\w+) =")
_MACRO = re.compile(r"%([A-Za-z_]\w*)")
# Prefix of paths in the data folder, which the macro DATA names.
IN_DATA = "data:"
# Parameters, and keys of `engine_options`, that run code: modules, shell lines, an interpreter, options
# of sbatch, a task file, a scheduler (its replies are unpickled). Strangers' files may not set them.
_CODE = {"task_modules", "scheduler"}
_CODE_OF_ENGINES = {"scheduler", "worker_init", "python", "scheduler_options", "task"}
# Parameters that name output files. `compare.csv = '~/.bashrc'` in a file replaced the user's shell settings.
_WRITTEN = {"csv", "html", "json", "latex", "path", "output_dir"}
# Errors of Gin and Python's tokeniser for a text that is not a configuration.
_TEXT_ERRORS = (*(ValueError, SyntaxError, OSError, AttributeError, TypeError), tokenize.TokenError)
_GIN_ERRORS = (*_TEXT_ERRORS, RecursionError, MemoryError)
# The package's files, `configs/...`, are found from any directory.
_PACKAGE = Path(multiberts.__file__).parent


def parse_gin(
    gin_files: Sequence[str],
    gin_params: Sequence[str],
    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    allow_imports: bool = False,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Parses Gin files, then single bindings, which override them.

    Args:
      gin_files: paths, which are looked for (like files that they include) in the current directory, then in
        the package.
      gin_params: bindings such as `pretrain.num_steps = 100`.
      functions: functions that Gin may bind, by name; suggested for a misspelt name.
      allow_imports: whether files may import modules, which runs their code.
      given: values of flags by their Gin names, such as `pretrain.run_dir`; None: not given. An unset macro
        takes the value of a flag whose parameter is bound to it.
    """
    gin_files = [expanded(path) for path in gin_files]
    for path in gin_files:
        if not located(path).is_file():
            raise UserError(f"--gin_file {path} does not exist; check the path")
    texts = [(_text_of(path), path) for path in gin_files]
    statements = itertools.chain.from_iterable(
        itertools.chain(
            (_all_statements(text, path, (_real_path(path),)) for text, path in texts),
            (_all_statements(text, f"--gin_param={text!r}", is_typed=True) for text in gin_params),
        )
    )
    flags: dict[str, str] = {}
    try:
        from_flags = []
        unset, written = _check_statements(statements, allow_imports, given)
        for macro, parameter in unset:
            if parameter in given:
                flags[macro] = parameter.partition(".")[2]
            if given.get(parameter) is not None:
                from_flags.append(f"{macro} = {given[parameter]!r}")
        for path in gin_files:
            _parse_file(path)
        gin.parse_config([*gin_params, *from_flags])
        gin.finalize()
    except _GIN_ERRORS as error:
        raise UserError(_in_plain_words(" ".join(str(error).split()), functions, flags)) from error
    for where, parameter, text in written:
        if not _is_near(in_data_folder(expanded(text)), given):
            raise UserError(
                f"{where} sets {parameter} to {text}, but a Gin file may name outputs only below the current "
                f"folder or the run, and none that begins with a dot; give --{parameter}={shlex.quote(text)}"
            )


def _is_near(path: str, given: Mapping[str, Any]) -> bool:
    """Returns whether a path is below the current folder, or below a run or root given by flag."""
    runs = (given[name] for name in given if name.endswith((".root", ".run_dir")) and given[name])
    for folder in map(os.path.realpath, [".", *runs]):
        inside = os.path.relpath(os.path.realpath(path), folder)
        # Shells and git execute hidden files; this also excludes `..`.
        if not any(part.startswith(".") for part in Path(inside).parts):
            return True
    return False


def _parse_file(path: str) -> None:
    """Parses a file and the files that it includes.

    Not by Gin's own search for files, which fails if a Python package `configs` is on the path of modules.
    """
    text = _text_of(path)
    lines = text.splitlines(keepends=True)
    begun = 0
    for statement in _statements(text):
        if isinstance(statement, config_parser.IncludeStatement):
            line = statement.location.line_num
            _parse_lines(lines, begun, line - 1, path)
            _parse_file(_included(statement.filename, path))
            begun = line
    _parse_lines(lines, begun, len(lines), path)


def _parse_lines(lines: Sequence[str], first: int, last: int, path: str) -> None:
    # Empty lines in place of the lines before, so that messages have the right line numbers.
    part = io.StringIO("\n" * first + "".join(lines[first:last]))
    part.name = path  # where Gin looks
    gin.parse_config(part)


def located(path: str) -> Path:
    """Returns the path of a Gin file: in the current directory, or else in the package."""
    return next((place for place in (Path(path), _PACKAGE / path) if place.is_file()), Path(path))


def _text_of(path: str) -> str:
    return decoded(located(path).read_bytes(), path)


def _included(name: str, source: str) -> str:
    """Returns the path of an included file: as given, or else beside the including file."""
    name = expanded(name)
    beside = str(Path(source).parent / name)
    if not Path(name).is_file():
        return beside if Path(beside).is_file() else name
    if Path(beside).is_file() and os.path.realpath(beside) != os.path.realpath(name):
        console.note_once(
            f"{source} includes {name}: that of the current directory is read, and not {beside}"
        )
    return name


def _real_path(path: str) -> str:
    return os.path.realpath(located(path))


def in_data_folder(value: Any) -> Any:
    """Replaces paths `data:<path>`, at any depth, by paths in the folder DATA."""

    def located_text(text: str) -> str:
        if not text.startswith(IN_DATA):
            return text
        try:
            folder = gin.query_parameter("DATA/gin.macro.value")
        except ValueError as error:
            raise UserError(
                f"the configuration reads {text!r}, but DATA, the folder of data, is not set; give "
                "--gin_param=\"DATA = 'folder'\""
            ) from error
        return str(Path(expanded(folder)) / text.removeprefix(IN_DATA))

    return with_texts(located_text, value)


class _Reference(str):
    """The name after `@` in a configuration, not resolved."""


class _Macro(str):
    """The name after `%` in a configuration, not resolved."""


class _Names(config_parser.ParserDelegate):
    """Lets statements be parsed without resolving names."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> _Reference:
        return _Reference(scoped_configurable_name + "()" * evaluate)

    def macro(self, macro_name: str) -> _Macro:
        return _Macro(macro_name)


def _statements(text: str) -> Iterator[Any]:
    """Yields the statements of a text up to an error, which Gin's parser will report.

    Leaves room on Python's stack, because Gin's parser may need less than this one.
    """
    with contextlib.suppress(*_TEXT_ERRORS):
        yield from config_parser.ConfigParser(text, _Names())


def _all_statements(
    text: str, source: str, outer: tuple[str, ...] = (), is_typed: bool = False
) -> Iterator[tuple[str, Any, bool]]:
    """Yields the statements of a text and of all files that it includes, in the order Gin reads them.

    Each comes with its location and whether the user typed it. `outer`: the files that include the text.
    """
    # With the parser that reads the files afterwards, so that both agree on what is an include.
    for statement in _statements(text):
        where = f"{source} line {statement.location.line_num}"
        yield where, statement, is_typed
        if isinstance(statement, config_parser.IncludeStatement):
            included = _included(statement.filename, source)
            if not located(included).is_file():
                raise UserError(f"{where} includes {included}, which is missing; check the path")
            if _real_path(included) in outer:
                raise UserError(
                    f"{where} includes {included}, which includes itself; remove one include"
                )
            inner = (*outer, _real_path(included))
            yield from _all_statements(_text_of(included), included, inner)


def _check_statements(
    statements: Iterable[tuple[str, Any, bool]], allow_imports: bool, given: Mapping[str, Any]
) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Refuses statements that would run code, and macros that refer to themselves.

    Returns:
      (macro, parameter bound to it alone) of each unset macro, and (location, parameter, path) of each output
      file named in an untrusted file.
    """
    trust = "give --allow_gin_imports if you trust the file"
    macros: dict[str, _Binding] = {}
    bindings: dict[tuple[str, str, str], _Binding] = {}
    bound: list[tuple[str, str]] = []
    used, in_files = {"DATA"}, set[str]()  # `data:` uses DATA without its name
    for where, statement, is_typed in statements:
        if isinstance(statement, config_parser.ImportStatement) and not allow_imports:
            raise UserError(
                f"{where} imports a module, which would run its code; remove the line, or {trust}"
            )
        if not isinstance(statement, config_parser.BindingStatement):
            continue
        named = next(
            (part for part in _parts(statement.value) if isinstance(part, _Reference)), None
        )
        if named is not None and not allow_imports:
            raise UserError(
                f"{where}: refers to a function, @{named}, which would run; parameters here are values, so "
                f"write the value, or {trust}"
            )
        used.update(part for part in _parts(statement.value) if isinstance(part, _Macro))
        binding = where, statement.value, is_typed or _is_shipped(where.rpartition(" line ")[0])
        stage = statement.selector.rpartition(".")[2]
        if given.get(f"{stage}.{statement.arg_name}") is None:
            bindings[statement.scope, stage, statement.arg_name] = binding
        if not statement.arg_name:
            name = "/".join(filter(None, (statement.scope, statement.selector)))
            macros[name] = binding
            in_files.update([name] * (not is_typed))
        elif statement.selector in ("macro", "gin.macro"):  # the long form of `NAME = value`
            macros[statement.scope] = binding
        elif isinstance(statement.value, _Macro) and not statement.scope:
            bound.append((statement.value, f"{statement.selector}.{statement.arg_name}"))
    # A file may define macros for several commands, but a typed one is meant for this one.
    for name in sorted(macros.keys() - used - in_files):
        console.warn(
            f"{macros[name][0]} sets {name}, which the configuration does not use; "
            f"{nearest(name, sorted(used | in_files))}, or leave it out"
        )
    inner = {
        name: {part for part in _parts(value) if isinstance(part, _Macro)}
        for name, (_, value, _) in macros.items()
    }
    try:
        graphlib.TopologicalSorter(inner).prepare()
    except graphlib.CycleError as error:
        name = error.args[1][0]
        raise UserError(
            f"{macros[name][0]}: the macro %{name} stands for itself; set it to a value"
        ) from error
    written = []
    for (_, _, parameter), binding in bindings.items():
        for where, key, text in _texts_of_files(binding, macros):
            is_code = key in _CODE_OF_ENGINES or "\n" in text  # a new line of the job script
            if parameter in _CODE or (parameter == "engine_options" and is_code):
                if not allow_imports:
                    raise UserError(
                        f"{where} sets {key or parameter}, whose code would run; give it as --gin_param, or "
                        f"{trust}"
                    )
            elif parameter in _WRITTEN:
                written.append((where, parameter, text))
    required = {name for name, (_, value, _) in macros.items() if value == "gin.REQUIRED"}
    return [pair for pair in bound if pair[0] not in macros or pair[0] in required], written


# (location, value, whether the user typed it or it is in a shipped file)
_Binding = tuple[str, Any, bool]


def _texts_of_files(
    binding: _Binding, macros: Mapping[str, _Binding], key: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yields (location, key of the mapping around it, text) for the texts of a value in untrusted files."""
    where, value, is_trusted = binding
    if isinstance(value, _Macro):
        yield from _texts_of_files(macros.get(value, (where, None, True)), macros, key)
    elif isinstance(value, (dict, list, tuple)):
        pairs = value.items() if isinstance(value, dict) else ((key, item) for item in value)
        for name, item in pairs:
            yield from _texts_of_files((where, item, is_trusted), macros, name)
    elif isinstance(value, str) and value and not is_trusted:
        yield where, key, value


def _is_shipped(path: str) -> bool:
    return Path(_real_path(path)).is_relative_to(os.path.realpath(_PACKAGE / "configs"))


def _parts(value: Any) -> Iterator[Any]:
    yield value
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(value, (dict, list, tuple)):
        for item in inner:
            yield from _parts(item)


def _in_plain_words(
    text: str, known: Mapping[str, Callable[..., Any]], flags: Mapping[str, str]
) -> str:
    """Turns an error of Gin into one line, with the nearest name for an unknown one.

    Args:
      known: functions by their Gin names.
      flags: the flag that sets a macro, by macro.
    """
    if match := re.search(r"'([\w.]+)' doesn't have a parameter named '(\w+)'", text):
        name, parameter = match[1].rpartition(".")[2], match[2]
        choices = inspect.signature(known[name]).parameters if name in known else ()
        return f"{name} has no parameter {parameter!r}; {nearest(parameter, choices)}"
    if match := re.search(r"No configurable matching '([\w.]+)'", text):
        return f"Gin knows no {match[1]!r} here; {nearest(match[1], known)}"
    missing: list[str] = []
    if "No bindings specified for" in text:
        defined = set(re.findall(r"\b([A-Za-z_]\w*) = ", text))
        missing = list(dict.fromkeys(re.findall(r"'(\w+)/gin\.macro'", text)))
        missing += [name for name in _MACRO.findall(text) if name not in {*defined, *missing}]
    elif "gin.REQUIRED" in text:
        missing = re.findall(r"(\w+)/(?:gin\.)?macro\.value", text)
    if missing:
        cures = [
            f"--{flags[name]}=..." if name in flags else f"--gin_param={name + ' = ...'!r}"
            for name in dict.fromkeys(missing)
        ]
        return (
            f"the configuration uses {', '.join(dict.fromkeys(missing))}, which "
            f"{'is' if len(cures) == 1 else 'are'} not set; give {' '.join(cures)}"
        )
    return f"in the Gin configuration: {text}; correct that line"


def scope_of(name: str) -> str:
    """Returns the Gin scope of a name: Gin allows no hyphen, so the scope of `SST-2` is `SST_2`."""
    return re.sub(r"\W", "_", name)


def bindings_of(stage: str, name: str | None = None) -> dict[str, Any]:
    """Returns what Gin binds to a stage, in the scope of `name`, too, with paths `expanded`."""
    with gin.config_scope(name and scope_of(name)):
        bindings: dict[str, Any] = expanded(gin.get_bindings(stage))
    return bindings


def refuse_unknown_scopes(
    known: Mapping[str, Iterable[str]], where: str, unused: Iterable[str] = ()
) -> None:
    """Refuses bindings in scopes that are neither `known`, from the setting `where`, nor `unused`."""
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
