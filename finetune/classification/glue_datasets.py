"""Reads GLUE tasks, and tasks of one's own, from TensorFlow Datasets.

The examples, their order and their ids are those of the release's TSV files: rows are put in the order
of `idx`, and classes are matched by their names, as the numbers differ (MNLI's class 0 is entailment
there).
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.finetune.classification.glue import GlueTask
from multiberts.finetune.dataset_split import DatasetSplit, open_split
from multiberts.finetune.text_examples import TextExamples
from multiberts.runs.errors import UserError

# The library's name of a split, by ours; several where data sets differ.
SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev"),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test",),
    "test_matched": ("test_matched",),
    "test_mismatched": ("test_mismatched",),
}
_ROW = "idx"


@dataclasses.dataclass(frozen=True)
class GlueDatasetReader:
    """Reads one split of a dataset.

    Attributes:
      dataset: its name, such as `glue/rte`.
      datasets_dir: where prepared datasets lie; None: where TensorFlow Datasets keeps them.
      task: what the texts and labels are.
      split: our name of the split, as in example ids.
      there: the library's name of the split; None: what it is usually called.
    """

    dataset: str
    datasets_dir: str | None
    task: GlueTask
    split: str
    there: str | None = None

    def open(self) -> DatasetSplit:
        """Finds the split, preparing the dataset if need be.

        Raises:
          UserError: there is no such dataset or split, or it is another GLUE task's.
        """
        _check_name(self.dataset, self.task)
        splits = SPLITS[self.split] if self.there is None else (self.there,)
        return open_split(self.dataset, splits, self.datasets_dir)

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        del files, name  # the dataset is opened by its name, and the ids say the split
        return read_dataset(self.open(), self.task, self.split)


def read_dataset(source: DatasetSplit, task: GlueTask, split: str) -> TextExamples:
    """Reads one split.

    Args:
      source: the opened split.
      task: what the texts and labels are.
      split: our name of the split, as in example ids.

    Returns:
      The examples in the order of `idx`, or as they are stored where there is none; labels are None
      for a test split that has -1 throughout.

    Raises:
      UserError: lacking features, other label names, or an example without a label.
    """
    texts = task.dataset_texts
    label = "label" if "label" in source.features else task.label_column
    missing = [name for name in (*texts, label) if name not in source.features]
    if missing:
        raise UserError(
            f"dataset {source.name} has the features {', '.join(source.features)}, expected "
            f"{', '.join((*texts, 'label'))} (lacking {', '.join(missing)}); choose the dataset of "
            f"task {task.name}"
        )
    has_rows = _ROW in source.features
    examples = list(source.examples([*texts, label, *([_ROW] if has_rows else [])]))
    rows = list(range(len(examples)))
    if has_rows:
        examples.sort(key=lambda example: int(example[_ROW]))
        if not task.dataset_rows_are_ranks:
            rows = [int(example[_ROW]) for example in examples]
    repeated = next((row for row, after in itertools.pairwise(rows) if row == after), None)
    if repeated is not None:
        raise UserError(
            f"dataset {source.name} has {_ROW} {repeated} twice, expected each once; prepare it again"
        )
    return TextExamples(
        example_ids=[f"{task.name}/{split}/{row}" for row in rows],
        first_texts=[
            _text(source, row, ex[texts[0]]) for row, ex in zip(rows, examples, strict=True)
        ],
        second_texts=[
            _text(source, row, ex[texts[1]]) for row, ex in zip(rows, examples, strict=True)
        ]
        if len(texts) == 2
        else None,
        labels=_labels(source, task, split, rows, [example[label] for example in examples]),
    )


def _check_name(dataset: str, task: GlueTask) -> None:
    """Refuses the GLUE data of another task, which might have the same features.

    Raises:
      UserError: it is.
    """
    family, _, rest = dataset.partition("/")
    config = rest.partition(":")[0].partition("/")[0]
    known = {task.dataset, *(f"{task.dataset}_{kind}" for kind in ("matched", "mismatched"))}
    if family.partition(":")[0] == "glue" and config not in known:
        expected = f"glue/{task.dataset}" if task.dataset else "another dataset"
        raise UserError(
            f"dataset {dataset} is not that of task {task.name}, expected {expected}; correct "
            "finetune.dataset or finetune.task"
        )


def _text(source: DatasetSplit, row: int, value: Any) -> str:
    try:
        return bytes(value).decode()
    except (TypeError, ValueError) as error:
        raise UserError(
            f"dataset {source.name} row {row}: found {value!r}, expected UTF-8 text; correct the "
            "dataset"
        ) from error


def _labels(
    source: DatasetSplit, task: GlueTask, split: str, rows: list[int], values: list[Any]
) -> np.ndarray | None:
    """Class numbers of the task, or scores; None for a test split without labels."""
    numbers = np.array(values, np.float32)
    if split in task.test_splits and (numbers == -1).all():
        return None
    unknown = np.flatnonzero(~np.isfinite(numbers) if task.labels is None else numbers == -1)
    if len(unknown):
        raise UserError(
            f"dataset {source.name} row {rows[unknown[0]]}: found label {numbers[unknown[0]]:g}, "
            "which stands for none; choose another split or correct the dataset"
        )
    if task.labels is None:
        return numbers
    names = source.label_names("label" if "label" in source.features else task.label_column)
    expected = task.dataset_labels
    if names is None or set(names) not in (set(expected), set(task.labels)):
        raise UserError(
            f"dataset {source.name} has the labels {', '.join(names or ['(no names)'])}, expected "
            f"{', '.join(expected)}; choose the dataset of task {task.name}, or give finetune.labels"
        )
    ours = expected if set(names) == set(expected) else task.labels
    class_of = np.array([ours.index(name) for name in names], np.float32)
    return class_of[numbers.astype(np.int64)]
