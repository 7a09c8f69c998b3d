"""The one register of tasks: a name, and how the user's arguments become data to train on.

A task is one file that ends in `TASKS`, and its line in `MODULES`; docs/tasks.md adds one.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from multiberts.finetune.family import Family
from multiberts.runs.errors import UserError

# Imported when a task is looked up, so that a task's module may import this one.
MODULES = (
    "multiberts.finetune.classification.glue_tasks",
    "multiberts.finetune.squad.task",
    "multiberts.finetune.coreference.task",
    "multiberts.finetune.coreference.pronoun_probe",
)


@dataclasses.dataclass(frozen=True)
class DataArguments:
    """Where the data lie and how they are to be cut, as the user said.

    Attributes:
      task: the task's name.
      data_dir: a folder with the task's files, or None.
      dataset: a name in TensorFlow Datasets such as `glue/rte`, or None.
      train_files, dev_files: in place of a folder.
      evaluation_files: further evaluation sets by name, such as {"hans": "path"}.
      winogender_dir: a folder with the Winogender files, the list of the files, or None.
      labels: label names of a task of one's own, or None.
      sequence_length: the most tokens of a sequence.
      options: the task's own options, complete.
      holds_out: whether a part of the training examples is predicted, so that `dev_files` may lack.
    """

    task: str
    data_dir: str | None = None
    dataset: str | None = None
    train_files: tuple[str, ...] = ()
    dev_files: tuple[str, ...] = ()
    evaluation_files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    winogender_dir: str | Sequence[str] | None = None
    labels: tuple[str, ...] | None = None
    sequence_length: int = 128
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    holds_out: bool = False

    def refuse(self, *names: str) -> None:
        """Refuses arguments that the task has no use for.

        Args:
          names: of attributes.

        Raises:
          UserError: one of them is given.
        """
        for name in names:
            if getattr(self, name):
                raise UserError(f"task {self.task} takes no {name}; leave it out")


@dataclasses.dataclass(frozen=True)
class Task:
    """An entry of the register.

    Attributes:
      name: as the user writes it.
      family: finds the files; raises UserError for unknown, missing or superfluous arguments.
      options: what else the task can be told, with defaults; their types are checked.
      trained: whether anything is trained; else one run a checkpoint is enough.
    """

    name: str
    family: Callable[[DataArguments], Family]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trained: bool = True

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options given, and the defaults of the others.

        Raises:
          UserError: an unknown option, or a value of another type than the default's.
        """
        for name, value in options.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UserError(
                    f"finetune.options has {name!r}, but the options of task {self.name} are: {known}; "
                    "correct the name or leave it out"
                )
            default = self.options[name]
            if not _is_like(value, default):
                raise UserError(
                    f"option {name} of task {self.name} is {value!r}, expected a value like "
                    f"{default!r}; correct finetune.options"
                )
        return {**self.options, **options}


def task_named(name: str, labels: Sequence[str] | None = None) -> Task:
    """Looks a task up.

    Args:
      name: a registered name, or any other one together with `labels`.
      labels: label names, for texts or pairs of one's own.

    Raises:
      UserError: an unknown name without labels.
    """
    known = registered_tasks()
    if name in known:
        return known[name]
    if labels is None:
        raise UserError(
            f"task {name!r} is unknown; expected one of {', '.join(known)}, or a name of your own with "
            "finetune.labels = [...] for pairs in the layout of RTE"
        )
    makers = (getattr(module, "own_data_task", None) for module in _modules())
    return next(maker for maker in makers if maker is not None)(name, labels)


@functools.cache
def registered_tasks() -> dict[str, Task]:
    """All tasks by name, in the order of `MODULES`."""
    tasks: dict[str, Task] = {}
    for module in _modules():
        for task in module.TASKS:
            assert task.name not in tasks, (
                f"{module.__name__} names {task.name}, which is there already"
            )
            tasks[task.name] = task
    return tasks


def _modules() -> list[ModuleType]:
    return [importlib.import_module(module) for module in MODULES]


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value may stand where the default stands."""
    if default is None:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float))
    if isinstance(default, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(default))
