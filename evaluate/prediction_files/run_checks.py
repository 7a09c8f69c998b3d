"""Consistency checks over a set of fine-tuning runs: missing runs, repeated runs, mixed inputs.

None of these makes a score wrong by itself, so findings are warnings.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiberts.runs.errors import counted

# A run's directory and the content of its run.json.
RunEntry = tuple[Path, Mapping[str, Any]]

RUN_KEY = ("task", "procedure", "step", "pretrain_seed", "learning_rate", "finetune_seed")


@dataclass(frozen=True)
class RunProblem:
    """One result of the checks.

    Attributes:
      check: `missing run`, `missing task`, `missing seeds`, `missing evaluation set`,
        `unfinished run`, `repeated run`, `mixed vocabularies`, `mixed training data`,
        `mixed engines`, `no labels`, `answers`, `unknown metric` or `metric does not apply`.
      where: cells that locate it in the score table, by column.
    """

    check: str
    message: str
    where: Mapping[str, Any] = field(default_factory=dict)


def find_all(runs: Sequence[RunEntry], unfinished: Sequence[Path] = ()) -> list[RunProblem]:
    """Returns all findings about runs.

    Args:
      runs: (directory, content of run.json) per run.
    """
    return [
        *(
            RunProblem(
                "unfinished run",
                f"{path} was started and has not finished; run the same command again",
            )
            for path in unfinished
        ),
        *missing_runs(runs),
        *_missing_tasks(runs),
        *_missing_seeds(runs),
        *_missing_sets(runs),
        *_repeated_runs(runs),
        *_mixed(runs, "mixed vocabularies", "vocabularies", _vocabulary),
        *_mixed(runs, "mixed training data", "sets of data files", _data),
        *_mixed(runs, "mixed engines", "engines", lambda content: content.get("engine")),
    ]


def missing_runs(runs: Sequence[RunEntry]) -> list[RunProblem]:
    """Finds missing runs in the grid of procedure, step, task, seed, learning rate and fine-tuning seed.

    For a procedure and step, each task should have all pre-training seeds of any task, with all learning
    rates and fine-tuning seeds of this task. So designs with intermediate steps for a few seeds, or with
    more fine-tuning seeds for some procedure, are complete.
    """
    run_keys = {_key(content) for _, content in runs}
    seeds, rates, finetune_seeds = defaultdict(set), defaultdict(set), defaultdict(set)
    for task, procedure, step, seed, rate, finetune_seed in run_keys:
        seeds[procedure, step].add(seed)
        rates[task, procedure, step].add(rate)
        finetune_seeds[task, procedure, step].add(finetune_seed)
    findings = []
    for group in _in_order(rates):
        task, procedure, step = group
        values = (seeds[procedure, step], rates[group], finetune_seeds[group])
        for seed, rate, finetune_seed in itertools.product(*map(_in_order, values)):
            key = (*group, seed, rate, finetune_seed)
            if key not in run_keys:
                message = (
                    f"missing: {task}, {procedure} step {step}, pretrain_seed {seed}, "
                    f"learning_rate {rate}, finetune_seed {finetune_seed}"
                )
                findings.append(RunProblem("missing run", message, _where(key)))
    return findings


def _missing_tasks(runs: Sequence[RunEntry]) -> Iterator[RunProblem]:
    """Finds steps of a procedure without any run of a task.

    A procedure should have, at each of its steps, the tasks of all procedures that share a task with it.
    """
    steps = _by_step(runs, "task")
    tasks = {procedure: set().union(*names.values()) for procedure, names in steps.items()}
    for procedure in _in_order(steps):
        related = (names for names in tasks.values() if names & tasks[procedure])
        for task in sorted(set().union(*related)):
            lacking = [step for step, names in steps[procedure].items() if task not in names]
            if lacking:
                listed = ", ".join(str(step) for step in _in_order(lacking))
                message = f"missing: {procedure} has no run of {task} at step {listed}"
                yield RunProblem("missing task", message, {"task": task, "procedure": procedure})


def _missing_seeds(runs: Sequence[RunEntry]) -> Iterator[RunProblem]:
    """Finds pre-training seeds that a procedure lacks at some steps, one finding per set of seeds."""
    steps = _by_step(runs, "pretrain_seed")
    for procedure in _in_order(steps):
        every = set().union(*steps[procedure].values())
        lacking = defaultdict(list)
        for step in _in_order(steps[procedure]):
            lacking[tuple(_in_order(every - steps[procedure][step]))].append(step)
        lacking.pop((), None)
        for seeds, at in lacking.items():
            message = (
                f"missing: {procedure} has no run of pretrain_seed {', '.join(map(str, seeds))} at step "
                f"{', '.join(map(str, at))}"
            )
            yield RunProblem("missing seeds", message, {"procedure": procedure})


def _by_step(runs: Sequence[RunEntry], name: str) -> dict[Any, dict[Any, set]]:
    """Collects the values of a field by procedure and step."""
    by_procedure: dict[Any, dict[Any, set]] = {}
    for _, content in runs:
        of_procedure = by_procedure.setdefault(content["procedure"], {})
        of_procedure.setdefault(content["step"], set()).add(content[name])
    return by_procedure


def _missing_sets(runs: Sequence[RunEntry]) -> Iterator[RunProblem]:
    every: dict[str, set[str]] = {}
    # These include sets that `multiberts predict` added to a run.
    sets_of_run: dict[tuple, set[str]] = {}
    for _, content in runs:
        every.setdefault(content["task"], set()).update(content["evaluation_sets"])
        sets_of_run.setdefault(_key(content), set()).update(content["evaluation_sets"])
    for path, content in sorted(runs, key=lambda run: run[1]["task"]):
        task = content["task"]
        for name in sorted(every[task] - sets_of_run[_key(content)]):
            yield RunProblem(
                "missing evaluation set",
                f"{path} has no predictions on {name!r}, which other runs of {task} have",
                {**_where(_key(content)), "evaluation_set": name},
            )


def _repeated_runs(runs: Sequence[RunEntry]) -> Iterator[RunProblem]:
    first: dict[tuple, dict[str, Path]] = {}  # by evaluation set
    for path, content in runs:
        path_of_set = first.setdefault(_key(content), {})
        repeated = sorted(path_of_set.keys() & content["evaluation_sets"].keys())
        if repeated:
            message = (
                f"{path} has the task, procedure, step, seeds and learning rate of "
                f"{path_of_set[repeated[0]]}; keep one of them, or score them separately"
            )
            yield RunProblem("repeated run", message, _where(_key(content)))
        path_of_set |= dict.fromkeys(content["evaluation_sets"].keys() - path_of_set.keys(), path)


def _vocabulary(content: Mapping[str, Any]) -> str | None:
    return content.get("vocabulary_sha256")


def _data(content: Mapping[str, Any]) -> tuple | None:
    """Returns the checksums of a run's training and evaluation files."""
    inputs = content.get("inputs")
    if inputs is None:
        return None
    return tuple(
        (name, tuple(sorted(file["sha256"] for file in files)))
        for name, files in sorted(inputs.items())
        if name != "checkpoint"
    )


def _mixed(
    runs: Sequence[RunEntry],
    check: str,
    noun: str,
    of: Callable[[Mapping[str, Any]], Hashable | None],
) -> Iterator[RunProblem]:
    """Finds tasks whose runs differ in a value that should be equal."""
    tasks: dict[str, list[tuple[Path, Hashable]]] = {}
    for path, content in runs:
        value = of(content)
        if value is not None:
            tasks.setdefault(content["task"], []).append((path, value))
    for task, members in sorted(tasks.items()):
        counts = Counter(value for _, value in members)
        usual, number = counts.most_common(1)[0]
        for path, value in members:
            if value != usual:
                message = (
                    f"{path} has another of the {len(counts)} {noun} of {task} than the "
                    f"{counted(number, 'run')} that share the most frequent one"
                )
                yield RunProblem(check, message, {"task": task})


def _key(content: Mapping[str, Any]) -> tuple:
    return tuple(content[name] for name in RUN_KEY)


def _where(key: tuple) -> dict[str, Any]:
    return dict(zip(RUN_KEY, key, strict=True))


def _in_order(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=_sorting)


def _sorting(value: Any) -> Any:
    """Returns a sort key for numbers, texts, None and tuples of them."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(_sorting(part) for part in value)
    return (value is not None, isinstance(value, str), value if value is not None else 0)
