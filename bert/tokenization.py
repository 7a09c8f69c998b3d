"""WordPiece tokenisation: text to the ids of the original BERT code, fast.

The original (google-research/bert, `tokenization.py`, FullTokenizer) is defined in terms of the
running Python's Unicode tables: drop control characters, set CJK ideographs apart, lower-case each
word in context, decompose (NFD), drop combining marks, split punctuation off, then greedy
longest-match WordPiece; a word of more than 200 characters is [UNK].

The original never looks across a space, so the ids of what stands between spaces are remembered: running
text repeats itself, and a look-up costs a fraction of cutting. What each character becomes is remembered,
too, and `str.translate` applies it. (Hugging Face `tokenizers` lower-cases character by character, without
the final sigma, has Unicode tables of another version, and takes five times as long for each new chunk.)

A cased model's text (`do_lower_case` false) is neither lower-cased nor decomposed; the rest is the same.

Reference: Devlin et al., NAACL 2019; recipe of Sellam et al., ICLR 2022.
"""

from __future__ import annotations

import array
import functools
import io
import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    PathLike,
    decoded,
    read_bytes,
    read_json_fields,
    write_json_fields,
)
from multiberts.runs.parameters import fits, shortened

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)

MAX_CHARACTERS_PER_WORD = 200
_CONTINUATION = "##"

# Files of transformers beside a vocabulary, and how their fields say that text is cut as by BERT. None: the
# field is missing, or null.
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_VOCABULARY = "vocab.txt"
TOKENS_FILES = ("special_tokens_map.json", "added_tokens.json")
_CLASS: dict[str, Sequence[Any]] = {
    "tokenizer_class": (
        "BertTokenizer", None, "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast",
        "ElectraTokenizer", "ElectraTokenizerFast",
    )
}  # fmt: skip
_AS_BERT: dict[str, dict[str, Sequence[Any]]] = {
    TOKENIZER: {
        "normalizer.type": ["BertNormalizer"],
        "normalizer.clean_text": [True],
        "normalizer.handle_chinese_chars": [True],
        "normalizer.lowercase": [True, False],
        "normalizer.strip_accents": [],  # as lowercase
        "pre_tokenizer.type": ["BertPreTokenizer"],
        "model.type": ["WordPiece", None],
        "model.unk_token": [UNK],
        "model.continuing_subword_prefix": [_CONTINUATION],
        # transformers allows half as long words as the original; both are read as the original's.
        "model.max_input_chars_per_word": [MAX_CHARACTERS_PER_WORD, 100],
    },
    TOKENIZER_CONFIG: {
        **_CLASS,
        "word_tokenizer_type": [None],
        "subword_tokenizer_type": [None],
        "do_basic_tokenize": [True, None],
        "never_split": [None, []],
        "strip_accents": [],  # as do_lower_case
        "tokenize_chinese_chars": [True, None],
    },
    "config.json": _CLASS,
    **{name: {} for name in TOKENS_FILES},
}

# The line separator, a piece in Google's Chinese vocabulary. No text becomes it: it parts words.
_STRIPPED = "\u2028"

# A vocabulary with fewer pieces per piece with a capital is one of a cased model.
_PIECES_PER_CASED = 100

# Bounds of the memory of chunks: about 200 MB when full, more chunks than 1 GB of English has often.
_MOST_CHUNKS_REMEMBERED = 500_000
_LONGEST_CHUNK_REMEMBERED = 100

# The words of printable ASCII, where each mark is punctuation to the original.
_ASCII_WORD = re.compile("[A-Za-z0-9]+|[^A-Za-z0-9 ]")

# Text without spaces is cut in blocks of about this many characters, to bound the memory.
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


# Where a text may be cut without another outcome: what ends a word, and where lower-casing ends, which looks
# past some marks (full stops, colons) for the letters around a sigma.
_CUT = re.compile(rf"[ \t\n\r\u3000,;!?()\[\]{{}}<>/+=|、。，！？]|{_CJK_IDEOGRAPH.pattern}")


def _as_bytes(*ids: int) -> bytes:
    return array.array("i", ids).tobytes()


class _Remembered(dict[Any, Any]):
    """Answers of a function by text, or by number of a character, found when first asked for."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: str | int) -> Any:
        found = self._find(key)
        # Text without spaces does not repeat itself, and would fill the memory.
        if isinstance(key, int) or len(key) <= _LONGEST_CHUNK_REMEMBERED:
            self[key] = found
        return found


class Tokenizer:
    """WordPiece tokeniser over one vocabulary file.

    Attributes:
      vocabulary: the pieces; a piece's place is its id.
      lower_case: whether text is lower-cased and loses its accents; false for a cased model.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
    """

    def __init__(self, vocabulary_path: PathLike):
        """Reads a vocabulary, one piece a line, and whether it is of a cased model (`lower_cases`).

        Args:
          vocabulary_path: `vocab.txt`, as released checkpoints have it.
        """
        path = Path(vocabulary_path)
        self.vocabulary: list[str] = read_vocabulary(path)
        self.size: int = len(self.vocabulary)
        self.lower_case: bool = lower_cases(path)
        self._ids = {piece: number for number, piece in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[token] for token in SPECIAL_TOKENS
        )
        # The ids of pieces by their beginnings, -1 for beginnings that are none.
        self._beginnings = dict.fromkeys(
            (piece[:end] for piece in self.vocabulary for end in range(1, len(piece))), -1
        )
        self._beginnings.update(self._ids)
        # Ids as bytes, which are joined faster than lists.
        self._words = _Remembered(self._ids_of_word)
        self._chunks = _Remembered(self._ids_of_chunk)

    def id_of(self, piece: str) -> int:
        return self._ids[piece]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; no [CLS] or [SEP] is added, and `[MASK]` is split like any text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text, the same as `encode` on each, faster."""
        ids, lengths = self.encode_flat(texts)
        flat = ids.tolist()
        ends = np.cumsum(lengths).tolist()
        return [flat[first:end] for first, end in itertools.pairwise([0, *ends])]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of many texts as one array, the fastest way.

        Returns:
          The ids of all texts one behind the other, int32 [tokens], and how many each text has,
          int64 [texts].
        """
        if max(len(self._chunks), len(self._words)) > _MOST_CHUNKS_REMEMBERED:
            self._chunks.clear()
            self._words.clear()
        look_up = self._chunks.__getitem__
        encoded = [b"".join(map(look_up, text.split(" "))) for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // _ID.itemsize
        return np.frombuffer(b"".join(encoded), _ID), lengths

    def _ids_of_chunk(self, chunk: str) -> bytes:
        look_up, lower_case = self._words.__getitem__, self.lower_case
        blocks = [chunk] if len(chunk) <= _BLOCK else _blocks(chunk)
        return b"".join([b"".join(map(look_up, _words_of(block, lower_case))) for block in blocks])

    def _ids_of_word(self, word: str) -> bytes:
        """Matches the longest pieces first; a word that cannot be covered is one [UNK]."""
        if len(word) > MAX_CHARACTERS_PER_WORD:
            return _as_bytes(self.unk_id)
        if word in self._ids:
            return _as_bytes(self._ids[word])
        ids: list[int] = []
        beginnings, start = self._beginnings, 0
        while start < len(word):
            piece, longest = _CONTINUATION if start else "", -1
            for place in range(start, len(word)):
                piece += word[place]
                number = beginnings.get(piece)
                if number is None:
                    break
                if number >= 0:
                    longest, end = number, place + 1
            if longest < 0:
                return _as_bytes(self.unk_id)
            ids.append(longest)
            start = end
        return _as_bytes(*ids)


def vocabulary_file(path: PathLike) -> Path:
    """Returns the file with the pieces of a `vocab.txt`: if that is missing, `tokenizer.json` beside it."""
    path = Path(path)
    beside = path.with_name(TOKENIZER)
    is_missing = path.name == _VOCABULARY and not path.is_file()
    return beside if is_missing and beside.is_file() else path


def vocabulary_bytes(path: PathLike) -> bytes:
    """Returns the content of a `vocab.txt`; of a `tokenizer.json`, that of the `vocab.txt` with its pieces.

    Args:
      path: of either, as `vocabulary_file` takes it.
    """
    path = vocabulary_file(path)
    if path.name != TOKENIZER:
        return read_bytes(path)
    said_to_lower_case(path)  # refuses a tokeniser that is not BERT's
    ids: Any = _tokenizer_fields(path).get("model.vocab")
    if not fits(ids, Mapping[str, int]):
        raise UserError(
            f"{path} holds no WordPiece vocabulary; put the model's vocab.txt beside it"
        )
    pieces = sorted(ids, key=lambda piece: ids[piece])
    # The library strips pieces, and so leaves nothing of this one.
    content = "".join(f"{piece or _STRIPPED}\n" for piece in pieces)
    if [ids[piece] for piece in pieces] != [*range(content.count("\n"))]:
        raise UserError(f"{path}: ids have gaps; put the model's vocab.txt beside it")
    return content.encode()


def read_vocabulary(path: PathLike) -> list[str]:
    """Reads and checks a vocabulary.

    Args:
      path: UTF-8 text, one piece a line; white space around a piece does not count. Or as `vocabulary_file`
        takes it.

    Returns:
      The pieces in order.
    """
    path = vocabulary_file(path)
    first_line: dict[str, int] = {}
    for line, text in enumerate(io.StringIO(decoded(vocabulary_bytes(path), path)), start=1):
        piece = text.strip() or _STRIPPED * (_STRIPPED in text)
        if not piece:
            raise UserError(
                f"{path} line {line}: found a blank line, expected a piece; ids are line numbers, "
                "so take the vocabulary file as it was released"
            )
        if piece in first_line:
            raise UserError(
                f"{path} line {line}: found the piece {piece!r} of line {first_line[piece]} again, "
                "expected each piece once; take the vocabulary file as it was released"
            )
        first_line[piece] = line
    for token in SPECIAL_TOKENS:
        if token not in first_line:
            raise UserError(
                f"{path} line {len(first_line)}: the file ends without the piece {token}, expected "
                f"all of {' '.join(SPECIAL_TOKENS)}; is it a BERT vocabulary (vocab.txt)?"
            )
    return list(first_line)


def lower_cases(vocabulary_path: PathLike) -> bool:
    r"""Returns whether text is lower-cased for a vocabulary.

    A `tokenizer.json` beside it decides, else `do_lower_case` of a `tokenizer_config.json`. Without these, a
    vocabulary is of a cased model if more than one piece of a hundred holds a capital, which lower-cased text
    never meets; a note says so. Files of a tokeniser that is not BERT's are refused.

    Args:
      vocabulary_path: a `vocab.txt`; where it is missing, the files beside it alone decide.

    Example:
      >>> path = getfixture("tmp_path") / "vocab.txt"
      >>> _ = path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nThe\n")
      >>> lower_cases(path)
      False
    """
    said = said_to_lower_case(vocabulary_path)
    if said is not None or not vocabulary_file(vocabulary_path).is_file():
        return said is not False
    if _looks_lower_cased(vocabulary_path):
        return True
    console.note_once(
        f"{vocabulary_path} holds capitals, so the model is taken for a cased one and text keeps its "
        f"capitals and accents; a {TOKENIZER_CONFIG} beside it with "
        '{"do_lower_case": true} would lower-case it'
    )
    return False


def overriding_file(vocabulary_path: PathLike) -> Path | None:
    """Returns the file beside a vocabulary that gives its text another case than its pieces suggest."""
    path = Path(vocabulary_path)
    said = said_to_lower_case(path) if path.is_file() else None
    if said is None or said == _looks_lower_cased(path):
        return None
    is_config = _tokenizer_fields(path.with_name(TOKENIZER_CONFIG)).get("do_lower_case") == said
    return path.with_name(TOKENIZER_CONFIG if is_config else TOKENIZER)


def vocabulary_difference(vocabulary_path: PathLike, other_path: PathLike) -> str | None:
    """Returns that two vocabularies differ, in their pieces or in the case of their text; None if not."""
    first, other = map(vocabulary_file, (vocabulary_path, other_path))
    if read_vocabulary(first) != read_vocabulary(other):
        return f"{first} and {other} differ"
    if lower_cases(first) != lower_cases(other):
        return f"{first} and {other} differ, as only one of them is cased"
    return None


def _looks_lower_cased(vocabulary_path: PathLike) -> bool:
    pieces = read_vocabulary(vocabulary_path)
    cased = [piece for piece in pieces if piece not in SPECIAL_TOKENS and piece.lower() != piece]
    return len(cased) * _PIECES_PER_CASED <= len(pieces)


def said_to_lower_case(vocabulary_path: PathLike) -> bool | None:
    """Returns whether the files beside a vocabulary lower-case text; None where they do not say.

    `tokenizer.json` decides, else `do_lower_case` of `tokenizer_config.json`. A tokeniser that is not BERT's
    is refused.
    """
    path = Path(vocabulary_path)
    files = [file for file in (path, *map(path.with_name, _AS_BERT)) if file.is_file()]
    states = ((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return _said_to_lower_case(path, *states)


# A `tokenizer.json` takes 35 ms, and every stage asks.
@functools.lru_cache(maxsize=8)
def _said_to_lower_case(vocabulary_path: Path, *_: tuple[str, int, int]) -> bool | None:
    folder = vocabulary_path.parent
    files = {name: _tokenizer_fields(folder / name) for name in _AS_BERT}
    library, said = files[TOKENIZER], files[TOKENIZER_CONFIG].get("do_lower_case")
    lower_case: bool | None = library.get("normalizer.lowercase", said)
    for name, values in files.items():
        for field, expected in _AS_BERT[name].items() if values else ():
            if library and field == "tokenizer_class":
                continue  # transformers 5 writes TokenizersBackend for any
            accents = (lower_case if name == TOKENIZER else said) is not False
            expected = expected or [None, accents]
            if values.get(field) not in expected:
                raise UserError(
                    f"{folder / name}: {field} is {json.dumps(values.get(field))}, expected "
                    f"{' or '.join(map(json.dumps, expected[:2]))}, as the original BERT does; take another "
                    "checkpoint, or correct the field where it is wrong"
                )
        for field, value in values.items():
            is_of_tokens = field.endswith(("_token", "_tokens", "_tokens_decoder"))
            others = {*(_contents(value) if is_of_tokens else ())} - {*SPECIAL_TOKENS}
            if others:
                raise UserError(
                    f"{folder / name}: {field} has {shortened(sorted(others))}, expected none but "
                    f"{' '.join(SPECIAL_TOKENS)}: others are cut like any text here; if no text holds "
                    "them, take them out of the file, else take another checkpoint"
                )
    if library and vocabulary_path.name != TOKENIZER and vocabulary_path.is_file():
        _refuse_other_pieces(folder / TOKENIZER, library.get("model.vocab"), vocabulary_path)
    if said not in (None, lower_case):
        console.note_once(
            f"{folder / TOKENIZER} decides, with lowercase {json.dumps(lower_case)}, though do_lower_case is "
            f"{json.dumps(said)} in {TOKENIZER_CONFIG}"
        )
    return lower_case


def _tokenizer_fields(path: Path) -> dict[str, Any]:
    """Returns the fields of a file; those inside a `tokenizer.json` as `normalizer.type`."""
    if not path.is_file():
        return {}
    # Without a limit of length, transformers writes `model_max_length` as a number of 31 digits.
    values = read_json_fields(path, {"do_lower_case": bool | None}, max_digits=40)
    if path.name == "added_tokens.json":
        return {"added_tokens": [*values]}
    parts = {name: part for name, part in values.items() if isinstance(part, dict)}
    if path.name == TOKENIZER and "model" not in parts:
        raise UserError(f"{path} holds no WordPiece vocabulary; copy it again")
    inner = {f"{name}.{field}": part[field] for name, part in parts.items() for field in part}
    return {**values, **(inner if path.name == TOKENIZER else {})}


def _contents(tokens: Any) -> list[str]:
    """Returns tokens, each a text or with a `content`, that lie alone, in a list, or by any name."""
    if isinstance(tokens, dict):
        tokens = [tokens["content"]] if "content" in tokens else [*tokens.values()]
    if isinstance(tokens, list):
        return [token for each in tokens for token in _contents(each)]
    return [tokens] if isinstance(tokens, str) else []


def _refuse_other_pieces(path: Path, ids: Any, vocabulary_path: Path) -> None:
    """Refuses a `tokenizer.json` whose pieces are not those of the vocabulary beside it."""
    ids = ids if isinstance(ids, dict) else {}
    theirs = {piece.strip(): number for piece, number in ids.items() if isinstance(number, int)}
    ours = {piece.strip(): number for number, piece in enumerate(read_vocabulary(vocabulary_path))}
    if differing := ours.items() ^ theirs.items():
        piece, _ = min(differing, key=lambda item: item[1])
        raise UserError(
            f"{path}: the piece {piece!r} has the id {theirs.get(piece, 'none')}, and "
            f"{ours.get(piece, 'none')} in {vocabulary_path}, expected one vocabulary; remove the file "
            "that is not the model's"
        )


def write_lower_case(vocabulary_path: PathLike, folder: PathLike) -> list[str]:
    """Writes a `tokenizer_config.json` for a copy of a vocabulary, which is cased or would mislead alone.

    Returns:
      The names of what was written: one or none.
    """
    lower_case = lower_cases(vocabulary_path)
    if lower_case and _looks_lower_cased(vocabulary_path):
        return []
    write_json_fields(Path(folder) / TOKENIZER_CONFIG, {"do_lower_case": lower_case})
    return [TOKENIZER_CONFIG]


def split_words(text: str, *, lower_case: bool = True) -> Iterator[str]:
    """Normalises a text and cuts it into words: all of the tokeniser but WordPiece.

    Args:
      text: any string, lone surrogates included.
      lower_case: false for a cased model.

    Yields:
      Words, in lower case and without accents or as they are; each punctuation mark and CJK ideograph is one.
    """
    return itertools.chain.from_iterable(_words_of(block, lower_case) for block in _blocks(text))


def _blocks(text: str) -> Iterator[str]:
    """Cuts a text into blocks whose words are those of the text; one is long only where a word is."""
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
    """Returns what the first pass makes of a character: nothing, a space, itself, or itself set apart."""
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
    """Returns whether a character is punctuation: visible ASCII but letters and digits, and Unicode's."""
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
