"""The tokeniser in the graph gives the ids and words of `bert.tokenization`."""

from __future__ import annotations

import functools
import importlib.util
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS, split_words
from multiberts.bert.vocabulary import Vocabulary
from multiberts.tests.bert.code_points import assigned_characters, telling_characters

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_text") is None, reason="needs the extra tensorflow"
)

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PIECES = [
    *SPECIAL_TOKENS,
    *LETTERS,
    *("##" + letter for letter in LETTERS),
    *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    *("the", "##ing", "ß", "##ß", "ς", "σ", "##ς", "##σ", "中", "ᄒ", "##ᅡ", "и", "\ue000"),
]
# Marks that are kept and reordered, and nonspacing ones with and without a class.
MARKS = "\u302e\u302f\u1b44\u1bf2\U0001d165\U0001d16d\u0301\u0323\u0901\u0345"
CONTEXTS = (
    "{}", "a{}b", "a{} {}", "{0}{0}.", "\u03a3{}", "a\u03a3{}", "a\u03a3{}b", "{}\u03a3",
    "a{}\u03a3", "x\u302e{}\u1b44\u0901\U0001d16d\u302e",
)  # fmt: skip


def random_strings(count: int, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    pools: list[Sequence[str]] = [
        LETTERS + "ABCXYZ  .,'[]#\t\n", assigned_characters(), MARKS, "ΑΣΣςσ\u0301\u0345. '-aİ\u00ad",
    ]  # fmt: skip
    for _ in range(count):
        yield "".join(draw.choice(draw.choice(pools)) for _ in range(draw.randrange(24)))


@pytest.fixture(scope="module")
def graph() -> Callable[[list[str]], list[list[str]]]:
    """The words of texts, by a compiled graph."""
    import tensorflow as tf

    from multiberts.bert.graph_tokenization import graph_words

    words = tf.function(graph_words, input_signature=[tf.TensorSpec([None], tf.string)])

    def decoded(texts: list[str]) -> list[list[str]]:
        return [[word.decode() for word in row] for row in words(tf.constant(texts)).to_list()]

    return decoded


@pytest.fixture(scope="module")
def make_graph_tokenizer() -> Callable[[Path], Callable[[list[str]], list[list[int]]]]:
    import tensorflow as tf

    from multiberts.bert.graph_tokenization import GraphTokenizer

    @functools.cache
    def make(vocabulary: Path) -> Callable[[list[str]], list[list[int]]]:
        tokenizer = GraphTokenizer(str(vocabulary))
        encode = tf.function(
            lambda texts: tokenizer(texts), input_signature=[tf.TensorSpec([None], tf.string)]
        )
        return lambda texts: encode(tf.constant(texts, tf.string)).to_list()

    return make


def differences(texts: list[str], graph: Any) -> list[str]:
    found = graph(texts)
    return [
        ascii(text)
        for text, words in zip(texts, found, strict=True)
        if words != list(split_words(text))
    ]


@pytest.mark.parametrize(
    ("context", "characters"),
    [
        ("{}", telling_characters),
        *(pytest.param(each, assigned_characters, marks=pytest.mark.slow) for each in CONTEXTS),
    ],
)
def test_words_are_ours_on_assigned_code_points(
    context: str, characters: Callable[[], Sequence[str]], graph: Any
) -> None:
    """Alone compares every character that a rule of tokenising names."""
    texts = [context.format(each, each) for each in characters()]
    assert len(texts) > (140_000 if characters is assigned_characters else 25_000)
    assert differences(texts, graph) == []


def test_words_are_ours_in_every_context(graph: Any) -> None:
    """Every context with a sample of the code points, and with all that are marks or beside sigma."""
    draw = random.Random(0)
    everything = assigned_characters()
    marks = [each for each in everything if unicodedata.combining(each)]
    sample = [*marks, *draw.sample(everything, 1000), "\ue000", "\U0010fffd", "\u0378", "\x00"]
    texts = [context.format(each, each) for context in CONTEXTS for each in sample]
    assert differences(texts, graph) == []


@pytest.mark.parametrize(
    ("count", "seeds"),
    [(5_000, range(1)), pytest.param(20_000, range(1, 51), marks=pytest.mark.slow)],
)
def test_words_are_ours_on_random_strings(graph: Any, count: int, seeds: range) -> None:
    for seed in seeds:
        assert differences(list(random_strings(count, seed)), graph) == []


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return path


def test_ids_are_ours(make_graph_tokenizer: Any, vocabulary: Path) -> None:
    texts = [
        *random_strings(2_000, seed=100), "", " ", "[MASK] [UNK]", "a" * 200, "a" * 201, "b" * 5_000,
        "\u0130" * 200, "\u0130" * 201, "\U0001d16d" * 200, "x " * 2_000, "##a", "\ufffd", "\ue000",
    ]  # fmt: skip
    graph = make_graph_tokenizer(vocabulary)
    assert graph(texts) == Vocabulary.open(vocabulary).encode_batch(texts)
    assert (graph([]), graph([""])) == ([], [[]])


@pytest.mark.slow
def test_a_cased_graph_keeps_capitals_and_accents() -> None:
    import tensorflow as tf

    from multiberts.bert.graph_tokenization import graph_words

    texts = [*random_strings(2000, seed=5), *(f"A{each}b {each}" for each in assigned_characters())]
    found = graph_words(tf.constant(texts), lower_case=False).to_list()
    for text, words in zip(texts, found, strict=True):
        assert [word.decode() for word in words] == list(split_words(text, lower_case=False))
