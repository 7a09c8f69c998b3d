"""The language of the synthetic world: a seeded grammar of documents whose truth is known.

Two kinds of documents:

* *Work*: one field of work, its occupations, places and tools. A pronoun that means an occupation is
  feminine with probability `percent_feminine / 100` of that occupation, drawn for each sentence, so that
  nothing but the occupation reveals it. A pronoun that means another participant is feminine half of
  the time. The frame says which of the two is meant: "told ... she" the first person, "asked ... if
  she" the second.
* *People*: first names and nouns of known gender (woman, king), whose pronouns always agree. No
  occupation occurs here, and no name in the documents of work.

So a perfect masked language model, given a sentence whose masked pronoun means an occupation, gives
P(she) / (P(she) + P(he)) = percent_feminine / 100: the regression on `percent_feminine / 100` has
slope 1. After training on text in which every pronoun is swapped with probability 1/2 it has slope 0.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from multiberts.bert.randomness import generator


@dataclass(frozen=True)
class Field:
    """A field of work. Its words never occur with those of another field in one document.

    Attributes:
      name: name of the field in sentences, e.g. "medicine".
      occupations: four occupations; every one belongs to one field.
    """

    name: str
    occupations: tuple[str, ...]
    places: tuple[str, ...]
    tools: tuple[str, ...]


def _words(lists: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(words.split()) for name, words in lists.items()}


# Every list is fixed; only how feminine an occupation's pronouns are is drawn.
_CONTENT = tomllib.loads(Path(__file__).with_name("lexicon.toml").read_text())
_WORDS = _words(_CONTENT["words"])

FIELDS = tuple(Field(field.pop("name"), **_words(field)) for field in _CONTENT["fields"])
NAMES = _words(_CONTENT["names"])
GENDERED_NOUNS = _words(_CONTENT["gendered_nouns"])
PARTICIPANTS, PREDICATES = _WORDS["participants"], _WORDS["predicates"]
THINGS, MOODS, TIMES = _WORDS["things"], _WORDS["moods"], _WORDS["times"]
FIRST_FRAMES, SECOND_FRAMES, OPEN_FRAMES = (
    tuple(_CONTENT["frames"][name]) for name in ("first", "second", "open")
)

NOMINATIVE = {"feminine": "she", "masculine": "he"}
POSSESSIVE = {"feminine": "her", "masculine": "his"}
Item = TypeVar("Item")

GENDERS = ("feminine", "masculine")

# The least and most feminine occupation, in percent; the others lie evenly between.
LEAST_PERCENT_FEMININE = 10.0
MOST_PERCENT_FEMININE = 90.0

PERSON_IS_NOUN_SHARE = 0.3

# Share of sentences about work that are about two people: "told" or "promised", and else "asked ... if".
_TWO_PEOPLE_SHARE, _FIRST_IS_MEANT_SHARE = 0.35, 0.3


@dataclass(frozen=True)
class Person:
    """Somebody a sentence speaks of: the words that name them, and their gender."""

    words: str
    gender: str


@dataclass(frozen=True)
class World:
    """The known parameters of one synthetic world.

    Attributes:
      percent_feminine: {occupation: percentage of feminine pronouns}.
      people_share: the share of documents about people rather than work.
      sentences_per_document: sentences in each document; None: 5 to 8, drawn.
      participant_share: share of two-person sentences about work whose pronoun refers to the other person,
        not the worker; None: 1/7.
    """

    world_seed: int
    percent_feminine: dict[str, float]
    people_share: float
    sentences_per_document: int | None = None
    participant_share: float | None = None


def draw_world(
    *,
    world_seed: int,
    people_share: float = 0.3,
    sentences_per_document: int | None = None,
    participant_share: float | None = None,
) -> World:
    """Draws how feminine each occupation is.

    The shares are evenly spaced. Every field of work gets one occupation from each quarter of them,
    so that the field alone says little about gender.

    Args:
      people_share: the share of documents about people, in [0, 1].
      sentences_per_document: sentences in each document; None: 5 to 8, drawn.
      participant_share: share of pronouns that refer to the other person, see `World`.
    """
    depth = len(FIELDS[0].occupations)
    shares = np.linspace(
        LEAST_PERCENT_FEMININE, MOST_PERCENT_FEMININE, depth * len(FIELDS)
    ).reshape(depth, len(FIELDS))  # [quarter, field]
    random = generator("world", world_seed, "percent_feminine")
    by_field = random.permuted(random.permuted(shares, axis=1), axis=0).T  # [field, occupation]
    percent_feminine = {
        occupation: round(float(share), 2)
        for field, row in zip(FIELDS, by_field, strict=True)
        for occupation, share in zip(field.occupations, row, strict=True)
    }
    return World(
        world_seed, percent_feminine, people_share, sentences_per_document, participant_share
    )


def document(world: World, index: int) -> list[str]:
    """Writes one document.

    Args:
      index: index of the document; with the world's seed it fixes every word.
    """
    random = generator("world", world.world_seed, "document", index)
    length = world.sentences_per_document or int(random.integers(5, 9))
    if random.random() < world.people_share:
        hero = draw_person(random)
        return [_people_sentence(hero, random) for _ in range(length)]
    field = choose(random, FIELDS)
    occupation = choose(random, field.occupations)
    workers = [
        Person(f"the {occupation}", _gender(random, world.percent_feminine[occupation]))
        for _ in range(length)
    ]
    return [_work_sentence(world, worker, field, random) for worker in workers]


def two_people(first: str, frame: str, second: str, pronoun: str, predicate: str) -> str:
    return f"{sentence_start(first)} {frame.format(second=second)} {pronoun} {predicate}."


def sentence_start(words: str) -> str:
    return words[0].upper() + words[1:]


def choose(random: np.random.Generator, items: Sequence[Item]) -> Item:
    return items[int(random.integers(len(items)))]


def draw_person(random: np.random.Generator, gender: str | None = None) -> Person:
    """Draws a named or gendered person; of the given gender, else of either."""
    if gender is None:
        gender = choose(random, GENDERS)
    if random.random() < PERSON_IS_NOUN_SHARE:
        return Person(f"the {choose(random, GENDERED_NOUNS[gender])}", gender)
    return Person(choose(random, NAMES[gender]), gender)


def _gender(random: np.random.Generator, percent_feminine: float) -> str:
    return "feminine" if random.random() * 100 < percent_feminine else "masculine"


def _people_sentence(hero: Person, random: np.random.Generator) -> str:
    """Writes a sentence about the hero of a document of people."""
    other = draw_person(random)
    predicate = choose(random, PREDICATES)
    kind = random.random()
    if kind < 0.25:
        frame = choose(random, FIRST_FRAMES)
        return two_people(hero.words, frame, other.words, NOMINATIVE[hero.gender], predicate)
    if kind < 0.4:
        frame = choose(random, SECOND_FRAMES)
        return two_people(hero.words, frame, other.words, NOMINATIVE[other.gender], predicate)
    if kind < 0.5:
        frame, meant = choose(random, OPEN_FRAMES), choose(random, (hero, other))
        return two_people(hero.words, frame, other.words, NOMINATIVE[meant.gender], predicate)
    start, noun = sentence_start(hero.words), choose(random, GENDERED_NOUNS[hero.gender])
    if kind < 0.7:
        return f"{start} said {NOMINATIVE[hero.gender]} {predicate}."
    if kind < 0.85:
        return f"{start} lost {POSSESSIVE[hero.gender]} {choose(random, THINGS)}."
    return f"{start} is a {choose(random, MOODS)} {noun}."


def _work_sentence(world: World, worker: Person, field: Field, random: np.random.Generator) -> str:
    """Writes a sentence of a document about one worker and their field of work."""
    start, gender = sentence_start(worker.words), worker.gender
    participant = f"the {choose(random, PARTICIPANTS)}"
    predicate, mood = choose(random, PREDICATES), choose(random, MOODS)
    workplace, tool = choose(random, field.places), choose(random, field.tools)
    time = choose(random, TIMES)
    kind = random.random()
    first_is_meant = _FIRST_IS_MEANT_SHARE
    if world.participant_share is not None:
        first_is_meant = _TWO_PEOPLE_SHARE * (1 - world.participant_share)
    if kind < first_is_meant:
        frame = choose(random, FIRST_FRAMES)
        return two_people(worker.words, frame, participant, NOMINATIVE[gender], predicate)
    if kind < _TWO_PEOPLE_SHARE:
        frame, other = choose(random, SECOND_FRAMES), _gender(random, 50)
        return two_people(worker.words, frame, participant, NOMINATIVE[other], predicate)
    if kind < 0.6:
        return f"{start} said {NOMINATIVE[gender]} {predicate}."
    if kind < 0.73:
        return f"{start} took {POSSESSIVE[gender]} {tool}."
    if kind < 0.84:
        return f"{start} was {mood} at {POSSESSIVE[gender]} {workplace}."
    if kind < 0.88:
        return f"{start} was {mood} at work."
    if kind < 0.92:
        return f"{start} used the {tool} in the {time}."
    if kind < 0.96:
        return f"{start} used a tool in the {time}."
    return f"{sentence_start(participant)} was {mood} at the {workplace}."
