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
from typing import Any, NamedTuple

import gin
from gin import config_parser

import multiberts
from multiberts.runs import console
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.files import decoded
from multiberts.runs.parameters import expanded, with_texts

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
_SHIPPED = os.path.realpath(_PACKAGE / "configs")


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
    flags: dict[str, str] = {}
    try:
        from_flags = []
        of_files = (part for path in gin_files for part in _parts_of(path))
        checked, parts = itertools.tee(of_files)
        typed = [_parts_of(f"--gin_param={text!r}", typed=text) for text in gin_params]
        unset, written = _check_statements(itertools.chain(checked, *typed), allow_imports, given)
        for macro, parameter in unset:
            if parameter in given:
                flags[macro] = parameter.partition(".")[2]
            if given.get(parameter) is not None:
                from_flags.append(f"{macro} = {given[parameter]!r}")
        for part in parts:
            stream = io.StringIO(part.text)
            stream.name = part.source  # where Gin looks
            gin.parse_config(stream)
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
    insides = (os.path.relpath(os.path.realpath(path), os.path.realpath(at)) for at in (".", *runs))
    # Shells and git execute hidden files; this also excludes `..`.
    return any(all(part[0] != "." for part in Path(inside).parts) for inside in insides)


def located(path: str) -> Path:
    """Returns the path of a Gin file: in the current directory, or else in the package."""
    return next((place for place in (Path(path), _PACKAGE / path) if place.is_file()), Path(path))


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


class _GinPart(NamedTuple):
    """Statements that Gin parses at once: of a file up to an include or its end, or typed by the user."""

    source: str
    text: str
    statements: list[Any]
    is_typed: bool = False


def _parts_of(
    source: str, outer: tuple[str, ...] = (), typed: str | None = None
) -> Iterator[_GinPart]:
    """Yields the parts of a file and of all files that it includes, in the order of their statements.

    Gin itself would search for included files, and fail if a Python package `configs` is on the path of
    modules. `outer`: the files that include it; `typed`: the text, where the user typed it instead.
    """
    text = decoded(located(source).read_bytes(), source) if typed is None else typed
    inner = (*outer, _real_path(source)) if typed is None else outer
    lines = text.splitlines(keepends=True)
    begun, statements = 0, list[Any]()
    for statement in _statements(text):
        if not isinstance(statement, config_parser.IncludeStatement):
            statements.append(statement)
            continue
        line = statement.location.line_num
        # Empty lines in place of the lines before, so that messages have the right line numbers.
        before = "\n" * begun + "".join(lines[begun : line - 1])
        yield _GinPart(source, before, statements, typed is not None)
        begun, statements = line, []
        included = _included(statement.filename, source)
        where = f"{source} line {line} includes {included}, which"
        if not located(included).is_file():
            raise UserError(f"{where} is missing; check the path")
        if _real_path(included) in inner:
            raise UserError(f"{where} includes itself; remove one include")
        yield from _parts_of(included, inner)
    yield _GinPart(source, "\n" * begun + "".join(lines[begun:]), statements, typed is not None)


def _check_statements(
    parts: Iterable[_GinPart], allow_imports: bool, given: Mapping[str, Any]
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
    for part, statement in ((it, each) for it in parts for each in it.statements):
        where = f"{part.source} line {statement.location.line_num}"
        if isinstance(statement, config_parser.ImportStatement) and not allow_imports:
            raise UserError(
                f"{where} imports a module, which would run its code; remove the line, or {trust}"
            )
        if not isinstance(statement, config_parser.BindingStatement):
            continue
        named = _names_in(statement.value, _Reference)
        if named and not allow_imports:
            raise UserError(
                f"{where}: refers to a function, @{named[0]}, which would run; parameters here are values, "
                f"so write the value, or {trust}"
            )
        used.update(_names_in(statement.value, _Macro))
        is_trusted = part.is_typed or Path(_real_path(part.source)).is_relative_to(_SHIPPED)
        binding = where, statement.value, is_trusted
        stage = statement.selector.rpartition(".")[2]
        if given.get(f"{stage}.{statement.arg_name}") is None:
            bindings[statement.scope, stage, statement.arg_name] = binding
        if not statement.arg_name:
            name = "/".join(filter(None, (statement.scope, statement.selector)))
            macros[name] = binding
            in_files.update([name] * (not part.is_typed))
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
    inner = {name: _names_in(value, _Macro) for name, (_, value, _) in macros.items()}
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


def _names_in(value: Any, kind: type[str]) -> list[str]:
    """Returns the references or macros in a value, at any depth."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in _names_in(item, kind)]
    return [value] if isinstance(value, kind) else []


def _in_plain_words(
    text: str, known: Mapping[str, Callable[..., Any]], flags: Mapping[str, str]
) -> str:
    """Turns an error of Gin into one line, with the nearest known name; `flags` set macros, by macro."""
    if match := re.search(r"'([\w.]+)' doesn't have a parameter named '(\w+)'", text):
        name, parameter = match[1].rpartition(".")[2], match[2]
        choices = inspect.signature(known[name]).parameters if name in known else ()
        return f"{name} has no parameter {parameter!r}; {nearest(parameter, choices)}"
    if match := re.search(r"No configurable matching '([\w.]+)'", text):
        return f"Gin knows no {match[1]!r} here; {nearest(match[1], known)}"
    found = re.findall(r"(\w+)/(?:gin\.)?macro\.value", text) if "gin.REQUIRED" in text else []
    if "No bindings specified for" in text:
        defined = re.findall(r"\b([A-Za-z_]\w*) = ", text)
        used = re.findall(r"%([A-Za-z_]\w*)", text)
        found = re.findall(r"'(\w+)/gin\.macro'", text) + [n for n in used if n not in defined]
    if missing := dict.fromkeys(found):
        cures = [
            f"--{flags[name]}=..." if name in flags else f"--gin_param={name + ' = ...'!r}"
            for name in missing
        ]
        are = "is" if len(missing) == 1 else "are"
        return f"the configuration uses {', '.join(missing)}, which {are} not set; give {' '.join(cures)}"
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
    bindings = re.findall(r"(?m)^([\w/]+)/(\w+)\.(\w+) =", gin.config_str(max_line_length=10**6))
    for scope, stage, parameter in bindings:
        names = sorted(known.get(stage, ()))
        if stage in known and scope not in {*map(scope_of, names), *tolerated}:
            raise UserError(
                f"{scope}/{stage}.{parameter} is set, but the names there are "
                f"{', '.join(names) or 'none'}; correct it or add it to {where}"
            )
