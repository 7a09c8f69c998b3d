"""The words of the synthetic world, read from `lexicon.toml`: fields of work, people, and what they do.

Every word list is fixed. What is drawn from `world_seed` (how feminine an occupation's pronouns are)
and how words join into sentences lies in `pretrain.world.grammar`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Field:
    """A field of work. Its words never occur with those of another field in one document.

    Attributes:
      name: what the field is called in sentences, e.g. "medicine".
      occupations: four occupations; every one belongs to one field.
      places: where its people are found.
      tools: what its people hold.
    """

    name: str
    occupations: tuple[str, ...]
    places: tuple[str, ...]
    tools: tuple[str, ...]


def _words(lists: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(words.split()) for name, words in lists.items()}


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
