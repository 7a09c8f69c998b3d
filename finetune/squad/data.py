"""SQuAD questions from the official JSON or from TensorFlow Datasets (Rajpurkar et al., 2016, 2018).

The questions are put in the order of their ids: TensorFlow Datasets keeps no other, and so both
sources give the same runs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from multiberts.finetune.dataset_split import DatasetSplit
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes


@dataclasses.dataclass(frozen=True)
class SquadExamples:
    """Questions about paragraphs.

    Attributes:
      example_ids: the official question ids, sorted.
      questions: their texts.
      titles: of the articles.
      contexts: the paragraphs, each once.
      context_of: int64 [questions]: the paragraph of each question.
      answers: reference texts of each question; none where it has no answer.
      answer_starts: where in the paragraph each reference begins, in characters.
    """

    example_ids: list[str]
    questions: list[str]
    titles: list[str]
    contexts: list[str]
    context_of: np.ndarray
    answers: list[tuple[str, ...]]
    answer_starts: list[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.example_ids)


class _Question(NamedTuple):
    """One question as a source has it."""

    example_id: str
    question: str
    title: str
    context: str
    answers: tuple[str, ...]
    answer_starts: tuple[int, ...]


def read_squad(path: PathLike, *, with_unanswerable: bool) -> SquadExamples:
    """Reads a file in the official layout.

    Args:
      path: `.json`, plain or `.gz`.
      with_unanswerable: whether questions may have no answer, as in version 2.0.

    Raises:
      UserError: missing, not JSON, another layout, a repeated id, or a question without an answer
        where all should have one.
    """
    try:
        content = json.loads(read_bytes(path))
    except ValueError as error:  # of decoding too
        raise UserError(
            f"{path} is not JSON ({error}); fetch the file again as SQuAD has it"
        ) from error
    return _collected(path, _questions(path, content), with_unanswerable)


def read_squad_dataset(source: DatasetSplit, *, with_unanswerable: bool) -> SquadExamples:
    """Reads a split of `squad/v1.1` or `squad/v2.0`, or of a dataset with their features.

    Args:
      source: the opened split.
      with_unanswerable: as in `read_squad`.

    Raises:
      UserError: lacking features, and as `read_squad`.
    """
    texts = ("id", "question", "title", "context")
    missing = [name for name in (*texts, "answers") if name not in source.features]
    if missing:
        raise UserError(
            f"dataset {source.name} has the features {', '.join(source.features)}, expected those of "
            f"squad/v1.1 (lacking {', '.join(missing)}); choose a dataset with these"
        )

    def questions() -> Iterator[_Question]:
        for example in source.examples((*texts, "answers")):
            answers = example["answers"]
            example_id, question, title, context = (example[name].decode() for name in texts)
            references = tuple(text.decode() for text in answers["text"])
            starts = tuple(answers["answer_start"].tolist())
            yield _Question(example_id, question, title, context, references, starts)

    return _collected(source.name, questions(), with_unanswerable)


def _questions(path: PathLike, content: Any) -> Iterator[_Question]:
    """The questions of a file in its own order."""
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
                texts, starts = [], []
                for n, answer in enumerate(_field(path, where, entry, "answers", list)):
                    at_answer = f"{where}.answers[{n}]"
                    texts.append(_field(path, at_answer, answer, "text", str))
                    starts.append(_field(path, at_answer, answer, "answer_start", int))
                if bool(entry.get("is_impossible", not texts)) == bool(texts):
                    raise UserError(
                        f"{path} {where}: is_impossible is {entry['is_impossible']} but there are "
                        f"{len(texts)} answers; fetch the file again as SQuAD has it"
                    )
                yield _Question(
                    example_id, question, str(title), context, tuple(texts), tuple(starts)
                )


def _field(path: PathLike, where: str, record: Any, name: str, kind: type) -> Any:
    """A value of the layout."""
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise UserError(
            f"{path} {where or 'top level'}: found {found} under {name!r}, expected a "
            f"{kind.__name__}; is it a file in the layout of SQuAD?"
        )
    return value


def _collected(
    source: PathLike, questions: Iterator[_Question], with_unanswerable: bool
) -> SquadExamples:
    """Checks the questions, puts them in order and keeps every paragraph once."""
    by_id: dict[str, _Question] = {}
    for question in questions:
        if question.example_id in by_id:
            raise UserError(
                f"{source}: question id {question.example_id!r} stands there twice, expected each "
                "once; remove one"
            )
        if not question.answers and not with_unanswerable:
            raise UserError(
                f"{source}: question {question.example_id!r} has no answer, expected one for every "
                "question of SQuAD 1.1; give task squad-v2.0"
            )
        by_id[question.example_id] = question
    if not by_id:
        raise UserError(f"{source} holds no question; give a file in the layout of SQuAD")
    ordered = [by_id[example_id] for example_id in sorted(by_id)]
    places: dict[str, int] = {}
    context_of = [places.setdefault(question.context, len(places)) for question in ordered]
    return SquadExamples(
        example_ids=[question.example_id for question in ordered],
        questions=[question.question for question in ordered],
        titles=[question.title for question in ordered],
        contexts=list(places),
        context_of=np.array(context_of, np.int64),
        answers=[question.answers for question in ordered],
        answer_starts=[question.answer_starts for question in ordered],
    )
