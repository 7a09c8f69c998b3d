"""Reads text into documents of sentences, one document at a time.

Three layouts are read, plain or `.gz`:

* `sentences`: the original's. One sentence a line, a blank line between documents.
* `raw`: one document a file, cut into sentences here.
* `wikiextractor`: documents between `<doc ... title="...">` and `</doc>` lines, cut into sentences
  here. The first line of a document is dropped where it repeats the title.

Paragraphs of the last two come in two shapes, told apart for each document: whole paragraphs, one a
line (Wikipedia), and lines wrapped at the page's width, where a blank line ends the paragraph (books).
A document is taken as wrapped when no line is longer than 120 characters and, of the lines that
another line follows directly, more than half stop without a mark that ends a sentence.

The original leaves sentence splitting to its user and does not say how the paper's text was split.
"""

from __future__ import annotations

import gzip
import html
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert.tokenization import split_words
from runs.errors import UserError

SOURCE_FORMATS = ("sentences", "raw", "wikiextractor")

_LONGEST_WRAPPED_LINE = 120

_DOCUMENT_START = re.compile(r"<doc\b([^>]*)>\s*$")
_DOCUMENT_END = re.compile(r"</doc>\s*$")
_TITLE = re.compile(r'\btitle="(.*)"')

# A mark that ends a sentence, with the quotes and brackets that close behind it.
_CLOSING = "\"'’”»)\\]"
_OPENING = "\"'‘“«(\\["
_ENDS_SENTENCE = re.compile(rf"[.!?:;…][{_CLOSING}]*$")

# A possible boundary: the mark, what closes behind it, white space, and a start of something new.
_BOUNDARY = re.compile(rf"([.!?…]+)([{_CLOSING}]*)\s+(?=[{_OPENING}]*[^\W_a-z])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations that a name or another word follows; they never end a sentence here.
_ABBREVIATIONS = _words(
    "mr mrs ms messrs mme mlle dr prof rev fr st ste sr jr hon gov gen col lt maj capt cpt cmdr sgt "
    "cpl adm sen rep pres supt insp vs cf viz eg ie approx ca esq mt ft al ed eds trans "
    "ph d.c"
)
# Abbreviations that only a number makes: "No. 5", but "He said no. They left."
_ABBREVIATIONS_BEFORE_NUMBER = _words(
    "no nos fig figs p pp vol vols ch chap sec art op jan feb mar apr jun jul aug sep sept oct nov "
    "dec c"
)
# After "U.S." or "J.", a word of this list shows that a sentence began.
_STARTERS = _words(
    "the a an in on at he she it they we you this that these those there when while after before "
    "although but and if however as its his her their for from with by to one two some many most"
)
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]$")
_WORD_BEFORE = re.compile(r"[^\s" + _OPENING + r"—-]*$")
_WORD_AFTER = re.compile(rf"[{_OPENING}]*(\w+)")


def read_documents(sources: Sequence[str | Path], source_format: str) -> Iterator[list[str]]:
    """Yields the documents of the sources in order; no more than one is held in memory.

    Args:
        sources: text files, UTF-8, plain or `.gz`.
        source_format: one of `SOURCE_FORMATS`.

    Yields:
        The sentences of a document, none of them blank; documents without one are dropped.

    Raises:
        UserError: a file is missing, empty, damaged, not UTF-8, or not in the layout.
    """
    for source in sources:
        path = Path(source)
        if source_format == "sentences":
            documents = _read_sentence_lines(path)
        elif source_format == "raw":
            documents = iter([_sentences_of([line for _, line in _lines(path)])])
        else:
            documents = map(_sentences_of, _read_wikiextractor(path))
        for document in documents:
            if document:
                yield document


def check_sources(sources: Sequence[str | Path], source_format: str) -> None:
    """Reads all sources once and refuses what cannot make instances, before anything is written.

    Args:
        sources: text files.
        source_format: one of `SOURCE_FORMATS`.

    Raises:
        UserError: a file that `read_documents` refuses, or that holds
            no text; a file of one-sentence documents; fewer than two documents in all.
    """
    total = 0
    for source in sources:
        documents, longest = 0, 0
        for document in read_documents([source], source_format):
            # Characters that the tokeniser drops make no document.
            if any(split_words(sentence) for sentence in document):
                documents += 1
                longest = max(longest, len(document))
        if not documents:
            raise UserError(f"{source} holds no text, expected sentences; give another file")
        if source_format == "sentences" and documents > 1 and longest == 1:
            raise UserError(
                f"{source} holds {documents} documents of one sentence each, expected documents of "
                "several: with blank lines between sentences every second segment would be random; "
                "leave blank lines between documents only"
            )
        total += documents
    if total < 2:
        raise UserError(
            f"{', '.join(map(str, sources))}: found 1 document, expected at least 2, as a random next "
            "segment comes from another document; add a source or mark where documents end"
        )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line number, line without its end) of a UTF-8 file, byte order mark dropped."""
    offset = 0
    line = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as handle:
            for line, data in enumerate(handle, start=1):
                try:
                    text = data.decode("utf-8-sig" if line == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    # `error.object` lacks the byte order mark that the codec took off.
                    place = offset + len(data) - len(error.object) + error.start
                    raise UserError(
                        f"{path} line {line}: byte 0x{error.object[error.start]:02x} at offset "
                        f"{place} is not UTF-8; convert the file, for example with iconv"
                    ) from error
                offset += len(data)
                yield line, text.rstrip("\r\n")
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check prepare.sources") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path} line {line + 1}: not a whole gzip file ({error}); fetch the file again"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check prepare.sources") from error
    if line == 0:
        raise UserError(f"{path} is empty; give a file with text in it")


def _read_sentence_lines(path: Path) -> Iterator[list[str]]:
    document: list[str] = []
    for _, line in _lines(path):
        sentence = line.strip()
        if sentence:
            document.append(sentence)
        else:
            yield document
            document = []
    yield document


def _read_wikiextractor(path: Path) -> Iterator[list[str]]:
    """Yields the lines of each document, blank ones included, the title dropped."""
    lines: list[str] | None = None
    title = ""
    started = 0
    for number, line in _lines(path):
        start = _DOCUMENT_START.match(line)
        if lines is None:
            if start:
                lines, started = [], number
                found = _TITLE.search(start[1])
                title = html.unescape(found[1]) if found else ""
            elif line.strip():
                raise UserError(
                    f"{path} line {number}: found {line[:40]!r} outside a document, expected a line "
                    '`<doc id="..." title="...">`; set prepare.source_format to the file\'s layout'
                )
        elif start:
            raise UserError(
                f"{path} line {number}: found <doc ...> inside the document of line {started}, "
                "expected </doc> first; extract the file again"
            )
        elif _DOCUMENT_END.match(line):
            yield _without_title(lines, title)
            lines = None
        else:
            lines.append(line)
    if lines is not None:
        raise UserError(
            f"{path} line {started}: the document that starts here has no </doc>; the file was cut "
            "off, extract it again"
        )


def _without_title(lines: list[str], title: str) -> list[str]:
    for place, line in enumerate(lines):
        if line.strip():
            is_title = html.unescape(line.strip()) == title.strip()
            return lines[place + 1 :] if is_title else lines
    return lines


def _sentences_of(lines: list[str]) -> list[str]:
    return [sentence for text in _paragraphs(lines) for sentence in split_sentences(text)]


def _paragraphs(lines: list[str]) -> list[str]:
    """The paragraphs of a document, by the rule in the head of this file."""
    lines = [line.strip() for line in lines]
    if not _is_wrapped(lines):
        return [line for line in lines if line]
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [" ".join(paragraph) for paragraph in paragraphs if paragraph]


def _is_wrapped(lines: list[str]) -> bool:
    if any(len(line) > _LONGEST_WRAPPED_LINE for line in lines):
        return False
    inner = [line for line, following in itertools.pairwise(lines) if line and following]
    open_ended = sum(_ENDS_SENTENCE.search(line) is None for line in inner)
    return 2 * open_ended > len(inner)


def split_sentences(paragraph: str) -> list[str]:
    """Cuts an English paragraph into sentences by rule.

    A sentence ends at `.`, `!`, `?` or `…` (with closing quotes and brackets) before white space and
    something that is not a lower-case Latin letter, save after

    * an abbreviation that a name follows ("Mr. Oak"), or that a number follows ("No. 5");
    * initials ("J. Austen", "U.S. Army"), unless a word such as "The" or "In" follows;
    * a number that opens the sentence ("1. Introduction").

    Args:
        paragraph: any text; runs of white space become one space.

    Returns:
        The sentences, in order; none is blank. Joined with spaces they are the paragraph.
    """
    text = " ".join(paragraph.split())
    sentences = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        if boundary[1] == "." and not boundary[2] and _continues(text, start, boundary):
            continue
        sentences.append(text[start : boundary.end()].rstrip())
        start = boundary.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _continues(text: str, start: int, boundary: re.Match[str]) -> bool:
    """Whether a full stop belongs to the word before it and the sentence goes on."""
    before = text[max(start, boundary.start() - 30) : boundary.start()]
    word_before = _WORD_BEFORE.search(before)
    word = word_before[0] if word_before else ""
    following = _WORD_AFTER.match(text, boundary.end())
    after = following[1] if following else ""
    if word.lower() in _ABBREVIATIONS:
        return True
    if word.lower() in _ABBREVIATIONS_BEFORE_NUMBER and after[:1].isdigit():
        return True
    # "I" ends sentences ("So do I."); as an initial it is the rarer.
    if _INITIALS.match(word) and word != "I":
        return after.lower() not in _STARTERS
    return word.isdigit() and boundary.start() - len(word) == start
