"""Reading of files of one task, as commands read them that take one."""

from collections.abc import Sequence
from pathlib import Path

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.log_folders import only_task
from multiberts.evaluate.readers.reading import (
    check_names_of_tasks,
    described_paths,
    read_arms_by_task,
    read_tasks,
)
from multiberts.evaluate.readers.rows import ArmTable, Rows

Paths = str | Path | Sequence[str | Path]


def read_arms(
    path: Paths, names: ColumnNames | None = None, task: str | None = None
) -> dict[str, ArmTable]:
    by_task = read_arms_by_task(path, names, task)
    check_names_of_tasks(by_task, described_paths(path))
    only_task([*by_task], described_paths(path))
    [arms] = by_task.values()
    return arms


def read_rows(path: Paths, names: ColumnNames | None = None, task: str | None = None) -> Rows:
    by_task = read_tasks(path, names or ColumnNames(), task)
    only_task([*by_task], described_paths(path))
    [rows] = by_task.values()
    return rows
