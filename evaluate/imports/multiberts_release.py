"""The example predictions that were published with the MultiBERTs, as they lie in their bucket.

    GLUE/index.tsv                file, task, pretrain_id, n_steps, lr, ft_seed, release
    GLUE/<task>_dev_labels        a number a line, in the order of the development set
    GLUE/<task>/release=multiberts,pretrain_id=0,n_steps=1M,lr=2e-05,ft_seed=0.tsv
                                  a row an example, a column a class (STS-B: one column)
    SQuAD/index.tsv               likewise; task is v1.1 or v2.0
    SQuAD/dev-v2.0.json           the official file
    SQuAD/v2.0/release=...,ft_seed=0.json     {question id: answer}, "" for none

Source: the notebooks 2m_vs_1m and multi_vs_original beside google-research/language,
language/multiberts. The original BERT is release=public with n_steps=0. Which class a column of
classes stands for is that of the label files, and is not said in words.
"""

from __future__ import annotations

import json
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
    predictions_of,
    read_numbers,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes
from multiberts.runs.tables import TableRow, read_rows

INDEX = "index.tsv"
_INDEX_COLUMNS = ("file", "task", "pretrain_id", "n_steps", "lr", "ft_seed", "release")
_PROCEDURES = {"multiberts": "base", "public": "original"}
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
# Metrics of the tasks, the paper's own first.
_METRICS = {
    "STS-B": ("pearson", "spearman"),
    "CoLA": ("accuracy", "matthews"),
    "MRPC": ("accuracy", "f1"),
    "QQP": ("accuracy", "f1"),
}
_SQUAD_TASKS = {"v1.1": "squad-v1.1", "v2.0": "squad-v2.0"}
_SPLITS = {"MNLI": "dev_matched"}

References = tuple[list[str], list[tuple[str, ...]]]


def read_release(source: PathLike) -> Iterator[ImportedRun]:
    """The runs that `index.tsv` lists and whose files are there.

    Args:
      source: the folder `GLUE` or `SQuAD`, with the label files of the tasks beside the index.

    Raises:
      UserError: the index is not as above, or none of its files is there.
    """
    source = Path(source)
    rows = list(read_rows(source / INDEX, _INDEX_COLUMNS))
    # Read once for all runs, and anew by the next call.
    glue = partial(_read_glue, cache(_labels))
    squad = partial(_read_squad, cache(squad_references))
    listed = 0
    for row in rows:
        file = source / row["file"]
        if not file.is_file():
            continue  # users fetch the files they need, the index is always whole
        listed += 1
        facts = _facts(row)
        in_words = row["task"] in _SQUAD_TASKS
        read = squad if in_words else glue
        labels = source / (f"dev-{row['task']}.json" if in_words else f"{row['task']}_dev_labels")
        yield ImportedRun(
            f"{facts['task']}/" + re.sub(r"[^\w.=+-]+", "-", Path(row["file"]).stem),
            facts,
            (file, _existing(labels)),
            partial(read, file, labels, row["task"]),
        )
    if not listed:
        raise UserError(
            f"{source}: found none of the {len(rows)} files that {INDEX} lists; fetch some of them, in "
            "the folders it names"
        )


def _facts(row: TableRow) -> dict[str, Any]:
    steps = re.fullmatch(r"(\d+(?:\.\d+)?)(k|M|)", row["n_steps"])
    if steps is None:
        raise row.refused("n_steps", "a number of steps such as 2M")
    return {
        "task": _SQUAD_TASKS.get(row["task"], row["task"]),
        "procedure": _PROCEDURES[row.one_of("release", _PROCEDURES)],
        "pretrain_seed": row.integer("pretrain_id"),
        "step": int(float(steps[1]) * _UNITS[steps[2]]) or None,
        "learning_rate": row.number("lr"),
        "finetune_seed": row.integer("ft_seed"),
        "source": "MultiBERTs release, example predictions",
    }


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path} does not exist; fetch it from where the predictions are from")
    return path


def _read_glue(
    read_labels: Callable[[Path], np.ndarray], file: Path, labels_file: Path, task: str
) -> list[ImportedSet]:
    labels = read_labels(labels_file)
    table = read_numbers(file)
    if len(table) != len(labels):
        raise UserError(
            f"{file}: found {len(table)} rows, expected {len(labels)} as {labels_file}; fetch both again"
        )
    if table.shape[1] == 1:
        answers, scores = table[:, 0], None
    else:
        answers, scores = table.argmax(axis=1), as_logits(table)
    split = _SPLITS.get(task, "dev")
    ids = [f"{task}/{split}/{row}" for row in range(len(labels))]
    metrics = _METRICS.get(task, ("accuracy",))
    return [ImportedSet("dev", predictions_of(ids, labels, answers, scores), metrics)]


def _labels(path: Path) -> np.ndarray:
    return read_numbers(path)[:, 0]


def _read_squad(
    read_references: Callable[[Path], References], file: Path, questions_file: Path, task: str
) -> list[ImportedSet]:
    ids, references = read_references(questions_file)
    answers = squad_answers(file)
    missing = [example_id for example_id in ids if example_id not in answers]
    if missing:
        raise UserError(
            f"{file} lacks question {missing[0]!r} of {questions_file} ({len(missing)} such); give the "
            "predictions of this development set"
        )
    return [squad_set("dev", ids, references, [answers[example_id] for example_id in ids])]


def squad_set(
    name: str, ids: list[str], references: list[tuple[str, ...]], answers: list[str]
) -> ImportedSet:
    """Answers in words as a set.

    Args:
      name: of the set.
      ids: [questions].
      references: of each question; none where it has no answer.
      answers: of each question; '' for none.
    """
    reference_column, answer_column = np.empty(len(ids), object), np.empty(len(ids), object)
    reference_column[:], answer_column[:] = references, answers
    return ImportedSet(
        name,
        predictions_of(
            ids,
            np.array([bool(texts) for texts in references], dtype=np.float32),
            np.array([bool(text) for text in answers]),
            extras={"answers": reference_column},
            outputs={"prediction_text": answer_column},
        ),
        ("squad_f1", "squad_exact_match"),
    )


def squad_references(path: Path) -> References:
    """Question ids of an official SQuAD file, sorted, and the reference answers of each."""
    found: dict[str, tuple[str, ...]] = {}
    try:
        for article in json.loads(read_bytes(path))["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    texts = tuple(answer["text"] for answer in question["answers"])
                    found[question["id"]] = texts
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no SQuAD file ({type(error).__name__}: {error}); fetch the official one"
        ) from error
    ids = sorted(found)
    return ids, [found[example_id] for example_id in ids]


def squad_answers(path: Path) -> dict[str, str]:
    """A prediction file {question id: answer}, as the official scorer takes it."""
    try:
        content = json.loads(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); fetch it again") from error
    if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
        raise UserError(
            f"{path}: found something else than {{question id: answer}}; fetch it again"
        )
    return content


def read_squad_file(
    source: PathLike,
    questions: PathLike,
    *,
    procedure: str,
    pretrain_seed: int = 0,
    finetune_seed: int = 0,
) -> ImportedRun:
    """One prediction file of the official scorer's form as a run.

    Args:
      source: {question id: answer}, plain or `.gz`; questions it leaves out are answered ''.
      questions: the official file of the development set.
      procedure, pretrain_seed, finetune_seed: what the run shall be called.
    """
    path, questions_file = Path(source), Path(questions)
    task = "squad-v2.0" if "v2.0" in questions_file.name else "squad-v1.1"

    def read() -> list[ImportedSet]:
        ids, references = squad_references(questions_file)
        answers = squad_answers(path)
        return [squad_set("dev", ids, references, [answers.get(key, "") for key in ids])]

    facts = {
        "task": task,
        "procedure": procedure,
        "pretrain_seed": pretrain_seed,
        "finetune_seed": finetune_seed,
        "source": path.name,
    }
    name = f"{task}/{procedure}-pretrain_seed_{pretrain_seed}-finetune_seed_{finetune_seed}"
    return ImportedRun(name, facts, (path, questions_file), read)
