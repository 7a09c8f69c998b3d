"""WordPiece tokenisation: text to the ids of the original BERT code, fast.

The original (google-research/bert, `tokenization.py`, FullTokenizer) is defined in terms of the
running Python's Unicode tables: drop control characters, set CJK ideographs apart, lower-case each
word in context, decompose (NFD), drop combining marks, split punctuation off, then greedy
longest-match WordPiece; a word of more than 200 characters is [UNK].

The original treats the chunks between spaces independently, so their ids are cached: chunks recur in running
text, and a look-up is much faster than tokenisation. The mapping of each character is cached, too, and
applied by `str.translate`. (Hugging Face `tokenizers` lower-cases character by character, without the final
sigma, has Unicode tables of another version, and takes five times as long for each new chunk.)

A cased model's text (`do_lower_case` false) is neither lower-cased nor decomposed, but otherwise treated
equally.

Reference: Devlin et al., NAACL 2019; recipe of Sellam et al., ICLR 2022.
"""

from __future__ import annotations

import array
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)

MAX_CHARACTERS_PER_WORD = 200
CONTINUATION = "##"

# Bounds of the cache of chunks: about 200 MB when full, enough for the frequent chunks of 1 GB of English.
_MOST_CHUNKS_REMEMBERED = 500_000
_LONGEST_CHUNK_REMEMBERED = 100

# The words of printable ASCII, where each mark is punctuation to the original.
_ASCII_WORD = re.compile("[A-Za-z0-9]+|[^A-Za-z0-9 ]")

# Text without spaces is split into blocks of about this many characters, to bound the memory.
_BLOCK = 1 << 15

_ID = np.dtype("i")

# Blocks the original calls Chinese; kana and hangul are written in words and are not among them.
_CJK_IDEOGRAPHS = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_CJK_IDEOGRAPH = re.compile(
    "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _CJK_IDEOGRAPHS) + "]"
)


# Positions at which a text may be split without an effect on words or lower-casing, which looks past some
# marks (full stops, colons) for the letters around a sigma.
_CUT = re.compile(rf"[ \t\n\r\u3000,;!?()\[\]{{}}<>/+=|、。，！？]|{_CJK_IDEOGRAPH.pattern}")


def _as_bytes(*ids: int) -> bytes:
    return array.array("i", ids).tobytes()


class _Remembered(dict[Any, Any]):
    """Cached results of a function, by text or code point."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: str | int) -> Any:
        ids = self._find(key)
        # Text without spaces rarely recurs, and would fill the memory.
        if isinstance(key, int) or len(key) <= _LONGEST_CHUNK_REMEMBERED:
            self[key] = ids
        return ids


class WordPiece:
    """Converts text to ids, with a cache of chunks and words."""

    def __init__(self, ids: Mapping[str, int], lower_case: bool):
        """Prepares the look-up of pieces.

        Args:
          ids: {piece: id}.
          lower_case: whether to lower-case text and strip accents.
        """
        self._ids, self._lower_case = ids, lower_case
        self._unknown = _as_bytes(ids[UNK])
        # Ids of pieces and of their prefixes; -1 for prefixes that are not pieces.
        self._beginnings = dict.fromkeys(
            (piece[:end] for piece in ids for end in range(1, len(piece))), -1
        )
        self._beginnings.update(ids)
        # Ids as bytes, which are joined faster than lists.
        self._words = _Remembered(self._ids_of_word)
        self._chunks = _Remembered(self._ids_of_chunk)

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of many texts as one array.

        Returns:
          The concatenated ids of all texts, int32 [tokens], and the number of ids per text, int64 [texts].
        """
        if max(len(self._chunks), len(self._words)) > _MOST_CHUNKS_REMEMBERED:
            self._chunks.clear()
            self._words.clear()
        look_up = self._chunks.__getitem__
        encoded = [b"".join(map(look_up, text.split(" "))) for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // _ID.itemsize
        return np.frombuffer(b"".join(encoded), _ID), lengths

    def _ids_of_chunk(self, chunk: str) -> bytes:
        look_up, lower_case = self._words.__getitem__, self._lower_case
        blocks = [chunk] if len(chunk) <= _BLOCK else _blocks(chunk)
        return b"".join([b"".join(map(look_up, _words_of(block, lower_case))) for block in blocks])

    def _ids_of_word(self, word: str) -> bytes:
        """Matches the longest pieces first; a word without a full match becomes one [UNK]."""
        if len(word) > MAX_CHARACTERS_PER_WORD:
            return self._unknown
        if word in self._ids:
            return _as_bytes(self._ids[word])
        ids: list[int] = []
        beginnings, start = self._beginnings, 0
        while start < len(word):
            piece, longest = CONTINUATION if start else "", -1
            for last in range(start, len(word)):
                piece += word[last]
                number = beginnings.get(piece)
                if number is None:
                    break
                if number >= 0:
                    longest, end = number, last + 1
            if longest < 0:
                return self._unknown
            ids.append(longest)
            start = end
        return _as_bytes(*ids)


def split_words(text: str, *, lower_case: bool = True) -> Iterator[str]:
    """Normalises a text and splits it into words: the tokeniser without WordPiece.

    Args:
      text: any string, lone surrogates included.
      lower_case: false for a cased model.

    Yields:
      Words, in lower case and without accents or as they are; each punctuation mark and CJK ideograph is one.
    """
    return itertools.chain.from_iterable(_words_of(block, lower_case) for block in _blocks(text))


def _blocks(text: str) -> Iterator[str]:
    """Splits a text into blocks with the same words; a block is long only if a word is."""
    start = 0
    while len(text) - start > _BLOCK and (cut := _CUT.search(text, start + _BLOCK)):
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:] if start else text


def _words_of(text: str, lower_case: bool) -> list[str]:
    if text.isascii() and text.isprintable():
        text = text.lower() if lower_case else text
        return [text] if text.isalnum() else _ASCII_WORD.findall(text)
    text = text.translate(_CLEANED)
    if lower_case:
        # Lower-casing sees the whole token (final sigma) before punctuation is cut off.
        text = unicodedata.normalize("NFD", text.lower())
    return text.translate(_CUT_OFF[lower_case]).split()


def cleaned(character: str) -> str:
    """Returns the replacement of a character: empty, a space, itself, or itself between spaces."""
    if character in "\t\n\r ":
        return " "
    category = unicodedata.category(character)
    # Private-use and unassigned code points stay, as in the original: they make a word [UNK].
    if category in ("Cc", "Cf") or character == "\ufffd":
        return ""
    if category == "Zs":
        return " "
    if _CJK_IDEOGRAPH.match(character):
        return f" {character} "
    return character


def is_punctuation(character: str) -> bool:
    """Returns whether a character is punctuation: Unicode's, or visible ASCII except letters and digits."""
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


def _set_apart(character: str) -> str:
    return f" {character} " if is_punctuation(character) else character


def _without_marks(character: str) -> str:
    return "" if unicodedata.category(character) == "Mn" else _set_apart(character)


# For `str.translate`.
_CLEANED = _Remembered(lambda code: cleaned(chr(code)))
_CUT_OFF = {
    True: _Remembered(lambda code: _without_marks(chr(code))),
    False: _Remembered(lambda code: _set_apart(chr(code))),
}
