"""The data of a text task from the user's arguments: files, evaluation sets, new texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.fine_tuned import TaskHead
from multiberts.finetune.data_files import files_of_split, split_file
from multiberts.finetune.features import check_sequence_length
from multiberts.finetune.task import DataArguments, Files, FinetuningData, NewDataArguments
from multiberts.finetune.text.challenge_sets import dataset_source, evaluation_sources, file_source
from multiberts.finetune.text.heads import TextSet
from multiberts.finetune.text.labels import NO_TAG, described_labels
from multiberts.finetune.text.model import TextModel, read_texts
from multiberts.finetune.text.new_texts import NewTextReader
from multiberts.finetune.text.readers import DatasetReader
from multiberts.finetune.text.task import TOKENS, TextSource, TextTask
from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError, counted
from multiberts.runs.identity import opened


@dataclasses.dataclass(frozen=True)
class TextData(FinetuningData):
    """Texts or pairs of texts with their labels.

    Attributes:
      train: training texts; None for a trained model.
      evaluation: sets to predict, such as `dev`, in the order of the outputs.
      labels: the user's label names; None if the task has its own.
      columns: options of a user's task.
    """

    task: TextTask
    train: TextSource | None
    evaluation: tuple[TextSource, ...]
    sequence_length: int
    labels: list[str] | None = None
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def inputs(self) -> Files:
        named: dict[str, list[Path]] = {"train_files": [], "dev_files": [], "evaluation_files": []}
        if self.train is not None:
            named["train_files"] += self.train.files
        for source in self.evaluation:
            named["dev_files" if source.name == "dev" else "evaluation_files"] += source.files
        return {name: files for name, files in named.items() if files}

    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {} if self.labels is None else {"labels": self.labels}
        if any(source.name != "dev" for source in self.evaluation):
            parameters["evaluation_sets"] = self.set_names()
        return {**parameters, **self.columns}

    def set_names(self) -> list[str]:
        return [source.name for source in self.evaluation]

    def read(self, checkpoint: Checkpoint) -> TextModel:
        task, config = self.task, checkpoint.config
        check_sequence_length(self.sequence_length, config.max_position_embeddings)

        def read(source: TextSource) -> TextSet:
            contents = tuple(map(opened, source.files))
            return read_texts(contents, source, checkpoint.vocabulary, self.sequence_length)

        train = None if self.train is None else read(self.train)
        evaluation = tuple(map(read, self.evaluation))
        if train is not None and train.examples.labels is not None:
            labels = train.examples.labels
            values = labels[labels != NO_TAG] if task.kind == TOKENS else labels
            if len(values) and not (values != values[0]).any():
                if task.labels is None:
                    label = f"{values[0]:g}"
                else:
                    label = "of the first" if task.has_texts else repr(task.labels[int(values[0])])
                raise UserError(
                    f"{train.source.files[0]}: all {len(values)} examples to train on have the label "
                    f"{label}, expected different ones; give another train file"
                )
            note_once(f"labels of {task.name}: {described_labels(labels, task)}")
        if any(texts and texts.examples.second_texts for texts in (train, *evaluation)):
            config.check_two_segments(f"task {task.name}")
        return TextModel(
            checkpoint=checkpoint,
            head=TaskHead(task.head_kind, task.labels, 2 if len(task.text_columns) == 2 else 1),
            task=task,
            train=train,
            evaluation=evaluation,
        )


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The options of text tasks with published files.

    Attributes:
      predict_test: whether to predict the test sets, too. They are large (QQP: 390,965 pairs) and have no
        labels.
    """

    predict_test: bool = False


def new_texts(task: TextTask, arguments: NewDataArguments) -> TextData:
    """Returns new texts, and evaluation sets in published layouts, for a trained model."""
    number = len(task.text_columns)
    if arguments.text_columns and len(arguments.text_columns) != number:
        raise UserError(
            f"predict.text_columns has {counted(len(arguments.text_columns), 'name')}, expected "
            f"{number}, as task {task.name} has; correct it"
        )
    reader = NewTextReader(task, arguments.text_columns, arguments.label_column)
    return TextData(
        task=task,
        train=None,
        evaluation=(
            *(
                TextSource(name, (Path(path),), reader, task.metrics)
                for name, path in arguments.new_files.items()
            ),
            *evaluation_sources(task, arguments.evaluation_files or {}, None),
        ),
        sequence_length=arguments.sequence_length,
    )


def text_data(task: TextTask, arguments: DataArguments) -> TextData:
    """Finds the sets of a task: the training set, the published evaluation sets, and the user's."""
    arguments.refuse("winogender_dir")
    dataset, data_dir, layout = arguments.dataset, arguments.data_dir, task.files
    files = (arguments.train_files or (), arguments.dev_files or ())
    predict_test = arguments.complete_options["predict_test"]
    further = layout.further_dev_splits
    if dataset is not None:
        if any(files):
            raise UserError(
                "both dataset and train_files or dev_files are given; give the dataset or the files"
            )

        def source(split: str) -> TextSource:
            return dataset_source(DatasetReader(dataset, data_dir, task, split), split)

    elif data_dir is not None:
        if any(files):
            raise UserError(
                "both data_dir and train_files or dev_files are given; give the folder or the files"
            )
        folder = Path(data_dir)
        further = tuple(split for split in further if files_of_split(folder, split))

        def source(split: str) -> TextSource:
            path = split_file(folder, layout.dev_split if split == "dev" else split)
            return file_source(task, split, path, split)

    else:
        dev_may_lack = arguments.held_out_fold is not None and not files[1]
        if len(files[0]) != 1 or len(files[1]) != 1 - dev_may_lack:
            raise lacking_data(task.name)
        if predict_test:
            raise UserError(
                "finetune.options has predict_test, which looks for test files in data_dir or dataset; name "
                'the file in finetune.evaluation_files instead, as {"test": "test.tsv"}'
            )

        def source(split: str) -> TextSource:
            return file_source(task, split, Path(files[split == "dev"][0]), split)

    train = source("train")
    if dataset is None and data_dir is None:
        splits = ["dev"] * len(files[1])
    else:
        splits = ["dev", *further, *(layout.test_splits if predict_test else ())]
    evaluation = (
        *map(source, splits),
        *evaluation_sources(
            task, arguments.evaluation_files or {}, None if dataset is None else data_dir
        ),
    )
    return TextData(
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
