"""Reads the predictions of Zhong et al. (2021): models of five sizes, ten by five seeds, four checkpoints.

In the folder of a task (mnli, qqp; for sst-2 in each of its folds):

    data.json    {"label_list": [...], "predict": [{"guid", "label", "text_a", ...}, ...], ...}
    results/s<size>p<pre-training seed>f<fine-tuning seed>epoch<n>over3.tsv
                 one row per datapoint of `predict`, one column per class of `label_list`:
                 probabilities

Source: the README of ruiqi-zhong/acl2021-instance-level. `epoch9over3` is after 9/3 epochs; training ends
after 12/3. The part of a guid before the last `-` names the datapoint's set. The label `non-entailment` of
challenge sets means any class but entailment; such sets get two classes, with entailment as 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.evaluate.imports.imported_runs import (
    STEPS,
    ImportedRun,
    ImportedSet,
    as_logits,
    facts_of,
    predictions_of,
    read_table,
)
from multiberts.evaluate.prediction_files.run_file import set_at
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, check_fields, read_json_fields

_FILE = re.compile(r"s([a-z]+)p(\d+)f(\d+)epoch(\d+)over3\.tsv(?:\.gz)?")
_THIRDS = 3
_LAST = 12
_ENTAILMENT, _NO_ENTAILMENT = "entailment", "non-entailment"
_TEXTS = ("text_a", "text_b")
_TASKS = {"mnli": "MNLI", "qqp": "QQP", "sst-2": "SST-2"}


def read_sizes(source: PathLike, task: str | None = None) -> Iterator[ImportedRun]:
    """Yields the runs of a task, by size and seeds; their procedure is the model size.

    Args:
      source: the task's folder; its folders `fold0`, `fold1` ... are combined.
      task: the task's name, by default from the folder's.
    """
    source = Path(source)
    folds = sorted(path for path in source.glob("fold*") if path.is_dir()) or [source]
    runs: dict[tuple[str, int, int], dict[int, list[Path]]] = {}
    for fold in folds:
        for path in sorted((fold / "results").glob("s*p*f*epoch*over3.tsv*")):
            matched = _FILE.fullmatch(path.name)
            if matched is None:
                raise UserError(
                    f"{path}: expected a name such as sminip1f1epoch12over3.tsv; rename or remove it"
                )
            size, seed, finetune_seed, thirds = matched[1], *map(int, matched.groups()[1:])
            files = runs.setdefault((size, seed, finetune_seed), {})
            files.setdefault(thirds, []).append(path)
    if not runs:
        raise UserError(
            f"{source} has no results/s<size>p<seed>f<seed>epoch<n>over3.tsv; give the folder of a task"
        )
    data = tuple(fold / "data.json" for fold in folds)
    name = task or _TASKS.get(source.name.lower(), source.name)
    datapoints = cache(_datapoints)  # read once for all runs, and again by the next call
    for (size, seed, finetune_seed), by_thirds in sorted(runs.items()):
        for paths in by_thirds.values():
            if len(paths) != len(folds):
                raise UserError(
                    f"{source}: {paths[0].name} is in {len(paths)} of {len(folds)} folds; fetch the others"
                )
        origin = "Zhong et al. (2021), model predictions"
        facts = facts_of(name, size, seed, finetune_seed, origin, step=STEPS)
        every = tuple(path for paths in by_thirds.values() for path in paths)
        yield ImportedRun(
            f"{name}/{size}-pretrain_seed_{seed}-finetune_seed_{finetune_seed}",
            facts,
            (*every, *data),
            partial(_read, datapoints, by_thirds, data),
        )


def _read(
    datapoints: Callable[[Path], _Datapoints],
    by_thirds: Mapping[int, Sequence[Path]],
    data: Sequence[Path],
) -> list[ImportedSet]:
    sets: list[ImportedSet] = []
    for thirds, files in sorted(by_thirds.items()):
        probabilities = []
        for path, data_file in zip(files, data, strict=True):
            expected = datapoints(data_file)
            size = len(expected.guids), len(expected.labels)
            probabilities.append(read_table(path, data_file, *size))
        guids = [guid for file in data for guid in datapoints(file).guids]
        gold = [label for file in data for label in datapoints(file).gold]
        texts = [shown for file in data for shown in datapoints(file).texts]
        classes = datapoints(data[0]).labels
        if len(set(guids)) != len(guids):
            raise UserError(
                f"{data[0].parent.parent}: found the same guid in two folds, expected each once; import "
                "them one by one"
            )
        sets += _sets(guids, gold, texts, np.concatenate(probabilities), classes, thirds)
    return sets


def _sets(
    guids: Sequence[str],
    gold: Sequence[str],
    texts: Sequence[Mapping[str, str]],
    probabilities: np.ndarray,
    classes: tuple[str, ...],
    thirds: int,
) -> Iterator[ImportedSet]:
    members: dict[str, list[int]] = {}
    for row, guid in enumerate(guids):
        members.setdefault(guid.rpartition("-")[0] or "predict", []).append(row)
    for name, rows in members.items():
        set_probabilities = probabilities[rows]
        if any(gold[row] == _NO_ENTAILMENT for row in rows):
            entails = classes.index(_ENTAILMENT)
            labels = np.array([gold[row] == _ENTAILMENT for row in rows], dtype=np.float32)
            answers = (set_probabilities.argmax(axis=1) == entails).astype(np.float32)
            # The model has three classes, so these two have no scores.
            scores = None
        else:
            labels = np.array([classes.index(gold[row]) for row in rows], dtype=np.float32)
            answers, scores = set_probabilities.argmax(axis=1), as_logits(set_probabilities)
        final = thirds == _LAST
        epochs = thirds / _THIRDS
        yield ImportedSet(
            name if final else set_at(name, epochs),
            predictions_of([guids[row] for row in rows], labels, answers, scores),
            ("accuracy",),
            None if final else name,
            epochs,
            {
                column: [texts[row][column] for row in rows]
                for column in _TEXTS
                if all(column in texts[row] for row in rows)
            },
        )


@dataclass(frozen=True)
class _Datapoints:
    """The content of a data.json; `texts` has the fields of `_TEXTS` in each row."""

    guids: list[str]
    gold: list[str]
    labels: tuple[str, ...]
    texts: list[dict[str, str]]


def _datapoints(path: Path) -> _Datapoints:
    cure = "fetch the file again"
    lists = {"label_list": Sequence[str | int], "predict": Sequence[Mapping[str, Any]]}
    content = read_json_fields(path, lists, cure)
    entries = content["predict"]
    for number, entry in enumerate(entries, start=1):
        kinds = {"guid": str | int, "label": str | int}
        check_fields(entry, kinds, f"{path}, datapoint {number} of predict", cure)
    labels = tuple(str(label) for label in content["label_list"])
    guids = [str(entry["guid"]) for entry in entries]
    gold = [str(entry["label"]) for entry in entries]
    texts = [
        {name: entry[name] for name in _TEXTS if isinstance(entry.get(name), str)}
        for entry in entries
    ]
    for guid, label in zip(guids, gold, strict=True):
        merged = label == _NO_ENTAILMENT and _ENTAILMENT in labels
        if label not in labels and not merged:
            raise UserError(
                f"{path}: {guid} has label {label!r}, expected one of {', '.join(labels)}; fetch the "
                "file again"
            )
    if len(set(guids)) != len(guids):
        raise UserError(
            f"{path}: found the same guid twice, expected each once; fetch the file again"
        )
    return _Datapoints(guids, gold, labels, texts)
