"""Sets of questions: where they lie, and how they are read and cut, once a process."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from multiberts.finetune.content import FileContent, tokenizer_of
from multiberts.finetune.dataset_split import open_split
from multiberts.finetune.squad.data import SquadExamples, read_squad, read_squad_dataset
from multiberts.finetune.squad.windows import (
    Context,
    SquadWindows,
    make_windows,
    read_contexts,
    training_answers,
)
from multiberts.runs.errors import UserError

# What TensorFlow Datasets may call our splits.
SPLITS = {"train": ("train",), "dev": ("validation", "dev")}


@dataclasses.dataclass(frozen=True)
class SquadSource:
    """Where one set of questions lies.

    Attributes:
      name: `train`, `dev`, or the name of a further evaluation set.
      file: in the official layout; None for a dataset.
      dataset: a name in TensorFlow Datasets.
      datasets_dir: where prepared datasets lie; None: where TensorFlow Datasets keeps them.
    """

    name: str
    file: Path | None
    dataset: str | None = None
    datasets_dir: str | None = None

    def files(self) -> tuple[Path, ...]:
        """The files that decide what the questions are.

        Raises:
          UserError: there is no such dataset.
        """
        if self.dataset is None:
            return (Path(str(self.file)),)
        return open_split(self.dataset, SPLITS[self.name], self.datasets_dir).files

    def read(self, *, with_unanswerable: bool) -> SquadExamples:
        """Reads the questions.

        Raises:
          UserError: bad data.
        """
        if self.dataset is None:
            return read_squad(str(self.file), with_unanswerable=with_unanswerable)
        split = open_split(self.dataset, SPLITS[self.name], self.datasets_dir)
        return read_squad_dataset(split, with_unanswerable=with_unanswerable)


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How questions become sequences.

    Attributes:
      sequence_length: the most tokens of a sequence.
      doc_stride: from one window of a paragraph to the next, in pieces.
      max_query_length: pieces of a question that are kept.
      with_unanswerable: whether questions may have no answer (SQuAD 2.0).
    """

    sequence_length: int
    doc_stride: int
    max_query_length: int
    with_unanswerable: bool


@dataclasses.dataclass(frozen=True)
class SquadSet:
    """One set of questions, ready for the encoder."""

    examples: SquadExamples
    contexts: list[Context]
    windows: SquadWindows


# As many as the sets of one run and more: a run that goes through them in turn must find them all.
@functools.lru_cache(maxsize=16)
def prepared(
    files: tuple[FileContent, ...],
    source: SquadSource,
    vocabulary: FileContent,
    settings: WindowSettings,
    *,
    training: bool,
) -> SquadSet:
    """Reads and cuts a set, once a process."""
    tokenizer = tokenizer_of(vocabulary)
    examples = source.read(with_unanswerable=settings.with_unanswerable)
    contexts = read_contexts(tokenizer, examples.contexts)
    answers = None
    if training:
        answers = training_answers(tokenizer, examples, contexts, str(files[0].path))
        lost = answers.count(None)
        if lost:
            print(
                f"{files[0].path}: {lost} of {len(examples)} questions are left out of training, as "
                "their answers do not stand in their paragraphs"
            )
    windows = make_windows(
        tokenizer,
        examples,
        contexts,
        sequence_length=settings.sequence_length,
        stride=settings.doc_stride,
        max_query_length=settings.max_query_length,
        answers=answers,
    )
    if not len(windows):
        raise UserError(
            f"{files[0].path}: no question has an answer or a paragraph to learn from or to answer "
            "from, expected at least one; give another file"
        )
    return SquadSet(examples, contexts, windows)
