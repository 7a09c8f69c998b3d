"""Questions in a graph: a question and a paragraph in, the answer out that `finetune/squad/` gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from multiberts.bert.graph_tokenization import runs_of
from multiberts.bert.model.heads import NOT_A_TOKEN, span_logits
from multiberts.bert.serving.graph_model import GraphModel, signature
from multiberts.bert.serving.question_settings import (
    LARGE,
    LENGTH_BONUS,
    NO_CANDIDATE,
    WORD_SEPARATORS,
    QuestionOptions,
)

_TEXTS = tf.TensorSpec([None], tf.string)
_SPACE = " "


def question_signatures(model: GraphModel) -> dict[str, Callable[..., Any]]:
    """Returns `questions`, with an answer for each, and `windows`, with the scores of all tokens."""
    names = [field.name for field in dataclasses.fields(QuestionOptions)]
    known = {name: model.options[name] for name in names if name in model.options}
    options, threshold = QuestionOptions(**known), model.options.get("null_threshold")

    def questions(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        paragraphs = _paragraphs(model, context)
        windows = _windows(model, options, question, paragraphs)
        best = _best_spans(windows, options)
        text, start, end = _answer_texts(model, paragraphs, best)
        answer = {"start_logit": best.start_logit, "end_logit": best.end_logit}
        if threshold is None:
            return {"prediction": text, "start": start, "end": end, **answer}
        null_odds = _null_scores(windows)
        null_odds -= tf.cast(best.start_logit, tf.float64)
        null_odds -= tf.cast(best.end_logit, tf.float64)
        is_null = null_odds > threshold
        return {
            "prediction": tf.where(is_null, "", text),
            "start": tf.where(is_null, tf.constant(-1, tf.int64), start),
            "end": tf.where(is_null, tf.constant(-1, tf.int64), end),
            **answer,
            "best_text": text,
            "null_odds": tf.cast(null_odds, tf.float32),
        }

    def all_windows(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        windows = _windows(model, options, question, _paragraphs(model, context))

        def by_question(values: tf.Tensor, padding: float) -> tf.Tensor:
            found = tf.RaggedTensor.from_row_lengths(values, windows.counts)
            return found.to_tensor(tf.cast(padding, values.dtype))

        return {
            "input_ids": by_question(windows.ids.to_tensor(), 0),
            "start_logits": by_question(windows.start_logits, NOT_A_TOKEN),
            "end_logits": by_question(windows.end_logits, NOT_A_TOKEN),
        }

    return {
        "questions": signature(questions, question=_TEXTS, context=_TEXTS),
        "windows": signature(all_windows, question=_TEXTS, context=_TEXTS),
    }


class _Paragraphs(NamedTuple):
    """Paragraphs with their words and word pieces.

    Attributes:
      words: string [words], all of the batch.
      starts, ends: int64 [words]: characters of the paragraph.
      tokens: string [words, (tokens)]: of each word those of the tokeniser.
      pieces: int32 [words, (pieces)].
      splits: int64 [batch + 1]: where the pieces of each paragraph begin.
    """

    words: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    tokens: tf.RaggedTensor
    pieces: tf.RaggedTensor
    splits: tf.Tensor


def _paragraphs(model: GraphModel, contexts: tf.Tensor) -> _Paragraphs:
    """Cuts paragraphs into words and word pieces; `finetune/squad/windows.py` does the same."""
    # A space before each: no word crosses from one into the next.
    codes = tf.strings.unicode_decode(tf.strings.join([_SPACE, contexts]), "UTF-8")
    separators = tf.constant([ord(character) for character in WORD_SEPARATORS])
    is_letter = tf.reduce_all(codes.values[:, None] != separators, axis=1)
    words, is_start = runs_of(codes.values, codes.value_rowids(), is_letter, codes.nrows())
    starts = tf.boolean_mask(tf.ragged.range(codes.row_lengths()).values, is_start) - 1
    sizes = tf.strings.length(words.values, unit="UTF8_CHAR")
    tokens = model.tokenizer.words(words.values)
    pieces = model.tokenizer.pieces_of_words(tokens)
    return _Paragraphs(
        words.values,
        starts,
        starts + tf.cast(sizes, tf.int64),
        tokens,
        pieces,
        tf.gather(pieces.row_splits, words.row_splits),
    )


class _Windows(NamedTuple):
    """Windows over paragraphs with the scores of their tokens; every question has at least one.

    Attributes:
      counts: int64 [batch]: of each question.
      question: int64 [windows].
      ids: int32 [windows, (tokens)].
      first_piece: int64 [windows]: the batch's piece that would stand at place 0 of the window.
      size: int64 [windows]: pieces of the paragraph in it; 0 where the paragraph has none.
      has_most_context: bool [windows, length].
      start_logits, end_logits: float32 [windows, length].
    """

    counts: tf.Tensor
    question: tf.Tensor
    ids: tf.RaggedTensor
    first_piece: tf.Tensor
    size: tf.Tensor
    has_most_context: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor


def _windows(
    model: GraphModel, options: QuestionOptions, questions: tf.Tensor, paragraphs: _Paragraphs
) -> _Windows:
    asked = model.tokenizer(questions)[:, : options.max_query_length]
    most = model.length - 3 - asked.row_lengths()
    step = tf.minimum(most, options.doc_stride)
    total = paragraphs.splits[1:] - paragraphs.splits[:-1]
    counts = 1 + (tf.maximum(total - most, 0) + step - 1) // step
    number = tf.ragged.range(counts)
    question = number.value_rowids()
    first = number.values * tf.gather(step, question)
    size = tf.minimum(tf.gather(most, question), tf.gather(total, question) - first)
    begin = tf.gather(paragraphs.splits, question) + first
    places = tf.ragged.range(begin, begin + size)  # the batch's pieces
    heads = tf.gather(asked, question)
    pieces = places.with_values(tf.gather(paragraphs.pieces.values, places.values))
    states, ids = model.encode([heads, pieces])
    mask = tf.ones_like(ids).to_tensor()
    start_logits, end_logits = span_logits(model.weights, states, mask)
    head_lengths = heads.row_lengths() + 2
    window = places.value_rowids()
    columns = tf.ragged.range(head_lengths, head_lengths + size).values
    most_context = tf.scatter_nd(
        tf.stack([window, columns], axis=1),
        tf.cast(_has_most_context(places, size), tf.int32),
        tf.shape(mask, tf.int64),
    )
    return _Windows(
        counts,
        question,
        ids,
        begin - head_lengths,
        size,
        most_context > 0,
        start_logits,
        end_logits,
    )


def _has_most_context(places: tf.RaggedTensor, size: tf.Tensor) -> tf.Tensor:
    """Returns bool [pieces of all windows]: whether this is the first window with most context of a piece.

    Args:
      places: int64 [windows, (pieces)], the batch's pieces.
      size: int64 [windows].
    """
    window, left = places.value_rowids(), tf.ragged.range(size).values
    right = tf.gather(size, window) - 1 - left
    bonus = LENGTH_BONUS * tf.cast(tf.gather(size, window), tf.float64)
    context = tf.cast(tf.minimum(left, right), tf.float64) + bonus
    return _is_first_best(context, places.values, window)


def _is_first_best(values: tf.Tensor, groups: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Returns whether each value is the largest of its group, and the first of those by `order`."""
    count = tf.reduce_max(tf.concat([groups, [-1]], 0)) + 1
    is_best = values == tf.gather(tf.math.unsorted_segment_max(values, groups, count), groups)
    later = tf.where(is_best, order, order.dtype.max)
    return later == tf.gather(tf.math.unsorted_segment_min(later, groups, count), groups)


class _Best(NamedTuple):
    """The best span of each question.

    Attributes:
      is_there: bool [batch]: whether there is any.
      first, last: int64 [batch]: the batch's pieces.
      start_logit, end_logit: float32 [batch].
    """

    is_there: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    start_logit: tf.Tensor
    end_logit: tf.Tensor


def _best_spans(windows: _Windows, options: QuestionOptions) -> _Best:
    """Chooses among the best starts and ends of each window; of equal ones the first window's."""
    lengths = tf.cast(windows.ids.row_lengths(), tf.int32)[:, None]
    width = tf.shape(windows.start_logits)[1]
    number = tf.minimum(options.n_best_size, width)
    inside = tf.range(width) < lengths

    def best_of(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found: tuple[tf.Tensor, tf.Tensor] = tf.math.top_k(
            tf.where(inside, logits, -math.inf), number
        )
        return found

    (start_logits, starts), (end_logits, ends) = map(
        best_of, (windows.start_logits, windows.end_logits)
    )
    starts_fit = tf.gather(windows.has_most_context, starts, batch_dims=1)
    size = ends[:, None, :] - starts[:, :, None] + 1  # [windows, starts, ends]
    fits = (size >= 1) & (size <= options.max_answer_length)
    fits &= starts_fit[:, :, None] & (ends < lengths - 1)[:, None, :]
    scores = tf.cast(start_logits, tf.float64)[:, :, None]
    scores += tf.cast(end_logits, tf.float64)[:, None, :]
    scores = tf.where(fits, scores, tf.constant(-math.inf, tf.float64))
    score, place = tf.math.top_k(tf.reshape(scores, [-1, number * number]), 1)
    order = tf.range(tf.size(place, tf.int64))
    window = tf.boolean_mask(order, _is_first_best(score[:, 0], windows.question, order))
    place = tf.gather(place[:, 0], window)
    is_there = tf.gather(score[:, 0], window) > -math.inf

    def chosen(values: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.gather(values, window), column, batch_dims=1)

    shift = tf.gather(windows.first_piece, window)
    first, last = (
        shift + tf.cast(chosen(values, column), tf.int64)
        for values, column in ((starts, place // number), (ends, place % number))
    )
    return _Best(
        is_there,
        first,
        last,
        tf.where(is_there, chosen(start_logits, place // number), 0.0),
        tf.where(is_there, chosen(end_logits, place % number), 0.0),
    )


def _null_scores(windows: _Windows) -> tf.Tensor:
    """Returns the score of no answer by the window that thinks it least likely, float64 [batch]."""
    sums = tf.cast(windows.start_logits[:, 0], tf.float64)
    sums += tf.cast(windows.end_logits[:, 0], tf.float64)
    sums = tf.where(windows.size > 0, sums, tf.constant(LARGE, tf.float64))
    return tf.math.segment_min(sums, windows.question)


def _answer_texts(
    model: GraphModel, paragraphs: _Paragraphs, best: _Best
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the texts that the spans stand for, and their first and last + 1 characters.

    `finetune.squad.answers.answer_text` does the same.
    """
    vocabulary = tf.constant(list(model.vocabulary))
    word_of_piece = paragraphs.pieces.value_rowids()

    def text_of(first: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        words = slice(word_of_piece[first], word_of_piece[last] + 1)
        original = tf.strings.reduce_join(paragraphs.words[words], separator=_SPACE)
        ids = paragraphs.pieces.values[first : last + 1]
        wanted = tf.strings.reduce_join(tf.gather(vocabulary, ids), separator=_SPACE)
        for continuation in (" ##", "##"):
            wanted = tf.strings.regex_replace(wanted, continuation, "")
        tokens = tf.strings.reduce_join(paragraphs.tokens[words].values, separator=_SPACE)
        begin, end = _place(wanted, tokens, original)
        # Characters of the paragraph: those of the words, and one for each blank between them.
        characters = tf.ragged.range(paragraphs.starts[words], paragraphs.ends[words] + 1).values
        text = tf.strings.substr(original, begin, end - begin, unit="UTF8_CHAR")
        return text, characters[begin], characters[end - 1] + 1

    none = (tf.constant(NO_CANDIDATE), tf.constant(-1, tf.int64), tf.constant(-1, tf.int64))

    def answer(span: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        is_there, first, last = span
        found: tuple[tf.Tensor, ...] = tf.cond(is_there, lambda: text_of(first, last), lambda: none)
        return found

    found: tuple[tf.Tensor, tf.Tensor, tf.Tensor] = tf.map_fn(
        answer,
        (best.is_there, best.first, best.last),
        fn_output_signature=(tf.string, tf.int64, tf.int64),
    )
    return found


def _place(
    wanted: tf.Tensor, tokens: tf.Tensor, original: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where `original` has the characters that are `wanted` in its tokenised form; int32 each."""
    parts = tf.strings.split(tokens[None], wanted).values
    places = tf.cast(
        tf.where(tf.strings.unicode_decode(original, "UTF-8") != ord(_SPACE)), tf.int32
    )
    is_found = (wanted != "") & (tf.size(parts) > 1) & (_letters(tokens) == tf.shape(places)[0])
    before = tf.where(is_found, _letters(parts[0]), 0)
    last = tf.where(is_found, before + _letters(wanted), tf.shape(places)[0]) - 1
    begin, end = places[before, 0], places[last, 0] + 1
    whole = tf.strings.length(original, unit="UTF8_CHAR")
    return tf.where(is_found, begin, 0), tf.where(is_found, end, whole)


def _letters(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.strings.regex_replace(text, _SPACE, ""), unit="UTF8_CHAR")
