"""Counterfactual data: English binary-gendered pronouns swapped at random.

Each occurrence of he, she, him, her, his, hers, himself and herself becomes its counterpart with a given
probability, independently of the others. Two of them have two counterparts, told apart by what follows:

* "her" is possessive ("her book" -> "his book") where a noun phrase goes on behind it: a word
  follows, with no punctuation between, that is not a function word or adverb of the lists below. After
  an adverb of degree or in -ly the next word decides ("her newly built house", "thanked her very
  much"). Else it is an object ("saw her." -> "saw him.", "told her that", "saw her again").
  Some verbs before it make it an object: "let her"; "made her" before an infinitive or adjective of a short
  list, as "saw her leave", "made her happy"; "called her" before a capital or a quote; "took her" before a
  number; "sent her home".
* "his" stands before its noun ("his book" -> "her book") by the first of these tests, and before
  "or her" and "and her"; elsewhere it stands alone ("was his." -> "was hers.").

The rule knows no grammar: "a friend of his came" is taken for a possessive, as "of his father" is. How
often it is right on a hand-made set is measured in the tests.

Reference: Webster et al., 2020, "Measuring and reducing gendered correlations in pre-trained models";
Sellam et al., ICLR 2022, section 4 (CDA-full, CDA-incr).
"""

from __future__ import annotations

import re

import numpy as np

from bert.randomness import hash_bits, uniform

_PRONOUN = re.compile(r"\b(?:he|she|him|her|his|hers|himself|herself)\b", re.IGNORECASE)

_COUNTERPART = {
    "he": "she",
    "she": "he",
    "him": "her",
    "hers": "his",
    "himself": "herself",
    "herself": "himself",
}

# A word that follows directly: white space alone lies between, and perhaps an opening quote.
_NEXT_WORD = re.compile(r"[ \t\n]+([\"'“‘(]?)([^\W_][\w’'-]*)")
_WORD_BEFORE = re.compile(r"(\w+)[ \t\n]+$")
_OR_HER = re.compile(r"[ \t\n]*(?:/|or\b|and\b)[ \t\n]*her\b", re.IGNORECASE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that do not follow a possessive inside a noun phrase.
_NOT_IN_NOUN_PHRASE = _words(
    # articles, determiners, pronouns
    "a an the this that these those some any each every no another both either neither all enough "
    "i you he she it we they me him her us them my your his hers its our their mine yours ours theirs "
    "myself yourself himself herself itself ourselves themselves who whom whose which what whatever "
    "something anything nothing everything someone anyone everyone nobody somebody anybody everybody "
    # conjunctions and question words
    "and or but nor yet so if because although though unless until till while whereas when whenever "
    "where wherever why how whether since as than once lest for "
    # prepositions and particles
    "about above across after against along among amid around at before behind below beneath beside "
    "besides between beyond by despite down during except from in into like near of off on onto "
    "out over past per round through throughout to toward towards under up upon via with within without "
    "aside apart "
    # auxiliaries
    "is are was were be been being am has have had do does did will would shall should can could may "
    "might must cannot isn't aren't wasn't weren't hasn't haven't hadn't don't doesn't didn't won't "
    "wouldn't shouldn't can't couldn't not "
    # adverbs of time, place and degree
    "again always never ever often sometimes soon now then today tomorrow yesterday tonight already "
    "still also too either anyway here there everywhere anywhere somewhere nowhere away back "
    "forward alone together instead perhaps maybe just even almost well better thus "
    "afterwards afterward later thereby therefore however"
)

# Words in -ly that are adjectives or open a noun phrase; all others are adverbs here.
_ADJECTIVES_IN_LY = _words(
    "only early family lovely elderly friendly likely unlikely lonely ugly silly holy daily weekly "
    "monthly yearly deadly lively ghostly heavenly earthly worldly cowardly motherly fatherly brotherly "
    "sisterly womanly manly kingly queenly princely scholarly costly orderly homely comely kindly "
    "sickly stately curly belly jelly reply supply ally assembly anomaly bully butterfly dolly fly "
    "folly italy lily monopoly rally tally melancholy wily burly surly bodily nightly jolly holly "
    "saintly beastly timely leisurely goodly portly sprightly unruly wooly woolly oily hilly chilly"
)


# Adverbs that an adjective may follow; "much" alone ends the phrase.
_DEGREE = _words("very more most less least too so quite rather much far well once then")

# Verbs before "her", with what must follow for it to be their object.
_LET = _words("let lets letting")
_MAKE_OR_PERCEIVE = _words(
    "make makes made making see sees saw seen seeing hear hears heard hearing watch watches watched "
    "watching feel felt help helps helped helping have has had keep keeps kept keeping leave leaves left "
    "leaving find finds found finding think thought render rendered bid bade drive drove"
)
_CALL = _words("call calls called calling name names named naming christened dubbed")
_TAKE = _words(
    "take takes took taken taking cost costs costing give gives gave given allow allowed"
)
_SEND = _words(
    "send sends sent take takes took bring brings brought drive drives drove drag dragged carry carried "
    "follow follows followed see saw walk walked escort escorted get got invite invited drop dropped"
)
_INFINITIVES = _words(
    "be go come leave stay stand sit lie run walk turn start begin stop die fall rise pass enter feel "
    "think know understand believe remember forget see hear listen speak talk say tell ask cry weep sob "
    "laugh smile sigh scream sing dance sleep wake eat drink read write give take get put make do have "
    "find keep become seem look wait wish want"
)
_ADJECTIVES = _words(
    "happy unhappy sad angry sick ill well afraid asleep awake alive dead alone mad uneasy uncomfortable "
    "comfortable nervous anxious jealous proud miserable ashamed busy ready safe free famous pregnant "
    "waiting standing sitting lying crying weeping sleeping looking coming going walking talking"
)
_NUMBERS = _words(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred many "
    "several long months years days hours weeks"
)


def swap_pronouns(
    text: str, *, counterfactual_seed: int, document: int, probability: float = 0.5
) -> tuple[str, int, int]:
    """Swaps each gendered pronoun of a document with a probability.

    Args:
        text: the document.
        counterfactual_seed: seed of the draws.
        document: number of the document; the draw of an occurrence is addressed by the seed, this
            number and the occurrence's own number in the document.
        probability: of a swap.

    Returns:
        The new text, how many occurrences were swapped, and how many there are. The case of each
        pronoun is kept (lower, Capital, UPPER).
    """
    found = list(_PRONOUN.finditer(text))
    draws = uniform(
        hash_bits("counterfactual", counterfactual_seed, document, np.arange(len(found)))
    )
    parts = []
    end = 0
    swapped = np.flatnonzero(draws < probability)
    for number in swapped:
        match = found[number]
        parts += [text[end : match.start()], _cased(counterpart(text, match), match[0])]
        end = match.end()
    return "".join([*parts, text[end:]]), len(swapped), len(found)


def counterpart(text: str, match: re.Match[str]) -> str:
    """Returns the pronoun of the other gender in lower case, by the rule in the head of this file.

    Args:
        text: the document.
        match: where the pronoun stands in it.
    """
    word = match[0].lower()
    if word in _COUNTERPART:
        return _COUNTERPART[word]
    possessive = _noun_phrase_follows(text, match.end())
    if word == "her":
        return "his" if possessive and not _verb_takes_object(text, match) else "him"
    return "her" if possessive or _OR_HER.match(text, match.end()) else "hers"


def _noun_phrase_follows(text: str, end: int) -> bool:
    following = _NEXT_WORD.match(text, end)
    if following is None:
        return False
    word = following[2].lower().replace("’", "'")
    is_adverb = word.endswith("ly") and word not in _ADJECTIVES_IN_LY
    if is_adverb or word in _DEGREE:
        return _noun_phrase_follows(text, following.end())
    return word not in _NOT_IN_NOUN_PHRASE


def _verb_takes_object(text: str, match: re.Match[str]) -> bool:
    """Whether the verb before "her" and the word behind it show an object, not a possessive."""
    before = _WORD_BEFORE.search(text, max(0, match.start() - 30), match.start())
    following = _NEXT_WORD.match(text, match.end())
    if before is None or following is None:
        return False
    verb, word = before[1].lower(), following[2].lower()
    return (
        verb in _LET
        or (verb in _MAKE_OR_PERCEIVE and word in _INFINITIVES | _ADJECTIVES)
        or (verb in _CALL and (bool(following[1]) or following[2][0].isupper()))
        or (verb in _TAKE and (word in _NUMBERS or word.isdigit()))
        or (verb in _SEND and word == "home")
    )


def _cased(word: str, model: str) -> str:
    if model.isupper():
        return word.upper()
    return word.capitalize() if model[0].isupper() else word
