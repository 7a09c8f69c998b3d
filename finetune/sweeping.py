"""Many fine-tuning runs in one process: checkpoints x tasks x learning rates x fine-tuning seeds.

`python -m finetune.sweep --gin_file=configs/finetune/sweep.gin`. Each run is the one that
`python -m finetune` would make, to the byte. What runs have in common is made once: the data are read
and tokenised once a task, the weights read once a checkpoint, the steps compiled once for their
shapes. Runs on a frozen encoder share its outputs.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.finetune.finetuning import finetune
from multiberts.finetune.tasks import task_named
from multiberts.runs.allocator import give_back_memory
from multiberts.runs.directory import DONE
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError, preemption_notice

# For every task, or by the task's name.
Folds = Sequence[int | None] | Mapping[str, Sequence[int | None]]

# What the sweep gives to each of its runs.
_OWN = ("run_dir", "checkpoint", "learning_rate", "finetune_seed", "held_out_fold")


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One call of `finetune`.

    Attributes:
      path: of its directory, relative to the sweep's root; its name.
      arguments: of `finetune`, without run_dir.
    """

    path: str
    arguments: Mapping[str, Any]

    def done(self, root: Path) -> bool:
        """Whether the run's DONE marker is there."""
        return (root / self.path / DONE).is_file()


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that failed: which, why, and whether its input is to blame."""

    run: SweepRun
    message: str
    is_user_error: bool


def sweep(
    *,
    root: str,
    checkpoints: Sequence[str] | Mapping[str, str],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]],
    learning_rates: Sequence[float] | Mapping[str, Sequence[float]],
    finetune_seeds: Sequence[int] = (0,),
    held_out_folds: Folds = (None,),
) -> list[Failure]:
    """Makes every run that is missing; a run that fails does not stop the others.

    Runs lie in `root/<task>/<checkpoint>/lr_<rate>-ft_seed_<seed>[-fold_<fold>]`. The same call goes on
    where one was killed: finished runs are left alone, and one that was begun continues.

    Args:
      root: the folder of the sweep.
      checkpoints: checkpoint directories; or by name. The name of a listed one is its folder's, and of
        `<run>/checkpoints/step_<n>` it is `<run>-step_<n>`.
      tasks: names of tasks, or for each name the arguments of `finetune` that hold for it; `task` is
        the name unless given.
      learning_rates: of every task, or by the task's name; tasks without training need none.
      finetune_seeds: of every checkpoint and learning rate.
      held_out_folds: see `finetune`; [0] makes runs that choose a learning rate without the dev set,
        [None, 0] those and the runs on all training examples. By the task's name: tasks that are not
        named hold out nothing.

    Returns:
      The runs that failed, in the order of the sweep.

    Raises:
      UserError: the lists are empty or name something twice, a checkpoint or a task's files are not
        there, or an argument is unknown; nothing has been run.
      PreemptedError: SIGTERM came; the same call goes on.
    """
    from tqdm import tqdm

    runs = planned(
        checkpoints=checkpoints,
        tasks=tasks,
        learning_rates=learning_rates,
        finetune_seeds=finetune_seeds,
        held_out_folds=held_out_folds,
    )
    failures: list[Failure] = []
    done = sum(run.done(Path(root)) for run in runs)
    with (
        preemption_notice() as should_stop,
        tqdm(total=len(runs), initial=done, desc="sweep", unit="run", disable=None) as bar,
    ):
        for number, run in enumerate(runs, start=1):
            if should_stop():
                raise PreemptedError(
                    f"asked to stop before run {number} of {len(runs)}; the same command goes on"
                )
            was_done, started = run.done(Path(root)), time.monotonic()
            failure = _carry_out(run, Path(root))
            if failure is not None:
                failures.append(failure)
                tqdm.write(f"failed: {run.path}: {failure.message}", file=sys.stderr)
            if was_done:
                continue
            bar.update()
            if bar.disable and failure is None:
                seconds = time.monotonic() - started
                print(f"[{number}/{len(runs)}] {run.path}: {seconds:.1f} s", flush=True)
    return failures


def _carry_out(run: SweepRun, root: Path) -> Failure | None:
    try:
        finetune(run_dir=str(root / run.path), **run.arguments)
    except UserError as error:
        return Failure(run, str(error), is_user_error=True)
    except PreemptedError:
        raise
    except Exception as error:
        # Our own mistake, or a machine's: the other runs may still be good.
        traceback.print_exc()
        return Failure(run, f"{type(error).__name__}: {error}", is_user_error=False)
    finally:
        give_back_memory()
    return None


def planned(
    *,
    checkpoints: Sequence[str] | Mapping[str, str],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]],
    learning_rates: Sequence[float] | Mapping[str, Sequence[float]],
    finetune_seeds: Sequence[int] = (0,),
    held_out_folds: Folds = (None,),
) -> list[SweepRun]:
    """The runs of a sweep, those that can share work behind each other.

    Args:
      checkpoints, tasks, learning_rates, finetune_seeds, held_out_folds: as in `sweep`.

    Raises:
      UserError: as `sweep`.
    """
    from multiberts.bert.checkpoint.checkpoint import check_checkpoint

    named = _named(checkpoints)
    by_task = tasks if isinstance(tasks, Mapping) else {name: {} for name in tasks}
    for what, values in (
        ("checkpoints", tuple(named)),
        ("tasks", tuple(by_task)),
        ("finetune_seeds", tuple(finetune_seeds)),
    ):
        _check_list(what, values)
    entries = [
        (
            name,
            {"task": name, **given},
            _rates_of(name, learning_rates) if _is_trained({"task": name, **given}) else (),
            _folds_of(name, held_out_folds),
        )
        for name, given in by_task.items()
    ]
    for name, given, *_ in entries:
        _check_arguments(name, given)
    if isinstance(held_out_folds, Mapping) and not held_out_folds.keys() <= by_task.keys():
        unknown = next(name for name in held_out_folds if name not in by_task)
        raise UserError(
            f"sweep.held_out_folds names {unknown}, expected one of {', '.join(by_task)}; correct it"
        )
    for directory in named.values():
        check_checkpoint(directory)
    return [
        run
        for (checkpoint, directory), (name, given, rates, folds) in itertools.product(
            named.items(), entries
        )
        for run in _runs_of(
            name, checkpoint, {**given, "checkpoint": directory}, rates, finetune_seeds, folds
        )
    ]


def _runs_of(
    name: str,
    checkpoint: str,
    arguments: Mapping[str, Any],
    learning_rates: Sequence[float],
    finetune_seeds: Sequence[int],
    held_out_folds: Sequence[int | None],
) -> Iterator[SweepRun]:
    """All runs of one checkpoint on one task."""
    place = f"{name}/{checkpoint}"
    if not _is_trained(arguments):
        yield SweepRun(f"{place}/run", arguments)
        return
    for rate, seed, fold in itertools.product(learning_rates, finetune_seeds, held_out_folds):
        suffix = "" if fold is None else f"-fold_{fold}"
        yield SweepRun(
            f"{place}/lr_{rate:g}-ft_seed_{seed}{suffix}",
            {**arguments, "learning_rate": rate, "finetune_seed": seed, "held_out_fold": fold},
        )


def _is_trained(arguments: Mapping[str, Any]) -> bool:
    modules = arguments.get("task_modules", ())
    return task_named(arguments["task"], arguments.get("labels"), modules).trains


def _named(checkpoints: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Checkpoint directories by name."""
    if isinstance(checkpoints, Mapping):
        return dict(checkpoints)
    named: dict[str, str] = {}
    for directory in checkpoints:
        path = Path(directory)
        name = path.name
        if path.parent.name == "checkpoints":
            name = f"{path.parent.parent.name}-{name}"
        if name in named:
            raise UserError(
                f"sweep.checkpoints has {named[name]} and {directory}, both named {name}; give them as "
                '{"a name": "path", ...}'
            )
        named[name] = directory
    return named


def _rates_of(
    name: str, learning_rates: Sequence[float] | Mapping[str, Sequence[float]]
) -> tuple[float, ...]:
    if isinstance(learning_rates, Mapping):
        if name not in learning_rates:
            raise UserError(
                f"sweep.learning_rates has {', '.join(learning_rates)}, but not {name}; add its list"
            )
        learning_rates = learning_rates[name]
    rates = tuple(learning_rates)
    _check_list(f"learning_rates of {name}", rates)
    return rates


def _folds_of(name: str, held_out_folds: Folds) -> tuple[int | None, ...]:
    if isinstance(held_out_folds, Mapping):
        held_out_folds = held_out_folds.get(name, (None,))
    folds = tuple(held_out_folds)
    _check_list(f"held_out_folds of {name}", folds)
    return folds


def _check_list(what: str, values: tuple[Any, ...]) -> None:
    """Refuses an empty list, and one that names something twice."""
    if not values:
        raise UserError(f"sweep.{what} is empty; give at least one")
    repeated = next((value for value in values if values.count(value) > 1), values)
    if repeated is not values:
        raise UserError(f"sweep.{what} has {repeated!r} twice; remove one")


def _check_arguments(name: str, given: Mapping[str, Any]) -> None:
    """Refuses arguments that `finetune` has not, or that the sweep decides."""
    known = inspect.signature(finetune).parameters
    for argument in given:
        if argument in _OWN:
            raise UserError(
                f"{name}/finetune.{argument} is set, but the sweep sets it for each run; leave it out "
                "and correct the lists of sweep"
            )
        if argument not in known:
            raise UserError(
                f"{name}/finetune.{argument} is no argument of finetune; correct the name"
            )
    _is_trained(given)
