"""GLUE as tasks, and what tasks of texts have in common: their files and their evaluation sets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from multiberts.finetune.classification.challenge_sets import (
    dataset_source,
    evaluation_sources,
    file_source,
)
from multiberts.finetune.classification.glue import (
    AX,
    GLUE_TASKS,
    GlueTask,
)
from multiberts.finetune.classification.glue_readers import GlueDatasetReader
from multiberts.finetune.classification.learner import ClassificationFamily
from multiberts.finetune.classification.new_texts import NewTextReader
from multiberts.finetune.data_files import existing_split_file, split_file
from multiberts.finetune.tasks import DataArguments, Task
from multiberts.finetune.text_examples import TextSource
from multiberts.runs.errors import UserError, counted


@dataclasses.dataclass(frozen=True)
class GlueOptions:
    """The options of GLUE's tasks.

    Attributes:
      predict_test: whether the test sets are predicted, too. They are large (QQP's has 390,965 pairs)
        and only a leaderboard can score them (`multiberts submission`).
    """

    predict_test: bool = False


def _glue_new_texts(arguments: DataArguments) -> ClassificationFamily:
    return new_texts(GLUE_TASKS[arguments.task], arguments)


def new_texts(task: GlueTask, arguments: DataArguments) -> ClassificationFamily:
    """Returns new texts, and evaluation sets in published layouts, for a trained model.

    Args:
      task: its layout.
      arguments: of the user.

    Raises:
      UserError: other columns than the task has, or a missing file.
    """
    number = len(task.text_columns)
    if arguments.text_columns and len(arguments.text_columns) != number:
        raise UserError(
            f"predict.text_columns has {counted(len(arguments.text_columns), 'name')}, expected "
            f"{number}, as task {task.name} has; correct it"
        )
    reader = NewTextReader(
        task=dataclasses.replace(task, label_column=arguments.label_column or task.label_column),
        text_columns=(arguments.text_columns,)
        if arguments.text_columns
        else (task.text_columns, task.dataset_texts),
        given=bool(arguments.text_columns),
        label_given=arguments.label_column is not None,
    )
    return ClassificationFamily(
        task=task,
        train=None,
        evaluation=(
            *(
                TextSource(name, (Path(path),), reader, task.metrics)
                for name, path in arguments.new_files.items()
            ),
            *evaluation_sources(task, arguments.evaluation_files, None),
        ),
        sequence_length=arguments.sequence_length,
    )


def _glue_family(arguments: DataArguments) -> ClassificationFamily:
    task = GLUE_TASKS[arguments.task]
    if arguments.labels not in (None, task.labels):
        raise UserError(
            f"labels of task {task.name} are {list(arguments.labels or ())}, expected {task.labels}; "
            "leave finetune.labels out or choose another task name"
        )
    return text_family(task, arguments)


def text_family(
    task: GlueTask, arguments: DataArguments, find: Callable[[Path, str], Path] = split_file
) -> ClassificationFamily:
    """Finds the sets of a task.

    Args:
      task: its layout.
      arguments: of the user.
      find: returns the file of a split in a folder.

    Raises:
      UserError: missing or superfluous data arguments, or a missing file.
    """
    arguments.refuse("winogender_dir")
    train, own_sets = _own_sets(task, arguments, find)
    datasets_dir = arguments.data_dir if arguments.dataset is not None else None
    further = evaluation_sources(task, arguments.evaluation_files, datasets_dir)
    evaluation = (*own_sets, *further)
    names = [source.name for source in evaluation]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"evaluation set {name} is given by finetune.evaluation_files, but the task's data have "
                "one already; choose another name"
            )
    return ClassificationFamily(
        task=task,
        train=train,
        evaluation=evaluation,
        sequence_length=arguments.sequence_length,
        labels=None if arguments.labels is None else list(arguments.labels),
    )


def _own_sets(
    task: GlueTask, arguments: DataArguments, find: Callable[[Path, str], Path]
) -> tuple[TextSource, tuple[TextSource, ...]]:
    """Returns the training set, and the evaluation sets that come with it, `dev` first."""
    given = (arguments.train_files, arguments.dev_files)
    predict_test = arguments.options["predict_test"]
    if arguments.dataset is not None:
        if any(given):
            raise UserError(
                "both dataset and train_files or dev_files are given; give the dataset or the files"
            )
        return _from_dataset(task, arguments.dataset, arguments.data_dir, predict_test)
    if arguments.data_dir is not None:
        if any(given):
            raise UserError(
                "both data_dir and train_files or dev_files are given; give the folder or the files"
            )
        in_folder = functools.partial(find, Path(arguments.data_dir))
        return _from_folder(task, in_folder, Path(arguments.data_dir), predict_test)
    dev_may_lack = arguments.holds_out and not arguments.dev_files
    if len(arguments.train_files) != 1 or len(arguments.dev_files) != 1 - dev_may_lack:
        raise UserError(
            f"task {task.name} needs finetune.data_dir, finetune.dataset, or one train file and one dev "
            "file (none with finetune.held_out_fold)"
        )
    if predict_test:
        raise UserError(
            "finetune.options has predict_test, which looks for test files in data_dir or dataset; name "
            'the file in finetune.evaluation_files instead, as {"test": "test.tsv"}'
        )
    return (
        file_source(task, "train", Path(arguments.train_files[0]), "train"),
        tuple(file_source(task, "dev", Path(file), "dev") for file in arguments.dev_files),
    )


def _from_folder(
    task: GlueTask, find: Callable[[str], Path], folder: Path, predict_test: bool
) -> tuple[TextSource, tuple[TextSource, ...]]:
    train = file_source(task, "train", find("train"), "train")
    sets = [file_source(task, "dev", find(task.dev_split), "dev")]
    for split in task.further_dev_splits:
        path = existing_split_file(folder, split)
        if path is not None:
            sets.append(file_source(task, split, path, split))
    if predict_test:
        sets.extend(file_source(task, split, find(split), split) for split in task.test_splits)
    return train, tuple(sets)


def _from_dataset(
    task: GlueTask, dataset: str, datasets_dir: str | None, predict_test: bool
) -> tuple[TextSource, tuple[TextSource, ...]]:
    def source(split: str) -> TextSource:
        return dataset_source(GlueDatasetReader(dataset, datasets_dir, task, split), split)

    splits = ["dev", *task.further_dev_splits, *(task.test_splits if predict_test else ())]
    return source("train"), tuple(source(split) for split in splits)


def _refused_ax(_arguments: DataArguments) -> ClassificationFamily:
    raise UserError(
        "task AX has no training data: it is answered by a model of MNLI; train task MNLI with "
        'finetune.evaluation_files = {"ax": "the file"}'
    )


TASKS: tuple[Task, ...] = (
    *(
        Task(
            name=task.name,
            family=_glue_family,
            new_data=_glue_new_texts,
            settings=GlueOptions,
            num_train_examples=task.num_examples[0],
            num_dev_examples=task.num_examples[1],
            data_files=tuple(
                f"{split}.tsv" for split in ("train", task.dev_split, *task.further_dev_splits)
            ),
        )
        for task in GLUE_TASKS.values()
    ),
    Task(name=AX.name, family=_refused_ax),
)
