"""The tokeniser as TensorFlow operations, for models with text inputs.

The words are the original's (`bert/tokenization.py`), not those of tensorflow-text's BertTokenizer, whose
Unicode tables are of another version. The mapping of every code point is taken from the running Python's
tables, so a graph gives the same ids on any machine; WordPiece is tensorflow-text's.

A flat array of code points goes through:

1. Capital sigma becomes final or not, by its neighbours: the only letter that str.lower() sees in context.
2. Each code point is replaced by what cleaning, lower-casing, decomposing (NFD) and cutting off make of it.
3. Combining marks are put in canonical order. Nonspacing marks, which are dropped, part others only
   where their class is 0, and such a one is kept until then as `_DROPPED`.
4. Runs between spaces are words.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from multiberts.bert.tokenization import MAX_CHARACTERS_PER_WORD, UNK, cleaned, is_punctuation

_SIGMA, _FINAL_SIGMA, _MEDIAL_SIGMA = 0x3A3, 0x3C2, 0x3C3
_SPACE = 0x20
_DROPPED = 0  # a control character, which cleaning removes from texts
_ITSELF = -1
# Effect of a neighbour on the lower case of capital sigma (Unicode, section 3.13).
_OTHER, _CASED, _IGNORED = 0, 1, 2
_BLOCK = 256
_BYTES_PER_CHARACTER = 4


class GraphTokenizer(tf.Module):
    """Converts text to ids, in a graph."""

    def __init__(self, vocabulary_path: str, *, lower_case: bool = True):
        """Creates the tables.

        Args:
          vocabulary_path: file with one piece per line, an asset of a saved model.
          lower_case: false for a cased model.
        """
        import tensorflow_text as tf_text

        super().__init__()
        self.lower_case = lower_case
        index = tf.lookup.TextFileIndex
        lines = tf.lookup.TextFileInitializer(
            vocabulary_path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
        )
        self._pieces = tf.lookup.StaticHashTable(lines, default_value=-1)
        self._wordpiece = tf_text.WordpieceTokenizer(
            self._pieces,
            max_bytes_per_word=_BYTES_PER_CHARACTER * MAX_CHARACTERS_PER_WORD,
            unknown_token=UNK,
        )

    def __call__(self, texts: Any) -> tf.RaggedTensor:
        """Returns the ids of texts; no [CLS] or [SEP] is added.

        Args:
          texts: string [batch], UTF-8.

        Returns:
          int32 [batch, (pieces)].
        """
        words = graph_words(texts, lower_case=self.lower_case)
        is_long = tf.strings.length(words.values, unit="UTF8_CHAR") > MAX_CHARACTERS_PER_WORD
        short_words = words.with_values(tf.where(is_long, UNK, words.values))
        return tf.cast(self._wordpiece.tokenize(short_words).merge_dims(1, 2), tf.int32)


def graph_words(texts: Any, *, lower_case: bool = True) -> tf.RaggedTensor:
    """Returns the words of texts, string [batch, (words)].

    Args:
      texts: string [batch], UTF-8.
      lower_case: false for a cased model.

    Examples:
      >>> graph_words(["Na\u00efve, no?", ""]).to_list()
      [[b'naive', b',', b'no', b'?'], []]
    """
    numbers, classes, combining, expansions = _tables(lower_case)
    texts = tf.convert_to_tensor(texts, tf.string)
    # A space at both ends separates neighbouring texts.
    ragged = tf.strings.unicode_decode(tf.strings.join([" ", texts, " "]), "UTF-8")
    codes, rows = ragged.flat_values, ragged.value_rowids()
    if lower_case:
        codes = tf.where(codes == _SIGMA, _lower_sigma(_look_up(classes, codes)), codes)

    expanded = tf.gather(tf.ragged.constant(expansions, tf.int32), _look_up(numbers, codes))
    character_of_code = expanded.value_rowids()
    rows = tf.gather(rows, character_of_code)
    expanded = expanded.flat_values
    codes = tf.where(expanded == _ITSELF, tf.gather(codes, character_of_code), expanded)

    if lower_case:
        codes = _in_canonical_order(codes, _look_up(combining, codes))
    is_kept = codes != _DROPPED
    codes, rows = tf.boolean_mask(codes, is_kept), tf.boolean_mask(rows, is_kept)

    # Runs between spaces; each text begins with a space.
    is_letter = codes != _SPACE
    is_start = is_letter & tf.concat([[True], ~is_letter], 0)[:-1]
    numbers_of_runs = tf.cumsum(tf.cast(is_start, tf.int64)) - 1
    row_of_run = tf.boolean_mask(rows, is_start)
    letters = tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(codes, is_letter),
        tf.boolean_mask(numbers_of_runs, is_letter),
        nrows=tf.size(row_of_run, tf.int64),
    )
    words = tf.strings.unicode_encode(letters, "UTF-8")
    return tf.RaggedTensor.from_value_rowids(words, row_of_run, nrows=tf.size(texts, tf.int64))


def _lower_sigma(classes: tf.Tensor) -> tf.Tensor:
    """Returns the lower case of a capital sigma: final after a cased letter and before none."""
    counts = classes != _IGNORED  # [characters], the first and last one a space
    seen = tf.boolean_mask(classes, counts)
    rank = tf.cumsum(tf.cast(counts, tf.int32))
    last = tf.size(seen) - 1
    before = tf.gather(seen, tf.clip_by_value(rank - 2, 0, last))
    after = tf.gather(seen, tf.clip_by_value(rank, 0, last))
    is_final = (before == _CASED) & (after != _CASED)
    return tf.where(is_final, _FINAL_SIGMA, _MEDIAL_SIGMA)


def _in_canonical_order(codes: tf.Tensor, combining: tf.Tensor) -> tf.Tensor:
    """Sorts each run of characters with combining classes above 0 by class."""
    count = tf.size(codes, tf.int64)
    runs = tf.cumsum(tf.cast(combining == 0, tf.int64))  # [characters]
    keys = (runs * 256 + tf.cast(combining, tf.int64)) * count + tf.range(count)
    return tf.gather(codes, tf.math.floormod(tf.sort(keys), tf.maximum(count, 1)))


def _look_up(table: tuple[np.ndarray, np.ndarray], codes: tf.Tensor) -> tf.Tensor:
    blocks, number_of_block = table
    block = tf.gather(number_of_block, codes // _BLOCK)
    return tf.gather(blocks, block * _BLOCK + codes % _BLOCK)


_Table = tuple[np.ndarray, np.ndarray]


@functools.cache
def _tables(lower_case: bool) -> tuple[_Table, _Table, _Table, list[list[int]]]:
    """Returns each code point's expansion, class beside sigma and combining class, and the expansions."""
    expansions: dict[tuple[int, ...], int] = {(_ITSELF,): 0}

    def number(character: str) -> int:
        return expansions.setdefault(_expansion(character, lower_case), len(expansions))

    numbers, classes, combining = map(_in_blocks, (number, _class_beside_sigma, _combining))
    return numbers, classes, combining, [list(expansion) for expansion in expansions]


@functools.cache
def _in_blocks(function: Callable[[str], int]) -> _Table:
    """Returns a function of code points as its distinct blocks, and the block of each code point."""
    values = np.full(sys.maxunicode + 1, function(chr(sys.maxunicode)), np.int32)
    # The other planes, three quarters of all, are unassigned or private: nothing is done to their characters.
    for planes in (slice(0x40000), slice(0xE0000, 0xF0000)):
        values[planes] = [function(chr(code)) for code in range(sys.maxunicode + 1)[planes]]
    blocks, number_of_block = np.unique(values.reshape(-1, _BLOCK), axis=0, return_inverse=True)
    return blocks.reshape(-1), number_of_block.reshape(-1).astype(np.int32)


def _expansion(character: str, lower_case: bool) -> tuple[int, ...]:
    expansion: list[int] = []
    text = cleaned(character)
    for part in unicodedata.normalize("NFD", text.lower()) if lower_case else text:
        if lower_case and unicodedata.category(part) == "Mn":
            expansion += [] if unicodedata.combining(part) else [_DROPPED]
        elif part.isspace():
            expansion.append(_SPACE)
        else:
            code = _ITSELF if part == character else ord(part)
            expansion += [_SPACE, code, _SPACE] if is_punctuation(part) else [code]
    return tuple(expansion)


def _class_beside_sigma(character: str) -> int:
    """Returns the effect of a character on a neighbouring capital sigma in Python's lower-casing."""
    if not cleaned(character):
        return _IGNORED
    if f"{character}\u03a3".lower()[-1] == "\u03c2":
        return _CASED
    return _IGNORED if f"a{character}\u03a3".lower()[-1] == "\u03c2" else _OTHER


def _combining(character: str) -> int:
    return 0 if unicodedata.category(character) == "Mn" else unicodedata.combining(character)
