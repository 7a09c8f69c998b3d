"""The command line: a command's flags and Gin become the arguments of one plain function, which is called."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin
from absl import app, flags

import multiberts
from multiberts.runs import console, environment, files, parameters
from multiberts.runs.bucket.copies import local_arguments
from multiberts.runs.command_line.commands import COMMANDS, GROUPS, Command, gin_name_of, load
from multiberts.runs.command_line.error_lines import EXIT_USER_ERROR, one_line_errors
from multiberts.runs.command_line.gin_files import bindings_of, in_data_folder, parse_gin
from multiberts.runs.command_line.help import FULL_HELP, HELP, Group, help_of, overview
from multiberts.runs.directory import DONE
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.parameters import annotations_of, described, required_of
from multiberts.runs.preemption import exit_when_preempted

_GIN_FILE = flags.DEFINE_multi_string("gin_file", [], "Gin file; may be given several times.")
_GIN_PARAM = flags.DEFINE_multi_string(
    "gin_param", [], "Gin binding such as 'pretrain.num_steps = 100'."
)
_ALLOW_GIN_IMPORTS = flags.DEFINE_bool("allow_gin_imports", False, "Let Gin files import modules.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Overwrite output files of other programs.")
_UNLISTED = Command("", "", "")  # of a function that is not in the table


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `multiberts <command> ...`, by default of this process; `python -m multiberts.<package>`, too."""
    given = sys.argv[1:] if arguments is None else arguments
    with one_line_errors():
        name, *rest = console.take_verbosity(given) or ["--help"]
        if name in HELP:
            console.report(overview())
            return
        if name == "--version":
            console.report(f"multiberts {multiberts.__version__}")
            return
        if name in GROUPS:
            default, asks = GROUPS[name], not HELP.isdisjoint(rest)
            if rest and not rest[0].startswith("-"):
                default = f"{name} {rest.pop(0)}"
            elif asks or not default:
                console.report(overview(name))
                if default != name:
                    sys.exit(0 if asks else EXIT_USER_ERROR)
            name = default
        if name not in COMMANDS:
            known = COMMANDS if " " in name else {one.partition(" ")[0]: one for one in COMMANDS}
            raise UserError(f"unknown command {name!r}; {nearest(name, known)}")
        command = COMMANDS[name]
        if command.computes:
            # Before anything imports Keras, which keeps its engine for the life of the process.
            parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
            parser.add_argument("--engine", nargs="?", const="")
            chosen, rest = parser.parse_known_args(rest)
            if chosen.engine is not None:
                environment.choose_engine(chosen.engine)
            elif HELP.isdisjoint(rest):
                environment.engine()
        else:
            # By default Python searches for cycles every 700 objects, although imports leave none, and once
            # more through all of them at exit: a fifth of a compare's time.
            gc.set_threshold(50_000)
            atexit.register(gc.freeze)
        sys.argv = [f"multiberts {name}", *rest]
        run_command(load(command.target), command)


class Arguments:
    """Collects the arguments of a command's function from flags and Gin."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.gin_name = gin_name_of(function.__name__)

    def flags(self) -> Mapping[str, Any]:
        return annotations_of(self.function)

    def groups(self) -> Iterator[Group]:
        """Yields the groups of parameters, as `--help` describes them."""
        binding = f"{self.gin_name}.name = value"
        heading = f"Parameters, as --name=value or, in a --gin_file, as {binding}:"
        yield heading, self.function, self.flags()

    def gather(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parses Gin and returns the function's arguments; `given`, the values of flags, override Gin."""
        # If both names are bound, the command's wins.
        names = {self.function.__name__: self.function, self.gin_name: self.function}
        parse_gin_flags(names, dict.fromkeys(names, self.flags()), given)
        bindings: dict[str, Any] = {}
        for name in names:
            bindings |= in_data_folder(bindings_of(name))
        bindings |= given
        require_arguments(self.function, set(bindings))
        parameters.check_arguments(self.function, bindings)
        return parameters.typed_arguments(self.function, bindings)

    def local(self, bindings: dict[str, Any]) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """Yields the arguments for the call, with local copies of paths in a bucket."""
        return local_arguments(bindings)

    def functions(self) -> Iterable[Callable[..., Any]]:
        """Returns the functions whose parameters error messages may name."""
        return [self.function]

    def exit_with(self, result: object) -> None:
        """Exits with the function's result as status; returns if that is 0."""
        if isinstance(result, int) and result:
            sys.exit(result)


def run_command(function: Callable[..., object], command: Command = _UNLISTED) -> None:
    """Binds the command line and Gin to a function's parameters and calls it.

    The process exits with 0, with 2 and one line on standard error for bad input, with 75 where it
    was asked to stop and has saved, or with a traceback for our own mistakes. A text that the
    function returns is printed.

    Args:
      function: a stage's entry, with keyword-only parameters; each is a flag, too, which wins.
    """
    source: Arguments = load(command.arguments)(function)
    if not HELP.isdisjoint(sys.argv[1:]):
        full = not FULL_HELP.isdisjoint(sys.argv)
        console.report(help_of(function, source.groups(), command, full))
        return
    annotations = source.flags()
    for name, annotation in annotations.items():
        flags.DEFINE_multi_string(name, None, "See --help.")
        # A boolean flag needs no value: `--json`, `--nojson`.
        flags.FLAGS[name].boolean = parameters.is_boolean(annotation)

    def main(arguments: Sequence[str]) -> None:
        texts = {name: flags.FLAGS[name].value for name in annotations}
        texts |= positional_texts(arguments[1:], command.positional)
        given = {
            name: parameters.expanded(parameters.value_of_flag(listed, annotations[name]))
            for name, listed in texts.items()
            if listed
        }
        files.overwrites = _OVERWRITE.value
        bindings = source.gather(given)
        for name in filter(annotations.__contains__, bindings):
            console.detail(f"{source.gin_name}.{name} = {bindings[name]!r}")
        started = time.perf_counter()
        # Not through Gin, which would add lines to error messages.
        with source.local(bindings) as arguments_here:
            run_dir = arguments_here.get("run_dir")
            before = _when_done(run_dir)
            result = parameters.bound_call(function, arguments_here)()
            # A function that returns a text makes no run.
            if not isinstance(result, str) and before is not None and before == _when_done(run_dir):
                console.progress(f"{bindings['run_dir']} was done already; nothing was changed")
            if command.report is not None:
                result = load(command.report)(run_dir=run_dir)
        if isinstance(result, str):
            console.report(result)
        wall, cpu = time.perf_counter() - started, time.process_time()
        console.detail(f"{source.gin_name} took {wall:.1f} s, {cpu:.1f} CPU s in this process")
        source.exit_with(result)

    run_main(main, source.functions())


def parse_gin_flags(
    known: Mapping[str, Callable[..., Any]],
    flags_of: Mapping[str, Iterable[str]],
    given: Mapping[str, Any],
) -> None:
    """Registers functions with Gin under these names, and parses the Gin flags.

    `flags_of`: the parameters of each that are flags; `given`: the values of those that were given.
    """
    for name, function in known.items():
        gin.external_configurable(function, name=name)
    values = {f"{stage}.{name}": given.get(name) for stage in flags_of for name in flags_of[stage]}
    parse_gin(_GIN_FILE.value, _GIN_PARAM.value, known, _ALLOW_GIN_IMPORTS.value, values)


def _when_done(run_dir: str | None) -> int | None:
    marker = Path(run_dir or "", DONE)
    return marker.stat().st_mtime_ns if run_dir and marker.is_file() else None


def positional_texts(given: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the texts of parameters that were given without their names (`Command.positional`)."""
    num_many = max(0, len(given) - len(names) + 1)
    name_of_each = [
        name.removesuffix("...")
        for name in names
        for _ in range(num_many if name.endswith("...") else 1)
    ]
    if len(given) > len(name_of_each):
        raise UserError(
            f"unexpected argument {given[len(names)]!r}; give parameters as --name=value, and "
            "--help lists them"
        )
    texts: dict[str, list[str]] = {}
    for name, text in zip(name_of_each, given, strict=False):
        texts.setdefault(name, []).append(text)
    return texts


def run_main(
    main: Callable[[Sequence[str]], object], functions: Iterable[Callable[..., object]] = ()
) -> None:
    """Runs `main(arguments)` under absl; see `run_command` for how the process exits.

    `functions`: those of commands whose parameters error messages may name.
    """

    def guarded(arguments: Sequence[str]) -> None:
        try:
            with exit_when_preempted():
                main(arguments)
        except UserError as error:
            # Messages name parameters as Gin and `--help` do: `evaluate.run_dir`, not `score.run_dir`.
            text = str(error)
            for function in functions:
                name, known = function.__name__, "|".join(annotations_of(function))
                named = rf"(?<![\w/.-]){name}\.(?=({known})\b)"
                text = re.sub(named, f"{gin_name_of(name)}.", text)
            if text == str(error):
                raise
            raise UserError(text) from error

    def parsed(arguments: list[str]) -> list[str]:
        # Other programs write --seed-sd where parameters are called seed_sd.
        name = re.compile(r"(?<=^--)\w[\w-]*")
        spelled = [name.sub(lambda n: n[0].replace("-", "_"), one) for one in arguments]
        try:
            return flags.FLAGS(spelled)
        except flags.UnrecognizedFlagError as error:
            cure = nearest(error.flagname, flags.FLAGS, "--help lists the flags")
            raise UserError(f"unknown flag --{error.flagname}; {cure}") from error
        except flags.Error as error:
            raise UserError(f"{error}; --help lists the flags") from error

    with one_line_errors():
        app.run(guarded, flags_parser=parsed)


def require_arguments(function: Callable[..., object], given: set[str]) -> None:
    missing = sorted(required_of(function) - given)
    if missing:
        name = gin_name_of(function.__name__)
        kinds = {it: described(annotations_of(function)[it]) for it in missing}
        # A kind with quotes lists the choices.
        lacking = (f"{name}.{it}" + f" ({kind})" * ("'" in kind) for it, kind in kinds.items())
        cure = " ".join(f"--{it}=..." for it in missing)
        raise UserError(
            f"{name} lacks {', '.join(lacking)}; give {cure}, or {name}.{missing[0]} = ... in a --gin_file"
        )
