"""Further evaluation sets, by name: the beginning of a set's name says how its file is read.

    hans*                             HANS, for models of inference
    snli*, multinli*, stress*         SNLI, MultiNLI, NLI stress tests, for models of inference
    twitter_ppdb*, paws*              for models of MRPC and QQP
    ax                                GLUE's diagnostic set, for models of MNLI
    test, dev_mismatched, ...         a split of the task, in its own layout
    any other                         labelled examples in the task's own layout

So `{"hans": ..., "snli_dev": ..., "snli_test": ...}` are three sets with two readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from multiberts.finetune.classification.glue import AX, NLI_LABELS, GlueTask
from multiberts.finetune.classification.glue_datasets import SPLITS, GlueDatasetReader
from multiberts.finetune.classification.glue_tsv import GlueTsvReader
from multiberts.finetune.classification.hans import HansReader
from multiberts.finetune.classification.nli_labels import three_way_classes, two_way_merge
from multiberts.finetune.classification.nli_pairs import NliReader
from multiberts.finetune.classification.paraphrase_pairs import PawsReader, TwitterReader
from multiberts.finetune.text_examples import TextReader, TextSource
from multiberts.runs.errors import UserError

DATASET_PREFIX = "tfds:"
_SET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PARAPHRASE_METRICS = ("accuracy", "f1")


def evaluation_sources(
    task: GlueTask, files: Mapping[str, str], datasets_dir: str | None
) -> tuple[TextSource, ...]:
    """The sets that a user gives beside the task's own.

    Args:
      task: the task that the model is trained on.
      files: the file of each set by the set's name, in the order of the dumps; in place of a file
        `tfds:<dataset>` for sets in the task's own layout and for `ax`; a folder for `stress`.
      datasets_dir: where prepared datasets lie; None: where TensorFlow Datasets keeps them.

    Raises:
      UserError: a file is missing, a name cannot be one, or a set does not fit the task.
    """
    sources: list[TextSource] = []
    for name, path in files.items():
        if not _SET_NAME.fullmatch(name):
            raise UserError(
                f"finetune.evaluation_files names a set {name!r}; give letters, digits, _, - and ."
            )
        if name.startswith("stress") and Path(path).is_dir():
            sources.extend(_stress_sources(task, name, Path(path)))
        else:
            sources.append(_source(task, name, path, datasets_dir))
    return tuple(sources)


def _source(task: GlueTask, name: str, path: str, datasets_dir: str | None) -> TextSource:
    make = next((make for kind, make in _KINDS.items() if name.startswith(kind)), None)
    if make is None:
        return _own_layout(task, name, path, datasets_dir)
    if path.startswith(DATASET_PREFIX):
        raise UserError(f"evaluation set {name} is {path!r}, but it is read from a file; give that")
    return make(task, name, _existing(name, path))


def _own_layout(task: GlueTask, name: str, path: str, datasets_dir: str | None) -> TextSource:
    """A set in the task's own layout; `ax` in that of its own."""
    is_ax = name == AX.name.lower()
    if is_ax and task.labels != NLI_LABELS:
        raise UserError(
            f"evaluation set ax is for a model of MNLI, and task {task.name} has other labels; leave "
            "it out of finetune.evaluation_files"
        )
    layout, split = (AX, "test") if is_ax else (task, name)
    if path.startswith(DATASET_PREFIX):
        dataset, _, given = path.removeprefix(DATASET_PREFIX).partition(":")
        if not given and split not in SPLITS:
            raise UserError(
                f"evaluation set {name} is {path!r}, which says no split; write {path}:validation"
            )
        reader = GlueDatasetReader(dataset, datasets_dir, layout, split, given or None)
        return dataset_source(reader, name)
    return file_source(layout, split, _existing(name, path), name)


def file_source(task: GlueTask, split: str, path: Path, name: str) -> TextSource:
    """A TSV file of a task as the set `name`."""
    return TextSource(name, (path,), GlueTsvReader(task, split), task.metrics)


def dataset_source(reader: GlueDatasetReader, name: str) -> TextSource:
    """A split of a dataset as the set `name`; the dataset is prepared if need be.

    Raises:
      UserError: it cannot be opened.
    """
    return TextSource(name, reader.open().files, reader, reader.task.metrics)


def _existing(name: str, path: str) -> Path:
    if not Path(path).is_file():
        raise UserError(
            f"{path}, evaluation set {name}, does not exist or is no file; check the path"
        )
    return Path(path)


def _stress_sources(task: GlueTask, name: str, folder: Path) -> list[TextSource]:
    """Every `.jsonl` file below the folder of the NLI stress tests as a set of its own."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.jsonl*")):
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        set_name = f"{name}_{stem.removeprefix('multinli_0.9_')}"
        if set_name in found:
            raise UserError(
                f"{found[set_name]} and {path} would both be the evaluation set {set_name}; give them "
                "one by one in finetune.evaluation_files"
            )
        found[set_name] = path
    if not found:
        raise UserError(f"{folder} has no .jsonl files; give the folder of the NLI stress tests")
    return [_nli(task, set_name, path) for set_name, path in found.items()]


def _hans(task: GlueTask, name: str, path: Path) -> TextSource:
    return TextSource(name, (path,), HansReader(), ("accuracy",), two_way_merge(task, name))


def _nli(task: GlueTask, name: str, path: Path) -> TextSource:
    reader = NliReader(tuple(three_way_classes(task, name).items()))
    return TextSource(name, (path,), reader, ("accuracy",))


def _paraphrase(reader: TextReader) -> Callable[[GlueTask, str, Path], TextSource]:
    def make(task: GlueTask, name: str, path: Path) -> TextSource:
        if task.name not in ("MRPC", "QQP"):
            raise UserError(
                f"evaluation set {name} is for models of MRPC or QQP, and the task is {task.name}; "
                "leave it out of finetune.evaluation_files"
            )
        return TextSource(name, (path,), reader, _PARAPHRASE_METRICS)

    return make


_KINDS: dict[str, Callable[[GlueTask, str, Path], TextSource]] = {
    "hans": _hans,
    "snli": _nli,
    "multinli": _nli,
    "stress": _nli,
    "twitter_ppdb": _paraphrase(TwitterReader()),
    "paws": _paraphrase(PawsReader()),
}
