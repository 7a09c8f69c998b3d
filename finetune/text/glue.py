"""The tasks of the GLUE benchmark (Wang et al. 2019): a table of text tasks.

Per task: layout of the release's TSV files, label names there and in TensorFlow Datasets, and metrics.
"""

from __future__ import annotations

from multiberts.finetune.task import DataArguments, NewDataArguments, Task
from multiberts.finetune.text.challenge_sets import AX
from multiberts.finetune.text.data import TextData, TextOptions, new_texts, text_data
from multiberts.finetune.text.task import (
    ENTAILMENT_LABELS,
    NLI_LABELS,
    REGRESSION_METRICS,
    GlueDataset,
    TaskFiles,
    TextTask,
)
from multiberts.runs.errors import UserError

_NUMBERED = TaskFiles(id_column="index")
_TASKS = (
    TextTask(
        "CoLA",
        labels=("0", "1"),
        text_columns=("sentence",),
        metrics=("matthews", "accuracy"),
        files=TaskFiles(header=("source", "label", "original_label", "sentence")),
        dataset=GlueDataset("cola", labels=("unacceptable", "acceptable")),
        num_examples=(8_551, 1_043),
    ),
    TextTask(
        "SST-2",
        labels=("0", "1"),
        text_columns=("sentence",),
        dataset=GlueDataset("sst2", labels=("negative", "positive")),
        num_examples=(67_349, 872),
    ),
    TextTask(
        "RTE",
        labels=ENTAILMENT_LABELS,
        files=_NUMBERED,
        dataset=GlueDataset("rte", numbers=("0", "1")),
        num_examples=(2_490, 277),
    ),
    TextTask(
        "MRPC",
        labels=("0", "1"),
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        metrics=("accuracy", "f1"),
        is_paraphrase=True,
        dataset=GlueDataset(
            "mrpc",
            texts=("sentence1", "sentence2"),
            labels=("not_equivalent", "equivalent"),
            # TensorFlow Datasets numbers the rows of one file, which GLUE split into train and dev.
            rows_are_ranks=True,
        ),
        num_examples=(3_668, 408),
    ),
    TextTask(
        "QNLI",
        labels=ENTAILMENT_LABELS,
        text_columns=("question", "sentence"),
        files=_NUMBERED,
        dataset=GlueDataset("qnli", numbers=("0", "1")),
        num_examples=(104_743, 5_463),
    ),
    TextTask(
        "QQP",
        labels=("0", "1"),
        text_columns=("question1", "question2"),
        label_column="is_duplicate",
        metrics=("accuracy", "f1"),
        is_paraphrase=True,
        # TensorFlow Datasets also leaves out the incomplete rows, as corrupted.
        files=TaskFiles(id_column="id", test_id_column="id", drops_incomplete_rows=True),
        dataset=GlueDataset("qqp", labels=("not_duplicate", "duplicate")),
        num_examples=(363_846, 40_430),
    ),
    TextTask(
        "STS-B",
        labels=None,
        label_column="score",
        metrics=REGRESSION_METRICS,
        files=_NUMBERED,
        dataset=GlueDataset("stsb"),
        num_examples=(5_749, 1_500),
    ),
    TextTask(
        "WNLI",
        labels=("0", "1"),
        files=_NUMBERED,
        dataset=GlueDataset("wnli", labels=("not_entailment", "entailment")),
        num_examples=(635, 71),
    ),
    TextTask(
        "MNLI",
        labels=NLI_LABELS,
        label_column="gold_label",
        files=TaskFiles(
            id_column="index",
            dev_split="dev_matched",
            further_dev_splits=("dev_mismatched",),
            test_splits=("test_matched", "test_mismatched"),
        ),
        dataset=GlueDataset("mnli", texts=("premise", "hypothesis"), numbers=("2", "0", "1")),
        num_examples=(392_702, 19_647),
    ),
)
GLUE_TASKS = {task.name: task for task in _TASKS}


def _data(arguments: DataArguments) -> TextData:
    task = GLUE_TASKS[arguments.task]
    labels = arguments.labels
    if labels is not None and tuple(labels) != task.labels:
        raise UserError(
            f"labels of task {task.name} are {list(labels)}, expected {task.labels}; "
            "leave finetune.labels out or choose another task name"
        )
    return text_data(task, arguments)


def _new_texts(arguments: NewDataArguments) -> TextData:
    return new_texts(GLUE_TASKS[arguments.task], arguments)


def _refused_ax(_arguments: DataArguments) -> TextData:
    raise UserError(
        "task AX has no training data: it is answered by a model of MNLI; train task MNLI with "
        'finetune.evaluation_files = {"ax": "the file"}'
    )


TASKS: tuple[Task, ...] = (
    *(
        Task(
            name=task.name,
            data=_data,
            new_data=_new_texts,
            settings=TextOptions,
            num_train_examples=task.num_examples[0],
            num_dev_examples=task.num_examples[1],
        )
        for task in _TASKS
    ),
    Task(name=AX.name, data=_refused_ax),
)
