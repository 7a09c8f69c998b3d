"""Cuts the text of a document into paragraphs and those into sentences, by rule.

Paragraphs come in two shapes, decided for each document: whole paragraphs, one per line (Wikipedia),
and lines wrapped at the page's width, where a blank line ends the paragraph (books). A document is
taken as wrapped when no line is longer than 120 characters and, of the lines that another line
follows directly, more than half stop without a mark that ends a sentence.

The original leaves sentence splitting to its user and does not say how the paper's text was split.
"""

from __future__ import annotations

import itertools
import re

_LONGEST_WRAPPED_LINE = 120

# A mark that ends a sentence, with the quotes and brackets that close behind it.
_CLOSING = "\"'’”»)\\]"
_OPENING = "\"'‘“«(\\["
_ENDS_SENTENCE = re.compile(rf"[.!?:;…][{_CLOSING}]*$")

# A possible boundary: marks, what closes behind them, white space, and a start of something new. It begins
# at the first of several marks and gives nothing back, so that a long row of them takes linear time.
_BOUNDARY = re.compile(rf"(?<![.!?…])([.!?…]++)([{_CLOSING}]*+)\s++(?=[{_OPENING}]*+[^\W_a-z])")


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


def sentences_of(lines: list[str]) -> list[str]:
    """Splits a document that comes in lines into sentences.

    Args:
      lines: the document, cut at line feeds, blank lines included.

    Returns:
      Sentences in order; none is blank.
    """
    return [sentence for text in _paragraphs(lines) for sentence in split_sentences(text)]


def _paragraphs(lines: list[str]) -> list[str]:
    """Splits a document into paragraphs, by the rule in the head of this file."""
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
    """Returns whether a full stop belongs to the word before it and the sentence continues."""
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
