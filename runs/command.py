"""The command line that every stage shares: Gin files and parameters in, one plain function called."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import gin
from absl import app, flags

from runs.errors import UserError
from runs.local_arguments import local_arguments
from runs.preemption import exit_when_preempted

EXIT_USER_ERROR = 2
EXIT_OUTPUT_CLOSED = 141  # as a shell reports a process that SIGPIPE ended

_GIN_FILE = flags.DEFINE_multi_string("gin_file", [], "Gin file; may be given several times.")
_GIN_PARAM = flags.DEFINE_multi_string(
    "gin_param", [], "Gin binding such as 'pretrain.num_steps = 100'; may be given several times."
)


def run_command(function: Callable[..., object]) -> None:
    """Parses flags and Gin, then calls `function` with what Gin binds to its name.

    The process exits with 0, with 2 and one line on standard error for bad input, with 75 where it
    was asked to stop and has saved, or with a traceback for our own mistakes.

    Args:
      function: a stage's entry, with keyword-only arguments; bound in Gin under its own name.
    """

    def main(arguments: Sequence[str]) -> None:
        if len(arguments) > 1:
            raise UserError(
                f"unexpected argument {arguments[1]!r}; give parameters as --gin_param='name = value'"
            )
        gin.external_configurable(function, name=function.__name__)
        parse_gin(_GIN_FILE.value, _GIN_PARAM.value)
        bindings = gin.get_bindings(function.__name__)
        require_arguments(function, set(bindings))
        # Called directly, not through Gin, which would add its own lines to error messages.
        with local_arguments(bindings) as arguments_here:
            function(**arguments_here)

    _tell_in_help(function)
    run_main(main)


def _tell_in_help(function: Callable[..., object]) -> None:
    """Lets `--help` list the flags of Gin and every parameter that they can bind."""
    for name in ("gin_file", "gin_param"):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
    main_module = sys.modules["__main__"]
    main_module.__doc__ = (
        f"{main_module.__doc__ or ''}\n\nParameters, as --gin_param='{function.__name__}.name = value' "
        f"or in a --gin_file:\n\n{inspect.getdoc(function) or ''}\n"
    )


def run_main(main: Callable[[Sequence[str]], object]) -> None:
    """Runs `main(arguments)` under absl; see `run_command` for how the process exits."""

    def guarded(arguments: Sequence[str]) -> None:
        try:
            with exit_when_preempted():
                main(arguments)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(EXIT_USER_ERROR)
        except BrokenPipeError:
            sys.exit(close_output())

    app.run(guarded, flags_parser=_parse_flags)


def close_output() -> int:
    """Ends standard output where whoever read it (such as `head`) has had enough.

    Returns:
      The status to exit with.
    """
    # Flushing at exit would fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_OUTPUT_CLOSED


def _parse_flags(arguments: list[str]) -> list[str]:
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        print(f"error: {error}; --help lists the flags", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except BrokenPipeError:  # from printing the help
        sys.exit(close_output())


def parse_gin(gin_files: Sequence[str], gin_params: Sequence[str]) -> None:
    """Parses Gin files, then single bindings, which win.

    Raises:
      UserError: a file is missing, a line does not parse, or a name does not exist.
    """
    for path in gin_files:
        if not Path(path).is_file():
            raise UserError(f"--gin_file {path} does not exist; check the path")
    try:
        gin.parse_config_files_and_bindings(
            list(gin_files), list(gin_params), print_includes_and_imports=False
        )
    except (ValueError, SyntaxError, OSError, AttributeError) as error:
        raise UserError(f"in the Gin configuration: {error}; correct that line") from error


def require_arguments(function: Callable[..., object], given: set[str]) -> None:
    """Refuses a call that lacks required keyword arguments, naming them all.

    Raises:
      UserError: some required argument has no binding.
    """
    required = {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    missing = sorted(required - given)
    if missing:
        name = function.__name__
        raise UserError(
            f"{name} lacks {', '.join(f'{name}.{argument}' for argument in missing)}; give each in a "
            f"--gin_file or as --gin_param='{name}.{missing[0]} = ...'"
        )
