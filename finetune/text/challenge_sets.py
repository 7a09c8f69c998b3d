"""Further evaluation sets: the prefix of a set's name determines its reader.

    hans*                             HANS, for models of inference
    snli*, multinli*, stress*         SNLI, MultiNLI, NLI stress tests, for models of inference
    twitter_ppdb*, paws*              for models of paraphrases
    ax                                GLUE's diagnostic set, for models of inference with three labels
    test, dev_mismatched, ...         a split of the task, in its own layout
    any other                         labelled examples in the task's own layout

So `{"hans": ..., "snli_dev": ..., "snli_test": ...}` are three sets with two readers.

References: McCoy et al. 2019 (HANS); Bowman et al. 2015, section 2.3 (SNLI; the label `-` means that
annotators did not agree); Williams et al. 2018 (MultiNLI); Naik et al. 2018 (stress tests); Lan et al.
2017 (Twitter URL corpus, TwitterPPDB); Zhang et al. 2019 (PAWS).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from multiberts.finetune.data_files import DATASET_PREFIX, SPLITS
from multiberts.finetune.text.readers import DatasetReader, TableReader
from multiberts.finetune.text.task import (
    ENTAILMENT_LABELS,
    NLI_LABELS,
    GlueDataset,
    TaskFiles,
    TextExamples,
    TextSource,
    TextTask,
)
from multiberts.runs.errors import UserError
from multiberts.runs.tables import read_rows, table_files

_LEAVE_OUT = "leave it out of finetune.evaluation_files"
# Class numbers of sets with two classes of inference.
TWO_WAY = {"non-entailment": 0, "entailment": 1}


@dataclasses.dataclass(frozen=True)
class PairReader:
    """Reads one file of pairs; ids are `<set>/<id>`, or `<set>/<row>` counted from 0.

    Attributes:
      published_as: the data set's name, for messages.
      classes: class number of each label; pairs with a label of class None are left out.
      id_column: column of unique ids; None: all pairs are numbered, before any is left out.
      label_column: column of labels; spaces in labels are ignored.
      header: column names of a file without a header; None: the first line is the header.
      extras: further columns that describe the pairs.
      left_out: reason for leaving pairs out, for messages.
    """

    published_as: str
    classes: tuple[tuple[str, int | None], ...]
    id_column: str | None = None
    label_column: str = "gold_label"
    header: tuple[str, ...] | None = None
    extras: tuple[str, ...] = ()
    left_out: str = ""

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        """Reads the file of the set `name`."""
        (path,) = files
        classes = dict(self.classes)
        ids = [self.id_column] if self.id_column else []
        rows = list(
            read_rows(
                path,
                [*ids, self.label_column, "sentence1", "sentence2", *self.extras],
                header=self.header,
                unique=ids,
                cure=f"fetch the file again as published for {self.published_as}",
            )
        )
        for row in rows:
            row[self.label_column] = row[self.label_column].replace(" ", "")
            row.one_of(self.label_column, classes)
        labels = [classes[row[self.label_column]] for row in rows]
        labelled = [number for number, label in enumerate(labels) if label is not None]
        remark = f"left out {len(rows) - len(labelled)} of {len(rows)} pairs, {self.left_out}"
        if not labelled:
            raise UserError(f"{path}: {remark}; give a file with others")
        pairs = [rows[number] for number in labelled]
        return TextExamples(
            example_ids=[
                f"{name}/{row[self.id_column] if self.id_column else number}"
                for number, row in zip(labelled, pairs, strict=True)
            ],
            first_texts=[row["sentence1"] for row in pairs],
            second_texts=[row["sentence2"] for row in pairs],
            labels=np.array([labels[number] for number in labelled], np.float32),
            extras={column: [row[column] for row in pairs] for column in self.extras},
            remarks=(f"{path}: {remark}",) if len(labelled) < len(rows) else (),
        )


HANS = PairReader(
    "HANS", tuple(TWO_WAY.items()), id_column="pairID", extras=("heuristic", "subcase", "template")
)
PAWS = PairReader("PAWS", (("0", 0), ("1", 1)), id_column="id", label_column="label")
# Six judges per pair: four or more votes are a paraphrase, two or fewer are not (Lan et al. 2017).
TWITTER_PPDB = PairReader(
    "the Twitter URL corpus",
    tuple((f"({votes},6)", None if votes == 3 else int(votes > 3)) for votes in range(7)),
    label_column="judgement",
    header=("sentence1", "sentence2", "judgement", "url"),
    left_out="judged 3 against 3",
)


# GLUE's diagnostic set has only a test file, for models of inference.
AX = TextTask(
    "AX",
    labels=NLI_LABELS,
    metrics=("matthews", "accuracy"),
    files=TaskFiles(id_column="index"),
    label_column="gold_label",
    dataset=GlueDataset("ax", texts=("premise", "hypothesis"), numbers=("2", "0", "1")),
)


def evaluation_sources(
    task: TextTask, files: Mapping[str, str], datasets_dir: str | None
) -> tuple[TextSource, ...]:
    """Returns the user's further evaluation sets.

    Args:
      files: files by set name, in the order of the prediction files; `tfds:<dataset>` instead of a file for
        sets in the task's layout and for `ax`; a folder for `stress`.
      datasets_dir: folder of prepared datasets; None: the default of TensorFlow Datasets.
    """
    sources: list[TextSource] = []
    for name, path in files.items():
        make = next((make for kind, make in _KINDS.items() if name.startswith(kind)), None)
        if make is None:
            sources.append(_task_layout(task, name, path, datasets_dir))
        elif name.startswith("stress") and Path(path).is_dir():
            sources.extend(_stress_sources(task, name, Path(path)))
        elif path.startswith(DATASET_PREFIX):
            raise UserError(
                f"evaluation set {name} is {path!r}, but it is read from a file; give its path"
            )
        else:
            sources.append(make(task, name, _existing(name, path)))
    return tuple(sources)


def _task_layout(task: TextTask, name: str, path: str, datasets_dir: str | None) -> TextSource:
    """Returns a set in the task's layout, or `ax` in its layout."""
    is_ax = name == AX.name.lower()
    if is_ax and task.labels != NLI_LABELS:
        raise UserError(
            f"evaluation set ax is for models with the labels {', '.join(NLI_LABELS)}, and task {task.name} "
            f"has others; {_LEAVE_OUT}"
        )
    layout, split = (AX, "test") if is_ax else (task, name)
    if path.startswith(DATASET_PREFIX):
        dataset, _, dataset_split = path.removeprefix(DATASET_PREFIX).partition(":")
        if not dataset_split and split not in SPLITS:
            raise UserError(
                f"evaluation set {name} is {path!r}, which names no split; write {path}:validation"
            )
        reader = DatasetReader(dataset, datasets_dir, layout, split, dataset_split or None)
        return dataset_source(reader, name)
    is_saved = Path(path).is_dir()  # by `datasets`
    return file_source(layout, split, Path(path) if is_saved else _existing(name, path), name)


def file_source(task: TextTask, split: str, path: Path, name: str) -> TextSource:
    """Returns the set `name`, read from a table in a task's layout."""
    return TextSource(name, table_files(path), TableReader(task, split), task.metrics)


def dataset_source(reader: DatasetReader, name: str) -> TextSource:
    """Returns the set `name`, read from a split of a dataset; prepares the dataset if necessary."""
    return TextSource(name, reader.open().files, reader, reader.task.metrics)


def _existing(name: str, path: str) -> Path:
    if not Path(path).is_file():
        raise UserError(
            f"{path}, evaluation set {name}, does not exist or is not a file; check the path"
        )
    return Path(path)


def _stress_sources(task: TextTask, name: str, folder: Path) -> list[TextSource]:
    """Returns a set for every `.jsonl` file below the folder of the NLI stress tests."""
    paths: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.jsonl*")):
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        set_name = f"{name}_{stem.removeprefix('multinli_0.9_')}"
        if set_name in paths:
            raise UserError(
                f"{paths[set_name]} and {path} would both be the evaluation set {set_name}; give them "
                "one by one in finetune.evaluation_files"
            )
        paths[set_name] = path
    if not paths:
        raise UserError(f"{folder} has no .jsonl files; give the folder of the NLI stress tests")
    return [_inference(task, set_name, path) for set_name, path in paths.items()]


def _inference_labels(task: TextTask, set_name: str) -> tuple[str, ...]:
    """Returns the labels of a model of inference; refuses other tasks."""
    labels = task.labels or ()
    if set(labels) not in (set(NLI_LABELS), set(ENTAILMENT_LABELS)):
        raise UserError(
            f"evaluation set {set_name} is for models of inference, with the labels "
            f"{', '.join(NLI_LABELS)} or {', '.join(ENTAILMENT_LABELS)}, but task {task.name} has "
            f"{', '.join(labels) or 'numbers'}; {_LEAVE_OUT}"
        )
    return labels


def _hans(task: TextTask, name: str, path: Path) -> TextSource:
    """Returns HANS; its class non-entailment merges all outputs except entailment."""
    labels = _inference_labels(task, name)
    negative = tuple(number for number, label in enumerate(labels) if label != "entailment")
    merge = (negative, (labels.index("entailment"),))
    return TextSource(name, (path,), HANS, ("accuracy",), merge)


def _inference(task: TextTask, name: str, path: Path) -> TextSource:
    """Returns a three-class set (TSV or JSON lines); for two-class models neutral and contradiction merge."""
    labels = _inference_labels(task, name)
    negative = 1 - labels.index("entailment")
    classes = {label: labels.index(label) if label in labels else negative for label in NLI_LABELS}
    reader = PairReader(
        "SNLI, MultiNLI or the stress tests",
        (*classes.items(), ("-", None)),
        left_out="which have no gold label",
    )
    return TextSource(name, (path,), reader, ("accuracy",))


def _paraphrase(reader: PairReader, task: TextTask, name: str, path: Path) -> TextSource:
    if not task.is_paraphrase:
        raise UserError(
            f"evaluation set {name} is for models of paraphrases, and task {task.name} is about something "
            f"else; {_LEAVE_OUT}"
        )
    return TextSource(name, (path,), reader, ("accuracy", "f1"))


_KINDS: dict[str, Callable[[TextTask, str, Path], TextSource]] = {
    "hans": _hans,
    "snli": _inference,
    "multinli": _inference,
    "stress": _inference,
    "twitter_ppdb": functools.partial(_paraphrase, TWITTER_PPDB),
    "paws": functools.partial(_paraphrase, PAWS),
}
