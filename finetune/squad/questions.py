"""SQuAD questions from the official JSON or from TensorFlow Datasets (Rajpurkar et al., 2016, 2018).

The questions are put in the order of their ids: TensorFlow Datasets keeps no other order, and so both
sources give the same runs. A process reads and cuts each set once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from multiberts.finetune.data_files import (
    SPLITS,
    DatasetSplit,
    FileContent,
    open_split,
    read_new_rows,
    tokenizer_of,
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
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_json_fields


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
    """Reads a file in the official layout.

    Args:
      path: `.json`, plain or `.gz`.
      with_unanswerable: whether questions may have no answer, as in version 2.0.
      need_answers: whether the list of a question's answers, empty or not, must be there.
    """
    content = read_json_fields(path, cure="fetch the file again as published for SQuAD")
    return _collected(path, _questions(path, content, need_answers), with_unanswerable)


def read_question_table(path: PathLike) -> SquadExamples:
    """Reads new questions without answers from a table with the columns `question` and `context`.

    The columns `id` and `title` may be there; without ids, questions are numbered from 0.

    Args:
      path: `.tsv`, `.csv`, `.jsonl` or `.parquet`.
    """
    rows = read_new_rows(path, ("question", "context"), optional=("id", "title"))
    width = len(str(len(rows)))
    questions = (
        _Question(
            row.get("id") or f"{number:0{width}d}",
            row["question"],
            row.get("title", ""),
            row["context"],
            (),
            (),
        )
        for number, row in enumerate(rows)
    )
    return _collected(path, questions, with_unanswerable=True)


def read_squad_dataset(source: DatasetSplit, *, with_unanswerable: bool) -> SquadExamples:
    """Reads a split of `squad/v1.1` or `squad/v2.0`, or of a dataset with their features."""
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


def _questions(path: PathLike, content: Any, need_answers: bool) -> Iterator[_Question]:
    """Yields the questions of a file in its own order."""
    for a, article in enumerate(_field(path, "", content, "data", list)):
        at_article = f"data[{a}]"
        title = article.get("title", "") if isinstance(article, dict) else ""
        for p, paragraph in enumerate(_field(path, at_article, article, "paragraphs", list)):
            at_paragraph = f"{at_article}.paragraphs[{p}]"
            context = _field(path, at_paragraph, paragraph, "context", str)
            for q, entry in enumerate(_field(path, at_paragraph, paragraph, "qas", list)):
                where = f"{at_paragraph}.qas[{q}]"
                example_id = _field(path, where, entry, "id", str)
                question = _field(path, where, entry, "question", str)
                if not need_answers:
                    entry.setdefault("answers", [])
                texts, starts = [], []
                for n, answer in enumerate(_field(path, where, entry, "answers", list)):
                    at_answer = f"{where}.answers[{n}]"
                    texts.append(_field(path, at_answer, answer, "text", str))
                    starts.append(_field(path, at_answer, answer, "answer_start", int))
                if need_answers and bool(entry.get("is_impossible", not texts)) == bool(texts):
                    raise UserError(
                        f"{path} {where}: is_impossible is {entry['is_impossible']} but there are "
                        f"{len(texts)} answers; fetch the file again as published for SQuAD"
                    )
                yield _Question(
                    example_id, question, str(title), context, tuple(texts), tuple(starts)
                )


def _field(path: PathLike, where: str, record: Any, name: str, kind: type) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise UserError(
            f"{path} {where or 'top level'}: found {found} under {name!r}, expected a "
            f"{kind.__name__}; give a file in the layout of SQuAD"
        )
    return value


def _collected(
    source: PathLike, questions: Iterator[_Question], with_unanswerable: bool
) -> SquadExamples:
    """Checks the questions, puts them in order and keeps every paragraph once."""
    by_id: dict[str, _Question] = {}
    for question in questions:
        if question.id in by_id:
            raise UserError(
                f"{source}: question id {question.id!r} appears twice, expected each once; "
                "remove one"
            )
        if not question.answers and not with_unanswerable:
            raise UserError(
                f"{source}: question {question.id!r} has no answer, expected one for every "
                "question of SQuAD 1.1; use task squad-v2.0"
            )
        by_id[question.id] = question
    if not by_id:
        raise UserError(f"{source} holds no question; give a file in the layout of SQuAD")
    ordered = [by_id[example_id] for example_id in sorted(by_id)]
    places: dict[str, int] = {}
    context_of = [places.setdefault(question.context, len(places)) for question in ordered]
    return SquadExamples(
        example_ids=[question.id for question in ordered],
        questions=[question.question for question in ordered],
        titles=[question.title for question in ordered],
        contexts=list(places),
        context_of=np.array(context_of, np.int64),
        answers=[question.answers for question in ordered],
        answer_starts=[question.answer_starts for question in ordered],
    )


@dataclasses.dataclass(frozen=True)
class SquadSource:
    """Where one set of questions is found.

    Attributes:
      name: `train`, `dev`, or the name of a further evaluation set.
      file: in the official layout; None for a dataset.
      datasets_dir: the folder of prepared datasets; None: the default of TensorFlow Datasets.
      is_new: whether these are questions for a trained model: in either layout, answers need not be there.
    """

    name: str
    file: Path | None
    dataset: str | None = None
    datasets_dir: str | None = None
    is_new: bool = False

    def _open(self) -> DatasetSplit | None:
        if self.dataset is None:
            return None
        return open_split(self.dataset, SPLITS[self.name], self.datasets_dir)

    def files(self) -> tuple[Path, ...]:
        split = self._open()
        return (Path(str(self.file)),) if split is None else split.files

    def read(self, *, with_unanswerable: bool) -> SquadExamples:
        split = self._open()
        if split is None:
            file = str(self.file)
            if self.is_new and not file.removesuffix(".gz").endswith(".json"):
                return read_question_table(file)
            return read_squad(
                file,
                with_unanswerable=with_unanswerable or self.is_new,
                need_answers=not self.is_new,
            )
        return read_squad_dataset(split, with_unanswerable=with_unanswerable)


@dataclasses.dataclass(frozen=True)
class SquadSet:
    """One set of questions, ready for the encoder."""

    examples: SquadExamples
    contexts: list[Context]
    windows: SquadWindows


# At least as many as the sets of one run: a run that uses them in turn must find all of them.
@functools.lru_cache(maxsize=16)
def prepared(
    files: tuple[FileContent, ...],
    source: SquadSource,
    vocabulary: FileContent,
    *,
    sequence_length: int,
    stride: int,
    max_query_length: int,
    with_unanswerable: bool,
    training: bool,
) -> SquadSet:
    """Reads a set and cuts it into windows (as `make_windows`), once per process."""
    tokenizer = tokenizer_of(vocabulary)
    examples = source.read(with_unanswerable=with_unanswerable)
    contexts = read_contexts(tokenizer, examples.contexts)
    if empty := sum(not question.strip() for question in examples.questions):
        warn(f"{files[0].path}: {empty} of {len(examples)} questions are empty texts")
    answers = None
    if training:
        if not any(examples.answers):
            raise UserError(
                f"{files[0].path}: none of the {len(examples)} questions to train on has an answer, "
                "expected some; give another train file"
            )
        answers = training_answers(tokenizer, examples, contexts, str(files[0].path))
        if lost := answers.count(None):
            progress(
                f"{files[0].path}: {lost} of {len(examples)} questions are left out of training, as "
                "their paragraphs do not contain their answers"
            )
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
            f"{files[0].path}: no question has a paragraph and, for training, an answer in it, expected "
            "at least one; give another file"
        )
    return SquadSet(examples, contexts, windows)
