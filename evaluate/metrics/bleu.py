"""Corpus BLEU (Papineni et al., 2002), equal to sacrebleu's default, from 0 to 100.

Tokens as of mteval-v13a, case kept, n-grams up to 4, the closest reference length, and exponential
smoothing: the k-th order without a match counts 1 / 2^k matches. The label of an example is its
reference translations, a tuple of strings (or one string).

Smoothing looks at absolute totals, so that here alone scaling the sums changes the score, where an
order has no match.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Flags,
    Metric,
    stack,
)
from multiberts.evaluate.metrics.squad import check_texts, references_of

ORDERS = 4

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
# Punctuation is a token of its own, but for apostrophes, and periods, commas and dashes by digits.
_SPLITS = (
    (re.compile(r"""([ !"#$%&()*+/:;<=>?@\[\\\]^_`{|}~])"""), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)

Ngrams = Counter[tuple[str, ...]]


def tokens_13a(text: str) -> list[str]:
    """Splits a text into tokens as mteval-v13a, WMT's scorer, does."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, spaced in _SPLITS:
        text = pattern.sub(spaced, text)
    return text.split()


def _ngrams(tokens: list[str]) -> Ngrams:
    return Counter(
        tuple(tokens[start : start + order])
        for order in range(1, ORDERS + 1)
        for start in range(len(tokens) - order + 1)
    )


def _statistics(text: str, references: Ngrams, lengths: list[int]) -> list[int]:
    """Counts matches and totals by order, and the lengths of the text and the closest reference."""
    tokens = tokens_13a(text)
    matches = [0] * ORDERS
    for ngram, count in _ngrams(tokens).items():
        matches[len(ngram) - 1] += min(count, references[ngram])
    totals = [max(0, len(tokens) - order) for order in range(ORDERS)]
    closest = min(lengths, key=lambda length: (abs(length - len(tokens)), length))
    return [*matches, *totals, len(tokens), closest]


def _bind_bleu(labels: NDArray, predictions: NDArray) -> Columns:
    check_texts("bleu", labels, predictions)
    for position, label in enumerate(labels):
        if not references_of(label):
            raise ValueError(
                f"bleu: example {position} has no reference, expected at least one; leave it out"
            )
    return _bleu_columns


def _bleu_columns(labels: NDArray, predictions: NDArray) -> Array:
    runs = predictions.reshape(-1, len(labels))
    table = np.empty((*runs.shape, 2 * ORDERS + 2))
    for example, label in enumerate(labels):
        tokens = [tokens_13a(text) for text in references_of(label)]
        references: Ngrams = Counter()
        for reference in tokens:
            references |= _ngrams(reference)
        lengths = [len(reference) for reference in tokens]
        known: dict[str, list[int]] = {}  # runs often agree
        for run, text in enumerate(runs[:, example].tolist()):
            if text not in known:
                known[text] = _statistics(text, references, lengths)
            table[run, example] = known[text]
    columns = np.moveaxis(table.reshape(*predictions.shape, -1), -1, 0)
    return stack(predictions.shape, *columns)


def _bleu_finish(sums: Array) -> Array:
    matches, totals = sums[..., :ORDERS], sums[..., ORDERS : 2 * ORDERS]
    length, reference_length = sums[..., -2], sums[..., -1]
    missed = (matches <= 0) & (totals > 0)
    smoothed = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), matches)
    scored = np.asarray((matches > 0).any(axis=-1) & (totals > 0).all(axis=-1))
    precisions = np.where(scored[..., None], smoothed, 1.0) / np.where(totals > 0, totals, 1.0)
    brevity = np.exp(np.minimum(0.0, 1 - reference_length / np.where(length > 0, length, 1.0)))
    return np.where(scored, 100 * brevity * np.exp(np.log(precisions).mean(axis=-1)), 0.0)


def _bleu_degenerate(sums: Array) -> Flags:
    """Returns whether no text is long enough to hold an n-gram of every order."""
    return np.asarray((sums[..., ORDERS : 2 * ORDERS] <= 0).any(axis=-1))


BLEU = Metric(
    "bleu",
    BoundColumns(_bind_bleu),
    _bleu_finish,
    _bleu_degenerate,
    uses="text",
    bounds=(0.0, 100.0),
)
