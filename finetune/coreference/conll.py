"""Documents with gold mentions in the CoNLL-2012 layout (Pradhan et al. 2012).

One word per line, a blank line after each sentence, `#begin document (name); part 000` and
`#end document` around each document. From the columns (tabs, or spaces in the original release) the
first is the document, the third the word's number, the fourth the word, the last the coreference
brackets: `(3|(5)` opens entity 3 and opens and closes entity 5. OntoGUM and LitBank use it too.

OntoNotes writes brackets as -LRB- and the like, and `/.`, `/?`, `/-` in web text; a model knows the
marks that they stand for.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, read_lines

_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>\S+))?\s*$")
_BRACKET = re.compile(r"(?P<open>\()?(?P<entity>[^()|]+)(?P<close>\))?$")
_FEWEST_COLUMNS = 5
# A folder's files are those of the first of these that any has: gold trees and names before automatic
# ones, whose coreference is the same.
_SUFFIXES = ("v4_gold_conll", "v4_auto_conll", "conll")
_ESCAPED = {
    **{"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"},
    **{"/.": ".", "/?": "?", "/-": "-"},
}


@dataclasses.dataclass(frozen=True)
class Mention:
    """A gold mention.

    Attributes:
      first, last: its first and last word, numbered through the document from 0.
      entity: what it refers to; equal within a document for mentions of one thing.
    """

    first: int
    last: int
    entity: str


@dataclasses.dataclass(frozen=True)
class Document:
    """One document (or one part of it).

    Attributes:
      mentions: in the order of their first word, then of their last.
    """

    name: str
    sentences: list[list[str]]
    mentions: list[Mention]


def conll_files(path: PathLike) -> list[Path]:
    """Returns a file itself, or the documents' files below a folder such as `data/train` of OntoNotes.

    Args:
      path: a file of any name, or a folder that is searched for `*.v4_gold_conll`, else
        `*.v4_auto_conll`, else `*.conll`, each plain or `.gz`.

    Returns:
      In the order of their paths.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    for suffix in _SUFFIXES:
        found = [*path.rglob(f"*.{suffix}"), *path.rglob(f"*.{suffix}.gz")]
        if found:
            return sorted(found)
    expected = ", ".join(f"*.{suffix}" for suffix in _SUFFIXES)
    raise UserError(f"{path} holds none of {expected}, expected documents below; give their folder")


def read_conll(path: PathLike) -> list[Document]:
    reader = _Reader(path)
    for number, line in enumerate(read_lines(path), start=1):
        reader.take(number, line)
    return reader.end()


class _Reader:
    """Reads lines one by one; keeps the document that is open."""

    def __init__(self, path: PathLike):
        self._path = path
        self._documents: list[Document] = []
        self._names: set[str] = set()
        self._name: str | None = None
        self._begin_line = 0

    def _refuse(self, number: int, found: str, cure: str) -> UserError:
        return UserError(f"{self._path} line {number}: {found}; {cure}")

    def take(self, number: int, line: str) -> None:
        if line.startswith("#begin document"):
            self._begin(number, line)
        elif line.startswith("#end document"):
            self._end_document(number)
        elif line.startswith("#"):
            return
        elif self._name is None:
            if line.strip():
                raise self._refuse(
                    number, "found a word outside a document, expected `#begin document (name); ...`",
                    "give a file in the CoNLL-2012 layout",
                )  # fmt: skip
        elif not line.strip():
            self._end_sentence()
        else:
            self._take_word(number, line)

    def _begin(self, number: int, line: str) -> None:
        match = _BEGIN.match(line)
        if match is None or self._name is not None:
            raise self._refuse(
                number,
                f"found {line!r}, expected `#begin document (name); part 000` after the end of the "
                "document before",
                "correct the line",
            )
        name = f"{match['name']}/{match['part'] or '0'}"
        if name in self._names:
            raise self._refuse(
                number, f"document {name!r} appears a second time, expected each once", "remove one"
            )
        self._names.add(name)
        self._name, self._begin_line = name, number
        self._sentences: list[list[str]] = []
        self._words: list[str] = []
        self._num_words = 0
        self._mentions: list[Mention] = []
        self._open: dict[str, list[tuple[int, int]]] = {}  # entity -> (first word, line) still open

    def _end_sentence(self) -> None:
        if self._words:
            self._sentences.append(self._words)
            self._words = []

    def _end_document(self, number: int) -> None:
        if self._name is None:
            raise self._refuse(
                number, "found the end of a document that did not begin", "remove it"
            )
        for entity, begun in self._open.items():
            if begun:
                raise self._refuse(
                    begun[-1][1],
                    f"the mention of entity {entity} that begins here has no end in its document",
                    f"add the closing `{entity})`",
                )
        self._end_sentence()
        mentions = sorted(self._mentions, key=lambda mention: (mention.first, mention.last))
        self._documents.append(Document(self._name, self._sentences, mentions))
        self._name = None

    def _take_word(self, number: int, line: str) -> None:
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) < _FEWEST_COLUMNS:
            raise self._refuse(
                number,
                f"found {counted(len(columns), 'column')}, expected at least {_FEWEST_COLUMNS} "
                "(document, part, "
                "word number, word, ..., coreference)",
                "give a file in the CoNLL-2012 layout",
            )
        word = self._num_words
        self._words.append(_ESCAPED.get(columns[3], columns[3]))
        self._num_words += 1
        brackets = columns[-1].strip()
        if brackets in ("-", "_", ""):
            return
        for bracket in brackets.split("|"):
            self._take_bracket(number, word, bracket)

    def _take_bracket(self, number: int, word: int, bracket: str) -> None:
        match = _BRACKET.match(bracket)
        if match is None or not (match["open"] or match["close"]):
            raise self._refuse(
                number,
                f"found {bracket!r} in the coreference column, expected `(3`, `3)` or `(3)`, several "
                "joined by `|`, or `-`",
                "correct the bracket",
            )
        entity = match["entity"]
        begun = self._open.setdefault(entity, [])
        if match["open"]:
            begun.append((word, number))
        if match["close"]:
            if not begun:
                raise self._refuse(
                    number, f"{bracket!r} closes a mention of entity {entity} that is not open",
                    f"add the opening `({entity}`",
                )  # fmt: skip
            self._mentions.append(Mention(begun.pop()[0], word, entity))

    def end(self) -> list[Document]:
        if self._name is not None:
            raise self._refuse(
                self._begin_line, f"document {self._name!r} has no `#end document`",
                "the file may be truncated: fetch it again",
            )  # fmt: skip
        if not self._documents:
            raise UserError(f"{self._path} holds no document; give a file in the CoNLL-2012 layout")
        return self._documents
