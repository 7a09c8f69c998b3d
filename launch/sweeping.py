"""`multiberts sweep`: a plan of fine-tuning runs, carried out in this process or by several workers.

    multiberts sweep --root=sweep --checkpoints=runs --tasks=RTE --data_dir=RTE --learning_rates=1e-5,2e-5
    multiberts sweep --gin_file=configs/finetune/sweep.gin

Checkpoints x tasks x learning rates x fine-tuning seeds x held-out folds. Each run is the same as one of
`multiberts finetune`, to the byte. In one process, data are read and tokenised once per task, weights read
once per checkpoint, steps compiled once per shape, and runs on a frozen encoder share its outputs. With
`--workers`, that many processes share the runs, each with its part of the cores: runs of small models, whose
steps do not fill several cores, end sooner.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from multiberts.bert.checkpoint.checkpoint import PROVENANCE, Checkpoint, read_provenance
from multiberts.finetune.finetuning import finetune
from multiberts.finetune.task import registered_tasks
from multiberts.launch.markers.failures import FailedRun, exit_with
from multiberts.launch.plan.experiment import Axes, Folds, finetuning_runs, is_trained, of_task
from multiberts.launch.plan.graph import Graph
from multiberts.launch.plan.planned_run import PlannedRun, stage_function
from multiberts.launch.running import run_plan
from multiberts.runs import console
from multiberts.runs.allocator import give_back_memory
from multiberts.runs.command_line.command import (
    Arguments,
    by_gin_name,
    parameter_lines,
    parse_gin_flags,
    require_arguments,
)
from multiberts.runs.command_line.gin_files import (
    bindings_of,
    in_data_folder,
    refuse_unknown_scopes,
)
from multiberts.runs.errors import UserError, disk_full_line
from multiberts.runs.parameters import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    annotations_of,
    check_arguments,
)
from multiberts.runs.preemption import PreemptedError, preemption_notice

# For all tasks, or by the task's name.
FoldsByTask = Folds | Mapping[str, Folds]
Steps = Sequence[NonNegativeInt | Literal["all"]]

# Arguments of `finetune` that the sweep gives to each of its runs.
_SET_BY_SWEEP = ("run_dir", "checkpoint", "learning_rate", "finetune_seed", "held_out_fold")


class SweepArguments(Arguments):
    """The sweep's own, and those of `finetune`: for all tasks, or in a task's scope."""

    def flags(self) -> dict[str, Any]:
        return annotations_of(sweep) | _flags_of_tasks()

    def help(self) -> Iterator[str]:
        """Adds the parameters of every task."""
        yield from super().help()
        yield ""
        yield (
            "For every task, as --name=value or, in a --gin_file, as finetune.name = value (for one task: "
            "TASK/finetune.name = value):"
        )
        yield from parameter_lines(finetune, _flags_of_tasks())

    def gather(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parses Gin and joins each task's arguments."""
        of_sweep, for_all = (
            {name: value for name, value in given.items() if name in annotations}
            for annotations in (annotations_of(sweep), _flags_of_tasks())
        )
        by_flag = by_gin_name(["sweep"], annotations_of(sweep), of_sweep)
        by_flag |= by_gin_name(["finetune"], _flags_of_tasks(), for_all)
        parse_gin_flags({"finetune": finetune, "sweep": sweep}, by_flag)
        arguments = bindings_of("sweep") | of_sweep
        require_arguments(sweep, set(arguments))
        check_arguments(sweep, arguments)
        names = list(arguments["tasks"])
        # A file may bind arguments of more tasks than are wanted now.
        modules = (bindings_of("finetune") | for_all).get("task_modules", ())
        registered = registered_tasks(tuple(modules))
        refuse_unknown_scopes({"finetune": names}, "sweep.tasks", unused=registered)
        arguments["tasks"] = {
            name: in_data_folder(bindings_of("finetune", name)) | for_all for name in names
        }
        return arguments

    def local(self, bindings: dict[str, Any]) -> contextlib.nullcontext[dict[str, Any]]:
        """Returns the arguments as they are: each run fetches what it needs from a bucket."""
        return contextlib.nullcontext(bindings)

    def exit_with(self, result: Any) -> None:
        exit_with(result)


def _flags_of_tasks() -> dict[str, Any]:
    return {
        name: kind for name, kind in annotations_of(finetune).items() if name not in _SET_BY_SWEEP
    }


def sweep(
    *,
    root: str,
    checkpoints: Sequence[str] | Mapping[str, str],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]],
    learning_rates: Sequence[PositiveFloat] | Mapping[str, Sequence[PositiveFloat]],
    finetune_seeds: Sequence[NonNegativeInt] = (0,),
    held_out_folds: FoldsByTask = (None,),
    steps: Steps = (),
    workers: PositiveInt = 1,
) -> list[FailedRun]:
    """Makes every run that is missing; a run that fails does not stop the others.

    Runs lie in `root/<task>/<checkpoint>/lr_<rate>-ft_seed_<seed>[-fold_<fold>]`. The same call resumes
    where one was killed: finished runs are left alone, and one that was begun continues.

    Args:
      root: the folder of the sweep.
      checkpoints: checkpoint directories; or by name; or folders that hold pre-training runs at any depth,
        whose checkpoints are named by what they record: `<procedure>-seed_<n>-step_<n>`. The name of a
        listed checkpoint is its folder's, and of `<run>/checkpoints/step_<n>` it is `<run>-step_<n>`.
      tasks: names of tasks, or for each name its arguments of `finetune`; `task` is the name unless
        given.
      learning_rates: of all tasks, or by the task's name; tasks without training need none.
      finetune_seeds: of every checkpoint and learning rate.
      held_out_folds: see `finetune`; [0] makes runs that choose a learning rate without the dev set,
        [None, 0] those and the runs on all training examples. By the task's name: tasks that are not
        named hold out nothing.
      steps: of pre-training runs in folders, `all` or those that are fine-tuned; by default the last.
      workers: processes of this machine that share the runs; 1: this process makes them all.

    Returns:
      The runs that failed, in the order of the sweep.
    """
    plan = sweep_plan(
        checkpoints=checkpoints,
        tasks=tasks,
        learning_rates=learning_rates,
        finetune_seeds=finetune_seeds,
        held_out_folds=held_out_folds,
        steps=steps,
    )
    return run_here(plan, root) if workers == 1 else run_plan(plan=plan, root=root, workers=workers)


def sweep_plan(
    *,
    checkpoints: Sequence[str] | Mapping[str, str],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]],
    learning_rates: Sequence[PositiveFloat] | Mapping[str, Sequence[PositiveFloat]],
    finetune_seeds: Sequence[NonNegativeInt] = (0,),
    held_out_folds: FoldsByTask = (None,),
    steps: Steps = (),
) -> list[PlannedRun]:
    """Returns the runs of a sweep, those that can share work next to each other; see `sweep`."""
    named = _named(checkpoints, steps)
    by_task = tasks if isinstance(tasks, Mapping) else {name: {} for name in tasks}
    _check_list("checkpoints", named)
    _check_list("tasks", tasks)
    _check_list("finetune_seeds", finetune_seeds)
    if isinstance(held_out_folds, Mapping):
        for name in held_out_folds.keys() - by_task.keys():
            raise UserError(
                f"sweep.held_out_folds names {name}, expected one of {', '.join(by_task)}; correct it"
            )
    entries = []
    for name, given in by_task.items():
        for argument in given.keys() & {*_SET_BY_SWEEP}:
            raise UserError(
                f"{name}/finetune.{argument} is set, but the sweep sets it for each run; leave it out "
                "and correct the lists of sweep"
            )
        arguments = {"task": name, **given}
        folds = held_out_folds
        if isinstance(folds, Mapping):
            folds = folds.get(name, (None,))
        _check_list(f"held_out_folds of {name}", folds)
        rates: Sequence[float] = ()
        if is_trained(arguments):
            rates = of_task("sweep.learning_rates", learning_rates, name)
            _check_list(f"learning_rates of {name}", rates)
        entries.append((name, arguments, Axes(rates, finetune_seeds, folds)))
    for directory in named.values():
        Checkpoint.open(directory)
    graph = Graph(is_hashed=False)
    for checkpoint, directory in named.items():
        for name, arguments, axes in entries:
            given = {**arguments, "checkpoint": directory}
            list(finetuning_runs(graph, given, f"{name}/{checkpoint}", axes))
    return graph.runs


def run_here(plan: Sequence[PlannedRun], root: str) -> list[FailedRun]:
    """Carries out what of a plan is not done in this process; returns the runs that failed."""
    failures: list[FailedRun] = []
    done = sum(run.done(root) for run in plan)
    with (
        preemption_notice() as should_stop,
        tqdm(total=len(plan), initial=done, desc="sweep", unit="run", disable=None) as bar,
    ):
        for number, run in enumerate(plan, start=1):
            if should_stop():
                raise PreemptedError(
                    f"asked to stop before run {number} of {len(plan)}; the same command resumes"
                )
            was_done, started = run.done(root), time.monotonic()
            failure = _carry_out(run, root)
            if failure is not None:
                failures.append(failure)
                tqdm.write(f"failed: {run.path}: {failure.message}", file=sys.stderr)
            if was_done:
                continue
            bar.update()
            if bar.disable and failure is None:
                seconds = time.monotonic() - started
                console.report(f"[{number}/{len(plan)}] {run.path}: {seconds:.1f} s")
    return failures


def _carry_out(run: PlannedRun, root: str) -> FailedRun | None:
    try:
        stage_function(run.stage)(**run.arguments(root))
    except PreemptedError:
        raise
    except Exception as error:
        if disk_full_line(error) is not None:
            raise  # the other runs could not write either
        if isinstance(error, UserError):
            return FailedRun(run, str(error), is_user_error=True, log=None)
        # A mistake of the program's or the machine's: the other runs may still succeed.
        traceback.print_exc()
        return FailedRun(run, f"{type(error).__name__}: {error}", is_user_error=False, log=None)
    finally:
        give_back_memory()
    return None


def _named(checkpoints: Sequence[str] | Mapping[str, str], steps: Steps) -> dict[str, str]:
    """Returns checkpoints by name; those of the pre-training runs in a folder by what they record."""
    named: dict[str, str] = {}
    recorded: list[tuple[str, str]] = []
    for directory in () if isinstance(checkpoints, Mapping) else checkpoints:
        path = Path(directory)
        run = f"{path.parent.parent.name}-" if path.parent.name == "checkpoints" else ""
        recorded += (of_runs := _recorded(path, steps))
        for name, of_name in of_runs or [(f"{run}{path.name}", directory)]:
            if name in named:
                raise UserError(
                    f"sweep.checkpoints has {named[name]} and {of_name}, both named {name}; give them as "
                    '{"a name": "path", ...}'
                )
            named[name] = of_name
    if steps and not recorded:
        raise UserError(
            "sweep.steps chooses in folders of pre-training runs, and none is given; leave it out"
        )
    return dict(checkpoints) if isinstance(checkpoints, Mapping) else named


def _recorded(folder: Path, steps: Steps) -> list[tuple[str, str]]:
    """Returns the checkpoints of the pre-training runs in a folder by name, at the steps that are wanted."""
    checkpoints: list[tuple[str, int, int, str]] = []
    for path in folder.rglob(f"step_*/{PROVENANCE}"):
        known = read_provenance(path.parent)
        procedure, seed, step = (known[name] for name in ("procedure", "pretrain_seed", "step"))
        if None in (procedure, seed, step):
            raise UserError(
                f"{path} lacks procedure, pretrain_seed or step, which name it; give sweep.checkpoints as "
                '{"a name": "path", ...}'
            )
        checkpoints.append((procedure, seed, step, str(path.parent)))
    checkpoints.sort()
    last: dict[str, int] = {}
    steps_of_runs: dict[tuple[str, int], set[int]] = {}
    for procedure, seed, step, _ in checkpoints:
        last[procedure] = max(step, last.get(procedure, 0))
        steps_of_runs.setdefault((procedure, seed), set()).add(step)
    for (procedure, seed), of_run in steps_of_runs.items():
        if missing := {*(steps or [last[procedure]])} - of_run - {"all"}:
            raise UserError(
                f"{folder}: {procedure}, seed {seed} has no step {min(missing)}, only "
                f"{', '.join(map(str, sorted(of_run)))}; finish its pre-training, or choose with --steps"
            )
    return [
        (f"{procedure}-seed_{seed}-step_{step}", directory)
        for procedure, seed, step, directory in checkpoints
        if {"all", step} & {*(steps or [last[procedure]])}
    ]


def _check_list(setting: str, values: Sequence[Any] | Mapping[str, Any]) -> None:
    if not values:
        raise UserError(f"sweep.{setting} is empty; give at least one")
    repeated = [value for value in values if list(values).count(value) > 1]
    if repeated:
        raise UserError(f"sweep.{setting} has {repeated[0]!r} twice; remove one")
