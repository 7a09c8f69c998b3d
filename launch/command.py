"""`multiberts launch`: carries out an experiment, shows, prices and cleans it up.

    multiberts launch run --gin_file=configs/demo.gin --workers=2

An experiment is a Gin file (configs/demo.gin is the one to copy). It uses the names of the single
commands; what holds for one corpus, procedure or task is in its scope:

    launch.procedures = ['base', 'cda_incr']
    pretrain.num_steps = 600
    cda_incr/pretrain.num_steps = 200

Options of a command are flags, or bound under its name, such as `run.workers = 4`. Options of `run`,
and its `engine_options`, are also the defaults of the other commands' options of the same name.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import gin
from absl import flags

from multiberts.finetune.task import registered_tasks
from multiberts.launch.imports.register import imported_runs
from multiberts.launch.markers.failures import exit_with
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.input_digests import FILE as DIGESTS
from multiberts.launch.plan.input_digests import InputDigests
from multiberts.launch.plan.planned_run import STAGES, PlannedRun, stage_function
from multiberts.runs import console
from multiberts.runs.command import (
    asks_for_help,
    by_gin_name,
    define_flags,
    described_function,
    flag_values,
    gin_name_of,
    parameter_lines,
    parse_gin_flags,
    run_main,
)
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.gin_files import refuse_unknown_scopes, scoped_bindings
from multiberts.runs.parameters import PositiveInt, annotations_of, check_types


@dataclass(frozen=True)
class LauncherCommand:
    """What a command calls.

    Attributes:
      target: module and function below `multiberts.launch`, imported when the command is given. Of the
        function's parameters `plan` and `root` come from the experiment, the others are options.
      gin_name: options are bound in Gin under it.
      summary: for `--help`.
    """

    target: str
    gin_name: str
    summary: str

    def load(self) -> Callable[..., Any]:
        """Returns the function."""
        module, _, function = self.target.partition(":")
        module = f"multiberts.launch.{module}"
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found


COMMANDS = {
    name: LauncherCommand(target, gin_name, summary)
    for name, target, gin_name, summary in (
        ("plan", "status.plan_report:show_plan", "plan",
         "print an estimate of time, dollars, CO2e and disk, and what is done already"),
        ("run", "running:run_plan", "run",
         "carry out what is not done yet (without a command, too)"),
        ("status", "status.command:show_status", "status",
         "show what is running, done and failed, from any machine that sees launch.root"),
        ("reap", "reaping:reap", "reap", "end what a launcher that died has left running"),
        ("doctor", "doctor.checkup:doctor", "doctor", "report what works on this machine"),
        # `import` begins another kind of line in Gin.
        ("import", "imports.released:import_released", "import_released",
         "take released checkpoints or predictions as done runs"),
    )
}  # fmt: skip
DEFAULT_COMMAND = "run"

_DRY_RUN = flags.DEFINE_bool("dry_run", False, "The same as the command plan.")
# Settings that are bound under the name of their stage.
_OF_STAGES = {"world": "make_world", "report": "report", "paper": "paper"}
# The lists of `launch` that name the scopes of a stage.
SCOPED_STAGES = {"corpora": "prepare", "procedures": "pretrain", "tasks": "finetune"}
# What may be bound as `launch.<name>`, with its type: the experiment, and what all commands have.
_OTHER_SETTINGS = {"root": str, "workers": PositiveInt | None}
_SETTINGS = {
    **annotations_of(Experiment),
    **dict.fromkeys(SCOPED_STAGES, Sequence[str]),
    **_OTHER_SETTINGS,
}


def main() -> None:
    """Runs `multiberts launch`."""
    given = next((argument for argument in sys.argv[1:] if argument in COMMANDS), None)
    if asks_for_help(sys.argv[1:]):
        console.report(_help() if given is None else _help_of(given))
        return
    # `--dry_run` takes the place of `run`.
    is_plan = given in (None, DEFAULT_COMMAND) and not {"--dry_run", "-dry_run"}.isdisjoint(
        sys.argv
    )
    name = "plan" if is_plan else given or DEFAULT_COMMAND
    annotations = _flags_of(name)
    define_flags(annotations)
    stages = map(stage_function, ("score", "report"))
    run_main(functools.partial(_main, name, annotations), stages)


def _flags_of(name: str) -> dict[str, Any]:
    """Returns the annotations of a command's flags: of its options, and of the experiment's settings."""
    annotations = annotations_of(COMMANDS[name].load())
    needs_plan = annotations.pop("plan", None) is not None
    return (_settings_with_flags() if needs_plan else {}) | annotations


def launch_flags() -> dict[str, Any]:
    """Returns the annotations of the flags of all commands of `multiberts launch`."""
    return {name: kind for command in COMMANDS for name, kind in _flags_of(command).items()}


def _settings_with_flags() -> dict[str, Any]:
    return {name: kind for name, kind in _SETTINGS.items() if name not in _OF_STAGES}


def _main(name: str, annotations: Mapping[str, Any], arguments: Sequence[str]) -> None:
    """Parses Gin, gathers every scope's arguments, makes the plan, and carries out the command.

    Args:
      name: of the command whose flags were defined.
      annotations: of these flags.
      arguments: the command line without flags.
    """
    if _command_name(arguments) != name:
        raise UserError(f"{name!r} is the value of a flag; give the command before the flags")
    command = COMMANDS[name]
    function = command.load()
    needs_plan = "plan" in inspect.signature(function).parameters
    flags_given = flag_values(annotations)
    own = annotations_of(function)
    by_flag = by_gin_name([command.gin_name], own, flags_given)
    by_flag |= by_gin_name(["launch"], annotations.keys() & _SETTINGS.keys(), flags_given)
    parse_gin_flags(_known(command, function, needs_plan), by_flag)
    settings = dict(gin.get_bindings("launch"))
    settings |= {name: value for name, value in flags_given.items() if name in _SETTINGS}
    _check_settings(settings)
    options = _options(name, function, settings, flags_given)
    check_types(command.gin_name, options, own)
    if not needs_plan:
        result = function(**options)
    else:
        digests = InputDigests(Path(settings["root"]) / DIGESTS)
        try:
            result = function(plan=_plan(settings, digests), **options)
        finally:
            digests.keep()  # the first launch makes their folder
    if isinstance(result, int):
        sys.exit(result)
    if isinstance(result, list):
        exit_with(result)


def _command_name(arguments: Sequence[str]) -> str:
    """Returns the command, the first argument.

    Raises:
      UserError: it is unknown, has arguments, or contradicts `--dry_run`.
    """
    name = arguments[1] if len(arguments) > 1 else DEFAULT_COMMAND
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")
    if len(arguments) > 2:
        raise UserError(
            f"unexpected argument {arguments[2]!r}; give options as --name=value, and --help lists them"
        )
    if _DRY_RUN.value:
        if name not in ("plan", DEFAULT_COMMAND):
            raise UserError(
                f"--dry_run is not an option of {name}; leave it out, or use the command plan"
            )
        return "plan"
    return name


def _known(
    command: LauncherCommand, function: Callable[..., Any], needs_plan: bool
) -> dict[str, Callable[..., Any]]:
    """Returns the functions that a configuration may bind, by name.

    Those that this command does not need are not imported and take any parameter.
    """

    def anything(**parameters: Any) -> None:
        """Replaces a function that is not called."""

    known = {
        name: stage_function(stage) if needs_plan else anything
        for stage in STAGES
        for name in (stage, gin_name_of(stage))
    }
    known |= {other.gin_name: anything for other in COMMANDS.values()}
    return known | {command.gin_name: function, "launch": anything}


def _check_settings(settings: dict[str, Any]) -> None:
    """Refuses what is not a setting of an experiment, or is of another type."""
    cures = {name: f"set {stage}.<parameter> instead" for name, stage in _OF_STAGES.items()}
    cures["dry_run"] = "it is a command: use `multiberts launch plan` or --dry_run"
    for name in settings:
        if name in cures:
            raise UserError(f"launch.{name} is set; {cures[name]}")
        if name not in _SETTINGS:
            raise UserError(f"launch has no setting {name!r}; {nearest(name, sorted(_SETTINGS))}")
    check_types("launch", settings, _SETTINGS)


def _options(
    name: str,
    function: Callable[..., Any],
    settings: Mapping[str, Any],
    flags_given: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns a command's keyword arguments without `plan`: from flags, Gin, and the experiment."""
    command = COMMANDS[name]
    known = inspect.signature(function).parameters
    bound = dict(gin.get_bindings(command.gin_name))
    for reserved in bound.keys() & {"plan", "root"}:
        raise UserError(f"{command.gin_name}.{reserved} is set; set launch.root instead")
    of_run = gin.get_bindings(DEFAULT_COMMAND)
    inherited = {"workers": settings["workers"]} if "workers" in settings else {}
    if name != DEFAULT_COMMAND:
        inherited |= of_run.get("engine_options") or {}
    inherited |= of_run
    inherited |= {setting: settings[setting] for setting in ("root", "data") if setting in settings}
    given = {option: value for option, value in inherited.items() if option in known} | bound
    given |= {option: value for option, value in flags_given.items() if option in known}
    missing = [
        option
        for option, details in known.items()
        if details.default is details.empty and option not in given and option != "plan"
    ]
    if missing:
        first = "launch.root" if missing[0] == "root" else f"{command.gin_name}.{missing[0]}"
        raise UserError(
            f"{name} lacks {first}; give --{missing[0]}=..., or {first} in a --gin_file"
        )
    return given


def _plan(settings: Mapping[str, Any], digests: InputDigests) -> list[PlannedRun]:
    """Returns the runs of the experiment that Gin describes; each name becomes its scope's bindings."""
    missing = [
        f"launch.{field.name}"
        for field in fields(Experiment)
        if field.default is MISSING and field.name not in settings
    ]
    if missing:
        raise UserError(
            f"launch lacks {', '.join(missing)}; give a --gin_file that sets each (configs/demo.gin is "
            "one to copy)"
        )
    arguments = {name: settings[name] for name in settings if name not in _OTHER_SETTINGS}
    scopes: dict[str, set[str]] = {stage: set() for stage in STAGES}
    for names, stage in SCOPED_STAGES.items():
        scopes[stage] = set(settings[names])
        arguments[names] = {name: scoped_bindings(stage, name) for name in settings[names]}
    modules = gin.get_bindings("finetune").get("task_modules", ())
    refuse_unknown_scopes(scopes, "launch", unused=registered_tasks(tuple(modules)))
    for name, stage in _OF_STAGES.items():
        bound = gin.get_bindings(stage) | gin.get_bindings(gin_name_of(stage))
        arguments[name] = bound or None
    imported = imported_runs(settings["root"])
    return make_plan(Experiment(**arguments), imported=imported, digests=digests)


def _help() -> str:
    """Returns what `multiberts launch --help` prints: the commands, then the experiment's settings."""
    width = max(map(len, COMMANDS))
    commands = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: multiberts launch [COMMAND] [--option=value ...] --gin_file=...",
            "",
            (__doc__ or "").strip(),
            "",
            "Commands (`multiberts launch COMMAND --help` lists the options of one):",
            "",
            *commands,
            "",
            "The experiment, as --name=value or, in a --gin_file, as launch.name = value:",
            "  --root (str; required)",
            "      the directory that all runs lie below.",
            *parameter_lines(Experiment, _settings_with_flags()),
        ]
    )


def _help_of(name: str) -> str:
    """Returns what `multiberts launch COMMAND --help` prints."""
    command = COMMANDS[name]
    function = command.load()
    annotations = annotations_of(function)
    settings = ["The experiment's settings: multiberts launch --help"] * ("plan" in annotations)
    annotations.pop("plan", None)
    description, _, notes = described_function(function)
    title = f"Options, as --name=value or, in a --gin_file, as {command.gin_name}.name = value:"
    return "\n".join(
        [
            f"usage: multiberts launch {name} [--option=value ...] [--gin_file=...]",
            "",
            description,
            "",
            title,
            *parameter_lines(function, annotations),
            "",
            *settings,
            "",
            notes,
        ]
    ).rstrip()
