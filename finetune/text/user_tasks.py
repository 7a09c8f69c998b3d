"""Tasks that users define by configuration: texts or pairs with a class or a number.

`finetune.options` names the columns; the data are tables in any form of `runs.tables`, or a name in
TensorFlow Datasets. Any unregistered task name with labels or a kind is such a task.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from multiberts.evaluate.metrics.label_sets import SEPARATOR
from multiberts.evaluate.metrics.register import METRICS, metric_input
from multiberts.finetune.data_files import SPLITS, open_split, split_file
from multiberts.finetune.task import DataArguments, NewDataArguments, Task
from multiberts.finetune.text.data import (
    TextData,
    TextOptions,
    lacking_data,
    new_texts,
    text_data,
)
from multiberts.finetune.text.labels import check_tags, labels_of_rows, texts_of_labels
from multiberts.finetune.text.new_texts import columns_of_files
from multiberts.finetune.text.readers import dataset_row
from multiberts.finetune.text.task import (
    ENTAILMENT_LABELS,
    MULTI_LABEL,
    REGRESSION,
    TOKENS,
    TextTask,
    table_task,
)
from multiberts.runs.errors import UserError, nearest
from multiberts.runs.identity import Input, check_unchanged, opened, without_later_defaults
from multiberts.runs.parameters import PositiveFloat, shortened
from multiberts.runs.tables import read_rows, table_files, table_of_files


@dataclasses.dataclass(frozen=True)
class UserTaskOptions(TextOptions):
    """The options of users' texts and pairs.

    Attributes:
      predict_test: whether to predict the test sets, too.
      text_columns: text columns of the files: one name for texts, two for pairs.
      label_column: column with the label, or all labels of a row.
      kind: `classification`; `regression` of numbers; `multi_label_classification`, any number of labels
        per text (a list, names separated by `|`, or a 0 or 1 per label); `token_classification`, a BIO tag
        per word (lists, or texts with spaces). None: classification, with `finetune.labels`. Without
        `finetune.labels`, the classes are the labels of the train file, sorted; labels of 0 and 1 are
        called `LABEL_0`, `LABEL_1`, ...
      metrics: names of the metrics, the main one first; None: accuracy; Pearson, Spearman and the mean
        squared error; averages of F1 over labels; F1 of spans.
      class_weights: loss weights of the classes, in their order (scaled to an average of 1 over training
        examples), or `balanced`: inverse to their numbers of training examples; None: equal weights. For
        tags each word is an example; for several labels the weight applies to the label's part of every
        example's loss.
      pos_weight: for several labels, loss weights of labels on examples that have them, as in PyTorch's
        BCEWithLogitsLoss; `balanced`: the ratio of training examples without and with the label; None: one.
    """

    text_columns: Sequence[str] = TextTask.text_columns
    label_column: str = TextTask.label_column
    kind: (
        Literal[
            "classification", "regression", "multi_label_classification", "token_classification"
        ]
        | None
    ) = None
    metrics: Sequence[str] | None = None
    class_weights: Literal["balanced"] | Sequence[PositiveFloat] | None = None
    pos_weight: Literal["balanced"] | Sequence[PositiveFloat] | None = None


def user_task(name: str, labels: Sequence[str] | None) -> Task:
    """Returns a user's task, in the layout of RTE unless the options change it.

    Args:
      labels: names of the classes; None if `options` have the kind.
    """
    table_task(name, labels)  # refuses unfit labels
    return Task(name=name, data=_data, settings=UserTaskOptions, new_data=_new_texts)


def _data(arguments: DataArguments, labels: tuple[str, ...] | None = None) -> TextData:
    """Returns a user's data; `labels` are the default labels.

    Its parameters include the columns, which also determine results.
    """
    task = _text_task(arguments, labels)
    stated = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in without_later_defaults(
            arguments.complete_options, UserTaskOptions
        ).items()
        if name != "predict_test"
    }
    if arguments.labels is None and labels is None and task.labels is not None:
        stated["labels"] = list(task.labels)
    data = text_data(task, arguments)
    return dataclasses.replace(data, columns=stated)


def _new_texts(arguments: NewDataArguments, labels: tuple[str, ...] | None = None) -> TextData:
    options = arguments.complete_options
    if not options["text_columns"]:  # the model does not record whether it takes pairs
        columns = arguments.text_columns or columns_of_files([*arguments.new_files.values()])
        arguments = dataclasses.replace(arguments, options={**options, "text_columns": columns})
    return new_texts(_text_task(arguments, labels), arguments)


def _text_task(arguments: DataArguments, labels: tuple[str, ...] | None) -> TextTask:
    """Returns the task that the options describe; `labels` are the default labels."""
    options = arguments.complete_options
    classes = arguments.labels or labels
    if options["kind"] == REGRESSION:
        if arguments.labels is not None:
            raise UserError(
                f"task {arguments.task} is a regression, whose labels are numbers; leave finetune.labels "
                "out, or correct the option kind"
            )
        classes = None
    elif classes is None:
        classes = _labels_to_train_on(arguments)
    task = table_task(arguments.task, classes, options["text_columns"], options["label_column"])
    task = _of_kind(task, arguments)
    for name in ("class_weights", "pos_weight"):
        task = _with_weights(task, name, options[name])
    if options["metrics"] is not None:
        task = dataclasses.replace(task, metrics=_checked_metrics(task, options["metrics"]))
    return task


_METRICS = {
    MULTI_LABEL: ("multilabel_f1_micro", "multilabel_f1_macro"),
    TOKENS: ("span_f1",),
}


def _of_kind(task: TextTask, arguments: DataArguments) -> TextTask:
    """Returns a task with labels of the kind that the option names."""
    kind = arguments.complete_options["kind"]
    if kind not in _METRICS:
        return task
    if kind == TOKENS and len(task.text_columns) != 1:
        raise UserError(
            f"option text_columns of task {task.name} is {list(task.text_columns)}, expected one column "
            "with words; correct finetune.options"
        )
    split = [name for name in task.labels or () if SEPARATOR in name]
    if kind == MULTI_LABEL and split:
        raise UserError(
            f"task {task.name} has the label {shortened(split[0])}, expected names without {SEPARATOR!r}, "
            "which separates names; rename it"
        )
    task = dataclasses.replace(task, kind=kind, metrics=_METRICS[kind])
    if kind == TOKENS:
        check_tags(task)
    return task


def _with_weights(
    task: TextTask, option: str, weights: Literal["balanced"] | Sequence[float] | None
) -> TextTask:
    if weights is None:
        return task
    if option == "pos_weight" and task.kind != MULTI_LABEL:
        raise UserError(
            f"option pos_weight of task {task.name} is {weights!r}, which counts with the kind "
            f"{MULTI_LABEL!r} only; leave it out, or give class_weights"
        )
    number = 0 if task.labels is None else len(task.labels)
    if not number or (weights != "balanced" and len(weights) != number):
        raise UserError(
            f"option {option} of task {task.name} is {weights!r}, expected one weight for each of its "
            f"{number} classes, or 'balanced'; correct finetune.options"
        )
    numbers: Any = "balanced" if weights == "balanced" else tuple(map(float, weights))
    return dataclasses.replace(task, **{option: numbers})


def _checked_metrics(task: TextTask, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the metrics after trying each on answers of the task's form."""
    if not names or len(set(names)) < len(names):
        raise UserError(
            f"option metrics of task {task.name} is {list(names)}, expected different names; correct "
            "finetune.options"
        )
    logits: np.ndarray
    if task.has_texts:
        labels = np.array(texts_of_labels(np.eye(len(task.labels or ())), task)[1])
        logits = np.zeros((0, 0))
    elif task.labels is None:
        labels = np.array([0.5, 1.5, 2.0], np.float32)
        logits = labels[:, None]
    else:
        labels = np.arange(len(task.labels)).astype(np.float32)
        logits = np.eye(len(labels))
    for name in names:
        if name not in METRICS:
            raise UserError(
                f"option metrics of task {task.name} has {name!r}, which is not a metric; "
                f"{nearest(name, METRICS)}"
            )
        if task.has_texts and METRICS[name].uses != "text":
            raise UserError(
                f"option metrics of task {task.name} has {name}, which does not suit it; choose "
                f"{', '.join(_METRICS[task.kind])} or others of that kind"
            )
        try:
            METRICS[name].score(labels, metric_input(METRICS[name], labels, logits))
        except ValueError as error:
            raise UserError(
                f"option metrics of task {task.name} has {name}, which does not suit it ({error}); choose "
                "another one"
            ) from error
    return tuple(names)


def _labels_to_train_on(arguments: DataArguments) -> tuple[str, ...]:
    """Returns the labels of the training set, see `labels_of_rows`."""
    column, kind = arguments.complete_options["label_column"], arguments.complete_options["kind"]
    if arguments.dataset is not None:
        source = open_split(arguments.dataset, SPLITS["train"], arguments.data_dir)
        source.require([column], "correct the option label_column")
        names = source.label_names(column)
        if names is not None:
            return tuple(names)
        examples = enumerate(source.examples([column]))
        rows = (dataset_row(source, row, example, column) for row, example in examples)
        return labels_of_rows(source.name, rows, column, kind)
    if arguments.data_dir is not None:
        path = split_file(arguments.data_dir, "train")
    elif arguments.train_files:
        path = Path(arguments.train_files[0])
    else:
        raise lacking_data(arguments.task)
    return _labels_of(tuple(map(opened, table_files(path))), column, kind)


@functools.lru_cache(maxsize=64)
def _labels_of(contents: tuple[Input, ...], column: str, kind: str | None) -> tuple[str, ...]:
    path = table_of_files(tuple(content.where for content in contents))
    cure = "correct the option label_column or the file"
    if kind == MULTI_LABEL:
        cure = "correct the option label_column, or write all labels of a row in one column (rude|kind)"
    rows = [*read_rows(path, (), values=[column], cure=cure)]
    check_unchanged(*contents)
    return labels_of_rows(str(path), rows, column, kind)


TASKS: tuple[Task, ...] = tuple(
    # Users' pairs; `facts` is the task of the synthetic world.
    Task(
        name=name,
        data=functools.partial(_data, labels=ENTAILMENT_LABELS),
        new_data=functools.partial(_new_texts, labels=ENTAILMENT_LABELS),
        settings=UserTaskOptions,
    )
    for name in ("pair", "facts")
)
