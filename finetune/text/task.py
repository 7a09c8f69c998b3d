"""Text tasks: layout of their files, sources of their sets, and the examples that readers return.

GLUE (`text.glue`) is a table of them; users define others (`text.user_tasks`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from multiberts.evaluate.prediction_files.prediction_file import is_column_name
from multiberts.runs.errors import UserError

ENTAILMENT_LABELS = ("entailment", "not_entailment")
NLI_LABELS = ("contradiction", "entailment", "neutral")
REGRESSION_METRICS = ("pearson", "spearman", "mse")
CLASSIFICATION, REGRESSION = "classification", "regression"
MULTI_LABEL, TOKENS = "multi_label_classification", "token_classification"


@dataclasses.dataclass(frozen=True)
class TaskFiles:
    """The files of a task.

    Attributes:
      id_column: optional column of unique ids in labelled files, or None.
      header: column names of labelled files without a header; None: the first line is the header.
      test_id_column: column that numbers the rows of unlabelled files from 0, or None.
      dev_split: name of the file of the set `dev`.
      further_dev_splits: other labelled evaluation files.
      test_splits: unlabelled files, which always have a header.
      drops_incomplete_rows: whether to drop rows with missing columns, known faults of the release;
        other rows keep their numbers.
    """

    id_column: str | None = None
    header: tuple[str, ...] | None = None
    test_id_column: str | None = "index"
    dev_split: str = "dev"
    further_dev_splits: tuple[str, ...] = ()
    test_splits: tuple[str, ...] = ("test",)
    drops_incomplete_rows: bool = False


@dataclasses.dataclass(frozen=True)
class GlueDataset:
    """A task among the `glue` data sets of TensorFlow Datasets.

    Attributes:
      name: the task's name there; None: the task is missing there.
      texts: text features; None: same names as the files' columns.
      labels: label names in the order of the task's; None: the same names.
      numbers: class numbers of the Hub's `glue` in the order of the task's labels, if these are names.
      rows_are_ranks: whether a row's number is its rank by `idx`, not `idx`.
    """

    name: str | None = None
    texts: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    numbers: tuple[str, ...] = ()
    rows_are_ranks: bool = False


@dataclasses.dataclass(frozen=True)
class TextTask:
    """Single texts or pairs with a class, a number, a set of labels, or a tag per word.

    Attributes:
      name: the task's name in example ids.
      labels: label names in the order of the classes; None for a regression.
      text_columns: the one or two text columns.
      metrics: names in evaluate.metrics.register, the first one is the task's score.
      kind: `classification`, including regression; `multi_label_classification`, any number of labels per
        text; or `token_classification`, a tag per word.
      class_weights: loss weights of the classes, or `balanced`: inverse to their numbers of training
        examples; None: one.
      pos_weight: for sets of labels, loss weights of present labels, or `balanced`: the ratio of training
        examples without and with the label; None: one.
      is_paraphrase: whether class 1 means that two texts are paraphrases.
      num_examples: sizes of the published training set, and of the labelled evaluation sets.
    """

    name: str
    labels: tuple[str, ...] | None
    text_columns: tuple[str, ...] = ("sentence1", "sentence2")
    label_column: str = "label"
    metrics: tuple[str, ...] = ("accuracy",)
    kind: Literal["classification", "multi_label_classification", "token_classification"] = (
        "classification"
    )
    class_weights: tuple[float, ...] | Literal["balanced"] | None = None
    pos_weight: tuple[float, ...] | Literal["balanced"] | None = None
    is_paraphrase: bool = False
    files: TaskFiles = TaskFiles()
    dataset: GlueDataset = GlueDataset()
    num_examples: tuple[int | None, int | None] = (None, None)

    @property
    def dataset_texts(self) -> tuple[str, ...]:
        return self.dataset.texts or self.text_columns

    @property
    def text_names(self) -> tuple[str, ...]:
        """Returns the names of the texts in prediction files: the data set's names if they are valid."""
        if all(map(is_column_name, self.dataset_texts)):
            return self.dataset_texts
        return ("text", "second_text")[: len(self.dataset_texts)]

    @property
    def head_kind(self) -> str:
        """Returns the kind of the head, see `bert.checkpoint.fine_tuned.TaskHead`."""
        return REGRESSION if self.labels is None else self.kind

    @property
    def has_texts(self) -> bool:
        """Returns whether answers are written as texts: sets of labels, or tags."""
        return self.kind != "classification"

    @property
    def num_outputs(self) -> int:
        """Number of classes, or 1 for a regression."""
        return 1 if self.labels is None else len(self.labels)


def table_task(
    name: str,
    labels: Sequence[str] | None,
    text_columns: Sequence[str] = TextTask.text_columns,
    label_column: str = TextTask.label_column,
) -> TextTask:
    """Returns a task of single texts or pairs in a table with named columns.

    Pairs in the default columns may have GLUE's column `index`.

    Args:
      labels: names of the classes; None for a regression.
      text_columns: one or two names.

    Examples:
      >>> table_task("reviews", ["bad", "good"], ["text"]).num_outputs
      2
    """
    if labels is not None and (len(labels) < 2 or len(set(labels)) != len(labels)):
        raise UserError(
            f"labels of task {name} are {list(labels)}, expected two or more different ones"
        )
    texts = tuple(text_columns)
    if len(texts) not in (1, 2) or len({*texts, label_column}) != len(texts) + 1:
        raise UserError(
            f"task {name} has text_columns {list(texts)} and label_column {label_column!r}; give one "
            "or two columns with text and another one with the label"
        )
    is_numbered = (texts, label_column) == (TextTask.text_columns, TextTask.label_column)
    return TextTask(
        name,
        None if labels is None else tuple(labels),
        texts,
        label_column,
        REGRESSION_METRICS if labels is None else TextTask.metrics,
        files=TaskFiles(
            id_column="index" if is_numbered and labels is not None else None,
            test_id_column="index" if is_numbered else None,
        ),
    )


Merge = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class TextExamples:
    """The examples of one set.

    Attributes:
      example_ids: ids that are stable across runs, such as `<task>/<split>/<row>`.
      first_texts: single texts, or first texts of pairs.
      second_texts: second texts of pairs, or None.
      labels: float32 [examples]: class numbers, or values of a regression; [examples, classes] for sets of
        labels, [examples, most words] for tags; None where unpublished, as in GLUE's test sets.
      extras: further columns that describe the examples, as in evaluate.prediction_files.predictions.
      remarks: messages about rows that were left out.
    """

    example_ids: list[str]
    first_texts: list[str]
    second_texts: list[str] | None
    labels: np.ndarray | None
    extras: Mapping[str, list[str]] = dataclasses.field(default_factory=dict)
    words: list[list[str]] | None = None
    remarks: tuple[str, ...] = ()


class TextReader(Protocol):
    """Reads one set; equal readers return the same examples from the same files."""

    def __call__(self, files: tuple[Path, ...], name: str, /) -> TextExamples:
        """Reads the files of the set `name`."""
        ...

    def __hash__(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class TextSource:
    """The files and the reader of one set of texts.

    Attributes:
      name: the set's name: `train`, `dev`, `dev_mismatched`, `test`, `hans`, ...
      metrics: names in evaluate.metrics.register, the main one first, used if the set has labels.
      merge: the model's outputs that each class of the set combines; None if the classes are the model's.
    """

    name: str
    files: tuple[Path, ...]
    reader: TextReader
    metrics: tuple[str, ...]
    merge: Merge | None = None

    def read(self) -> TextExamples:
        return self.reader(self.files, self.name)


def outcome(
    logits: np.ndarray, *, regression: bool, merge: Merge | None
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Returns a prediction file's columns for a model's logits on a set.

    If the set has other classes than the model, the answer is the class of the most likely output (McCoy
    et al. 2019, section 4.2: neutral and contradiction count as non-entailment). The scores are then
    logits of the summed probabilities, whose maximum may be another class; the model's logits are
    returned, too.

    Args:
      logits: scores of the model, float32 [examples, outputs].
      regression: whether the only output is a number.
      merge: see `TextSource`.

    Returns:
      predictions [examples]; scores float32 [examples, classes]; further columns float32 [examples]:
      `logit_0`, `logit_1`, ... if classes were merged.
    """
    if regression:
        return logits[:, 0], logits, {}
    chosen = logits.argmax(axis=1)
    if merge is None:
        return chosen, logits, {}
    class_of = np.empty(logits.shape[1], np.int64)
    for number, outputs in enumerate(merge):
        class_of[list(outputs)] = number
    scores = np.stack(
        [np.logaddexp.reduce(logits[:, list(outputs)], axis=1) for outputs in merge], axis=1
    )
    columns = {f"logit_{number}": logits[:, number] for number in range(logits.shape[1])}
    return class_of[chosen], scores.astype(np.float32), columns
