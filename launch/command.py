"""Makes the arguments of `multiberts launch <command>` and `multiberts sweep` from a configuration."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from multiberts.finetune.finetuning import finetune
from multiberts.finetune.task import registered_tasks
from multiberts.launch.markers.failures import exit_with
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import STAGES, stage_function
from multiberts.launch.workers.engines import make_engine
from multiberts.runs.command_line.command import Arguments, parse_gin_flags
from multiberts.runs.command_line.commands import COMMANDS, gin_name_of
from multiberts.runs.command_line.gin_files import bindings_of, refuse_unknown_scopes
from multiberts.runs.command_line.help import Group
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.identity import keep, recall
from multiberts.runs.parameters import PositiveInt, annotations_of, check_types

# Digests of input files, so that the next plan reads only those that changed.
DIGESTS = "launch/inputs.json"
EXPERIMENT = """\
An experiment is a Gin file (configs/demo.gin is the one to copy). It uses the names of the single
commands; what holds for one corpus, procedure or task is in its scope:

    launch.procedures = ['base', 'cda_incr']
    pretrain.num_steps = 600
    cda_incr/pretrain.num_steps = 200

Options of `run`, such as `run.workers = 4`, and its `engine_options` are also the defaults of the
other commands' options of the same name. The experiment, besides its root, as --name=value or, in a
--gin_file, as launch.name = value:"""
# Settings whose parameters Gin binds under the name of their stage.
_OF_STAGES = {"world": "make_world", "report": "report", "paper": "paper"}
# Lists in `launch` whose names are Gin scopes of a stage.
SCOPED_STAGES = {"corpora": "prepare", "procedures": "pretrain", "tasks": "finetune"}
# Types of the settings that Gin may bind as `launch.<name>`.
_OTHER_SETTINGS = {"root": str, "workers": PositiveInt | None}
_SETTINGS = {
    **{name: kind for name, kind in annotations_of(Experiment).items() if name not in _OF_STAGES},
    **dict.fromkeys(SCOPED_STAGES, Sequence[str]),
    **_OTHER_SETTINGS,
}

# Arguments of `finetune` that the experiment does not set for each run.
_SET_BY_EXPERIMENT = (
    "run_dir", "checkpoint", "procedure", "pretrain_seed", "learning_rate", "finetune_seed",
    "held_out_fold",
)  # fmt: skip


class LaunchArguments(Arguments):
    """Options of a command of `multiberts launch`, and the plan for those that need it.

    Attributes:
      of_all_tasks: arguments of `finetune` that are flags, too.
    """

    of_all_tasks: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)
        self.needs_plan = "plan" in inspect.signature(function).parameters
        self._digests: Path | None = None

    def options(self) -> dict[str, Any]:
        return {
            name: kind for name, kind in annotations_of(self.function).items() if name != "plan"
        }

    def flags(self) -> dict[str, Any]:
        settings = _SETTINGS if self.needs_plan else {}
        return {**settings, **self.options(), **self.of_all_tasks}

    def groups(self) -> Iterator[Group]:
        """Ends with the experiment's settings, for a command that needs the plan."""
        heading = f"Options, as --name=value or, in a --gin_file, as {self.gin_name}.name = value:"
        yield heading, self.function, self.options()
        if self.needs_plan:
            yield EXPERIMENT, Experiment, _SETTINGS

    def gather(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parses Gin and makes the plan, if the command needs one."""

        # For functions that this command does not call: importing them takes seconds.
        def anything(**parameters: Any) -> None: ...

        others = (other.gin_name for name, other in COMMANDS.items() if name.startswith("launch "))
        functions = dict.fromkeys(filter(None, others), anything)
        for stage in STAGES:
            function = stage_function(stage) if self.needs_plan else anything
            functions |= {stage: function, gin_name_of(stage): function}
        functions |= {self.gin_name: self.function, "launch": anything}
        flags_of: dict[str, Iterable[str]] = {
            self.gin_name: self.options(),
            "launch": self.flags().keys() & _SETTINGS.keys(),
            "finetune": self.of_all_tasks,
        }
        parse_gin_flags(functions, flags_of, given)
        settings = bindings_of("launch")
        settings |= {name: value for name, value in given.items() if name in _SETTINGS}
        for name in settings:
            if name in _OF_STAGES:
                raise UserError(f"launch.{name} is set; set {_OF_STAGES[name]}.<parameter> instead")
            if name not in _SETTINGS:
                near = nearest(name, sorted(_SETTINGS))
                raise UserError(f"launch has no setting {name!r}; {near}")
        check_types("launch", settings, _SETTINGS)
        options = _options(self.gin_name, self.function, settings, given)
        check_types(self.gin_name, options, self.options())
        if not self.needs_plan:
            return options
        if options.get("reap"):
            return {"plan": [], **options}  # needs the root alone

        # The experiment: each name in a list becomes the bindings of its scope.
        arguments = {name: settings[name] for name in settings if name not in _OTHER_SETTINGS}
        scopes: dict[str, set[str]] = {stage: set() for stage in STAGES}
        for names, stage in SCOPED_STAGES.items():
            scopes[stage] = set(settings.get(names, ()))
            arguments[names] = {name: bindings_of(stage, name) for name in settings.get(names, ())}
        for of_task in arguments["tasks"].values():
            of_task |= {name: given[name] for name in self.of_all_tasks if name in given}
        modules = bindings_of("finetune").get("task_modules", ())
        refuse_unknown_scopes(scopes, "launch", unused=registered_tasks(tuple(modules)))
        for name, stage in _OF_STAGES.items():
            arguments[name] = bindings_of(stage) | bindings_of(gin_name_of(stage)) or None
        self._digests = Path(settings["root"]) / DIGESTS
        recall(self._digests)
        try:
            return {"plan": make_plan(Experiment(**arguments)), **options}
        except UserError:
            keep(self._digests)
            raise

    @contextlib.contextmanager
    def local(self, bindings: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the arguments; saves the digests of input files for the next launch at the end."""
        try:
            yield bindings
        finally:
            if self._digests is not None:
                keep(self._digests)  # the first launch creates their folder

    def functions(self) -> Iterable[Callable[..., Any]]:
        """Returns the stages whose parameters error messages may name."""
        return map(stage_function, ("score", "report"))

    def exit_with(self, result: object) -> None:
        """Exits with the function's number, or with 1 or 2 if runs failed."""
        if isinstance(result, list):
            exit_with(result)
        super().exit_with(result)


class SweepArguments(LaunchArguments):
    """`multiberts sweep`: `launch run` whose flags may be arguments of `finetune`, too, for all tasks."""

    of_all_tasks: Mapping[str, Any] = {
        name: kind
        for name, kind in annotations_of(finetune).items()
        if name not in _SET_BY_EXPERIMENT
    }

    def groups(self) -> Iterator[Group]:
        summary = "Fine-tunes every checkpoint on every task with every rate and seed, and scores the runs."
        for number, (heading, function, options) in enumerate(super().groups()):
            yield f"{summary}\n\n{heading}" if number == 0 else heading, function, options
        heading = (
            "For every task, as --name=value or, in a --gin_file, as finetune.name = value (for one task:\n"
            "TASK/finetune.name = value):"
        )
        yield heading, finetune, self.of_all_tasks


def _options(
    name: str,
    function: Callable[..., Any],
    settings: Mapping[str, Any],
    flags_given: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns a command's keyword arguments without `plan`: from flags, Gin, and the experiment."""
    parameters = inspect.signature(function).parameters
    bound = bindings_of(name)
    for reserved in bound.keys() & {"plan", "root"}:
        raise UserError(f"{name}.{reserved} is set; set launch.root instead")
    of_run = bindings_of("run")
    inherited = {"workers": settings["workers"]} if "workers" in settings else {}
    if name != "run":
        inherited |= of_run.get("engine_options") or {}
    inherited |= of_run
    if name == "plan" and of_run.get("engine") == "slurm" and "workers" not in inherited:
        # One worker per GPU: those that share one do not add to it.
        of_jobs = of_run.get("engine_options") or {}
        inherited["workers"] = make_engine("slurm", of_jobs, None, 1, is_planned=True).workers
    inherited |= {setting: settings[setting] for setting in ("root", "data") if setting in settings}
    options = {option: value for option, value in inherited.items() if option in parameters} | bound
    options |= {option: value for option, value in flags_given.items() if option in parameters}
    missing = [
        option
        for option, details in parameters.items()
        if details.default is details.empty and option not in options and option != "plan"
    ]
    if missing:
        first = "launch.root" if missing[0] == "root" else f"{name}.{missing[0]}"
        raise UserError(
            f"{name} lacks {first}; give --{missing[0]}=..., or {first} in a --gin_file"
        )
    return options
