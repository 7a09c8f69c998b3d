"""Reads text into documents, one at a time, from files or parts of files.

Layouts (`source_format`), text files plain or `.gz`, UTF-8, with or without a byte order mark:

* `sentences`: the original's. One sentence a line, a blank line between documents.
* `blank_lines`: documents between blank lines; what stands between is cut into sentences here.
* `raw`: one document a file, cut into sentences here.
* `wikiextractor`: documents between `<doc ... title="...">` and `</doc>` lines, cut into sentences
  here. The first line of a document is dropped where it repeats the title, and `&lt;`, `&gt;` and `&amp;`
  are the characters that they stand for, as WikiExtractor escapes its text.
* `jsonl`: one JSON object a line, its text in the field `text_field`, cut into sentences here. A line of
  WikiExtractor, which has the fields `id`, `title` and `url` with `?curid=` in it, is unescaped, too;
  no other is.
* `tfds`: not files but names of TensorFlow Datasets (`pretrain/corpus/dataset_source.py`).
* `store`: not text but corpora that `prepare` has made (read in `pretrain/corpus/shards.py`).

A plain file can be read in pieces: a piece is a range of bytes, and a document belongs to the piece in
which the line starts that opens it (the blank line before it, its `<doc ...>`, its JSON object). So
pieces that tile a file hold each document once, wherever the cuts fall.
"""

from __future__ import annotations

import glob
import html
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from multiberts.bert.tokenization import split_words
from multiberts.pretrain.corpus.sentences import sentences_of
from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import MOST_BYTES_NEEDED, open_unpacked, parse_json, refuse_bytes

FileFormat = Literal["sentences", "blank_lines", "raw", "wikiextractor", "jsonl"]
FILE_FORMATS = get_args(FileFormat)

# Formats whose files may be read in pieces, once decompressed.
DIVISIBLE_FORMATS = ("sentences", "blank_lines", "wikiextractor", "jsonl")

# Longer than any book; limited because a line is held in memory.
_MOST_BYTES_OF_LINE = 1 << 27

# With a larger share of one-sentence documents nearly every next segment would be random.
_MOST_LONE_SENTENCES = 0.9

_JOIN = (
    "join short texts of one thread or author; of text whose sentences have no marks at their ends, or small "
    "letters after them, write one sentence per line and blank lines between documents, as source_format "
    "'sentences' has it"
)
_CURES_OF_LONE_SENTENCES = {
    "sentences": "leave blank lines between documents only, and none between texts that belong together",
    "store": "prepare these anew, from documents of several sentences",
}

_AS_JSON_LINES = (
    "write its rows as JSON lines with to_json (pandas: lines=True), and give these as jsonl"
)

_DOCUMENT_START = re.compile(r"<doc\b([^>]*)>\s*$")
_DOCUMENT_END = re.compile(r"</doc>\s*$")
_TITLE = re.compile(r'\btitle="(.*)"')

_Line = tuple[int, str]  # offset in the (decompressed) file, text without line end


class Piece(NamedTuple):
    """A part of a source.

    Attributes:
      source: path of a file, or the name of a dataset or store.
      begin: first byte; of datasets and stores, first example or document.
      end: start of the next piece; None: the end of the source.
    """

    source: str
    source_format: str
    begin: int = 0
    end: int | None = None


class PieceCounts(NamedTuple):
    """Counts of documents in a byte range.

    Attributes:
      documents: non-blank documents; these are numbered throughout the corpus.
      documents_of_several: documents with more than one sentence.
    """

    documents: int
    documents_with_words: int
    documents_of_several: int


def expand_source(source: str) -> list[str]:
    """Returns the sorted files of a pattern such as `wiki/**/wiki_*`; an existing path is not a pattern."""
    if Path(source).is_dir():
        cure = f"give the files in it by a pattern such as {source}/**/*"
        if any(Path(source).glob("**/*.arrow")):
            cure = f"if `datasets` saved it, {_AS_JSON_LINES}"
        raise UserError(f"{source} is a folder, expected files; {cure}")
    if not glob.has_magic(source) or Path(source).exists():
        return [source]
    files = sorted(path for path in glob.glob(source, recursive=True) if Path(path).is_file())
    if not files:
        raise UserError(f"no file fits the pattern {source}; check the sources")
    return files


def name_sources(
    sources: Sequence[str], source_format: str | Sequence[str], function: str
) -> list[Piece]:
    """Lists every file of the sources with its format, without reading any.

    Args:
      sources: the user's paths; patterns are replaced by the matching files.
      source_format: the format of all, or one per source.
      function: the command's function, for messages.
    """
    parameter = f"{function}.sources"
    if isinstance(sources, str):
        raise UserError(
            f"{parameter} is {sources!r}, expected a list; put it in brackets: [{sources!r}]"
        )
    if not sources:
        raise UserError(f"{parameter} is {sources!r}, expected a list of files; name one at least")
    formats = [source_format] * len(sources) if isinstance(source_format, str) else source_format
    if len(formats) != len(sources):
        raise UserError(
            f"{function}.source_format names {len(formats)} formats for {len(sources)} sources; give "
            "one format for all, or one per source"
        )
    pieces = [
        Piece(file, kind)
        for source, kind in zip(sources, formats, strict=True)
        for file in (expand_source(source) if kind in FILE_FORMATS else [source])
    ]
    names: dict[str, str] = {}  # by the real path
    for piece in pieces:
        path = os.path.realpath(piece.source)
        if path in names:
            other = names[path]
            again = "twice" if other == piece.source else f"again, after {other}"
            raise UserError(
                f"{parameter} names {piece.source} {again}, so that its text would count double; name "
                "each source once"
            )
        names[path] = piece.source
    return pieces


def one_or_all(formats: Sequence[str]) -> str | list[str]:
    return formats[0] if len(set(formats)) == 1 else list(formats)


def read_documents(pieces: Iterable[Piece], text_field: str = "text") -> Iterator[list[str]]:
    """Yields the documents of files in order, with at most one in memory.

    Args:
      text_field: name of the text field of `jsonl`.

    Yields:
      The non-blank sentences of a document; documents without one are dropped.
    """
    for piece in pieces:
        for lines in read_lines_of_documents(piece, text_field):
            if sentences := list(cut_into_sentences(lines, piece.source_format)):
                yield sentences


def cut_into_sentences(lines: list[str], source_format: str) -> Iterator[str]:
    """Yields the sentences of a document given as lines, lazily."""
    return iter(lines) if source_format == "sentences" else sentences_of(lines)


def read_lines_of_documents(piece: Piece, text_field: str = "text") -> Iterator[list[str]]:
    """Yields the documents of a file, or of part of one, as lines, uncut, blank documents included."""
    if piece.source_format in ("sentences", "blank_lines"):
        return _read_between_blank_lines(piece)
    if piece.source_format == "raw":
        return iter([[line for _, line in _lines(Path(piece.source))]])
    if piece.source_format == "jsonl":
        return _read_json_lines(piece, text_field)
    return _read_wikiextractor(piece)


def count_documents(documents: Iterable[list[str]], source_format: str) -> PieceCounts:
    """Counts documents by reading them to the end, which also reveals errors.

    Args:
      documents: whole documents of a piece, see `read_lines_of_documents`.
    """
    not_blank = with_words = of_several = 0
    for lines in documents:
        not_blank += any(line.strip() for line in lines)
        # A document of characters that the tokeniser drops does not count.
        if any(any(split_words(line)) for line in lines):
            with_words += 1
            sentences = cut_into_sentences(lines, source_format)
            of_several += len(list(itertools.islice(sentences, 2))) > 1
    return PieceCounts(not_blank, with_words, of_several)


def check_counts(pieces: Sequence[Piece], counts: Sequence[PieceCounts]) -> None:
    """Refuses sources that cannot make instances, by the counts of their pieces."""
    documents: Counter[str] = Counter()  # by source
    groups: dict[tuple[str, str], list[tuple[str, PieceCounts]]] = {}
    for (source, source_format, *_), count in zip(pieces, counts, strict=True):
        documents[source] += count.documents_with_words
        # Blank lines can be wrong in one file; a file of another format may well hold one short document.
        group = (source_format, source if source_format == "sentences" else "")
        groups.setdefault(group, []).append((source, count))
    for source, number in documents.items():
        if not number:
            raise UserError(f"{source} holds no text, expected sentences; give another file")
    for (source_format, _), counts_by_source in groups.items():
        number = sum(count.documents_with_words for _, count in counts_by_source)
        lone = number - sum(count.documents_of_several for _, count in counts_by_source)
        first, *others = dict(counts_by_source)
        names = f"{first}{f' and {len(others)} more' if others else ''}"
        counted = f"{names}: {lone} of {number} documents have one sentence"
        if number > 1 and lone > _MOST_LONE_SENTENCES * number:
            raise UserError(
                f"{counted}, expected documents of several, as only a random segment can follow a lone one; "
                f"{_CURES_OF_LONE_SENTENCES.get(source_format, _JOIN)}"
            )
        if number > 1 and 2 * lone > number:
            note_once(f"{counted}; only a random segment can follow these")
    total = documents.total()
    if total < 2:
        raise UserError(
            f"{listed(documents)}: found {total} document, expected at "
            "least 2, as a random next segment comes from another document; add a source or mark "
            "where documents end"
        )


def _lines(path: Path, begin: int = 0) -> Iterator[_Line]:
    """Yields the lines of a UTF-8 file that start at byte `begin` or later, byte order mark dropped."""
    offset = begin
    try:
        with open_unpacked(path) as handle:
            start = handle.peek(MOST_BYTES_NEEDED)[:MOST_BYTES_NEEDED]
            if start[:4] == b"PAR1":
                raise UserError(f"{path} is Parquet, which is not read as text; {_AS_JSON_LINES}")
            refuse_bytes(path, start)
            if begin:
                # The line that holds the byte before starts earlier, unless that byte ends it.
                handle.seek(begin - 1)
                offset = begin - 1 + len(handle.readline())
            # A line is held in memory, and a file without line ends is not a text of documents.
            while data := handle.readline(_MOST_BYTES_OF_LINE + 1):
                if len(data) > _MOST_BYTES_OF_LINE:
                    raise UserError(
                        f"{_line_of(path, offset)}: the line is longer than {_MOST_BYTES_OF_LINE:,} bytes, "
                        "expected sentences or documents of text; give another file"
                    )
                try:
                    text = data.decode("utf-8-sig" if offset == 0 else "utf-8")
                except UnicodeDecodeError as error:
                    # `error.object` lacks the byte order mark that the codec took off.
                    byte_offset = offset + len(data) - len(error.object) + error.start
                    raise UserError(
                        f"{_line_of(path, offset)}: byte 0x{error.object[error.start]:02x} at offset "
                        f"{byte_offset} is not UTF-8; convert the file, for example with iconv"
                    ) from error
                yield offset, text.rstrip("\r\n")
                offset += len(data)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check the sources") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the sources") from error
    if offset == 0:
        raise UserError(f"{path} is empty; give a file with text in it")


def _line_of(path: Path, offset: int) -> str:
    """Returns file and line of an offset, for messages: lines are counted only where there is an error."""
    line = 1
    with open_unpacked(path) as handle:
        while offset > 0:
            block = handle.read(min(offset, 1 << 20))
            line += block.count(b"\n")
            offset -= len(block)
    return f"{path} line {line}"


def _read_between_blank_lines(piece: Piece) -> Iterator[list[str]]:
    """Documents whose preceding blank line, or the file's start, lies in the piece."""
    document: list[str] = []
    inside = piece.begin == 0
    for offset, line in _lines(Path(piece.source), piece.begin):
        text = line.strip()
        if text:
            if inside:
                document.append(text)
            continue
        if inside:
            yield document
        if piece.end is not None and offset >= piece.end:
            return
        inside, document = True, []
    if inside:
        yield document


def _read_json_lines(piece: Piece, text_field: str) -> Iterator[list[str]]:
    path = Path(piece.source)
    for offset, line in _lines(path, piece.begin):
        if piece.end is not None and offset >= piece.end:
            return
        if not line.strip():
            continue
        try:
            record = parse_json(line, "", allow_halves=True)
        except UserError as error:
            reason = str(error).removeprefix("is ").partition("; ")[0]
            raise UserError(
                f"{_line_of(path, offset)}: found {line[:40]!r}, which is {reason}, expected one object a "
                f"line; set source_format to the file's layout, or, of a table, {_AS_JSON_LINES}"
            ) from error
        text = record.get(text_field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            shown, cure = f"{line[:40]!r}", _AS_JSON_LINES
            if isinstance(record, dict) and text_field not in record:
                shown, cure = f"fields {listed(sorted(record))}", "give text_field='FIELD'"
            elif isinstance(record, dict) and not isinstance(text, dict):  # else pandas' columns
                shown = json.dumps(text)[:40]
                cure = "leave such lines out, or give text_field='FIELD'"
            raise UserError(
                f"{_line_of(path, offset)}: found {shown}, expected text in the field {text_field!r}; {cure}"
            )
        if {"id", "title"} <= record.keys() and "?curid=" in str(record.get("url")):
            text = _unescaped(text)
        # JSON may hold half of a surrogate pair: replace it by U+FFFD, which tokenisers drop.
        if not text.isascii():
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        yield text.split("\n")


def _unescaped(text: str) -> str:
    """Undoes, once, the `html.escape(text, quote=False)` that ends WikiExtractor's work on a text."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _read_wikiextractor(piece: Piece) -> Iterator[list[str]]:
    """Yields the lines of each document, blank ones included, the title dropped."""
    path = Path(piece.source)
    lines: list[str] | None = None
    title = ""
    started = 0
    # Text before the first document of a byte range belongs to the previous range.
    before_first = piece.begin > 0
    for offset, line in _lines(path, piece.begin):
        start = _DOCUMENT_START.match(line)
        if lines is None:
            if start:
                if piece.end is not None and offset >= piece.end:
                    return
                lines, started, before_first = [], offset, False
                title_match = _TITLE.search(start[1])
                title = html.unescape(title_match[1]) if title_match else ""
            elif line.strip() and not before_first:
                raise UserError(
                    f"{_line_of(path, offset)}: found {line[:40]!r} outside a document, expected a "
                    'line `<doc id="..." title="...">`; set prepare.source_format to the file\'s '
                    "layout"
                )
        elif start:
            raise UserError(
                f"{_line_of(path, offset)}: found <doc ...> inside the document of "
                f"{_line_of(path, started).removeprefix(str(path)).strip()}, expected </doc> first; "
                "extract the file again"
            )
        elif _DOCUMENT_END.match(line):
            first = next((n for n, text in enumerate(lines) if text.strip()), None)
            if first is not None and html.unescape(lines[first].strip()) == title.strip():
                del lines[: first + 1]
            yield [_unescaped(line) for line in lines]
            lines = None
        else:
            lines.append(line)
    if lines is not None:
        raise UserError(
            f"{_line_of(path, started)}: the document that starts here has no </doc>; the file was cut "
            "off, extract it again"
        )
