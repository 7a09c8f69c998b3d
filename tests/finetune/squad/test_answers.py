"""Answers against a slow reading of the original's rules, and the texts of real answers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.metrics.squad import answer_words as normalised
from multiberts.finetune.squad.answers import (
    NO_CANDIDATE,
    AnswerFinder,
    SquadOptions,
    UnanswerableOptions,
    answer_text,
)
from multiberts.finetune.squad.questions import SquadExamples, read_squad
from multiberts.finetune.squad.windows import (
    SquadWindows,
    make_windows,
    read_contexts,
    training_answers,
)


def options_of(null_threshold: float | None, **others: int) -> SquadOptions:
    """None: of questions that all have an answer."""
    if null_threshold is None:
        return SquadOptions(**others)
    return UnanswerableOptions(null_threshold=null_threshold, **others)


def texts_of(vocabulary: Path, text: str) -> dict[str, tuple[str, int, int]]:
    """The answer for every run of pieces, by its pieces."""
    tokenizer = Vocabulary.open(vocabulary)
    (context,) = read_contexts(tokenizer, [text])
    found = {}
    for first, last in itertools.combinations_with_replacement(range(len(context.pieces)), 2):
        pieces = [tokenizer.pieces[number] for number in context.pieces[first : last + 1]]
        found[" ".join(pieces)] = answer_text(context, tokenizer.pieces, first, last)
    return found


def test_answers_stand_as_the_paragraph_has_them(vocabulary: Path) -> None:
    text = "Mary's  Café, told\tJohn."
    found = texts_of(vocabulary, text)
    assert found["mary"] == ("Mary", 0, 4)
    assert found["c ##a ##f ##e"] == ("Café", 8, 12)
    # Blanks between words are one blank in the answer, whatever they are in the paragraph.
    assert found["mary [UNK] s c ##a ##f ##e ,"] == ("Mary's Café,", 0, 13)
    assert found["told john"] == ("told John", 14, 23)
    assert found["john ."] == ("John.", 19, 24)
    for answer, start, end in found.values():
        assert " ".join(text[start:end].split()) == answer
    # Of equal runs in a word the first is taken, though the second is meant.
    assert texts_of(vocabulary, "bad-bad")["bad"] == ("bad", 0, 3)


def test_where_characters_do_not_match_the_whole_words_are_the_answer(vocabulary: Path) -> None:
    # A soft hyphen and a combining accent are dropped, so the tokens have fewer characters.
    assert texts_of(vocabulary, "the\u00adtap,")["the ##t ##a ##p"][0] == "the\u00adtap,"
    assert texts_of(vocabulary, "cafe\u0301,")["c ##a ##f ##e"][0] == "cafe\u0301,"
    # A piece that is unknown is not among the words' characters.
    assert texts_of(vocabulary, "mary§.")["mary [UNK]"][0] == "mary§."


@pytest.mark.parametrize(
    ("name", "unanswerable", "least"),
    [
        # As of dev-v2.0, which has half of the questions of dev-v1.1.
        pytest.param("train-v1.1.subset44", False, 0.992, marks=pytest.mark.slow),
        pytest.param("dev-v1.1", False, 0.996, marks=pytest.mark.slow),
        ("train-v2.0.subset10", True, 0.993),
        ("dev-v2.0.no_plausible", True, 0.998),
    ],
)
def test_real_answers_are_recovered(
    shared_data: Path, name: str, unanswerable: bool, least: float
) -> None:
    """The text of an answer's pieces is the answer, wherever the pieces are the answer's own."""
    tokenizer = Vocabulary.open(shared_data / "bert" / "vocab.txt")
    examples = read_squad(shared_data / "squad" / f"{name}.json.gz", with_unanswerable=unanswerable)
    one = dataclasses.replace(examples, answers=[texts[:1] for texts in examples.answers])
    contexts = read_contexts(tokenizer, examples.contexts)
    exact, own, total = 0, 0, 0
    for row, span in enumerate(training_answers(tokenizer, one, contexts, name)):
        assert span is not None
        if span == (-1, -1):
            continue
        context, official = contexts[examples.context_of[row]], one.answers[row][0]
        text, start, end = answer_text(context, tokenizer.pieces, *span)
        assert " ".join(context.text[start:end].split()) == " ".join(text.split())
        total, exact = total + 1, exact + (text == official)
        if context.pieces[span[0] : span[1] + 1].tolist() == tokenizer.encode(official):
            own += 1
            # But where the paragraph's characters do not match its tokens': the whole words then.
            assert normalised(text) == normalised(official) or _has_odd_characters(context.text)
    print(f"{name}: exactly recovered {exact} of {total}; {own} have pieces of their own")
    assert exact / total > least and own / total > least


def _has_odd_characters(text: str) -> bool:
    return any(
        unicodedata.category(letter) in ("Cf", "Mn", "Cc", "Co")
        or len(unicodedata.normalize("NFKD", letter)) > 1
        for letter in text
    )


@dataclasses.dataclass
class Slow:
    """The original's rules for one question, without arrays: pairs by rank, then a sorted list."""

    examples: SquadExamples
    finder: AnswerFinder

    def candidates(self, question: int) -> list[tuple[float, str, float, float]]:
        """Score, text, start logit, end logit; best first."""
        windows, options = self.finder.windows, self.finder.options
        mine = [w for w in range(len(windows)) if windows.question[w] == question]
        spans = {
            w: range(
                int(windows.first_piece[w]),
                int(
                    windows.first_piece[w]
                    + windows.features.lengths[w]
                    - windows.features.first_lengths[w]
                    - 1
                ),
            )
            for w in mine
        }
        context = self.finder.contexts[self.finder.context_of[question]]
        found, nulls = [], []
        for w in mine:
            size = int(windows.features.lengths[w])
            starts = [float(x) for x in self.finder.start_logits[w][:size]]
            ends = [float(x) for x in self.finder.end_logits[w][:size]]
            nulls.append((starts[0] + ends[0], "", starts[0], ends[0]))
            shift = int(windows.first_piece[w]) - int(windows.features.first_lengths[w])
            for s in sorted(range(size), key=lambda i: -starts[i])[: options.n_best_size]:
                for e in sorted(range(size), key=lambda i: -ends[i])[: options.n_best_size]:
                    first, last = s + shift, e + shift
                    if min(s, e) < windows.features.first_lengths[w] or max(s, e) >= size - 1:
                        continue
                    if not first <= last < first + options.max_answer_length:
                        continue
                    depth = {
                        v: min(first - span[0], span[-1] - first) + 0.01 * len(span)
                        for v, span in spans.items()
                        if first in span
                    }
                    if max(depth, key=lambda v: depth[v]) != w:
                        continue
                    text = answer_text(context, self.finder.vocabulary, first, last)[0]
                    found.append((starts[s] + ends[e], text, starts[s], ends[e]))
        if isinstance(options, UnanswerableOptions) and nulls:
            found.append(min(nulls, key=lambda null: null[0]))
        return sorted(found, key=lambda one: -one[0])

    def n_best(self, question: int) -> list[tuple[str, float, float]]:
        kept: list[tuple[str, float, float]] = []
        everything = self.candidates(question)
        for _, text, start, end in everything:
            if len(kept) < self.finder.options.n_best_size and text not in [k[0] for k in kept]:
                kept.append((text, start, end))
        if isinstance(self.finder.options, UnanswerableOptions) and "" not in [k[0] for k in kept]:
            kept += [(text, start, end) for _, text, start, end in everything if not text]
        return kept or [("empty", 0.0, 0.0)]


WORDS = [
    "mary", "john", "the", "a", "baker", "told", "asked", "cake", "wall", ",", "x", "Mary's",
    "café-bar",
]  # fmt: skip


def random_case(vocabulary: Path, seed: int, null_threshold: float | None) -> Slow:
    random = np.random.default_rng(seed)
    tokenizer = Vocabulary.open(vocabulary)
    contexts = [
        "  ".join(random.choice(WORDS, random.integers(0 if c == 3 else 1, 40))) for c in range(8)
    ]
    examples = SquadExamples(
        example_ids=[f"q{row}" for row in range(12)],
        questions=[" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(12)],
        titles=[""] * 12,
        contexts=contexts,
        context_of=random.integers(0, 8, 12),
        answers=[()] * 12,
        answer_starts=[()] * 12,
    )
    read = read_contexts(tokenizer, contexts)
    windows = make_windows(
        tokenizer, examples, read, sequence_length=24, stride=4, max_query_length=6
    )
    # Few values, and halves, so that scores and odds are often equal, in all bits.
    logits = np.round(2 * random.normal(size=(2, *windows.features.input_ids.shape))) / 2
    options = options_of(
        null_threshold,
        n_best_size=int(random.integers(2, 9)),
        max_answer_length=int(random.integers(1, 8)),
    )
    finder = AnswerFinder(
        tokenizer.pieces,
        read,
        examples.context_of,
        windows,
        *logits.astype(np.float32),
        options=options,
    )
    return Slow(examples, finder)


@pytest.mark.parametrize("null_threshold", [None, 0.0, -1.5])
@pytest.mark.parametrize("seed", range(8))
def test_random_scores_give_the_answers_of_the_slow_rules(
    vocabulary: Path, seed: int, null_threshold: float | None
) -> None:
    slow = random_case(vocabulary, seed, null_threshold)
    for question in range(len(slow.examples)):
        if not (slow.finder.windows.question == question).any():
            continue
        expected = slow.n_best(question)
        n_best = slow.finder.n_best(question)
        assert [(one.text, one.start_logit, one.end_logit) for one in n_best] == expected
        answer = slow.finder.answer(question)
        best = next((one for one in expected if one[0]), ("empty", 0.0, 0.0))
        assert (answer.best.text, answer.best.start_logit, answer.best.end_logit) == best
        if null_threshold is None:
            assert answer.chosen == answer.best and math.isnan(answer.null_odds)
        else:
            null = next(one for one in expected if not one[0])
            assert answer.null_odds == pytest.approx(sum(null[1:]) - sum(best[1:]), abs=1e-12)
            assert answer.chosen.text == ("" if answer.null_odds > null_threshold else best[0])


def test_cases_hold_what_they_should(vocabulary: Path) -> None:
    """The random cases have several windows, equal scores and questions without a candidate."""
    cases = [random_case(vocabulary, seed, -2.0) for seed in range(8)]
    windows: list[SquadWindows] = [case.finder.windows for case in cases]
    assert any(np.bincount(found.question).max() >= 4 for found in windows)
    scores = [[one[0] for one in case.candidates(q)] for case in cases for q in range(12)]
    assert any(len(set(row)) < len(row) for row in scores)
    assert any(case.finder.answer(q).best == NO_CANDIDATE for case in cases for q in range(12))
    answered = [bool(case.finder.answer(q).chosen.text) for case in cases for q in range(12)]
    assert 0.1 < np.mean(answered) < 0.9


def test_a_question_on_an_empty_paragraph_goes_unanswered(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    examples = SquadExamples(
        ["q0", "q1"], ["mary", "john"], ["", ""], [" ", "x"], np.array([0, 1]), [(), ()], [(), ()]
    )
    read = read_contexts(tokenizer, examples.contexts)
    windows = make_windows(
        tokenizer, examples, read, sequence_length=24, stride=4, max_query_length=6
    )
    assert windows.question.tolist() == [1]
    logits = np.zeros((2, *windows.features.input_ids.shape), np.float32)
    for threshold, text in ((0.0, ""), (None, "empty")):
        options = options_of(threshold)
        finder = AnswerFinder(
            tokenizer.pieces, read, examples.context_of, windows, *logits, options=options
        )
        assert finder.answer(0).chosen.text == text
        assert [one.text for one in finder.n_best(0)] == [text]
