"""The sets of a text task from the user's arguments: its files, its evaluation sets, new texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.data_files import files_of_split, split_file
from multiberts.finetune.features import check_sequence_length
from multiberts.finetune.task import DataArguments
from multiberts.finetune.text.challenge_sets import dataset_source, evaluation_sources, file_source
from multiberts.finetune.text.learner import TextData
from multiberts.finetune.text.new_texts import NewTextReader
from multiberts.finetune.text.readers import DatasetReader
from multiberts.finetune.text.task import TextSource, TextTask
from multiberts.runs.errors import UserError, counted


@dataclasses.dataclass(frozen=True)
class TextFamily:
    """Texts or pairs of texts with a class or a number.

    Attributes:
      train: the texts to train on; None for a trained model.
      evaluation: the sets to predict, such as `dev`, in the order of the outputs.
      labels: as given by the user; None where the task's are known.
      columns: options of a task of the user's own.
    """

    task: TextTask
    train: TextSource | None
    evaluation: tuple[TextSource, ...]
    sequence_length: int
    labels: list[str] | None = None
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def inputs(self) -> dict[str, Path | list[Path]]:
        named: dict[str, list[Path]] = {"train_files": [], "dev_files": [], "evaluation_files": []}
        if self.train is not None:
            named["train_files"] += self.train.files
        for source in self.evaluation:
            named["dev_files" if source.name == "dev" else "evaluation_files"] += source.files
        return {name: files for name, files in named.items() if files}

    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self.labels is None else {"labels": self.labels}
        if any(source.name != "dev" for source in self.evaluation):
            found["evaluation_sets"] = [source.name for source in self.evaluation]
        return {**found, **self.columns}

    def read(self, config: BertConfig, vocabulary: Vocabulary) -> TextData:
        check_sequence_length(self.sequence_length, config.max_position_embeddings)
        given = (self.train, self.evaluation, vocabulary, self.sequence_length)
        data = TextData.read(self.task, *given)
        if any(texts and texts.examples.second_texts for texts in (data.train, *data.evaluation)):
            config.check_two_segments(f"task {self.task.name}")
        return data


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The options of text tasks with published files.

    Attributes:
      predict_test: whether the test sets are predicted, too. They are large (QQP's has 390,965 pairs)
        and have no labels.
    """

    predict_test: bool = False


def new_texts(task: TextTask, arguments: DataArguments) -> TextFamily:
    """Returns new texts, and evaluation sets in published layouts, for a trained model."""
    number = len(task.text_columns)
    if arguments.text_columns and len(arguments.text_columns) != number:
        raise UserError(
            f"predict.text_columns has {counted(len(arguments.text_columns), 'name')}, expected "
            f"{number}, as task {task.name} has; correct it"
        )
    reader = NewTextReader(task, arguments.text_columns, arguments.label_column)
    return TextFamily(
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


def text_family(task: TextTask, arguments: DataArguments) -> TextFamily:
    """Finds the sets of a task."""
    arguments.refuse("winogender_dir")
    train, own_sets = _own_sets(task, arguments)
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
    return TextFamily(
        task=task,
        train=train,
        evaluation=evaluation,
        sequence_length=arguments.sequence_length,
        labels=None if arguments.labels is None else list(arguments.labels),
    )


def lacking_data(task: str) -> UserError:
    return UserError(
        f"task {task} needs finetune.data_dir, finetune.dataset, or one train file and one dev file (none "
        "with finetune.held_out_fold)"
    )


def _own_sets(
    task: TextTask, arguments: DataArguments
) -> tuple[TextSource, tuple[TextSource, ...]]:
    """Returns the training set, and the evaluation sets that come with it, `dev` first."""
    given = (arguments.train_files, arguments.dev_files)
    predict_test = arguments.options["predict_test"]
    dataset, data_dir, files = arguments.dataset, arguments.data_dir, task.files
    further = files.further_dev_splits
    if dataset is not None:
        if any(given):
            raise UserError(
                "both dataset and train_files or dev_files are given; give the dataset or the files"
            )

        def source(split: str) -> TextSource:
            return dataset_source(DatasetReader(dataset, data_dir, task, split), split)

    elif data_dir is not None:
        if any(given):
            raise UserError(
                "both data_dir and train_files or dev_files are given; give the folder or the files"
            )
        folder = Path(data_dir)
        further = tuple(split for split in further if files_of_split(folder, split))

        def source(split: str) -> TextSource:
            path = split_file(folder, files.dev_split if split == "dev" else split)
            return file_source(task, split, path, split)

    else:
        dev_may_lack = arguments.holds_out and not arguments.dev_files
        if len(arguments.train_files) != 1 or len(arguments.dev_files) != 1 - dev_may_lack:
            raise lacking_data(task.name)
        if predict_test:
            raise UserError(
                "finetune.options has predict_test, which looks for test files in data_dir or dataset; name "
                'the file in finetune.evaluation_files instead, as {"test": "test.tsv"}'
            )
        return (
            file_source(task, "train", Path(arguments.train_files[0]), "train"),
            tuple(file_source(task, "dev", Path(file), "dev") for file in arguments.dev_files),
        )
    splits = ["dev", *further, *(files.test_splits if predict_test else ())]
    return source("train"), tuple(map(source, splits))
