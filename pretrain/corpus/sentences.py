"""Cuts the text of a document into paragraphs and those into sentences, by rule, in any script.

Paragraphs come in two shapes, decided for each document: whole paragraphs, one per line (Wikipedia),
and lines wrapped at the page's width, where a blank line ends the paragraph (books). A document is
taken as wrapped when no line is longer than 120 characters and, of the lines that another line
follows directly, more than half stop without a mark that ends a sentence. Wrapped lines are joined by a
space, in Chinese and Japanese too: the tokeniser sets ideographs apart, so only a word of kana that a
page cuts is cut there.

The original leaves sentence splitting to its user and does not say how the paper's text was split.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_LONGEST_WRAPPED_LINE = 120

# Marks of full width, which end a sentence without white space after them.
_WIDE_ENDS = "。！？｡︒︕︖﹖﹗"
# Unicode's Sentence_Terminal characters, as a table so that no library's version changes a corpus. Left
# out: those beyond the first 65,536 code points, which few texts have and which would make the search
# twelve times as slow, and \u104a, a comma in Burmese. Added: \u2026 (...), and Tibetan's \u0f0d and
# \u0f0e, which end clauses as well as sentences, as Tibetan has no other ends.
_ENDS = (
    f".!?\u2026{_WIDE_ENDS}\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0f0d"
    "\u0f0e\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e"
    "\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c\u1c7e\u1c7f\u2024\u203c\u203d\u2047-\u2049\u2cf9-\u2cfb"
    "\u2e2e\u2e3c\u2e53\u2e54\u2e60\u2e61\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9"
    "\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe52\uff0e"
)

# Marks that close behind an end, or open before a start. Tibetan repeats the end before the next start.
_CLOSING = "\"'’”»)\\]」』）】》〉〕］｝"
_OPENING = "\"'‘“«(\\[「『（【《〈〔［｛„¿¡\u0f0d\u0f0e"
_ENDS_SENTENCE = re.compile(rf"[{_ENDS}:;：；][{_CLOSING}]*$")

# A possible boundary: marks, what closes behind them, white space, and a start of something new. It begins
# at the first of several marks and gives nothing back, so that a long row of them takes linear time; it
# opens with a plain set of characters, which `re` searches for four times as fast. German quotes close with
# “, which opens in Chinese.
_BOUNDARY = re.compile(
    rf"([{_ENDS}](?<![{_ENDS}]{{2}})[{_ENDS}]*+)"
    rf"(?:([{_CLOSING}‘“]*+)\s++|(?<=[{_WIDE_ENDS}])(?:[{_CLOSING}]++(?![ぁ-ゖ]))?+)"
    rf"(?=[{_OPENING}]*+[^\W_a-zа-џ])"
)


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


def sentences_of(lines: list[str]) -> Iterator[str]:
    """Splits a document that comes in lines into sentences, no further than they are asked for.

    Args:
      lines: the document, cut at line feeds, blank lines included.

    Yields:
      Sentences in order; none is blank.
    """
    # Paragraphs, by the rule in the head of this file.
    lines = [line.strip() for line in lines]
    inner = [line for line, following in itertools.pairwise(lines) if line and following]
    open_ended = sum(_ENDS_SENTENCE.search(line) is None for line in inner)
    is_long = any(len(line) > _LONGEST_WRAPPED_LINE for line in lines)
    texts = [line for line in lines if line]
    if not is_long and 2 * open_ended > len(inner):  # lines are wrapped
        runs = itertools.groupby(lines, key=bool)
        texts = [" ".join(paragraph) for is_text, paragraph in runs if is_text]
    for text in texts:
        yield from split_sentences(text)


def split_sentences(paragraph: str) -> list[str]:
    """Cuts a paragraph into sentences by rule.

    A sentence ends at `.`, `!`, `?`, `…` or a mark of another script such as `।` or `؟` (with closing
    quotes and brackets) before white space and something that is not a lower-case Latin or Cyrillic
    letter, save after

    * an abbreviation that a name follows ("Mr. Oak"), or that a number follows ("No. 5");
    * initials ("J. Austen", "U.S. Army"), unless a word such as "The" or "In" follows;
    * a number that opens the sentence ("1. Introduction").

    Marks of full width such as `。` and `？` need no white space, but a bracket or quote that closes
    behind them and is followed by hiragana is within a sentence (「…。」と). Elsewhere white space decides:
    without it the marks of the Urdu abbreviation ایم۔اے, the Khmer ។ល។ (etc.), a Latin name with `．`
    and Yahoo!ニュース would be ends. Thai and Lao mark no ends, so that a paragraph stays whole.

    Args:
      paragraph: any text; runs of white space become one space.

    Returns:
      The sentences, in order; none is blank. Joined they are the paragraph, but for white space between.
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
