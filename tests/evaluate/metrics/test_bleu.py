"""Corpus BLEU against sacrebleu on the replicate itself."""

import gzip
import json

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from multiberts.evaluate.metrics.bleu import tokens_13a
from multiberts.evaluate.metrics.register import METRICS

BLEU = METRICS["bleu"]
SENTENCES = st.lists(
    st.sampled_from(["the", "The", "cat", "sat", "on", "mat", ".", "1,000", "a-b"]), max_size=9
).map(" ".join)


def corpus_bleu(labels, predictions, counts):
    """sacrebleu's score of the sample, references padded by None where an example has fewer."""
    drawn = np.repeat(np.arange(len(labels)), counts)
    most = max(len(labels[example]) for example in drawn)
    padded = [list(labels[example]) + [None] * (most - len(labels[example])) for example in drawn]
    streams = [list(stream) for stream in zip(*padded, strict=True)]
    return sacrebleu.corpus_bleu([predictions[example] for example in drawn], streams).score


@given(
    st.lists(
        st.tuples(st.lists(SENTENCES, min_size=1, max_size=3), SENTENCES, st.integers(0, 3)),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=200, deadline=None)
def test_equal_to_sacrebleu_on_the_replicate(rows):
    """Short texts: orders without a match, or without an n-gram at all, come up."""
    references, predictions, counts = zip(*rows, strict=True)
    labels = np.empty(len(rows), dtype=object)
    labels[:] = [tuple(texts) for texts in references]
    weights = np.array(counts)
    if not weights.any():
        return
    ours = BLEU.score(labels, list(predictions), weights)
    assert ours == pytest.approx(corpus_bleu(labels, predictions, weights), abs=1e-10)


def test_ordinary_texts_with_several_runs():
    random = np.random.default_rng(0)
    text = "a man in red coat walks by the old river , and sings : it's 3.5 km ."
    words = np.array(text.split())
    labels = np.empty(40, dtype=object)
    labels[:] = [
        tuple(
            " ".join(random.choice(words, random.integers(6, 20))) for _ in range(1 + example % 3)
        )
        for example in range(40)
    ]
    predictions = np.array(
        [
            [
                " ".join(random.permutation(label[0].split())[: 6 + run])
                if random.random() < 0.5
                else label[-1]
                for label in labels
            ]
            for run in range(3)
        ],
        dtype=object,
    )
    weights = random.multinomial(40, np.full(40, 1 / 40), size=5)
    ours = BLEU.score(labels, predictions, weights)
    for run in range(3):
        for replicate in range(5):
            theirs = corpus_bleu(labels, predictions[run], weights[replicate])
            assert 5 < theirs < 100
            assert ours[run, replicate] == pytest.approx(theirs, abs=1e-10)


@given(st.text(alphabet="aB9 .,-&;'\"<>()!?[]\\^_`{|}~/:@#$%*+=\n\téß中", max_size=30))
@settings(max_examples=500, deadline=None)
def test_tokens_equal_sacrebleus(text):
    assert tokens_13a(text) == Tokenizer13a()(text.rstrip()).split()


def test_tokens_of_every_ascii_character_and_entity():
    for text in (
        *(f"a{chr(code)}b 1{chr(code)}2 a{chr(code)}1 1{chr(code)}a" for code in range(32, 127)),
        "&quot;x&quot; &amp;lt; &lt;skipped&gt; <skipped>y re-\nturn",
    ):
        assert tokens_13a(text) == Tokenizer13a()(text.rstrip()).split()


def test_tokens_of_real_text(shared_data):
    path = shared_data / "squad" / "dev-v1.1.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    tokenizer = Tokenizer13a()
    for article in articles[::6]:
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            assert tokens_13a(text) == tokenizer(text.rstrip()).split()


def test_degenerate_replicates_are_counted():
    labels = np.array(["a b c d e", "f g"], dtype=object)
    bound = BLEU.bind(labels, ["a b c d e", "f g"])
    columns = bound.columns(labels, np.array(["a b c d e", "f g"]))
    assert not bound.degenerate(columns.sum(axis=0)) and not bound.degenerate(columns[0])
    assert bound.degenerate(columns[1]) and bound.finish(columns[1]) == 0
    assert bound.finish(columns[0]) == pytest.approx(100)


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="bleu: example 1 has no reference"):
        BLEU.score([["a"], []], ["a", "b"])
    with pytest.raises(
        ValueError, match="bleu: found label 3, expected a tuple of reference texts"
    ):
        BLEU.score([3], ["a"])
