"""Tasks and their register: each task's name and facts, and how arguments become its data.

A task is one file that ends in `TASKS`. Its module is listed in `MODULES`, or in the user's
`finetune.task_modules`; docs/tasks.md has an example. Only the importers of published results
(`evaluate.imports`) also name tasks. Importing the register imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from multiberts.finetune.training_options import DATA, FILES
from multiberts.runs.command_line.help import parameter_lines
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.identity import opened_code, without_later_defaults
from multiberts.runs.parameters import PositiveInt, Range, annotations_of, described, fits, typed

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.finetune.model import Model

# The module of the user's tasks.
_USER_TASKS = "multiberts.finetune.text.user_tasks"
# Imported when a task is looked up, so that a task's module may import this one.
MODULES = (
    "multiberts.finetune.text.glue",
    _USER_TASKS,
    "multiberts.finetune.squad.task",
    "multiberts.finetune.coreference.task",
    "multiberts.finetune.coreference.pronoun_probe",
    "multiberts.finetune.text.masked_words",
)
# The option that makes an unregistered name a task.
KIND = "kind"
# A run with held-out data leaves out one fifth of its training data (Zhong et al. 2021, appendix A).
NUM_FOLDS = 5

Files = dict[str, Path | list[Path]]


class FinetuningData(abc.ABC):
    """The data of a call: found from the arguments, and read when the model is opened.

    Examples:
      >>> arguments = DataArguments(task="pronoun_probe", data_dir="winogender")
      >>> task_named("pronoun_probe").data(arguments).parameters()
      {}
    """

    @abc.abstractmethod
    def inputs(self) -> Files:
        """Returns the files that determine the run's results, by the argument of `finetune` that names them.

        Raises:
          UserError: a file is missing.
        """

    def parameters(self) -> dict[str, Any]:
        """Returns the task's own parameters that determine its results."""
        return {}

    def set_names(self) -> Sequence[str]:
        """Returns the names of all evaluation sets, as often as they occur; none: unknown before reading."""
        return ()

    @abc.abstractmethod
    def read(self, checkpoint: Checkpoint) -> Model:
        """Reads and checks the data, and combines them with the checkpoint; imports no TensorFlow.

        Raises:
          UserError: bad data, or data that does not suit the checkpoint.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Sources of the data and how they are split; `FinetuningSettings` describes each argument.

    A task gets lists as tuples, and options with their defaults.

    Examples:
      >>> arguments = DataArguments(task="RTE", data_dir="glue/RTE")
      >>> arguments.refuse("winogender_dir")
      >>> arguments.train_files, arguments.sequence_length
      (None, 128)
    """

    task: str = dataclasses.field(metadata=DATA)
    data_dir: str | None = dataclasses.field(default=None, metadata=FILES)
    dataset: str | None = dataclasses.field(default=None, metadata=DATA)
    train_files: Sequence[str] | None = dataclasses.field(default=None, metadata=FILES)
    dev_files: Sequence[str] | None = dataclasses.field(default=None, metadata=FILES)
    evaluation_files: Mapping[str, str] | None = dataclasses.field(default=None, metadata=FILES)
    winogender_dir: str | Sequence[str] | None = dataclasses.field(default=None, metadata=FILES)
    labels: Sequence[str] | None = dataclasses.field(default=None, metadata=DATA)
    options: Mapping[str, Any] | None = dataclasses.field(default=None, metadata=DATA)
    task_modules: Sequence[str] = dataclasses.field(default=(), metadata=DATA)
    sequence_length: PositiveInt = 128
    held_out_fold: Annotated[int, Range(least=0, below=NUM_FOLDS)] | None = None

    @property
    def complete_options(self) -> Mapping[str, Any]:
        """Returns the options with their defaults, as a task gets them."""
        return self.options or {}

    def refuse(self, *names: str) -> None:
        """Refuses arguments that the task does not use.

        Raises:
          UserError: the user gave one of them.
        """
        for name in names:
            if getattr(self, name):
                raise UserError(f"task {self.task} takes no {name}; leave it out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewDataArguments(DataArguments):
    """New examples for a trained model, and published sets as `evaluation_files`.

    Attributes:
      new_files: tables of new examples by set name.
      text_columns, label_column: columns of the tables; empty or None: the usual names.

    Examples:
      >>> files = {"new_files": {"new": "new.tsv"}, "evaluation_files": {"hans": "hans.txt"}}
      >>> NewDataArguments(task="RTE", **files).named_files
      {'new': 'new.tsv', 'hans': 'hans.txt'}
    """

    new_files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None

    @property
    def named_files(self) -> dict[str, str]:
        """Returns all files by set name."""
        return {**self.new_files, **(self.evaluation_files or {})}


@dataclasses.dataclass(frozen=True)
class Task:
    """An entry of the register.

    Attributes:
      name: the name that users write.
      data: finds the files; raises UserError for unknown, missing or superfluous arguments.
      options: the task's options with their defaults; values must have the type of the default.
      settings: instead of `options`, a dataclass with the options as fields: `--helpfull` shows their types,
        defaults, choices and meanings, and values must fit their annotations.
      trains: whether the task trains; if not, one run per checkpoint is enough.
      frozen_encoder: whether the encoder's weights stay fixed.
      num_train_examples: size of the published training set; None: unknown.
      num_dev_examples: total size of the published evaluation sets; None: unknown.
      foreign_head: kind of head of other programs' fine-tuned models that this task accepts; None: none, or
        a text task, which is recognised by its labels.
      place_options: options that are paths of caches; they do not identify a run.
      new_data: as `data`, but for a trained model: new files and evaluation files, without training data.
        None: the task's models cannot predict new data.

    Examples:
      >>> task = task_named("SST-2")
      >>> task.num_train_examples, task.num_dev_examples, task.trains
      (67349, 872, True)
    """

    name: str
    data: Callable[[DataArguments], FinetuningData]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trains: bool = True
    frozen_encoder: bool = False
    num_train_examples: int | None = None
    num_dev_examples: int | None = None
    foreign_head: str | None = None
    place_options: tuple[str, ...] = ()
    settings: type | None = None
    new_data: Callable[[NewDataArguments], FinetuningData] | None = None

    def __post_init__(self) -> None:
        """Takes the options from the settings."""
        if self.settings is not None:
            defaults = dataclasses.asdict(self.settings())
            # Lists, as in users' and frozen configurations.
            options = {k: list(v) if isinstance(v, tuple) else v for k, v in defaults.items()}
            object.__setattr__(self, "options", options)

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options with the defaults of the missing ones.

        Raises:
          UserError: an unknown option, or a value of the wrong type.
        """
        completed = dict(self.options)
        annotations = {} if self.settings is None else annotations_of(self.settings)
        for name, value in options.items():
            if name not in self.options:
                names = ", ".join(self.options) or "none"
                raise UserError(
                    f"finetune.options has {name!r}, but the options of task {self.name} are: {names}; "
                    "correct the name or leave it out"
                )
            default = self.options[name]
            kind = annotations.get(name, Any if default is None else type(default))
            if not fits(value, kind):
                like = described(kind) if name in annotations else f"a value like {default!r}"
                raise UserError(
                    f"option {name} of task {self.name} is {value!r}, expected {like}; correct "
                    "finetune.options"
                )
            completed[name] = typed(value, kind)
        return completed

    def decisive(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options that identify a run: all but paths, and later fields at their defaults.

        Raises:
          UserError: see `completed`.
        """
        decisive = {
            name: value
            for name, value in self.completed(options).items()
            if name not in self.place_options
        }
        return (
            decisive if self.settings is None else without_later_defaults(decisive, self.settings)
        )


def task_named(
    name: str,
    labels: Sequence[str] | None = None,
    task_modules: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Task:
    """Returns the task of a name.

    Args:
      name: a registered name, or any other name together with `labels` or an option `kind`.
      labels: label names, for the user's texts or pairs.
      task_modules: modules that register further tasks.
      options: the task's options.

    Raises:
      UserError: an unknown name without labels, or a module that registers no tasks.

    Examples:
      >>> task_named("RTE").num_train_examples
      2490
      >>> task_named("reviews", labels=["bad", "good"]).name
      'reviews'
    """
    tasks = registered_tasks(tuple(task_modules))
    if name in tasks:
        return tasks[name]
    if labels is None and not (options or {}).get(KIND):
        raise UserError(
            f"task {name!r} is unknown (a module of finetune.task_modules may register it; with "
            f"finetune.labels = [...] or an option {KIND!r} a name of your own is a task of your own); "
            f"{nearest(name, tasks)}"
        )
    task: Task = importlib.import_module(_USER_TASKS).user_task(name, labels)
    return task


@functools.cache
def registered_tasks(task_modules: tuple[str, ...] = ()) -> dict[str, Task]:
    """Returns all tasks by name, in the order of `MODULES`.

    Raises:
      UserError: a module cannot be imported, has no `TASKS`, or repeats a name.

    Examples:
      >>> print(*list(registered_tasks())[:3])
      CoLA SST-2 RTE
    """
    tasks: dict[str, Task] = {}
    for module in MODULES:
        tasks.update({task.name: task for task in importlib.import_module(module).TASKS})
    for name in task_modules:
        try:
            further = importlib.import_module(name).TASKS
            opened_code(name)  # as it is now: the process keeps what it has imported
        except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
            raise UserError(
                f"finetune.task_modules has {name!r}, which cannot be used ({error}); give a module with "
                "TASKS = (...) that Python can import, with its folder in PYTHONPATH"
            ) from error
        if not isinstance(further, list | tuple) or not all(isinstance(t, Task) for t in further):
            raise UserError(
                f"{name}.TASKS is {further!r}, expected a tuple of multiberts.finetune.task.Task; "
                "correct the module"
            )
        for task in further:
            if task.name in tasks:
                raise UserError(
                    f"finetune.task_modules has {name}, which registers task {task.name!r}, but there "
                    "is a task of that name already; give it another name"
                )
            tasks[task.name] = task
    return tasks


def described_options() -> str:
    """Returns the tasks' options for `multiberts finetune --helpfull`.

    Examples:
      >>> "max_answer_length (int at least 1; default 30)" in described_options()
      True
    """
    lines = ["""Options of the tasks, as --options='{"name": value, ...}':"""]
    tasks = registered_tasks().values()
    for settings in dict.fromkeys(task.settings for task in tasks if task.settings):
        names = ", ".join(task.name for task in tasks if task.settings is settings)
        lines += ["", f"{names}:"]
        lines += parameter_lines(settings, annotations_of(settings), prefix="")
    return "\n".join(lines)
