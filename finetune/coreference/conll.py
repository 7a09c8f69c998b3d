"""Documents with gold mentions in the CoNLL-2012 layout (Pradhan et al. 2012).

One word per line, a blank line after each sentence, `#begin document (name); part 000` and
`#end document` around each document. The columns (tabs, or spaces in the original release): first the
document, third the word's number, fourth the word, last the coreference brackets: `(3|(5)` opens
entity 3 and opens and closes entity 5. OntoGUM and LitBank use this layout, too.

OntoNotes writes brackets as -LRB- and so on, and `/.`, `/?`, `/-` in web text; the reader restores the
plain marks, which a model knows.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, read_lines
from multiberts.runs.parameters import shortened

_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>\S+))?\s*$")
_BRACKET = re.compile(r"(?P<open>\()?(?P<entity>[^()|]+)(?P<close>\))?$")
_FEWEST_COLUMNS = 5
# Searched in this order, the first that a folder has: gold and automatic files have the same coreference,
# so reading both would repeat documents.
_SUFFIXES = ("v4_gold_conll", "v4_auto_conll", "conll")
_ESCAPED = {
    **{"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"},
    **{"/.": ".", "/?": "?", "/-": "-"},
}


@dataclasses.dataclass(frozen=True)
class Mention:
    """A gold mention.

    Attributes:
      first, last: first and last word, numbered through the document from 0.
      entity: id of the entity that it refers to, within the document.
    """

    first: int
    last: int
    entity: str


@dataclasses.dataclass(frozen=True)
class Document:
    """One document (or one part of it).

    Attributes:
      mentions: the mentions, sorted by first and last word.
    """

    name: str
    sentences: list[list[str]]
    mentions: list[Mention]


def conll_files(path: PathLike) -> list[Path]:
    """Returns a file itself, or the sorted documents below a folder such as `data/train` of OntoNotes.

    Args:
      path: a file of any name, or a folder that is searched for `*.v4_gold_conll`, else
        `*.v4_auto_conll`, else `*.conll`, each plain or `.gz`.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    for suffix in _SUFFIXES:
        paths = [*path.rglob(f"*.{suffix}"), *path.rglob(f"*.{suffix}.gz")]
        if paths:
            return sorted(paths)
    expected = ", ".join(f"*.{suffix}" for suffix in _SUFFIXES)
    raise UserError(f"{path} holds none of {expected}, expected documents below; give their folder")


def read_conll(path: PathLike) -> list[Document]:
    documents: dict[str, Document] = {}
    document: Document | None = None
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path} line {number}"
        if line.startswith("#begin document"):
            match = _BEGIN.match(line)
            if match is None or document is not None:
                raise UserError(
                    f"{where}: found {shortened(line)}, expected `#begin document (name); part 000` after "
                    "the end of the document before; correct the line"
                )
            name = f"{match['name']}/{match['part'] or '0'}"
            if name in documents:
                raise UserError(
                    f"{where}: document {shortened(name)} appears a second time, expected each once; remove "
                    "one"
                )
            document = documents[name] = Document(name, [], [])
            begin_line, num_words, is_within_sentence = number, 0, False
            open_mentions: dict[str, list[tuple[int, int]]] = {}  # entity -> (first word, line)
        elif line.startswith("#end document"):
            if document is None:
                raise UserError(
                    f"{where}: found the end of a document that did not begin; remove it"
                )
            for entity, begun in open_mentions.items():
                if begun:
                    raise UserError(
                        f"{path} line {begun[-1][1]}: the mention of entity {entity} that begins here has no "
                        f"end in its document; add the closing `{entity})`"
                    )
            document.mentions.sort(key=lambda mention: (mention.first, mention.last))
            document = None
        elif line.startswith("#"):
            continue
        elif not line.strip():
            is_within_sentence = False
        elif document is None:
            raise UserError(
                f"{where}: found a word outside a document, expected `#begin document (name); ...`; give a "
                "file in the CoNLL-2012 layout"
            )
        else:
            columns = line.split("\t") if "\t" in line else line.split()
            if len(columns) < _FEWEST_COLUMNS:
                raise UserError(
                    f"{where}: found {counted(len(columns), 'column')}, expected at least {_FEWEST_COLUMNS} "
                    "(document, part, word number, word, ..., coreference); give a file in the CoNLL-2012 "
                    "layout"
                )
            if not is_within_sentence:
                document.sentences.append([])
                is_within_sentence = True
            document.sentences[-1].append(_ESCAPED.get(columns[3], columns[3]))
            brackets = columns[-1].strip()
            for bracket in [] if brackets in ("-", "_", "") else brackets.split("|"):
                match = _BRACKET.match(bracket)
                if match is None or not (match["open"] or match["close"]):
                    raise UserError(
                        f"{where}: found {shortened(bracket)} in the coreference column, expected `(3`, `3)` "
                        "or `(3)`, several joined by `|`, or `-`; correct the bracket"
                    )
                entity = match["entity"]
                begun = open_mentions.setdefault(entity, [])
                if match["open"]:
                    begun.append((num_words, number))
                if match["close"]:
                    if not begun:
                        raise UserError(
                            f"{where}: {shortened(bracket)} closes a mention of entity {entity} that is not "
                            f"open; add the opening `({entity}`"
                        )
                    document.mentions.append(Mention(begun.pop()[0], num_words, entity))
            num_words += 1
    if document is not None:
        raise UserError(
            f"{path} line {begin_line}: document {shortened(document.name)} has no `#end document`; the file "
            "may be truncated: fetch it again"
        )
    if not documents:
        raise UserError(f"{path} holds no document; give a file in the CoNLL-2012 layout")
    return list(documents.values())
