"""From questions and paragraphs to the encoder's sequences: overlapping windows of word pieces.

A paragraph is split into words at white space, and each word into word pieces. If question and
paragraph together are too long, windows slide over the paragraph by `stride` word pieces.

Reference: google-research/bert, run_squad.py, convert_examples_to_features; Devlin et al., 2019,
sections 4.2 and 4.3.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

import numpy as np

from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.features import SequenceFeatures, stacked_sequences
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import shortened

# The original splits words at these only; other Unicode spaces are part of words.
_WORD = re.compile("[^ \t\r\n\u202f]+")

# Weight of a window's length when contexts are compared, from the original's `_check_is_max_context`.
_LENGTH_BONUS = 0.01


@dataclasses.dataclass(frozen=True)
class SquadExamples:
    """Questions about paragraphs.

    Attributes:
      example_ids: official question ids, sorted.
      contexts: distinct paragraphs.
      context_of: int64 [questions]: number of each question's paragraph.
      answers: reference texts per question; empty if it has no answer.
      answer_starts: first character of each reference in the paragraph.
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


@dataclasses.dataclass(frozen=True)
class Context:
    """A paragraph with its words and word pieces.

    Attributes:
      text: the paragraph's text in the file.
      word_starts, word_ends: int64 [words]: a word is text[start:end].
      pieces: ids of the word pieces, int32 [pieces].
      word_of_piece: number of each piece's word, int64 [pieces].
    """

    text: str
    word_starts: np.ndarray
    word_ends: np.ndarray
    pieces: np.ndarray
    word_of_piece: np.ndarray


@dataclasses.dataclass(frozen=True)
class SquadWindows:
    """All windows, question by question.

    Attributes:
      features: sequences [CLS] question [SEP] window [SEP].
      question: int64 [windows]: row of the question in the examples.
      first_piece: int64 [windows]: the window's first piece in the paragraph.
      start_positions, end_positions: int32 [windows]: first and last position of the answer in the
        sequence; (0, 0) unless the window holds all of it.
    """

    features: SequenceFeatures
    question: np.ndarray
    first_piece: np.ndarray
    start_positions: np.ndarray
    end_positions: np.ndarray

    def __len__(self) -> int:
        return len(self.question)

    def of(self, questions: np.ndarray) -> SquadWindows:
        """Returns the windows of some questions."""
        rows = np.flatnonzero(np.isin(self.question, questions))
        features = self.features
        return SquadWindows(
            SequenceFeatures(
                features.input_ids[rows], features.lengths[rows], features.first_lengths[rows]
            ),
            self.question[rows],
            self.first_piece[rows],
            self.start_positions[rows],
            self.end_positions[rows],
        )

    @functools.cached_property
    def max_context(self) -> np.ndarray:
        """Returns bool [windows, longest]: whether a piece has its maximum context in this window.

        The context of a piece in a window is its distance to the nearer end.
        """
        features = self.features
        is_max = np.zeros(features.input_ids.shape, bool)
        begin = features.first_lengths.astype(np.int64)
        num_pieces = features.lengths - begin - 1
        bounds = np.searchsorted(self.question, np.unique(self.question))
        for first, end in zip(bounds, [*bounds[1:], len(self)], strict=True):
            best = best_windows(self.first_piece[first:end], num_pieces[first:end])
            for window in range(first, end):
                here = slice(
                    self.first_piece[window], self.first_piece[window] + num_pieces[window]
                )
                columns = slice(begin[window], begin[window] + num_pieces[window])
                is_max[window, columns] = best[here] == window - first
        return is_max


def best_windows(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns each piece's window of maximum context, the first on ties, int64 [pieces].

    Args:
      starts: first piece of each window, int64 [windows].
      lengths: pieces of each window, int64 [windows].
    """
    pieces = np.arange(int((starts + lengths).max()))
    left = pieces - starts[:, None]  # [windows, pieces]
    right = lengths[:, None] - 1 - left
    context = np.minimum(left, right) + _LENGTH_BONUS * lengths[:, None]
    returned: np.ndarray = np.where((left >= 0) & (right >= 0), context, -np.inf).argmax(axis=0)
    return returned


def read_contexts(tokenizer: Vocabulary, texts: Sequence[str]) -> list[Context]:
    """Splits paragraphs into words and word pieces."""
    spans = [[match.span() for match in _WORD.finditer(text)] for text in texts]
    words = [text[a:b] for text, cut in zip(texts, spans, strict=True) for a, b in cut]
    ids, lengths = tokenizer.encode_flat(words)
    contexts = []
    word, piece = 0, 0
    for text, cut in zip(texts, spans, strict=True):
        counts = lengths[word : word + len(cut)]
        total = int(counts.sum())
        bounds = np.array(cut, np.int64).reshape(-1, 2)
        contexts.append(
            Context(
                text,
                bounds[:, 0],
                bounds[:, 1],
                ids[piece : piece + total],
                np.repeat(np.arange(len(cut)), counts),
            )
        )
        word, piece = word + len(cut), piece + total
    return contexts


def window_starts(num_pieces: int, most: int, stride: int) -> list[int]:
    """Returns the first pieces of a paragraph's windows; none for an empty paragraph."""
    starts = [0] if num_pieces else []
    while starts and starts[-1] + most < num_pieces:
        starts.append(starts[-1] + min(most, stride))
    return starts


def answer_words(context: Context, text: str, start: int) -> tuple[int, int] | None:
    """Returns the first and last word of an answer; None unless they contain it, up to white space."""
    characters = np.array([start, start + len(text) - 1])
    first, last = np.searchsorted(context.word_starts, characters, side="right") - 1
    if first < 0:
        return None
    touched = slice(first, last + 1)
    bounds = zip(context.word_starts[touched], context.word_ends[touched], strict=True)
    words = [context.text[a:b] for a, b in bounds]
    return (int(first), int(last)) if " ".join(text.split()) in " ".join(words) else None


def answer_pieces(
    context: Context, words: tuple[int, int], answer: Sequence[int]
) -> tuple[int, int]:
    """Returns the first and last piece of an answer.

    Words may contain more than the answer ("(1895-1943)." for 1895), so the first match of the answer's
    pieces is used, if there is one.
    """
    first, end = np.searchsorted(context.word_of_piece, [words[0], words[1] + 1])
    wanted, pieces = list(answer), context.pieces[first:end].tolist()
    for offset in range(len(pieces) - len(wanted) + 1) if wanted else ():
        if pieces[offset : offset + len(wanted)] == wanted:
            return int(first) + offset, int(first) + offset + len(wanted) - 1
    return int(first), int(end) - 1


def training_answers(
    tokenizer: Vocabulary, examples: SquadExamples, contexts: Sequence[Context], source: str
) -> list[tuple[int, int] | None]:
    """Locates every question's answer in its paragraph for training.

    Returns:
      First and last piece per question; (-1, -1) if it has no answer; None if the paragraph does not
      contain the answer, so that the question cannot be trained on.
    """
    texts = [answers[0] if answers else "" for answers in examples.answers]
    encoded = tokenizer.encode_batch(texts)
    spans: list[tuple[int, int] | None] = []
    for row, answers in enumerate(examples.answers):
        if len(answers) > 1:
            raise UserError(
                f"{source}: question {shortened(examples.example_ids[row])} has {len(answers)} answers, "
                "expected one to train on; give a training file of SQuAD"
            )
        if not answers:
            spans.append((-1, -1))
            continue
        context, start = contexts[examples.context_of[row]], examples.answer_starts[row][0]
        if not (answers[0] and 0 <= start <= len(context.text) - len(answers[0])):
            raise UserError(
                f"{source}: question {shortened(examples.example_ids[row])}: answer_start {start} and an "
                f"answer of {len(answers[0])} characters, expected them inside the paragraph of "
                f"{len(context.text)}; correct the file"
            )
        words = answer_words(context, answers[0], start)
        spans.append(None if words is None else answer_pieces(context, words, encoded[row]))
    return spans


def make_windows(
    tokenizer: Vocabulary,
    examples: SquadExamples,
    contexts: Sequence[Context],
    *,
    sequence_length: int,
    stride: int,
    max_query_length: int,
    answers: Sequence[tuple[int, int] | None] | None = None,
) -> SquadWindows:
    """Splits all questions and their paragraphs into windows.

    Args:
      stride: word pieces from one window to the next.
      max_query_length: maximum word pieces of a question; longer ones are truncated.
      answers: result of `training_answers`; a question with None gets no windows. None: for prediction.
    """
    sequences, first_lengths = [], []
    rows: list[tuple[int, int, int, int]] = []
    for row, question in enumerate(tokenizer.encode_batch(examples.questions)):
        answer = (-1, -1) if answers is None else answers[row]
        if answer is None:
            continue
        context = contexts[examples.context_of[row]]
        head = [tokenizer.cls_id, *question[:max_query_length], tokenizer.sep_id]
        most = sequence_length - len(head) - 1
        for first in window_starts(len(context.pieces), most, stride):
            pieces = context.pieces[first : first + most]
            sequences.append(np.concatenate([head, pieces, [tokenizer.sep_id]]))
            first_lengths.append(len(head))
            holds = first <= answer[0] and answer[1] < first + len(pieces)
            positions = [piece - first + len(head) if holds else 0 for piece in answer]
            rows.append((row, first, positions[0], positions[1]))
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return SquadWindows(
        features=stacked_sequences(sequences, first_lengths),
        question=columns[0],
        first_piece=columns[1],
        start_positions=columns[2].astype(np.int32),
        end_positions=columns[3].astype(np.int32),
    )
