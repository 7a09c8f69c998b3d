"""Folders of logs of evaluation programs: selects one task, and finds arms, seeds and runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from multiberts.evaluate.readers.harness_logs import facts_of_helm, task_of_samples
from multiberts.evaluate.readers.inspect_logs import facts_of_log
from multiberts.evaluate.readers.rows import BY_MODEL, BY_TIME, Rows
from multiberts.runs import console
from multiberts.runs.errors import UserError, listed

# Files of Inspect's `eval_set` beside its logs.
_OF_EVAL_SETS = ("eval-set.json", "logs.json")
# Parts of a folder's name that number runs instead of naming a model.
_RUN_WORDS = re.compile(
    r"^\d+$|[ _\-.]*(?<![a-z])(seed|run|repeat|rep|trial)[ _\-=]*\d+", re.IGNORECASE
)


def only_task(tasks: Sequence[str], where: object, cure: str = "") -> None:
    """Raises a UserError if there are several tasks."""
    if len(tasks) > 1:
        raise UserError(
            f"{where} holds {len(tasks)} tasks ({listed(tasks)}); choose one, such as "
            f"--task={tasks[0]}{cure}"
        )


def chosen_tasks(task: str | None, tasks: Sequence[str], where: object) -> list[str]:
    """Returns the task of a name, or all tasks that have it as a part; all tasks for None."""
    if task is not None and task in tasks:
        return [task]
    chosen = [name for name in tasks if task in (None, *re.split("[/:]", name))]
    if tasks and not chosen:
        raise UserError(
            f"{where}: found no task {task!r}, only {listed(tasks)}; give one of these, such as "
            f"--task={tasks[0]}"
        )
    return chosen


def logs_by_task(files: Sequence[Path]) -> dict[str, dict[Path, str]]:
    """Returns the model of each log by task and file; other files have the task ""."""
    by_task: dict[str, dict[Path, str]] = {}
    for file in files:
        if file.name in _OF_EVAL_SETS and (file.parent / ".eval-set-id").is_file():
            continue
        if file.name.startswith("samples_"):
            facts = task_of_samples(file), _RUN_WORDS.sub("", file.parent.name)
        elif file.name == "per_instance_stats.json":
            facts = facts_of_helm(file)
        else:
            facts = facts_of_log(file) or ("", "")
        by_task.setdefault(facts[0], {})[file] = facts[1]
    return by_task


def logs_of_task(
    by_task: Mapping[str, Mapping[Path, str]], task: str | None, where: object
) -> list[Path]:
    """Returns the logs of one task, and other files; warns about models without a log of it."""
    tasks = sorted(filter(None, by_task))
    chosen = chosen_tasks(task, tasks, where)
    only_task(chosen, where)
    models = {model for name in chosen for model in by_task[name].values()}
    lacking = sorted({model for name in tasks for model in by_task[name].values()} - models)
    if lacking:
        console.warn(f"{where}: left out {listed(lacking)}, without a log of {chosen[0]}")
    return [file for name in ("", *chosen) for file in by_task.get(name, ())]


def arrange_logs(
    files: Sequence[Path],
    seeds: Sequence[int | None],
    parts: Sequence[Rows],
    start: Path,
    called: str,
) -> list[Rows]:
    """Adds arms, seeds and runs to logs of one task.

    Arms differ in model, settings or folder. The logs of an arm, or the epochs of its only log, are repeats
    of its evaluation, ordered by time, and become seeds. If paths name seeds, they are runs of these seeds.
    """
    facts = [
        {"folder": folder, **(part.log or {})}
        for folder, part in zip(_folders_of_arms(files, start), parts, strict=True)
    ]
    names = dict.fromkeys(name for log_facts in facts for name in log_facts if name != "when")
    differing = [name for name in names if len({log_facts.get(name) for log_facts in facts}) > 1]
    arranged = list(parts)
    repeats: dict[tuple, list[int]] = {}
    for index, (log_facts, seed) in enumerate(zip(facts, seeds, strict=True)):
        arm = ", ".join(
            log_facts[name] if name in ("folder", "model") else f"{name}={log_facts[name]}"
            for name in differing
            if log_facts.get(name)
        )
        if differing:
            arranged[index] = arranged[index].with_role("arm", arm, BY_MODEL)
        repeats.setdefault((arm, seed), []).append(index)
    for (arm, seed), indices in repeats.items():
        ordered = sorted(indices, key=lambda index: (facts[index]["when"], files[index]))
        logs = [arranged[index] for index in ordered]
        if seed is not None and len(logs) > 1:
            earlier = 0  # runs of earlier logs
            for index, log in zip(ordered, logs, strict=True):
                epochs = log.roles.get("run", 1)
                arranged[index] = log.with_role("run", earlier + epochs, BY_TIME)
                earlier += np.max(epochs)
        elif seed is None and len(logs) == 1 and "run" in logs[0].roles:
            epochs, [log] = logs[0].roles["run"], logs
            logs = [log.where(epochs == epoch) for epoch in epochs.unique()]
            log = log.with_role("run", 1, log.read.columns["run"])
            arranged[ordered[0]] = log.with_role("seed", epochs, BY_TIME)
        elif seed is None:
            for number, (index, log) in enumerate(zip(ordered, logs, strict=True), 1):
                arranged[index] = log.with_role("seed", number, BY_TIME)
        _warn_of_repeats(logs, arm or called)
    return arranged


def _folders_of_arms(files: Sequence[Path], start: Path) -> list[str]:
    """Returns for each log the differing folders, which may name its arm."""
    parts: list[list[str]] = []
    for file in files:
        folder_of_log = file.parent if file.name == "per_instance_stats.json" else file
        parents = folder_of_log.relative_to(start).parent.parts if start.is_dir() else ()
        parts.append([_RUN_WORDS.sub("", parent) for parent in parents])
    columns = [*itertools.zip_longest(*parts, fillvalue="")]
    differing = [column for column in columns if len({*column}) > 1]
    rows = zip(*differing, strict=True) if differing else [()] * len(files)
    return ["/".join(filter(None, names)) for names in rows]


def _warn_of_repeats(parts: Sequence[Rows], arm: str) -> None:
    """Warns if repeats of an evaluation are equal, as they do not show the variation over seeds."""
    ordered = [part.roles.sort_values("example") for part in parts]
    scores = {tuple(roles["score" if "score" in roles else "prediction"]) for roles in ordered}
    if len(parts) > 1 and len(scores) == 1:
        console.warn(
            f"the {len(parts)} evaluations of {arm} have the same score on every example, so they are one "
            "result several times: the interval is about these examples and says nothing about other seeds"
        )
