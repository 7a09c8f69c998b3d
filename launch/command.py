"""`multiberts launch <command> --gin_file=...`: run an experiment, show, price and clean it up.

Only this module of the launcher knows Gin. A configuration uses the names of the single commands.
Bindings for one corpus, procedure or task are in its scope:

    launch.procedures = ['base', 'cda_incr']
    pretrain.num_steps = 600
    cda_incr/pretrain.num_steps = 200

Options of a command are bound under its name, such as `run.workers = 4`. Options of `run`, and its
`engine_options`, are also the defaults of the other commands' options of the same name.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import gin
from absl import flags

from multiberts.finetune.tasks import registered_tasks
from multiberts.launch.imports.register import imported_runs
from multiberts.launch.markers.failures import exit_with
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.input_digests import FILE as DIGESTS
from multiberts.launch.plan.input_digests import InputDigests
from multiberts.launch.plan.planned_run import STAGES, PlannedRun, stage_function
from multiberts.runs.command import parse_gin_flags, run_main
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
        ("rehearse", "tpu.rehearsal.rehearsal:rehearse", "rehearse",
         "carry out the plan's Cloud TPU part against a service in this process, with mishaps"),
        ("doctor", "doctor.checkup:doctor", "doctor", "report what works on this machine"),
        # `import` begins another kind of line in Gin.
        ("import", "imports.released:import_released", "import_released",
         "take released checkpoints or predictions as done runs"),
    )
}  # fmt: skip
DEFAULT_COMMAND = "run"

_DRY_RUN = flags.DEFINE_bool("dry_run", False, "The same as the command plan.")
_ROOT = flags.DEFINE_string("root", None, "launch.root: the experiment's directory.")
# Options that have flags; the commands' functions show which command has the option.
_OPTION_FLAGS = {
    "all": flags.DEFINE_bool("all", None, "List every run of the plan."),
    "budget": flags.DEFINE_float(
        "budget", None, "Refuse a plan that is estimated to cost more dollars."
    ),
    "device": flags.DEFINE_string(
        "device", None, "Estimate for this device of launch/estimate/prices.toml."
    ),
    "html": flags.DEFINE_string("html", None, "Write the status to this HTML file, too."),
    "json": flags.DEFINE_bool("json", None, "Print the status as JSON."),
    "once": flags.DEFINE_bool("once", None, "Look once, do what is to be done now, and leave."),
    "watch": flags.DEFINE_bool("watch", None, "Keep showing the status."),
}

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
    if {"--help", "-h", "--helpfull", "-help", "-helpfull"} & set(sys.argv):
        _describe_in_help(sys.argv[1:])
    run_main(_main)


def _main(arguments: Sequence[str]) -> None:
    """Parses Gin, gathers every scope's arguments, makes the plan, and carries out the command."""
    name = _command_name(arguments)
    command = COMMANDS[name]
    function = command.load()
    needs_plan = "plan" in inspect.signature(function).parameters
    parse_gin_flags(_known(command, function, needs_plan))
    settings = dict(gin.get_bindings("launch"))
    if _ROOT.value is not None:
        settings["root"] = _ROOT.value
    _check_settings(settings)
    options = _options(name, function, settings)
    check_types(command.gin_name, options, annotations_of(function))
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
            f"unexpected argument {arguments[2]!r}; give parameters as --gin_param='name = value'"
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

    known = {stage: stage_function(stage) if needs_plan else anything for stage in STAGES}
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


def _options(name: str, function: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
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
    for option, flag in _OPTION_FLAGS.items():
        if flag.value is None:
            continue
        if option not in known:
            raise UserError(f"--{option} is not an option of {name}; leave it out")
        given[option] = flag.value
    missing = [
        option
        for option, details in known.items()
        if details.default is details.empty and option not in given and option != "plan"
    ]
    if missing:
        first = "launch.root" if missing[0] == "root" else f"{command.gin_name}.{missing[0]}"
        raise UserError(
            f"{name} lacks {first}; give it in a --gin_file or as --gin_param='{first} = ...'"
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
            f"launch lacks {', '.join(missing)}; give each in a --gin_file or as "
            f"--gin_param='{missing[0]} = ...'"
        )
    arguments = {name: settings[name] for name in settings if name not in _OTHER_SETTINGS}
    scopes: dict[str, set[str]] = {stage: set() for stage in STAGES}
    for names, stage in SCOPED_STAGES.items():
        scopes[stage] = set(settings[names])
        arguments[names] = {name: scoped_bindings(stage, name) for name in settings[names]}
    modules = gin.get_bindings("finetune").get("task_modules", ())
    refuse_unknown_scopes(scopes, "launch", unused=registered_tasks(tuple(modules)))
    arguments |= {name: gin.get_bindings(stage) or None for name, stage in _OF_STAGES.items()}
    imported = imported_runs(settings["root"])
    return make_plan(Experiment(**arguments), imported=imported, digests=digests)


def _describe_in_help(arguments: Sequence[str]) -> None:
    """Makes `--help` list the commands, or the options of the given one, and the flags."""
    for name in ("gin_file", "gin_param"):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
    main_module = sys.modules["__main__"]
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    if name in COMMANDS:
        command = COMMANDS[name]
        text = inspect.getdoc(command.load()) or ""
        main_module.__doc__ = (
            f"multiberts launch {name}: {command.summary}.\n\n{text}\n\nOptions are bound as "
            f"--gin_param='{command.gin_name}.<option> = value' or in a --gin_file; the experiment as "
            "launch.<setting>, see `multiberts launch --help`."
        )
        return
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    main_module.__doc__ = (
        f"{__doc__}\nCommands (`multiberts launch <command> --help` describes one):\n\n"
        + "\n".join(lines)
        + "\n\nThe experiment, as launch.<setting>, with launch.root, the directory that all runs lie "
        f"below:\n\n{inspect.getdoc(Experiment)}\n"
    )
