"""Code points to which Unicode assigns a character: all of them, or those that tell most."""

from __future__ import annotations

import functools
import sys
import unicodedata

# Of the letters without case or accents, most of them Chinese and Korean, every so many.
_EVERY = 16


@functools.cache
def assigned_characters() -> tuple[str, ...]:
    """Every code point to which the running Python's Unicode assigns a character.

    Without surrogates and the private use areas, which stand for no character.
    """
    characters = map(chr, range(sys.maxunicode + 1))
    unassigned = ("Cn", "Co", "Cs")
    return tuple(each for each in characters if unicodedata.category(each) not in unassigned)


@functools.cache
def telling_characters() -> tuple[str, ...]:
    """A fifth of them, with all that the rules of tokenising name one by one.

    All but letters without case; of these, all that decompose by a table (syllables of Hangul do by a
    formula), the first and the last of each stretch of a script, and every 16th.
    """
    found = []
    everything = assigned_characters()
    scripts = [unicodedata.name(each, "").split(" ")[0].split("-")[0] for each in everything]
    for number, character in enumerate(everything):
        is_plain = unicodedata.category(character) == "Lo" and (
            scripts[number] == "HANGUL" or not unicodedata.decomposition(character)
        )
        is_within = all(
            0 <= other < len(everything)
            and ord(everything[other]) - ord(character) == other - number
            and scripts[other] == scripts[number]
            for other in (number - 1, number + 1)
        )
        if not is_plain or not is_within or number % _EVERY == 0:
            found.append(character)
    return tuple(found)
