"""Tasks and their register: each task's name, its facts, and how arguments become data.

A task is one file that ends in `TASKS`. Its module is listed in `MODULES`, or in the user's
`finetune.task_modules`; docs/tasks.md adds one. Nothing else names tasks, but readers of results that others
published (`evaluate.imports`). Importing the register imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict, Unpack

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.training_options import TrainingOptions
from multiberts.runs.command_line.command import parameter_lines
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.identity import without_later_defaults
from multiberts.runs.parameters import annotations_of, described, fits

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import CompileChoice, Trainer

# Tasks of the user's own.
_OWN = "multiberts.finetune.text.own"
# Imported when a task is looked up, so that a task's module may import this one.
MODULES = (
    "multiberts.finetune.text.glue",
    _OWN,
    "multiberts.finetune.squad.task",
    "multiberts.finetune.coreference.task",
    "multiberts.finetune.coreference.pronoun_probe",
    "multiberts.finetune.text.masked_words",
)
# The option by which a name of the user's own is a task.
KIND = "kind"

Arrays = dict[str, np.ndarray]

# The evaluation set of the training examples that a run leaves out.
HELD_OUT = "held_out"


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """The predictions on one evaluation set.

    Attributes:
      name: such as `dev` or `winogender`.
      example_ids: [examples].
      labels: [examples]; None where they are not published, as in test sets.
      predictions: [examples].
      scores: [examples, classes], or None.
      metrics: names of the metrics that score it, the main one first; none without labels.
      extras: further columns that describe the examples, as in evaluate.prediction_files.predictions.
      outputs: further columns of this run's answers, likewise.
      texts: by name, texts [examples] by which a reader recognises an example, such as its `premise`
        and `hypothesis`; names as of columns.
      classes: the names of the classes that predictions number; None where they have none.

    Example:
      >>> dev = EvaluationSet(
      ...     name="dev",
      ...     example_ids=["reviews/dev/0", "reviews/dev/1"],
      ...     labels=np.array([0, 1]),
      ...     predictions=np.array([0, 0]),
      ...     scores=np.array([[2.0, -1.0], [0.5, 0.0]]),
      ...     metrics=("accuracy",),
      ... )
      >>> dev.labels == dev.predictions
      array([ True, False])
    """

    name: str
    example_ids: Sequence[str]
    labels: np.ndarray | None
    predictions: np.ndarray
    scores: np.ndarray | None
    metrics: tuple[str, ...]
    extras: Mapping[str, Sequence[Any] | np.ndarray] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, Sequence[Any] | np.ndarray] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class Learner:
    """Data joined with a checkpoint: trained by the routine, and asked for predictions.

    Attributes:
      trainer: the compiled trainer, shared by runs of the same shapes; None where nothing is trained.
      initial_parameters: the trained weights before the first step, by name.
      batch: training rows int64 [batch] -> the trainer's batch.
      evaluate: trained weights -> the evaluation sets one by one.
      evaluate_rows: trained weights and training rows int64 [rows] -> the predictions on them, named
        `held_out`; None where a family cannot.
      head: what the layers above the encoder are, for the record of a model that is kept.
      evaluation_metrics: names of the evaluation sets, with the metrics that score each.

    Example:
      >>> untrained = Learner(
      ...     trainer=None,
      ...     initial_parameters=dict,
      ...     batch=lambda rows: {},
      ...     evaluate=lambda weights: iter([]),
      ... )
      >>> untrained.evaluate_rows is None, list(untrained.evaluate({}))
      (True, [])
    """

    trainer: Trainer | None
    initial_parameters: Callable[[], Arrays]
    batch: Callable[[np.ndarray], Arrays]
    evaluate: Callable[[Mapping[str, np.ndarray]], Iterator[EvaluationSet]]
    evaluate_rows: Callable[[Mapping[str, np.ndarray], np.ndarray], EvaluationSet] | None = None
    head: TaskHead = dataclasses.field(default_factory=TaskHead)
    evaluation_metrics: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


class LearnerArguments(TypedDict):
    """Arguments with which data are joined with a checkpoint.

    Attributes:
      fingerprint: of the checkpoint, a key for caches.
      finetune_seed: of the head's initial weights.
      compile_step: whether XLA compiles training and prediction; `auto` as `ForwardPass` takes it.
      training: the user's options; `training.trainer(loss, ...)` makes a trainer that follows them.
        The recipe's where it is left out, as where the encoder is frozen or nothing is trained.
    """

    fingerprint: str
    finetune_seed: int
    compile_step: CompileChoice
    training: NotRequired[TrainingOptions]


class Data(Protocol):
    """Data that was read and found good, before TensorFlow is there."""

    @property
    def train_groups(self) -> np.ndarray:
        """Returns int64 [rows]: training rows of the same example share a number; none if nothing is trained.

        Such as the windows of one question: a held-out part of the examples has all of them or none.
        """
        ...

    def learner(self, checkpoint: Checkpoint, **how: Unpack[LearnerArguments]) -> Learner:
        """Joins the data with a checkpoint, whose weights are the encoder's."""
        ...


class Family(Protocol):
    """A kind of task, with the paths of its data."""

    def inputs(self) -> dict[str, Path | list[Path]]:
        """Returns the files that decide the run's numbers, by the argument of `finetune` that names them.

        Raises:
          UserError: one is missing.
        """
        ...

    def parameters(self) -> dict[str, Any]:
        """Arguments of `finetune` that decide the numbers of this family only."""
        ...

    def read(self, config: BertConfig, vocabulary: Vocabulary) -> Data:
        """Reads and checks the data; imports no TensorFlow.

        Raises:
          UserError: bad data, or a model that cannot take it.
        """
        ...


@dataclasses.dataclass(frozen=True)
class DataArguments:
    """Where the data lie and how they are cut, as the user gave it.

    Attributes:
      task: the task's name.
      data_dir: a folder with the task's files, or None.
      dataset: a name in TensorFlow Datasets such as `glue/rte`, or None.
      train_files, dev_files: in place of a folder.
      evaluation_files: further evaluation sets by name, such as {"hans": "path"}.
      winogender_dir: a folder with the Winogender files, the list of the files, or None.
      labels: label names of a task of the user's own, or None.
      sequence_length: the largest number of tokens in a sequence.
      options: the task's own options, complete.
      holds_out: whether a part of the training examples is predicted, so that `dev_files` is not
        needed.
      new_files: of `Task.new_data`: tables of new examples, by the name of their set.
      text_columns, label_column: their columns; empty or None: those with the usual names.

    Example:
      >>> arguments = DataArguments(task="RTE", data_dir="glue/RTE")
      >>> arguments.refuse("winogender_dir")
      >>> arguments.train_files, arguments.sequence_length
      ((), 128)
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
    new_files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None

    def refuse(self, *names: str) -> None:
        """Refuses arguments that the task does not use.

        Raises:
          UserError: one of them was given.
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
      options: the task's own options, with their defaults; values must have the type of the default.
      settings: in place of `options`, a dataclass with the same as fields: `--help` shows their types,
        defaults, choices and meanings, and values must fit their annotations.
      trains: whether anything is trained; if not, one run per checkpoint is enough.
      frozen_encoder: whether the encoder's weights stay as they are.
      num_train_examples: in the published training set; None: not known.
      num_dev_examples: predicted in the published evaluation sets; None: not known.
      foreign_head: the kind of head whose models, fine-tuned by other programs, answer this task; None where
        they do not, and for tasks of texts, which labels describe.
      place_options: options that say where something is kept; they do not identify a run.
      new_data: as `family`, but for a trained model: the family has the new files and the evaluation
        files and nothing to train on. None: the task's models cannot be asked about new data.

    Example:
      >>> task = task_named("SST-2")
      >>> task.num_train_examples, task.num_dev_examples, task.trains
      (67349, 872, True)
    """

    name: str
    family: Callable[[DataArguments], Family]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trains: bool = True
    frozen_encoder: bool = False
    num_train_examples: int | None = None
    num_dev_examples: int | None = None
    foreign_head: str | None = None
    place_options: tuple[str, ...] = ()
    settings: type | None = None
    new_data: Callable[[DataArguments], Family] | None = None

    def __post_init__(self) -> None:
        """Takes the options from the settings."""
        if self.settings is not None:
            defaults = dataclasses.asdict(self.settings())
            # Lists, as users and frozen configurations write them.
            options = {k: list(v) if isinstance(v, tuple) else v for k, v in defaults.items()}
            object.__setattr__(self, "options", options)

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the given options with the defaults of the others.

        Raises:
          UserError: an unknown option, or a value of another type than the default's.
        """
        annotations = {} if self.settings is None else annotations_of(self.settings)
        for name, value in options.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UserError(
                    f"finetune.options has {name!r}, but the options of task {self.name} are: {known}; "
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
        return {**self.options, **options}

    def decisive(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options that identify a run, complete but for those that came later, at their defaults.

        Raises:
          UserError: as `completed`.
        """
        found = {
            name: value
            for name, value in self.completed(options).items()
            if name not in self.place_options
        }
        return found if self.settings is None else without_later_defaults(found, self.settings)


def task_named(
    name: str,
    labels: Sequence[str] | None = None,
    task_modules: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Task:
    """Looks a task up.

    Args:
      name: a registered name, or any other one together with `labels` or an option `kind`.
      labels: label names, for texts or pairs of the user's own.
      task_modules: modules outside the tree that register further tasks.
      options: the task's own.

    Raises:
      UserError: an unknown name without labels, or a module that registers no tasks.

    Example:
      >>> task_named("RTE").num_train_examples
      2490
      >>> task_named("reviews", labels=["bad", "good"]).name
      'reviews'
    """
    known = registered_tasks(tuple(task_modules))
    if name in known:
        return known[name]
    if labels is None and not (options or {}).get(KIND):
        raise UserError(
            f"task {name!r} is unknown (a module of finetune.task_modules may register it; with "
            f"finetune.labels = [...] or an option {KIND!r} a name of your own is a task of your own); "
            f"{nearest(name, known)}"
        )
    found: Task = importlib.import_module(_OWN).own_data_task(name, labels)
    return found


@functools.cache
def registered_tasks(task_modules: tuple[str, ...] = ()) -> dict[str, Task]:
    """Returns all tasks by name, in the order of `MODULES`.

    Raises:
      UserError: one of them cannot be imported, has no `TASKS`, or repeats a name.

    Example:
      >>> print(*list(registered_tasks())[:3])
      CoLA SST-2 RTE
    """
    tasks: dict[str, Task] = {}
    for module in MODULES:
        tasks.update({task.name: task for task in importlib.import_module(module).TASKS})
    for name in task_modules:
        for task in _tasks_outside(name):
            if task.name in tasks:
                raise UserError(
                    f"finetune.task_modules has {name}, which registers task {task.name!r}, but there "
                    "is a task of that name already; give it another name"
                )
            tasks[task.name] = task
    return tasks


def described_options() -> str:
    """Returns the tasks' own options as `multiberts finetune --help` shows them.

    Example:
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


def _tasks_outside(module: str) -> Sequence[Task]:
    try:
        tasks = importlib.import_module(module).TASKS
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise UserError(
            f"finetune.task_modules has {module!r}, which cannot be used ({error}); give a module with "
            "TASKS = (...) that Python can import, with its folder in PYTHONPATH"
        ) from error
    if not (isinstance(tasks, (list, tuple)) and all(isinstance(task, Task) for task in tasks)):
        raise UserError(
            f"{module}.TASKS is {tasks!r}, expected a tuple of multiberts.finetune.task.Task; "
            "correct the module"
        )
    return tasks
