"""Finds the tasks whose files are complete in a folder of data. Files are looked for, not read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from multiberts.finetune.task import registered_tasks
from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult
from multiberts.runs.files import PathLike

# Data that are not those of one task: the folders that they may lie in, and their files.
OTHERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "HANS": (("hans", "."), ("heuristics_evaluation_set.txt",)),
    "GAP": (
        ("coref/gap", "gap", "."),
        ("gap-development.tsv", "gap-validation.tsv", "gap-test.tsv"),
    ),
    "Winogender": (
        ("winogender", "."),
        ("all_sentences.tsv", "templates.tsv", "occupations-stats.tsv"),
    ),
}
# Whose files have no fixed names: any that match will do.
CORPORA = {
    "OntoNotes or another CoNLL-2012 corpus": ("**/*.conll", "**/*_conll"),
    "text to pre-train on": ("pretrain/*.txt",),
    "vocabulary": ("bert/vocab.txt", "vocab.txt"),
}


def check_data(data: PathLike) -> list[CheckResult]:
    """Says which tasks' files lie in a folder, and what the others lack.

    Args:
      data: a folder laid out like the GLUE release, with the other tasks beside it.
    """
    folder = Path(data)
    if not folder.is_dir():
        cure = "check the path; docs/pipeline.md says what to fetch, and `make demo` needs none"
        return [CheckResult(PROBLEM, "data", f"{folder} is not a directory", cure)]
    complete, partial, absent = tasks_by_state(folder)
    if not complete and not partial:
        cure = "give the folder that holds glue/, squad/, winogender/ ..."
        return [CheckResult(PROBLEM, "data", f"{folder} holds none of the tasks' files", cure)]
    findings = [
        CheckResult(OK, "data", f"complete in {folder}: {', '.join(complete) or 'nothing'}")
    ]
    if partial:
        lacking = "; ".join(f"{task} lacks {', '.join(files)}" for task, files in partial.items())
        cure = "fetch them, or name what is there as finetune.train_files and dev_files"
        findings.append(CheckResult(WARNING, "data", lacking, cure))
    if absent:
        cure = "nothing, if the plan does not need them"
        findings.append(CheckResult(WARNING, "data", f"not there: {', '.join(absent)}", cure))
    return findings


def tasks_by_state(folder: Path) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Returns the tasks of a folder that are complete, that lack files, and that have none."""
    complete: list[str] = []
    partial: dict[str, list[str]] = {}
    absent: list[str] = []
    tasks = registered_tasks().values()
    of_tasks = {
        task.name: (task.data_folders, task.data_files) for task in tasks if task.data_folders
    }
    for task, (places, files) in (of_tasks | OTHERS).items():
        missing = min((_missing(folder / place, files) for place in places), key=len)
        if not missing:
            complete.append(task)
        elif len(missing) < len(files) or any(_has_files(folder / place) for place in places[:1]):
            partial[task] = missing
        else:
            absent.append(task)
    for name, patterns in CORPORA.items():
        (complete if _matches(folder, patterns) else absent).append(name)
    return complete, partial, absent


def _missing(place: Path, files: Sequence[str]) -> list[str]:
    """Files that are neither there nor there with `.gz`, or are empty."""
    return [
        name
        for name in files
        if not any(
            path.is_file() and path.stat().st_size for path in (place / name, place / f"{name}.gz")
        )
    ]


def _has_files(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())


def _matches(folder: Path, patterns: Sequence[str]) -> bool:
    return any(
        True
        for pattern in patterns
        for ending in ("", ".gz")
        for _ in folder.glob(pattern + ending)
    )
