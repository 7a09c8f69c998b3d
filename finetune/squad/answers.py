"""From scores of word pieces to answers in the paragraph's original text.

A candidate is a start and an end among the best of one window: in order, not too long, and with the
start in its window of most context. Word pieces are lower case without accents; the answer is the
paragraph's original text.

Reference: google-research/bert, run_squad.py, write_predictions and get_final_text.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from multiberts.bert.tokenization import split_words
from multiberts.evaluate.prediction_files.prediction_file import (
    BEST_TEXT,
    N_BEST_LOGITS,
    N_BEST_TEXTS,
    NULL_ODDS,
    PREDICTION_TEXT,
)
from multiberts.finetune.squad.windows import Context, SquadWindows
from multiberts.runs.parameters import PositiveInt

# The original's initial null score: a question without a window keeps it, so it gets no answer.
_LARGE = 1000000.0

# Windows per block, to bound memory: arrays of candidates are [windows, n_best_size, n_best_size].
_AT_ONCE = 2048


@dataclasses.dataclass(frozen=True)
class SquadOptions:
    """The options of questions that all have an answer.

    Attributes:
      doc_stride: word pieces from the start of one window of a long paragraph to the next.
      max_query_length: maximum word pieces of a question; longer ones are truncated.
      n_best_size: number of best starts, and of best ends, that answers are chosen from.
      max_answer_length: maximum word pieces of an answer.
      dump_n_best: whether to save the n best answers, too, for `multiberts export`.
    """

    doc_stride: PositiveInt = 128
    max_query_length: PositiveInt = 64
    n_best_size: PositiveInt = 20
    max_answer_length: PositiveInt = 30
    dump_n_best: bool = False


@dataclasses.dataclass(frozen=True)
class UnanswerableOptions(SquadOptions):
    """The options of questions that may have no answer.

    Attributes:
      doc_stride, max_query_length, n_best_size, max_answer_length, dump_n_best: see `squad-v1.1`.
      null_threshold: a question is unanswered if the score of no answer exceeds the best span's by more.
    """

    null_threshold: float = 0.0


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An answer to one question.

    Attributes:
      text: the answer; "" for no answer.
      start, end: span in the paragraph, text[start:end] up to white space; -1 for no answer.
      start_logit, end_logit: scores of the first and last piece.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class Answer:
    """A model's answer to one question.

    Attributes:
      chosen: the answer given, with the text "" for no answer.
      best: the best answer, even if none is given.
      null_odds: score of no answer minus that of `best`; NaN if every question has an answer.
    """

    chosen: Candidate
    best: Candidate
    null_odds: float


# The original's write_predictions gives this text if a question has no candidate.
NO_CANDIDATE = Candidate("empty", -1, -1, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Spans:
    """The candidates of all windows, window by window, best starts first.

    Attributes:
      window: number of the window, int64 [candidates].
      start, end: positions in the window's sequence, int64 [candidates].
      score: float64 [candidates]: sum of the two logits.
      bounds: int64 [windows + 1]: window w has the candidates bounds[w]:bounds[w + 1].
    """

    window: np.ndarray
    start: np.ndarray
    end: np.ndarray
    score: np.ndarray
    bounds: np.ndarray


@dataclasses.dataclass(frozen=True)
class AnswerFinder:
    """Finds answers in the logits of one run.

    Attributes:
      vocabulary: word pieces by id.
      context_of: number of each question's paragraph, int64 [questions].
      start_logits, end_logits: float32 [windows, longest].
    """

    vocabulary: Sequence[str]
    contexts: Sequence[Context]
    context_of: np.ndarray
    windows: SquadWindows
    start_logits: np.ndarray
    end_logits: np.ndarray
    options: SquadOptions
    lower_case: bool = True

    @functools.cached_property
    def _spans(self) -> Spans:
        rows = np.arange(len(self.windows))
        firsts = range(0, max(1, len(rows)), _AT_ONCE)
        parts = [self._spans_of(rows[first : first + _AT_ONCE]) for first in firsts]
        window, start, end, score = (np.concatenate(column) for column in zip(*parts, strict=True))
        counts = np.bincount(window, minlength=len(rows))
        return Spans(window, start, end, score, np.concatenate([[0], np.cumsum(counts)]))

    def _spans_of(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns window, start, end and score of the candidates of some windows."""
        windows, options = self.windows, self.options
        lengths = windows.features.lengths[rows, None]
        # Padding has logits, too, and must not be among the best.
        inside = np.arange(self.start_logits.shape[1]) < lengths
        # As in the original, pieces of the question may be among the best, too; [rows, n_best_size].
        starts, ends = (
            np.argsort(np.where(inside, -logits[rows], np.inf), axis=1, kind="stable")[
                :, : options.n_best_size
            ]
            for logits in (self.start_logits, self.end_logits)
        )
        # Excludes the question: `max_context` is true for pieces of the paragraph only.
        start_fits = np.take_along_axis(windows.max_context[rows], starts, axis=1)
        end_fits = ends < lengths - 1
        length = ends[:, None, :] - starts[:, :, None] + 1  # [rows, starts, ends]
        fits = (length >= 1) & (length <= options.max_answer_length)
        row, i, j = np.nonzero(fits & start_fits[:, :, None] & end_fits[:, None, :])
        start, end, window = starts[row, i], ends[row, j], rows[row]
        score = self.start_logits[window, start].astype(np.float64) + self.end_logits[window, end]
        return window, start, end, score

    def answer(self, question: int) -> Answer:
        """Returns the answer to a question (a row of the examples), possibly the null answer."""
        order = self._ordered(question)
        best = self._candidate(order[0]) if len(order) else NO_CANDIDATE
        null = self._null(question)
        if null is None or not isinstance(self.options, UnanswerableOptions):
            return Answer(best, best, math.nan)
        null_odds = null.score - best.start_logit - best.end_logit
        return Answer(null if null_odds > self.options.null_threshold else best, best, null_odds)

    def n_best(self, question: int) -> list[Candidate]:
        """Returns n_best_size distinct answers at most, best first; in SQuAD 2.0 plus the null answer."""
        null = self._null(question)
        by_text: dict[str, Candidate] = {}
        for span in self._ordered(question):
            if null is not None and self._spans.score[span] < null.score:
                by_text.setdefault(null.text, null)
            if len(by_text) >= self.options.n_best_size:
                break
            # As in the original, spans with equal texts are one answer, with the best score.
            candidate = self._candidate(span)
            by_text.setdefault(candidate.text, candidate)
        if null is not None:
            by_text.setdefault(null.text, null)
        return list(by_text.values()) or [NO_CANDIDATE]

    def _windows_of(self, question: int) -> slice:
        return slice(*np.searchsorted(self.windows.question, [question, question + 1]))

    def _ordered(self, question: int) -> np.ndarray:
        """Returns the candidates of a question, best first; ties go to the first window."""
        windows = self._windows_of(question)
        first, last = self._spans.bounds[[windows.start, windows.stop]]
        return np.asarray(first + np.argsort(-self._spans.score[first:last], kind="stable"))

    def _null(self, question: int) -> Candidate | None:
        """Returns the null answer with the lowest score of all windows; None in SQuAD 1.1."""
        if not isinstance(self.options, UnanswerableOptions):
            return None
        windows = self._windows_of(question)
        starts = self.start_logits[windows, 0].astype(np.float64)
        ends = self.end_logits[windows, 0].astype(np.float64)
        if not len(starts):
            return Candidate("", -1, -1, _LARGE, 0.0)
        least = int((starts + ends).argmin())
        return Candidate("", -1, -1, float(starts[least]), float(ends[least]))

    def _candidate(self, span: int) -> Candidate:
        spans, windows = self._spans, self.windows
        window, start, end = (
            int(column[span]) for column in (spans.window, spans.start, spans.end)
        )
        context = self.contexts[self.context_of[windows.question[window]]]
        # Sequences are [CLS] question [SEP] and then the paragraph's pieces.
        shift = int(windows.first_piece[window] - windows.features.first_lengths[window])
        text, first, last = answer_text(
            context, self.vocabulary, start + shift, end + shift, lower_case=self.lower_case
        )
        logits = self.start_logits[window, start], self.end_logits[window, end]
        return Candidate(text, first, last, float(logits[0]), float(logits[1]))


def answer_text(
    context: Context, vocabulary: Sequence[str], first: int, last: int, *, lower_case: bool = True
) -> tuple[str, int, int]:
    """Returns the original text of a paragraph's word pieces.

    Re-tokenises the words (without WordPiece). If the character counts match, characters are mapped one
    to one, and the first match of the pieces is the answer. Otherwise the whole words are the answer.

    Returns:
      The text, with single blanks as white space; and its span in the paragraph, end exclusive.
    """
    words = range(int(context.word_of_piece[first]), int(context.word_of_piece[last]) + 1)
    starts = [int(context.word_starts[word]) for word in words]
    ends = [int(context.word_ends[word]) for word in words]
    texts = [context.text[a:b] for a, b in zip(starts, ends, strict=True)]
    original = " ".join(texts)
    pieces = " ".join(vocabulary[number] for number in context.pieces[first : last + 1])
    wanted = " ".join(pieces.replace(" ##", "").replace("##", "").split())
    begin, end = _character_span(
        wanted, " ".join(token for text in texts for token in _tokens(text, lower_case)), original
    )
    # Paragraph position of each character of `original`, which has one blank between words.
    positions = [
        position
        for a, b in zip(starts, ends, strict=True)
        for position in range(a, b + 1)  # also the blank after the word
    ]
    return original[begin:end], positions[begin], positions[end - 1] + 1


def _character_span(wanted: str, tokens: str, original: str) -> tuple[int, int]:
    """Returns the span in `original` of the characters that match `wanted` in `tokens`."""
    start = tokens.find(wanted)
    positions = [position for position, character in enumerate(original) if character != " "]
    if start < 0 or not wanted or len(tokens.replace(" ", "")) != len(positions):
        return 0, len(original)
    before = start - tokens.count(" ", 0, start)
    size = len(wanted.replace(" ", ""))
    return positions[before], positions[before + size - 1] + 1


@functools.lru_cache(maxsize=100_000)
def _tokens(word: str, lower_case: bool) -> tuple[str, ...]:
    """Splits a word without white space into the tokeniser's words."""
    return tuple(split_words(word, lower_case=lower_case))


def answer_columns(answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns a run's answers as columns of its predictions.

    Returns:
      Columns [questions]:

      * `prediction_text`: the answer given, "" for no answer;
      * `start`, `end`: its span in characters of the paragraph, end exclusive; -1 for no answer;
      * `start_logit`, `end_logit`: scores of the best answer, given or not;
      * SQuAD 2.0: `best_text`, the best answer, given or not, and `null_odds`, the score of no answer
        minus that of the best answer.
    """
    columns: dict[str, Any] = {
        PREDICTION_TEXT: [answer.chosen.text for answer in answers],
        "start": np.array([answer.chosen.start for answer in answers], np.int64),
        "end": np.array([answer.chosen.end for answer in answers], np.int64),
        "start_logit": np.array([answer.best.start_logit for answer in answers], np.float32),
        "end_logit": np.array([answer.best.end_logit for answer in answers], np.float32),
    }
    if not any(math.isnan(answer.null_odds) for answer in answers):
        columns[BEST_TEXT] = [answer.best.text for answer in answers]
        columns[NULL_ODDS] = np.array([answer.null_odds for answer in answers], np.float32)
    return columns


def n_best_columns(lists: Sequence[Sequence[Candidate]]) -> dict[str, Any]:
    """Returns the n-best lists of all questions: texts, and their `start end` logits as texts."""
    return {
        N_BEST_TEXTS: [[candidate.text for candidate in candidates] for candidates in lists],
        N_BEST_LOGITS: [
            [f"{candidate.start_logit} {candidate.end_logit}" for candidate in candidates]
            for candidates in lists
        ],
    }
