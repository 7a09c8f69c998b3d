"""A model's vocabulary: its pieces, and whether text keeps its case.

The pieces are the lines of `vocab.txt`, or, if that is missing, in `tokenizer.json` in the same folder. Files
of transformers in that folder define whether text is lower-cased; a tokeniser that is not BERT's is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.tokenization import (
    CONTINUATION,
    MAX_CHARACTERS_PER_WORD,
    SPECIAL_TOKENS,
    UNK,
    WordPiece,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, decoded, read_bytes, read_json_fields, write_json_fields
from multiberts.runs.parameters import fits, shortened

VOCABULARY = "vocab.txt"
# Files of transformers next to a vocabulary, and values of their fields for BERT's tokenisation. None: the
# field is missing, or null.
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
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
        "model.continuing_subword_prefix": [CONTINUATION],
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

# The line separator, a piece in Google's Chinese vocabulary. No text is mapped to it, as it separates words.
_STRIPPED = "\u2028"

# A vocabulary with fewer pieces per piece with a capital is one of a cased model.
_PIECES_PER_CASED = 100


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    r"""A vocabulary. Vocabularies with equal `vocab.txt` and case are equal, so they can be keys of caches.

    Attributes:
      where: the file with the pieces: a `vocab.txt` or a `tokenizer.json`.
      checksum: SHA-256 of `content`.
      lower_case: whether to lower-case text and strip accents; false for a cased model.
      overriding: file in the same folder whose case differs from that of the pieces, or None.

    Examples:
      >>> path = getfixture("tmp_path") / "vocab.txt"
      >>> _ = path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nThe\n")
      >>> vocabulary = Vocabulary.open(path)
      >>> vocabulary.lower_case, vocabulary.encode("The the")
      (False, [6, 5])
    """

    where: Path = dataclasses.field(compare=False)
    pieces: list[str] = dataclasses.field(compare=False, repr=False)
    content: bytes = dataclasses.field(compare=False, repr=False)
    checksum: str
    lower_case: bool
    overriding: Path | None = dataclasses.field(compare=False)
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @classmethod
    def open(cls, path: PathLike) -> Vocabulary:
        """Reads and checks a vocabulary and the files next to it; unchanged files give the same object.

        A `tokenizer.json` decides the case, else `do_lower_case` of a `tokenizer_config.json`. Without
        these, a vocabulary is of a cased model if more than one piece of a hundred holds a capital, which
        lower-cased text never meets; a note says so.

        Args:
          path: a `vocab.txt`; if it is missing, the `tokenizer.json` beside it has the pieces.
        """
        path = Path(path)
        states = [
            (file.name, stat.st_size, stat.st_mtime_ns, stat.st_ino)
            for file in (path, *map(path.with_name, _AS_BERT))
            if file.is_file() and (stat := file.stat())
        ]
        return _opened(path, *states)

    @property
    def identity(self) -> str:
        """Returns the SHA-256 of what decides tokens: the pieces and the case, wherever it is said."""
        return hashlib.sha256(f"{self.checksum} {self.lower_case}".encode()).hexdigest()

    @property
    def size(self) -> int:
        return len(self.pieces)

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces)}

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
        """Returns the ids of many texts as one array, the fastest way; see `WordPiece.encode_flat`."""
        return _word_piece(self).encode_flat(texts)

    def difference(self, other: Vocabulary) -> str | None:
        """Returns a message if two vocabularies differ in pieces or case, otherwise None."""
        if self.pieces != other.pieces:
            return f"{self.where} and {other.where} differ"
        if self.lower_case != other.lower_case:
            return f"{self.where} and {other.where} differ, as only one of them is cased"
        return None

    def write(self, folder: PathLike) -> list[str]:
        """Writes `vocab.txt`, and `tokenizer_config.json` if the pieces alone would not give the right case.

        Returns:
          The names of the files.
        """
        Path(folder, VOCABULARY).write_bytes(self.content)
        if self.lower_case and self.overriding is None:
            return [VOCABULARY]
        write_json_fields(Path(folder, TOKENIZER_CONFIG), {"do_lower_case": self.lower_case})
        return [VOCABULARY, TOKENIZER_CONFIG]


# Equal vocabularies of several checkpoints share a tokeniser, for its cache of chunks.
@functools.lru_cache(maxsize=2)
def _word_piece(vocabulary: Vocabulary) -> WordPiece:
    return WordPiece(vocabulary._ids, vocabulary.lower_case)


# A `tokenizer.json` takes 35 ms, and every stage asks.
@functools.lru_cache(maxsize=8)
def _opened(path: Path, *_: tuple[str, int, int, int]) -> Vocabulary:
    # The files.
    file = vocabulary_file(path)
    content = None if file.name == TOKENIZER else read_bytes(file)
    beside = _fields_beside(path.parent)
    library, config = beside[TOKENIZER], beside[TOKENIZER_CONFIG]
    said = _decided_case(path.parent, beside)
    ids: Any = library.get("model.vocab")
    if content is None:
        if not fits(ids, Mapping[str, int]):
            raise UserError(
                f"{file} holds no WordPiece vocabulary; put the model's vocab.txt beside it"
            )
        listed = sorted(ids, key=lambda piece: ids[piece])
        # The library strips pieces, which empties this one.
        content = "".join(f"{piece or _STRIPPED}\n" for piece in listed).encode()
        if [ids[piece] for piece in listed] != [*range(content.count(b"\n"))]:
            raise UserError(f"{file}: ids have gaps; put the model's vocab.txt beside it")

    # The pieces, which a `tokenizer.json` beside them has, too.
    first_line: dict[str, int] = {}
    text_of_pieces = decoded(content, file, may_be_utf_16=False)  # as checkpoints have its bytes
    for line, text in enumerate(io.StringIO(text_of_pieces), start=1):
        piece = text.strip() or _STRIPPED * (_STRIPPED in text)
        if not piece:
            raise UserError(
                f"{file} line {line}: found a blank line, expected a piece; ids are line numbers, "
                "so take the vocabulary file as it was released"
            )
        if piece in first_line:
            raise UserError(
                f"{file} line {line}: found the piece {piece!r} of line {first_line[piece]} again, "
                "expected each piece once; take the vocabulary file as it was released"
            )
        first_line[piece] = line
    for token in SPECIAL_TOKENS:
        if token not in first_line:
            raise UserError(
                f"{file} line {len(first_line)}: the file ends without the piece {token}, expected "
                f"all of {' '.join(SPECIAL_TOKENS)}; is it a BERT vocabulary (vocab.txt)?"
            )
    pieces = list(first_line)
    if library and file.name != TOKENIZER:
        numbers = ids.items() if isinstance(ids, dict) else ()
        theirs = {piece.strip(): number for piece, number in numbers if isinstance(number, int)}
        ours = {piece.strip(): number for number, piece in enumerate(pieces)}
        if differing := ours.items() ^ theirs.items():
            piece = min(differing, key=lambda item: item[1])[0]
            raise UserError(
                f"{path.with_name(TOKENIZER)}: the piece {piece!r} has the id {theirs.get(piece, 'none')}, "
                f"and {ours.get(piece, 'none')} in {file}, expected one vocabulary; remove the file "
                "that is not the model's"
            )

    # The case of text.
    if config.get("do_lower_case") not in (None, said):
        console.note_once(
            f"{path.with_name(TOKENIZER)} decides, with lowercase {json.dumps(said)}, though "
            f"do_lower_case is {json.dumps(config['do_lower_case'])} in {TOKENIZER_CONFIG}"
        )
    cased = [piece for piece in pieces if piece not in SPECIAL_TOKENS and piece.lower() != piece]
    looks_lower_cased = len(cased) * _PIECES_PER_CASED <= len(pieces)
    overriding = None
    if said is None and not looks_lower_cased:
        console.note_once(
            f"{file} holds capitals, so the model is taken for a cased one and text keeps its "
            f"capitals and accents; a {TOKENIZER_CONFIG} beside it with "
            '{"do_lower_case": true} would lower-case it'
        )
    elif said not in (None, looks_lower_cased):
        is_config = config.get("do_lower_case") == said
        overriding = path.with_name(TOKENIZER_CONFIG if is_config else TOKENIZER)
    return Vocabulary(
        file,
        pieces,
        content,
        hashlib.sha256(content).hexdigest(),
        looks_lower_cased if said is None else said,
        overriding,
        *(pieces.index(token) for token in SPECIAL_TOKENS),
    )


def vocabulary_file(path: PathLike) -> Path:
    """Returns the file with the pieces of a `vocab.txt`: if that is missing, `tokenizer.json` beside it."""
    path = Path(path)
    beside = path.with_name(TOKENIZER)
    is_missing = path.name == VOCABULARY and not path.is_file()
    return beside if is_missing and beside.is_file() else path


def said_to_lower_case(folder: Path) -> bool | None:
    """Returns whether the tokeniser's files in a folder lower-case text; None if they do not define it."""
    return _decided_case(folder, _fields_beside(folder))


def _fields_beside(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the fields of the tokeniser's files; those inside a `tokenizer.json` as `model.vocab`."""
    beside = {}
    for name in _AS_BERT:
        path = folder / name
        kinds = {"do_lower_case": bool | None}
        values = read_json_fields(path, kinds) if path.is_file() else {}
        if name == "added_tokens.json" and values:
            values = {"added_tokens": [*values]}
        if name == TOKENIZER and path.is_file():
            parts = {name: part for name, part in values.items() if isinstance(part, dict)}
            if "model" not in parts:
                raise UserError(f"{path} holds no WordPiece vocabulary; copy it again")
            values |= {f"{n}.{field}": part[field] for n, part in parts.items() for field in part}
        beside[name] = values
    return beside


def _decided_case(folder: Path, beside: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Returns as `said_to_lower_case`; refuses a tokeniser that is not BERT's."""
    library, said = beside[TOKENIZER], beside[TOKENIZER_CONFIG].get("do_lower_case")
    lower_case: bool | None = library.get("normalizer.lowercase", said)
    for name, values in beside.items():
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
    return lower_case


def _contents(tokens: Any) -> list[str]:
    """Returns tokens (strings, or objects with a `content`) from a single token, a list, or a mapping."""
    if isinstance(tokens, dict):
        tokens = [tokens["content"]] if "content" in tokens else [*tokens.values()]
    if isinstance(tokens, list):
        return [token for each in tokens for token in _contents(each)]
    return [tokens] if isinstance(tokens, str) else []
