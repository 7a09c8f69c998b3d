"""Reads the example predictions published with the MultiBERTs, in the layout of their bucket.

    GLUE/index.tsv                file, task, pretrain_id, n_steps, lr, ft_seed, release
    GLUE/<task>_dev_labels        one number per line, in the order of the development set
    GLUE/<task>/release=multiberts,pretrain_id=0,n_steps=1M,lr=2e-05,ft_seed=0.tsv
                                  one row per example, one column per class (STS-B: one column)
    SQuAD/index.tsv               same columns; task is v1.1 or v2.0
    SQuAD/dev-v2.0.json           the official file
    SQuAD/v2.0/release=...,ft_seed=0.json     {question id: answer}, "" for no answer

Source: the notebooks 2m_vs_1m and multi_vs_original of google-research/language,
language/multiberts. The original BERT is release=public with n_steps=0. The classes have the numbers of
the label files, without names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    as_logits,
    facts_of,
    predictions_of,
    read_numbers,
    read_table,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, check_fields, read_json_fields
from multiberts.runs.tables import TableRow, read_rows

INDEX = "index.tsv"
_INDEX_COLUMNS = ("file", "task", "pretrain_id", "n_steps", "lr", "ft_seed", "release")
_PROCEDURES = {"multiberts": "base", "public": "original"}
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
# Metrics of the tasks, the paper's metric first.
_METRICS = {
    "STS-B": ("pearson", "spearman"),
    "CoLA": ("accuracy", "matthews"),
    "MRPC": ("accuracy", "f1"),
    "QQP": ("accuracy", "f1"),
}
_CURE = "fetch the official one"
_SQUAD_TASKS = {"v1.1": "squad-v1.1", "v2.0": "squad-v2.0"}
_SPLITS = {"MNLI": "dev_matched"}


def read_release(source: PathLike) -> Iterator[ImportedRun]:
    """Yields the runs in the order of `index.tsv`, those whose files exist.

    Args:
      source: the folder `GLUE` or `SQuAD`, with the tasks' label files next to the index.
    """
    source = Path(source)
    rows = list(read_rows(source / INDEX, _INDEX_COLUMNS))
    # Files are read once for all runs, and again by the next call.
    read_labels, read_references = cache(_labels), cache(_squad_references)
    listed = 0
    for row in rows:
        file, task = source / row["file"], row["task"]
        if not file.is_file():
            continue  # users fetch only the files that they need
        listed += 1
        facts = _facts(row)
        if task in _SQUAD_TASKS:
            labels = _existing(source / f"dev-{task}.json")
            read = partial(_read_squad, read_references, file, labels)
        else:
            labels = _existing(source / f"{task}_dev_labels")
            read = partial(_read_glue, read_labels, file, labels, task)
        name = re.sub(r"[^\w.=+-]+", "-", Path(row["file"]).stem)
        yield ImportedRun(f"{facts['task']}/{name}", facts, (file, labels), read)
    if not listed:
        raise UserError(
            f"{source}: found none of the {len(rows)} files that {INDEX} lists; fetch some of them, in "
            "the folders it names"
        )


def _facts(row: TableRow) -> dict[str, Any]:
    steps = re.fullmatch(r"(\d+(?:\.\d+)?)(k|M|)", row["n_steps"])
    if steps is None:
        raise row.refused("n_steps", "a number of steps such as 2M")
    return facts_of(
        _SQUAD_TASKS.get(row["task"], row["task"]),
        _PROCEDURES[row.one_of("release", _PROCEDURES)],
        row.integer("pretrain_id"),
        row.integer("ft_seed"),
        "MultiBERTs release, example predictions",
        step=int(float(steps[1]) * _UNITS[steps[2]]) or None,
        learning_rate=row.number("lr"),
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(
            f"{path} does not exist, expected it with the predictions; fetch it from their source"
        )
    return path


def _labels(path: Path) -> np.ndarray:
    return read_numbers(path)[:, 0]


def _read_glue(
    read_labels: Callable[[Path], np.ndarray], file: Path, labels_file: Path, task: str
) -> list[ImportedSet]:
    labels = read_labels(labels_file)
    table = read_table(file, labels_file, len(labels))
    if table.shape[1] == 1:
        answers, scores = table[:, 0], None
    else:
        answers, scores = table.argmax(axis=1), as_logits(table)
    split = _SPLITS.get(task, "dev")
    ids = [f"{task}/{split}/{row}" for row in range(len(labels))]
    metrics = _METRICS.get(task, ("accuracy",))
    return [ImportedSet("dev", predictions_of(ids, labels, answers, scores), metrics)]


def _read_squad(
    read_references: Callable[[Path], _References],
    file: Path,
    questions_file: Path,
    complete: bool = True,
) -> list[ImportedSet]:
    """Reads a prediction file; unless it must be complete, missing questions have the answer ''."""
    (references, questions), answers = read_references(questions_file), _squad_answers(file)
    if not complete:
        answers = {**dict.fromkeys(references, ""), **answers}
    missing = [example for example in references if example not in answers]
    if missing:
        raise UserError(
            f"{file} lacks {missing[0]!r} of {questions_file} ({len(missing)} missing); give the predictions "
            "of this evaluation set"
        )
    texts = [answers[example] for example in references]
    reference_column, answer_column = np.empty((2, len(texts)), object)
    reference_column[:], answer_column[:] = list(references.values()), texts
    columns = predictions_of(
        list(references),
        np.array([bool(answer_texts) for answer_texts in references.values()], dtype=np.float32),
        np.array([bool(text) for text in texts]),
        extras={"answers": reference_column},
        outputs={"prediction_text": answer_column},
    )
    question_texts = (
        {"question": [questions[example_id] for example_id in references]} if questions else {}
    )
    return [ImportedSet("dev", columns, ("squad_f1", "squad_exact_match"), texts=question_texts)]


# Reference answers and questions by question id; questions are empty unless the file has all of them.
_References = tuple[dict[str, tuple[str, ...]], dict[str, str]]


def _squad_references(path: Path) -> _References:
    """Reads an official SQuAD file, sorted by id."""
    references: dict[str, tuple[str, ...]] = {}
    questions: dict[str, str] = {}
    try:
        for article in read_json_fields(path, cure=_CURE)["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    texts = tuple(answer["text"] for answer in question["answers"])
                    references[question["id"]] = texts
                    if isinstance(question.get("question"), str):
                        questions[question["id"]] = question["question"]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a SQuAD file, of data with paragraphs, questions (`qas`) and answers; fetch the "
            "official one"
        ) from error
    return dict(sorted(references.items())), questions if len(questions) == len(references) else {}


def _squad_answers(path: Path) -> dict[str, str]:
    """Reads a prediction file for the official scorer, {question id: answer}."""
    content = read_json_fields(path, cure="fetch it again")
    check_fields(content, dict.fromkeys(content, str), str(path), "fetch it again")
    return content


def read_squad_file(
    source: PathLike,
    questions: PathLike,
    procedure: str,
    pretrain_seed: int = 0,
    finetune_seed: int = 0,
) -> ImportedRun:
    """Reads one prediction file for the official scorer as a run.

    Args:
      source: file with {question id: answer}, plain or `.gz`; missing questions have the answer ''.
      questions: official file of the development set, under any name; it is SQuAD 2.0 by its `version`, or
        if a question has no answer.
    """
    path, questions_file = Path(source), Path(questions)
    version = str(read_json_fields(questions_file, cure=_CURE).get("version", ""))
    task = _SQUAD_TASKS.get(f"v{version.lstrip('v')}", "")
    if not task:  # a modified official file, without its version
        references, _ = _squad_references(questions_file)
        task = "squad-v1.1" if all(references.values()) else "squad-v2.0"
    return ImportedRun(
        f"{task}/{procedure}-pretrain_seed_{pretrain_seed}-finetune_seed_{finetune_seed}",
        facts_of(task, procedure, pretrain_seed, finetune_seed, path.name),
        (path, questions_file),
        partial(_read_squad, _squad_references, path, questions_file, complete=False),
    )
