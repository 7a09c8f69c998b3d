"""Sentence and sentence-pair tasks in the TSV layout of the GLUE release (Wang et al. 2019).

Files are raw tab-separated lines: quotes are text, a byte order mark may come first, and CoLA has no
header. A task of one's own in the layout of RTE (index, sentence1, sentence2, label) needs no entry
in the table: any other task name with its `labels` is one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runs.errors import UserError
from runs.files import PathLike, read_lines


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """What one task's TSV files hold.

    Attributes:
      name: the task's name, as in example ids.
      columns: the names that the header must have; for files without one, names for the columns.
      text_columns: the one or two columns with the text.
      label_column: the column with the label.
      labels: the label names in the order of the classes; None for a regression.
      id_column: a column whose values must not repeat, or None.
      header: whether the first line names the columns.
      metrics: names in evaluate.metrics, the first one being the task's score.
      dev_split: the name of the file for evaluation.
    """

    name: str
    columns: tuple[str, ...]
    text_columns: tuple[str, ...]
    label_column: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    id_column: str | None = None
    header: bool = True
    dev_split: str = "dev"

    @property
    def num_outputs(self) -> int:
        """Classes, or 1 for a regression."""
        return 1 if self.labels is None else len(self.labels)


@dataclasses.dataclass(frozen=True)
class GlueExamples:
    """The examples of one file.

    Attributes:
      example_ids: `<task>/<split>/<row>`, rows counted from 0 without the header.
      first_texts: the single sentence, or the first of the pair.
      second_texts: the second of the pair, or None.
      labels: float32 [examples]: class numbers, or the values of a regression.
    """

    example_ids: list[str]
    first_texts: list[str]
    second_texts: list[str] | None
    labels: np.ndarray


def pair_task(name: str, labels: Sequence[str]) -> GlueTask:
    """A sentence-pair classification in the layout of RTE.

    Args:
      name: the task's name.
      labels: the label names in the order of the classes.

    Raises:
      UserError: fewer than two labels, or one given twice.
    """
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise UserError(
            f"labels of task {name} are {list(labels)}, expected two or more different ones"
        )
    return GlueTask(
        name=name,
        columns=("index", "sentence1", "sentence2", "label"),
        text_columns=("sentence1", "sentence2"),
        label_column="label",
        labels=tuple(labels),
        metrics=("accuracy",),
        id_column="index",
    )


_ENTAILMENT = ("entailment", "not_entailment")
_STS_COLUMNS = ("index", "genre", "filename", "year", "old_index", "source1", "source2")

GLUE_TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask(
            name="CoLA",
            columns=("source", "label", "original_label", "sentence"),
            text_columns=("sentence",),
            label_column="label",
            labels=("0", "1"),
            metrics=("matthews", "accuracy"),
            header=False,
        ),
        GlueTask(
            name="SST-2",
            columns=("sentence", "label"),
            text_columns=("sentence",),
            label_column="label",
            labels=("0", "1"),
            metrics=("accuracy",),
        ),
        pair_task("RTE", _ENTAILMENT),
        GlueTask(
            name="MRPC",
            columns=("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            text_columns=("#1 String", "#2 String"),
            label_column="Quality",
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
        ),
        GlueTask(
            name="QNLI",
            columns=("index", "question", "sentence", "label"),
            text_columns=("question", "sentence"),
            label_column="label",
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            id_column="index",
        ),
        GlueTask(
            name="QQP",
            columns=("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            text_columns=("question1", "question2"),
            label_column="is_duplicate",
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
            id_column="id",
        ),
        GlueTask(
            name="STS-B",
            columns=(*_STS_COLUMNS, "sentence1", "sentence2", "score"),
            text_columns=("sentence1", "sentence2"),
            label_column="score",
            labels=None,
            metrics=("pearson", "mse"),
            id_column="index",
        ),
        pair_task("WNLI", ("0", "1")),
        GlueTask(
            name="MNLI",
            columns=("index", "sentence1", "sentence2", "gold_label"),
            text_columns=("sentence1", "sentence2"),
            label_column="gold_label",
            labels=("contradiction", "entailment", "neutral"),
            metrics=("accuracy",),
            id_column="index",
            dev_split="dev_matched",
        ),
        # For pair data of one's own; `facts` is the task of the synthetic world.
        pair_task("pair", _ENTAILMENT),
        pair_task("facts", _ENTAILMENT),
    )
}


def glue_task(name: str, labels: Sequence[str] | None = None) -> GlueTask:
    """The description of a task.

    Args:
      name: a name in `GLUE_TASKS`, or any other name together with `labels`.
      labels: label names, for a pair task of one's own in the layout of RTE.

    Raises:
      UserError: an unknown name without labels, or labels for a task whose labels are known.
    """
    known = GLUE_TASKS.get(name)
    if known is None or (labels is not None and name == "pair"):
        if labels is None:
            raise UserError(
                f"task {name!r} is unknown; expected one of {', '.join(GLUE_TASKS)}, coreference, "
                "pronoun_probe, or a name of your own with finetune.labels = [...] for pairs in the "
                "layout of RTE"
            )
        return pair_task(name, labels)
    if labels is not None and tuple(labels) != known.labels:
        raise UserError(
            f"labels of task {name} are {list(labels)}, expected {known.labels}; leave labels out or "
            "choose another task name"
        )
    return known


def split_file(data_dir: PathLike, split: str, suffix: str = ".tsv") -> Path:
    """The file of a split in a folder: `<split><suffix>`, plain or with `.gz` behind it.

    Raises:
      UserError: neither is there.
    """
    plain = Path(data_dir) / (split + suffix)
    for path in (plain, plain.with_name(plain.name + ".gz")):
        if path.is_file():
            return path
    raise UserError(
        f"{plain} does not exist, nor {plain.name}.gz; give the folder with the task's {suffix} files "
        "as data_dir"
    )


def read_examples(path: PathLike, task: GlueTask, split: str) -> GlueExamples:
    """Reads one TSV file.

    Args:
      path: a `.tsv` file, plain or `.gz`.
      task: what its columns are.
      split: `train` or `dev`, for the example ids.

    Raises:
      UserError: missing or empty file, other columns, an unknown label, or a repeated id.
    """
    lines = read_lines(path)
    header = _read_header(path, lines[0], task)
    first_row = 1 if task.header else 0
    texts: list[list[str]] = [[] for _ in task.text_columns]
    labels: list[float] = []
    line_of_id: dict[str, int] = {}
    for number, line in enumerate(lines[first_row:], start=first_row + 1):
        fields = line.split("\t")
        if len(fields) != len(header):
            raise UserError(
                f"{path} line {number}: found {len(fields)} columns, expected {len(header)} "
                f"({', '.join(header)}); export the file again as the GLUE release has it"
            )
        if task.id_column is not None:
            identity = fields[header.index(task.id_column)]
            if identity in line_of_id:
                raise UserError(
                    f"{path} line {number}: {task.id_column} {identity!r} stands in line "
                    f"{line_of_id[identity]} already, expected each once; remove one of them"
                )
            line_of_id[identity] = number
        for column, name in zip(texts, task.text_columns, strict=True):
            column.append(fields[header.index(name)])
        labels.append(_read_label(path, number, fields[header.index(task.label_column)], task))
    if not labels:
        raise UserError(f"{path} has a header and no examples; give a file with examples")
    return GlueExamples(
        example_ids=[f"{task.name}/{split}/{row}" for row in range(len(labels))],
        first_texts=texts[0],
        second_texts=texts[1] if len(texts) == 2 else None,
        labels=np.array(labels, np.float32),
    )


def _read_header(path: PathLike, line: str, task: GlueTask) -> list[str]:
    """The names of the columns; a file may have more than the task's, in any order."""
    if not task.header:
        return list(task.columns)
    header = line.split("\t")
    needed = (*task.text_columns, task.label_column, *filter(None, [task.id_column]))
    missing = [name for name in needed if header.count(name) != 1]
    if missing:
        raise UserError(
            f"{path} line 1: found the columns {', '.join(header)}, expected {', '.join(task.columns)} "
            f"(lacking {', '.join(missing)}); export the file again as the GLUE release has it"
        )
    return header


def _read_label(path: PathLike, number: int, text: str, task: GlueTask) -> float:
    if task.labels is not None:
        if text not in task.labels:
            raise UserError(
                f"{path} line {number}: found label {text!r}, expected one of "
                f"{', '.join(task.labels)}; correct the line, or give finetune.labels for a task of "
                "your own"
            )
        return float(task.labels.index(text))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(
            f"{path} line {number}: found score {text!r}, expected a number; correct it"
        )
    return value
