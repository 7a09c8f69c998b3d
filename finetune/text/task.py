"""Tasks of texts: their files' layout, the sets that they are read from, and what a reader returns.

GLUE (`text.glue`) is a table of them; a task of the user's own (`text.user_tasks`) is one more.
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
      id_column: a column of labelled files whose values must not repeat where it is there, or None.
      header: the columns of labelled files without a line that names them; None: the first line does.
      test_id_column: one that numbers the rows of a file without labels from 0, or None.
      dev_split: the name of the file that the set `dev` is read from.
      further_dev_splits: other labelled files for evaluation.
      test_splits: files without labels, but always with a line that names the columns.
      drops_incomplete_rows: whether rows with fewer columns are known faults of the release and are
        left out; their numbers are not given to others.
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
      name: the task's there; None: it is not there.
      texts: the features with the texts; None: they are called as the files' columns.
      labels: the label names in the order of the task's; None: they are the same.
      numbers: the class numbers of the Hub's `glue` in the order of the task's labels, where these are names.
      rows_are_ranks: whether the number of a row is its rank there, and not its `idx`.
    """

    name: str | None = None
    texts: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    numbers: tuple[str, ...] = ()
    rows_are_ranks: bool = False


@dataclasses.dataclass(frozen=True)
class TextTask:
    """Single texts or pairs with a class, a number, a set of labels, or a tag for each word.

    Attributes:
      name: the task's name, as in example ids.
      labels: the label names in the order of the classes; None for a regression.
      text_columns: the one or two columns with the text.
      metrics: names in evaluate.metrics.register, the first one being the task's score.
      kind: `classification`, a regression among it; `multi_label_classification`, any number of labels for
        each text; or `token_classification`, a tag for each word.
      class_weights: by which the losses of the classes' examples are multiplied, or `balanced`, for
        weights inverse to their numbers of training examples; None: one.
      pos_weight: of sets of labels, by which a label's loss is multiplied where it is there, or `balanced`:
        the number of training examples without it for each one with it; None: one.
      is_paraphrase: whether class 1 means that two texts say the same.
      num_examples: in the published training set, and in the labelled sets for evaluation.
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
        """Returns how a prediction file calls the texts: as the data set does, where it can."""
        if all(map(is_column_name, self.dataset_texts)):
            return self.dataset_texts
        return ("text", "second_text")[: len(self.dataset_texts)]

    @property
    def head_kind(self) -> str:
        """Returns the kind of the head, as in `bert.checkpoint.fine_tuned.TaskHead`."""
        return REGRESSION if self.labels is None else self.kind

    @property
    def has_texts(self) -> bool:
        """Returns whether answers are texts: sets of labels, or tags."""
        return self.kind != "classification"

    @property
    def num_outputs(self) -> int:
        """Classes, or 1 for a regression."""
        return 1 if self.labels is None else len(self.labels)


def table_task(
    name: str,
    labels: Sequence[str] | None,
    text_columns: Sequence[str] = TextTask.text_columns,
    label_column: str = TextTask.label_column,
) -> TextTask:
    """Returns a task of single texts or pairs in a table with named columns.

    Pairs in the default columns may be numbered in a column `index`, as GLUE's are.

    Args:
      labels: names of the classes; None for a regression.
      text_columns: one or two names.

    Example:
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
      example_ids: stable across runs, such as `<task>/<split>/<row>`.
      first_texts: the single text, or the first of the pair.
      second_texts: the second of the pair, or None.
      labels: float32 [examples]: class numbers, or the values of a regression; [examples, classes] of sets
        of labels, [examples, most words] of tags; None where they are not published, as GLUE's
        test sets.
      extras: further columns that describe the examples, as in evaluate.prediction_files.predictions.
      remarks: one line each about what was left out, for the user to see.
    """

    example_ids: list[str]
    first_texts: list[str]
    second_texts: list[str] | None
    labels: np.ndarray | None
    extras: Mapping[str, list[str]] = dataclasses.field(default_factory=dict)
    words: list[list[str]] | None = None
    remarks: tuple[str, ...] = ()


class TextReader(Protocol):
    """Reads one set; two equal readers return the same examples from the same files."""

    def __call__(self, files: tuple[Path, ...], name: str, /) -> TextExamples:
        """Reads the files of the set `name`."""
        ...

    def __hash__(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Where one set of texts lies and how it is read.

    Attributes:
      name: the set's name: `train`, `dev`, `dev_mismatched`, `test`, `hans`, ...
      metrics: names in evaluate.metrics.register, the main one first; they score it if it has labels.
      merge: for each class of the set the model's outputs that it combines; None where the classes are
        the model's own.
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
    """Returns what a prediction file holds for a model's logits on a set.

    Where the set has other classes than the model, the most likely output decides, and the answer is
    the class it belongs to (McCoy et al. 2019, section 4.2: neutral and contradiction count as
    non-entailment). The scores are then logits of the summed probabilities, so their largest is not
    always the answer; the model's own logits are kept too.

    Args:
      logits: float32 [examples, outputs].
      regression: whether the only output is a number.
      merge: as in `TextSource`.

    Returns:
      predictions [examples]; scores float32 [examples, classes]; further columns float32 [examples]:
      `logit_0`, `logit_1`, ... where classes were merged.
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
