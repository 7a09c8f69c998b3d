"""Windows against the original's rules done slowly, another tokeniser's windows, and known counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.squad.questions import SquadExamples, read_squad
from multiberts.finetune.squad.windows import (
    SquadWindows,
    answer_pieces,
    answer_words,
    best_windows,
    make_windows,
    read_contexts,
    training_answers,
    window_starts,
)
from multiberts.runs.errors import UserError

RECIPE = {"sequence_length": 384, "stride": 128, "max_query_length": 64}


def examples_of(
    contexts: list[str], *questions: tuple[int, str, tuple[str, ...], tuple[int, ...]]
) -> SquadExamples:
    return SquadExamples(
        example_ids=[f"q{row}" for row in range(len(questions))],
        questions=[question for _, question, _, _ in questions],
        titles=[""] * len(questions),
        contexts=contexts,
        context_of=np.array([context for context, _, _, _ in questions]),
        answers=[answers for _, _, answers, _ in questions],
        answer_starts=[starts for _, _, _, starts in questions],
    )


def pieces_of(tokenizer: Vocabulary, windows: SquadWindows, row: int) -> list[str]:
    ids = windows.features.input_ids[row, : windows.features.lengths[row]]
    return [tokenizer.pieces[number] for number in ids]


def test_windows_go_on_by_the_stride_until_the_end_is_reached() -> None:
    assert window_starts(10, 10, 4) == [0]
    assert window_starts(11, 10, 4) == [0, 4]
    assert window_starts(14, 10, 4) == [0, 4]
    assert window_starts(15, 10, 4) == [0, 4, 8]
    assert window_starts(25, 10, 40) == [0, 10, 20]  # nothing is jumped over
    assert window_starts(0, 10, 4) == []


def test_a_longer_window_wins_where_the_contexts_are_nearly_equal() -> None:
    # Piece 341: 39 pieces behind it in the window of 381, 41 before it in that of 120. The original
    # adds 0.01 of a window's length: 42.81 against 42.20; and for piece 342, 41.81 against 43.20.
    best = best_windows(np.array([0, 300]), np.array([381, 120]))
    assert best[[340, 341, 342]].tolist() == [0, 0, 1]


def test_an_answer_is_the_first_run_of_pieces_that_is_its_own(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    (context,) = read_contexts(tokenizer, ["mary (bad-good-bad). told\u00a0the guest"])
    pieces = [tokenizer.pieces[number] for number in context.pieces]
    assert pieces[:9] == ["mary", "[UNK]", "bad", "[UNK]", "good", "[UNK]", "bad", "[UNK]", "."]
    # Words are cut at ordinary blanks only.
    assert [
        context.text[a:b] for a, b in zip(context.word_starts, context.word_ends, strict=True)
    ] == ["mary", "(bad-good-bad).", "told\u00a0the", "guest"]
    for text, start, expected in (
        ("good", 10, (4, 4)),
        ("bad", 15, (2, 2)),  # the first one, though the second is meant
        ("mary (bad", 0, (0, 2)),
        ("oo", 11, (1, 8)),  # a part of a piece: the whole word
        ("guest", 30, (11, 11)),
    ):
        assert context.text[start : start + len(text)] == text
        words = answer_words(context, text, start)
        assert words is not None
        assert answer_pieces(context, words, tokenizer.encode(text)) == expected, text
    assert answer_words(context, "good", 0) is None
    assert answer_words(context, "told the", 21) is None  # the paragraph has another blank there


def test_windows_without_the_whole_answer_train_on_nothing(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    context = "mary told john about the cake and the wall . anna rang again today ."
    examples = examples_of(
        [context, ""],
        (0, "the wall ?", ("the wall",), (context.index("the wall"),)),
        (0, "mary", (), ()),
        (1, "nothing to read", (), ()),
        (0, "lost", ("red",), (0,)),
        (0, "mary", ("the wall",), (context.index("the wall"),)),
    )
    contexts = read_contexts(tokenizer, examples.contexts)
    answers = training_answers(tokenizer, examples, contexts, "train.json")
    assert answers == [(7, 8), (-1, -1), (-1, -1), None, (7, 8)]
    windows = make_windows(
        tokenizer,
        examples,
        contexts,
        sequence_length=12,
        stride=3,
        max_query_length=2,
        answers=answers,
    )
    # [CLS] the wall [SEP], seven pieces, [SEP]: the question is cut to two pieces.
    found = {}
    for row in range(len(windows)):
        pieces = pieces_of(tokenizer, windows, row)
        span = windows.start_positions[row], windows.end_positions[row]
        found[windows.question[row], windows.first_piece[row]] = pieces[span[0] : span[1] + 1]
        assert len(pieces) <= 12
    assert found == {
        (0, 0): ["[CLS]"],
        (0, 3): ["the", "wall"],
        (0, 6): ["the", "wall"],
        (0, 9): ["[CLS]"],
        (1, 0): ["[CLS]"],
        (1, 3): ["[CLS]"],
        (1, 6): ["[CLS]"],
        (1, 9): ["[CLS]"],
        (4, 0): ["[CLS]"],  # eight pieces: the answer's first, but not its last
        (4, 3): ["the", "wall"],
        (4, 6): ["the", "wall"],
        (4, 9): ["[CLS]"],
    }
    assert pieces_of(tokenizer, windows, 0)[:4] == ["[CLS]", "the", "wall", "[SEP]"]
    part = windows.of(np.array([1]))
    assert set(part.question) == {1} and len(part) == int((windows.question == 1).sum())


def test_bad_training_answers_are_refused(vocabulary: Path) -> None:
    tokenizer = Vocabulary.open(vocabulary)
    for answers, starts, message in (
        (("mary", "mary"), (0, 0), "has 2 answers, expected one"),
        (("mary",), (9,), "answer_start 9 and an answer of 4 characters"),
        (("",), (0,), "an answer of 0 characters"),
    ):
        examples = examples_of(["mary rang"], (0, "the", answers, starts))
        with pytest.raises(UserError, match=message):
            training_answers(
                tokenizer, examples, read_contexts(tokenizer, examples.contexts), "train.json"
            )


@pytest.fixture(scope="module")
def published_tokenizer(shared_data: Path) -> Vocabulary:
    return Vocabulary.open(shared_data / "bert" / "vocab.txt")


def test_dev_has_as_many_windows_as_others_counted(
    shared_data: Path, published_tokenizer: Vocabulary
) -> None:
    """10833 sequences of length 384: the size of MLPerf Inference's BERT data set."""
    examples = read_squad(shared_data / "squad" / "dev-v1.1.json.gz", with_unanswerable=False)
    contexts = read_contexts(published_tokenizer, examples.contexts)
    windows = make_windows(published_tokenizer, examples, contexts, **RECIPE)
    assert len(windows) == 10833
    # Every piece of every paragraph is where it has most context once a question.
    per_question = np.bincount(windows.question, windows.max_context.sum(axis=1))
    pieces = np.array([len(context.pieces) for context in contexts])
    np.testing.assert_array_equal(per_question, pieces[examples.context_of])


def test_sequences_are_those_of_transformers(
    shared_data: Path, published_tokenizer: Vocabulary
) -> None:
    """Questions on the longest paragraphs, cut in windows by the library."""
    transformers = pytest.importorskip("transformers")
    library = transformers.BertTokenizerFast(vocab=str(shared_data / "bert" / "vocab.txt"))
    examples = read_squad(shared_data / "squad" / "dev-v1.1.json.gz", with_unanswerable=False)
    sizes = np.array([len(context) for context in examples.contexts])[examples.context_of]
    rows = np.argsort(-sizes, kind="stable")[:60].tolist()
    chosen = dataclasses.replace(
        examples,
        questions=[examples.questions[row] for row in rows],
        context_of=examples.context_of[rows],
    )
    contexts = read_contexts(published_tokenizer, examples.contexts)
    windows = make_windows(published_tokenizer, chosen, contexts, **RECIPE)
    assert len(windows) > 2 * len(rows)
    expected = []
    for row in rows:
        question = examples.questions[row]
        most = 384 - 3 - len(published_tokenizer.encode(question)[:64])
        expected += library(
            question,
            examples.contexts[examples.context_of[row]],
            truncation="only_second",
            max_length=384,
            stride=most - 128,  # the library says how much windows share
            return_overflowing_tokens=True,
        )["input_ids"]
    features = windows.features
    found = [ids[:n].tolist() for ids, n in zip(features.input_ids, features.lengths, strict=True)]
    assert found == expected
