"""The tasks of the GLUE benchmark (Wang et al. 2019), and sentences or pairs of the user's own.

A table: which columns the release's TSV files have, what the labels are called there and in
TensorFlow Datasets, and how a task is scored. `glue_readers` reads by it. A task of the user's own in
the layout of RTE (index, sentence1, sentence2, label) needs no entry: any other task name with its
`labels` defines one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from multiberts.evaluate.dumps.prediction_file import is_column_name
from multiberts.runs.errors import UserError

MULTI_LABEL, TOKENS = "multi_label_classification", "token_classification"


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """What one task's files hold.

    Attributes:
      name: the task's name, as in example ids.
      columns: the columns of a labelled file; those of a file without a header in their order.
      text_columns: the one or two columns with the text.
      label_column: the column with the label.
      labels: the label names in the order of the classes; None for a regression.
      metrics: names in evaluate.metrics.register, the first one being the task's score.
      num_examples: in the released training set, and in the labelled sets for evaluation.
      id_column: a column whose values must not repeat, or None.
      header: whether the first line of a labelled file names the columns.
      test_columns: the columns of a test file, which has no labels but always a header; its first
        column numbers the rows from 0.
      dev_split: the name of the file that the set `dev` is read from.
      further_dev_splits: other labelled files for evaluation.
      test_splits: files without labels.
      drops_incomplete_rows: whether rows with fewer columns are known faults of the release and are
        left out; their numbers are not given to others.
      dataset: the task's name among the `glue` data sets of TensorFlow Datasets; None: it is not there.
      dataset_texts: the features there with the texts.
      dataset_labels: the label names there, in the order of `labels`.
      dataset_rows_are_ranks: whether the number of a row is its rank there, and not its `idx`.
      class_weights: by which the losses of the classes' examples are multiplied, or `balanced`, for
        weights inverse to their numbers of training examples; None: one.
      kind: `classification`, a regression among it; `multi_label_classification`, any number of labels for
        each text; or `token_classification`, a tag for each word.
    """

    name: str
    columns: tuple[str, ...]
    text_columns: tuple[str, ...]
    label_column: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    num_examples: tuple[int | None, int | None] = (None, None)
    id_column: str | None = None
    header: bool = True
    test_columns: tuple[str, ...] = ("index", "sentence1", "sentence2")
    dev_split: str = "dev"
    further_dev_splits: tuple[str, ...] = ()
    test_splits: tuple[str, ...] = ("test",)
    drops_incomplete_rows: bool = False
    dataset: str | None = None
    dataset_texts: tuple[str, ...] = ("sentence1", "sentence2")
    dataset_labels: tuple[str, ...] = ()
    dataset_rows_are_ranks: bool = False
    class_weights: tuple[float, ...] | Literal["balanced"] | None = None
    kind: Literal["classification", "multi_label_classification", "token_classification"] = (
        "classification"
    )

    @property
    def text_names(self) -> tuple[str, ...]:
        """Returns how a dump calls the texts: as the data set does, where it can."""
        if all(map(is_column_name, self.dataset_texts)):
            return self.dataset_texts
        return ("text", "second_text")[: len(self.dataset_texts)]

    @property
    def head_kind(self) -> str:
        """Returns the kind of the head, as in `bert.checkpoint.fine_tuned.TaskHead`."""
        return "regression" if self.labels is None else self.kind

    @property
    def has_texts(self) -> bool:
        """Returns whether answers are texts: sets of labels, or tags."""
        return self.kind != "classification"

    @property
    def num_outputs(self) -> int:
        """Classes, or 1 for a regression."""
        return 1 if self.labels is None else len(self.labels)


def pair_task(name: str, labels: Sequence[str]) -> GlueTask:
    """Returns a sentence-pair classification in the layout of RTE.

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
        dataset_labels=tuple(labels),
    )


def own_layout(
    name: str, labels: Sequence[str] | None, text_columns: Sequence[str], label_column: str
) -> GlueTask:
    """Returns a task of the user's own, of single texts or pairs in a table with named columns.

    Args:
      name: of the task.
      labels: names of the classes; None for a regression.
      text_columns: one or two names.
      label_column: its name.

    Raises:
      UserError: unfit labels, or columns that are none, too many or repeated.
    """
    if labels is None:
        pair = dataclasses.replace(
            pair_task(name, NLI_LABELS),
            labels=None, metrics=STS_B.metrics, id_column=None, dataset_labels=(),
        )  # fmt: skip
    else:
        pair = pair_task(name, labels)
    texts = tuple(text_columns)
    if (texts, label_column) == (pair.text_columns, pair.label_column):
        return pair
    if len(texts) not in (1, 2) or len({*texts, label_column}) != len(texts) + 1:
        raise UserError(
            f"task {name} has text_columns {list(texts)} and label_column {label_column!r}; give one "
            "or two columns with text and another one with the label"
        )
    return dataclasses.replace(
        pair,
        columns=(*texts, label_column),
        text_columns=texts,
        label_column=label_column,
        id_column=None,
        test_columns=texts,
        dataset_texts=texts,
    )


ENTAILMENT_LABELS = ("entailment", "not_entailment")
NLI_LABELS = ("contradiction", "entailment", "neutral")
_STS_COLUMNS = ("index", "genre", "filename", "year", "old_index", "source1", "source2")

COLA = GlueTask(
    name="CoLA",
    columns=("source", "label", "original_label", "sentence"),
    text_columns=("sentence",),
    label_column="label",
    labels=("0", "1"),
    metrics=("matthews", "accuracy"),
    num_examples=(8_551, 1_043),
    header=False,
    test_columns=("index", "sentence"),
    dataset="cola",
    dataset_texts=("sentence",),
    dataset_labels=("unacceptable", "acceptable"),
)

SST_2 = GlueTask(
    name="SST-2",
    columns=("sentence", "label"),
    text_columns=("sentence",),
    label_column="label",
    labels=("0", "1"),
    metrics=("accuracy",),
    num_examples=(67_349, 872),
    test_columns=("index", "sentence"),
    dataset="sst2",
    dataset_texts=("sentence",),
    dataset_labels=("negative", "positive"),
)

MRPC = GlueTask(
    name="MRPC",
    columns=("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    text_columns=("#1 String", "#2 String"),
    label_column="Quality",
    labels=("0", "1"),
    metrics=("accuracy", "f1"),
    num_examples=(3_668, 408),
    test_columns=("index", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    dataset="mrpc",
    dataset_labels=("not_equivalent", "equivalent"),
    # There train and dev number the rows of the one file that GLUE split into the two.
    dataset_rows_are_ranks=True,
)

QQP = GlueTask(
    name="QQP",
    columns=("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
    text_columns=("question1", "question2"),
    label_column="is_duplicate",
    labels=("0", "1"),
    metrics=("accuracy", "f1"),
    num_examples=(363_846, 40_430),
    id_column="id",
    test_columns=("id", "question1", "question2"),
    # TensorFlow Datasets calls these rows corrupted and leaves them out as well.
    drops_incomplete_rows=True,
    dataset="qqp",
    dataset_texts=("question1", "question2"),
    dataset_labels=("not_duplicate", "duplicate"),
)

STS_B = GlueTask(
    name="STS-B",
    columns=(*_STS_COLUMNS, "sentence1", "sentence2", "score"),
    text_columns=("sentence1", "sentence2"),
    label_column="score",
    labels=None,
    metrics=("pearson", "spearman", "mse"),
    num_examples=(5_749, 1_500),
    id_column="index",
    test_columns=(*_STS_COLUMNS, "sentence1", "sentence2"),
    dataset="stsb",
)

QNLI = GlueTask(
    name="QNLI",
    columns=("index", "question", "sentence", "label"),
    text_columns=("question", "sentence"),
    label_column="label",
    labels=ENTAILMENT_LABELS,
    metrics=("accuracy",),
    num_examples=(104_743, 5_463),
    id_column="index",
    test_columns=("index", "question", "sentence"),
    dataset="qnli",
    dataset_texts=("question", "sentence"),
    dataset_labels=ENTAILMENT_LABELS,
)

RTE = dataclasses.replace(
    pair_task("RTE", ENTAILMENT_LABELS), num_examples=(2_490, 277), dataset="rte"
)

WNLI = dataclasses.replace(
    pair_task("WNLI", ("0", "1")),
    num_examples=(635, 71),
    dataset="wnli",
    dataset_labels=("not_entailment", "entailment"),
)

MNLI = GlueTask(
    name="MNLI",
    columns=("index", "sentence1", "sentence2", "gold_label"),
    text_columns=("sentence1", "sentence2"),
    label_column="gold_label",
    labels=NLI_LABELS,
    metrics=("accuracy",),
    num_examples=(392_702, 19_647),
    id_column="index",
    dev_split="dev_matched",
    further_dev_splits=("dev_mismatched",),
    test_splits=("test_matched", "test_mismatched"),
    dataset="mnli",
    dataset_texts=("premise", "hypothesis"),
    dataset_labels=NLI_LABELS,
)

# The diagnostic set: it has a test file only, and a model of MNLI answers it.
AX = dataclasses.replace(
    MNLI,
    name="AX",
    metrics=("matthews", "accuracy"),
    num_examples=(None, None),
    further_dev_splits=(),
    test_splits=("test",),
    dataset="ax",
)

GLUE_TASKS: dict[str, GlueTask] = {
    task.name: task for task in (COLA, SST_2, RTE, MRPC, QNLI, QQP, STS_B, WNLI, MNLI)
}
