"""Reads predictions on HANS in the form that its authors' scorer takes (McCoy et al., 2019).

The first line is `pairID,gold_label`, then follows a line such as `ex0,entailment` for every pair.
Classes other than `entailment` count as non-entailment; class 1 is entailment.

Source: the README of tommccoy1/hans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    answers_to,
    facts_of,
    predictions_of,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.tables import read_rows

_FILE = re.compile(r".*\.(txt|csv)(\.gz)?")
_ENTAILMENT = "entailment"
_CLASSES = (_ENTAILMENT, "non-entailment", "neutral", "contradiction")
Pairs = tuple[list[str], np.ndarray, dict[str, np.ndarray], dict[str, list[str]]]

_EXTRAS = ("heuristic", "subcase", "template")
_TEXTS = {"premise": "sentence1", "hypothesis": "sentence2"}


def read_hans(source: PathLike, questions: PathLike) -> Iterator[ImportedRun]:
    """Reads prediction files as runs of the task HANS, set `hans`; the procedure is the file's name.

    Args:
      source: a file, or a folder of files (`*.txt`, `*.csv`, plain or `.gz`).
      questions: `heuristics_evaluation_set.txt` of HANS, plain or `.gz`.

    Yields:
      The runs, by file name.

    Raises:
      UserError: a file is missing or is not as above.
    """
    source, evaluation_set = Path(source), Path(questions)
    files = [source]
    if source.is_dir():
        files = sorted(path for path in source.iterdir() if _FILE.fullmatch(path.name))
    if not files or not evaluation_set.is_file():
        missing = f"{evaluation_set} is missing" if files else f"{source} has no .txt or .csv file"
        raise UserError(f"{missing}; give the prediction files and the evaluation set of HANS")
    pairs = cache(_pairs)  # read once for all runs, and anew by the next call
    for file in files:
        name = file.name.removesuffix(".gz").rpartition(".")[0]
        facts = facts_of("HANS", name, 0, 0, file.name)
        read = partial(_read, pairs, file, evaluation_set)
        yield ImportedRun(f"HANS/{name}", facts, (file, evaluation_set), read)


def _read(
    read_pairs: Callable[[Path], Pairs], file: Path, evaluation_set: Path
) -> list[ImportedSet]:
    pairs, labels, extras, texts = read_pairs(evaluation_set)
    rows = read_rows(file, ("pairID", "gold_label"), separator=",", unique=("pairID",))
    answers = {row["pairID"]: row.one_of("gold_label", _CLASSES) == _ENTAILMENT for row in rows}
    ids = [f"hans/{pair}" for pair in pairs]
    given = np.array(answers_to(pairs, answers, file, evaluation_set))
    columns = predictions_of(ids, labels, given, extras=extras)
    return [ImportedSet("hans", columns, ("accuracy",), texts=texts)]


def _pairs(path: Path) -> Pairs:
    rows = list(read_rows(path, ("pairID", "gold_label", *_EXTRAS)))
    labels = np.array([row["gold_label"] == _ENTAILMENT for row in rows], dtype=np.float32)
    extras = {name: np.array([row[name] for row in rows]) for name in _EXTRAS}
    texts = {
        name: [row[column] for row in rows]
        for name, column in _TEXTS.items()
        if all(column in row for row in rows)
    }
    return [row["pairID"] for row in rows], labels, extras, texts
