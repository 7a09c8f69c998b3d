"""SQuAD questions from JSON, tables or TensorFlow Datasets (Rajpurkar et al., 2016, 2018).

Questions are sorted by id, as TensorFlow Datasets keeps no other order, so that all sources give the same
runs. A process reads and splits each set once.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.data_files import (
    SPLITS,
    DatasetSplit,
    check_form,
    open_split,
)
from multiberts.finetune.squad.windows import (
    Context,
    SquadExamples,
    SquadWindows,
    make_windows,
    read_contexts,
    training_answers,
)
from multiberts.runs.console import progress, warn
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import PathLike
from multiberts.runs.identity import Input, check_unchanged
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import table_entries, table_files

_OF_ANSWERS = ("text", "answer_start")


class _Question(NamedTuple):
    """One question as a source has it."""

    id: str
    question: str
    title: str
    context: str
    answers: tuple[str, ...]
    answer_starts: tuple[int, ...]


def read_squad(
    path: PathLike, *, with_unanswerable: bool, need_answers: bool = True
) -> SquadExamples:
    """Reads a file in the official layout, or a table with a question in each row.

    Args:
      path: SQuAD's JSON; or a table (`runs.tables`) with the columns `question`, `context`, `answers`
        ({text: [...], answer_start: [...]} as in `datasets`, or a list as in SQuAD), `id` and `title`.
        Without ids, questions are numbered from 0.
      with_unanswerable: whether questions may have no answer, as in version 2.0.
      need_answers: whether to require each question's list of answers, which may be empty.
    """
    check_form(path)
    return _collected(
        path, _questions(path, [*table_entries(path)], need_answers), with_unanswerable
    )


def read_squad_dataset(source: DatasetSplit, *, with_unanswerable: bool) -> SquadExamples:
    """Reads a split of `squad/v1.1`, `squad/v2.0`, or a dataset with the same features."""
    texts = ("id", "question", "title", "context")
    source.require((*texts, "answers"), "choose a dataset with the features of squad/v1.1")
    questions = (
        _Question(
            **{name: example[name].decode() for name in texts},
            answers=tuple(text.decode() for text in example["answers"]["text"]),
            answer_starts=tuple(example["answers"]["answer_start"].tolist()),
        )
        for example in source.examples((*texts, "answers"))
    )
    return _collected(source.name, questions, with_unanswerable)


def _questions(path: PathLike, rows: list[Any], need_answers: bool) -> Iterator[_Question]:
    entries = _official(path, rows) if is_official(rows) else _rows(path, rows)
    for where, context, entry in entries:
        answers = entry.get("answers")
        if not need_answers and not isinstance(answers, list | dict):
            answers = []
        if isinstance(answers, dict):
            at_answers = f"{where}.answers"
            columns = [_field(path, at_answers, answers, name, list) for name in _OF_ANSWERS]
            answers = [
                dict(zip(_OF_ANSWERS, pair, strict=True))
                for pair in itertools.zip_longest(*columns)
            ]
        texts, starts = [], []
        for n, answer in enumerate(_field(path, where, {"answers": answers}, "answers", list)):
            at_answer = f"{where}.answers[{n}]"
            texts.append(_field(path, at_answer, answer, "text", str))
            starts.append(_field(path, at_answer, answer, "answer_start", int))
        is_impossible = entry.get("is_impossible")  # null in tables where other rows lack the field
        if need_answers and is_impossible is not None and bool(is_impossible) == bool(texts):
            raise UserError(
                f"{path} {where}: is_impossible is {is_impossible} but there are "
                f"{len(texts)} answers; fetch the file again as published for SQuAD"
            )
        yield _Question(
            _field(path, where, entry, "id", str),
            _field(path, where, entry, "question", str),
            str(entry.get("title") or ""),
            context,
            tuple(texts),
            tuple(starts),
        )


def is_official(rows: Sequence[Any]) -> bool:
    """Returns whether the entries of a file are SQuAD's articles, not questions."""
    return any(isinstance(row, dict) and "paragraphs" in row for row in rows)


def _official(path: PathLike, articles: list[Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields the location in SQuAD's JSON, the paragraph and the entry of each question."""
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_field(path, f"data[{a}]", article, "paragraphs", list)):
            at_paragraph = f"data[{a}].paragraphs[{p}]"
            context = _field(path, at_paragraph, paragraph, "context", str)
            for q, entry in enumerate(_field(path, at_paragraph, paragraph, "qas", list)):
                where = f"{at_paragraph}.qas[{q}]"
                _field(path, where, entry, "id", str)
                yield where, context, {**entry, "title": article.get("title")}


def _rows(path: PathLike, rows: list[Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields location, paragraph and entry of each question of a table."""
    for number, (row, name) in enumerate(zip(rows, ids_of_rows(rows), strict=True), start=1):
        where, entry = f"row {number}", row if isinstance(row, dict) else {}
        yield where, _field(path, where, entry, "context", str), {**entry, "id": name}


def ids_of_rows(rows: Sequence[Any]) -> list[str]:
    """Returns the ids of a table's questions; a question without an id gets its row number from 0."""
    width = len(str(len(rows)))
    ids = [row.get("id") if isinstance(row, Mapping) else None for row in rows]
    return [f"{n:0{width}d}" if name in (None, "") else str(name) for n, name in enumerate(ids)]


def _field(path: PathLike, where: str, record: Any, name: str, kind: type) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        actual = "nothing" if value is None else f"a {type(value).__name__}"
        others = f" beside {listed(record)}" if value is None and isinstance(record, dict) else ""
        raise UserError(
            f"{path} {where}: found {actual} under {name!r}{others}, expected a "
            f"{kind.__name__}; give SQuAD's JSON, or a table with the columns question, context and answers"
        )
    return value


def _collected(
    source: PathLike, questions: Iterator[_Question], with_unanswerable: bool
) -> SquadExamples:
    """Checks and sorts the questions, and stores each paragraph once."""
    by_id: dict[str, _Question] = {}
    for question in questions:
        if question.id in by_id:
            raise UserError(
                f"{source}: question id {shortened(question.id)} appears twice, expected each once; "
                "remove one"
            )
        if not question.answers and not with_unanswerable:
            raise UserError(
                f"{source}: question {shortened(question.id)} has no answer, expected one for every "
                "question of SQuAD 1.1; use task squad-v2.0"
            )
        by_id[question.id] = question
    if not by_id:
        raise UserError(f"{source} holds no question; give a file in the layout of SQuAD")
    ordered = [by_id[example_id] for example_id in sorted(by_id)]
    numbers: dict[str, int] = {}
    context_of = [numbers.setdefault(question.context, len(numbers)) for question in ordered]
    return SquadExamples(
        example_ids=[question.id for question in ordered],
        questions=[question.question for question in ordered],
        titles=[question.title for question in ordered],
        contexts=list(numbers),
        context_of=np.array(context_of, np.int64),
        answers=[question.answers for question in ordered],
        answer_starts=[question.answer_starts for question in ordered],
    )


@dataclasses.dataclass(frozen=True)
class SquadSource:
    """The source of one set of questions.

    Attributes:
      name: `train`, `dev`, or the name of a further evaluation set.
      file: file for `read_squad`; None for a dataset.
      datasets_dir: folder of prepared datasets; None: the default of TensorFlow Datasets.
      is_new: whether these are new questions for a trained model, whose answers are optional.
    """

    name: str
    file: Path | None
    dataset: str | None = None
    datasets_dir: str | None = None
    is_new: bool = False

    def _open(self, dataset: str) -> DatasetSplit:
        return open_split(dataset, SPLITS[self.name], self.datasets_dir)

    def files(self) -> tuple[Path, ...]:
        if self.dataset is not None:
            return self._open(self.dataset).files
        return table_files(str(self.file))

    def read(self, *, with_unanswerable: bool) -> SquadExamples:
        if self.dataset is not None:
            split = self._open(self.dataset)
            return read_squad_dataset(split, with_unanswerable=with_unanswerable)
        can_lack = with_unanswerable or self.is_new
        return read_squad(str(self.file), with_unanswerable=can_lack, need_answers=not self.is_new)


@dataclasses.dataclass(frozen=True)
class SquadSet:
    """One set of questions, ready for the encoder."""

    examples: SquadExamples
    contexts: list[Context]
    windows: SquadWindows


# At least the sets of one run, which a run uses in turn.
@functools.lru_cache(maxsize=16)
def prepared(
    files: tuple[Input, ...],
    source: SquadSource,
    vocabulary: Vocabulary,
    *,
    sequence_length: int,
    stride: int,
    max_query_length: int,
    with_unanswerable: bool,
    training: bool,
) -> SquadSet:
    """Reads a set and splits it into windows (see `make_windows`), once per process."""
    tokenizer = vocabulary
    examples = source.read(with_unanswerable=with_unanswerable)
    contexts = read_contexts(tokenizer, examples.contexts)
    if empty := sum(not question.strip() for question in examples.questions):
        warn(f"{files[0].where}: {empty} of {len(examples)} questions are empty texts")
    answers = None
    if training:
        if not any(examples.answers):
            raise UserError(
                f"{files[0].where}: none of the {len(examples)} questions to train on has an answer, "
                "expected some; give another train file"
            )
        answers = training_answers(tokenizer, examples, contexts, str(files[0].where))
        reasons = Counter(
            "answer_start does not point at their answers, which are elsewhere in their paragraphs"
            if " ".join(examples.answers[row][0].split())
            in " ".join(examples.contexts[examples.context_of[row]].split())
            else "their paragraphs do not contain their answers"
            for row, answer in enumerate(answers)
            if answer is None
        )
        for reason, count in sorted(reasons.items()):
            where = f"{files[0].where}: {count} of {len(examples)} questions"
            progress(f"{where} are left out of training, as {reason}")
    windows = make_windows(
        tokenizer,
        examples,
        contexts,
        sequence_length=sequence_length,
        stride=stride,
        max_query_length=max_query_length,
        answers=answers,
    )
    if not len(windows):
        raise UserError(
            f"{files[0].where}: no question has a paragraph and, for training, an answer in it, expected "
            "at least one; give another file"
        )
    check_unchanged(*files)
    return SquadSet(examples, contexts, windows)
