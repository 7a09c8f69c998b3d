"""What is amiss with a set of fine-tuning runs: missing ones, repeated ones, mixed inputs.

Nothing here makes a score wrong by itself: each finding is a warning that stands beside the table.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Run = tuple[Path, Mapping[str, Any]]
Group = tuple[Any, Any, Any]  # task, procedure, step

RUN_KEY = ("task", "procedure", "step", "pretrain_seed", "learning_rate", "finetune_seed")


@dataclass(frozen=True)
class Finding:
    """One thing that is amiss.

    Attributes:
      check: `missing run`, `missing task`, `missing seeds`, `missing evaluation set`,
        `unfinished run`, `repeated run`, `mixed vocabularies`, `mixed training data`, `no
        labels` or `metric does not apply`.
      message: one line for people.
      where: what it is about, by the columns of the score table; others are left empty.
    """

    check: str
    message: str
    where: Mapping[str, Any] = field(default_factory=dict)


def find_all(runs: Sequence[Run], unfinished: Sequence[Path] = ()) -> list[Finding]:
    """Every finding about some runs.

    Args:
      runs: (directory, content of run.json).
      unfinished: directories of runs that were begun.
    """
    return [
        *(
            Finding("unfinished run", f"{path} was begun and has not finished; run it to its end")
            for path in unfinished
        ),
        *missing_runs(runs),
        *_missing_tasks(runs),
        *_missing_seeds(runs),
        *_missing_sets(runs),
        *_repeated_runs(runs),
        *_mixed(runs, "mixed vocabularies", "vocabularies", _vocabulary),
        *_mixed(runs, "mixed training data", "sets of data files", _data),
    ]


def missing_runs(runs: Sequence[Run]) -> list[Finding]:
    """Holes in the grid procedure x step x task x pre-training seed x learning rate x fine-tuning seed.

    A task of a procedure and step is expected to have every pre-training seed that any task has
    there, with every learning rate and fine-tuning seed that the task itself has there. So a design
    with intermediate steps of a few seeds, or more fine-tuning seeds for some procedure, has no
    holes.
    """
    values = _values_of_groups(runs)
    found = {_key(content) for _, content in runs}
    findings = []
    for group in sorted(values, key=_sorting):
        task, procedure, step = group
        for seed, rate, finetune_seed in itertools.product(*values[group]):
            if (*group, seed, rate, finetune_seed) not in found:
                where = dict(zip(RUN_KEY, (*group, seed, rate, finetune_seed), strict=True))
                findings.append(
                    Finding(
                        "missing run",
                        f"missing: {task}, {procedure} step {step}, pretrain_seed {seed}, "
                        f"learning_rate {rate}, finetune_seed {finetune_seed}",
                        where,
                    )
                )
    return findings


def _missing_tasks(runs: Sequence[Run]) -> Iterator[Finding]:
    """Steps of a procedure that lack a task altogether.

    A procedure is expected to have the tasks of every procedure that it shares some task with, at
    each of its steps.
    """
    steps: dict[Any, dict[Any, set[str]]] = {}  # procedure -> step -> tasks
    for _, content in runs:
        of_procedure = steps.setdefault(content["procedure"], {})
        of_procedure.setdefault(content["step"], set()).add(content["task"])
    tasks = {procedure: set().union(*own.values()) for procedure, own in steps.items()}
    for procedure in sorted(steps, key=_sorting):
        akin = (own for own in tasks.values() if own & tasks[procedure])
        for task in sorted(set().union(*akin)):
            lacking = [step for step, own in steps[procedure].items() if task not in own]
            if lacking:
                listed = ", ".join(str(step) for step in sorted(lacking, key=_sorting))
                yield Finding(
                    "missing task",
                    f"missing: {procedure} has no run of {task} at step {listed}",
                    {"task": task, "procedure": procedure},
                )


def _missing_seeds(runs: Sequence[Run]) -> Iterator[Finding]:
    """Pre-training seeds that a procedure has at some steps only; steps that lack the same are one."""
    steps: dict[Any, dict[Any, set]] = {}  # procedure -> step -> seeds
    for _, content in runs:
        of_procedure = steps.setdefault(content["procedure"], {})
        of_procedure.setdefault(content["step"], set()).add(content["pretrain_seed"])
    for procedure in sorted(steps, key=_sorting):
        every = set().union(*steps[procedure].values())
        lacking: dict[tuple, list] = {}
        for step in sorted(steps[procedure], key=_sorting):
            seeds = tuple(sorted(every - steps[procedure][step], key=_sorting))
            if seeds:
                lacking.setdefault(seeds, []).append(step)
        for seeds, at in lacking.items():
            yield Finding(
                "missing seeds",
                f"missing: {procedure} has no run of pretrain_seed {', '.join(map(str, seeds))} at step "
                + ", ".join(map(str, at)),
                {"procedure": procedure},
            )


def _values_of_groups(runs: Sequence[Run]) -> dict[Group, tuple[list, list, list]]:
    """By task, procedure and step: the pre-training seeds, learning rates, fine-tuning seeds expected."""
    seeds: dict[tuple, set] = {}
    rates: dict[Group, set] = {}
    finetune_seeds: dict[Group, set] = {}
    for _, content in runs:
        task, procedure, step, seed, rate, finetune_seed = _key(content)
        seeds.setdefault((procedure, step), set()).add(seed)
        rates.setdefault((task, procedure, step), set()).add(rate)
        finetune_seeds.setdefault((task, procedure, step), set()).add(finetune_seed)
    return {
        group: (
            sorted(seeds[group[1:]], key=_sorting),
            sorted(rates[group], key=_sorting),
            sorted(finetune_seeds[group], key=_sorting),
        )
        for group in rates
    }


def _missing_sets(runs: Sequence[Run]) -> list[Finding]:
    """Evaluation sets that other runs of the task have."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(run[1]["task"], []).append(run)
    findings = []
    for task, own in sorted(members.items()):
        every = sorted({name for _, content in own for name in content["evaluation_sets"]})
        for path, content in own:
            for name in every:
                if name not in content["evaluation_sets"]:
                    where = dict(zip(RUN_KEY, _key(content), strict=True))
                    findings.append(
                        Finding(
                            "missing evaluation set",
                            f"{path} has no predictions on {name!r}, which other runs of {task} have",
                            {**where, "evaluation_set": name},
                        )
                    )
    return findings


def _repeated_runs(runs: Sequence[Run]) -> Iterator[Finding]:
    """Runs that a table cannot tell apart."""
    first: dict[tuple, Path] = {}
    for path, content in runs:
        key = _key(content)
        if key in first:
            yield Finding(
                "repeated run",
                f"{path} has the task, procedure, step, seeds and learning rate of {first[key]}; keep "
                "one of them, or score them apart",
                dict(zip(RUN_KEY, key, strict=True)),
            )
        first.setdefault(key, path)


def _vocabulary(content: Mapping[str, Any]) -> str | None:
    return content.get("vocabulary_sha256")


def _data(content: Mapping[str, Any]) -> tuple | None:
    """The files that a run was trained and evaluated on, by what they hold."""
    inputs = content.get("inputs")
    if inputs is None:
        return None
    return tuple(
        (name, tuple(sorted(file["sha256"] for file in files)))
        for name, files in sorted(inputs.items())
        if name != "checkpoint"
    )


def _mixed(runs: Sequence[Run], check: str, what: str, of: Any) -> Iterator[Finding]:
    """Tasks whose runs differ in something that should be the same."""
    tasks: dict[str, list[tuple[Path, Hashable]]] = {}
    for path, content in runs:
        value = of(content)
        if value is not None:
            tasks.setdefault(content["task"], []).append((path, value))
    for task, members in sorted(tasks.items()):
        counts = Counter(value for _, value in members)
        if len(counts) < 2:
            continue
        usual, number = counts.most_common(1)[0]
        for path, value in members:
            if value != usual:
                yield Finding(
                    check,
                    f"{path} has another of the {len(counts)} {what} of {task} than the {number} runs "
                    "that share the most frequent",
                    {"task": task},
                )


def _key(content: Mapping[str, Any]) -> tuple:
    return tuple(content[name] for name in RUN_KEY)


def _sorting(value: Any) -> Any:
    """An order of numbers, texts, None and tuples of them."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(_sorting(part) for part in value)
    return (value is not None, isinstance(value, str), value if value is not None else 0)
