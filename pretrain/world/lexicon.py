"""The words of the synthetic world: six fields of work, people, names and what they do.

Every word list is fixed. What is drawn from `world_seed` (how feminine an occupation's pronouns are)
and how words join into sentences lies in `pretrain.world.grammar`.
"""

from __future__ import annotations

from dataclasses import dataclass


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


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _field(name: str, occupations: str, places: str, tools: str) -> Field:
    return Field(name, _words(occupations), _words(places), _words(tools))


FIELDS = (
    _field(
        "medicine",
        "nurse doctor dentist pharmacist",
        "hospital clinic ward surgery",
        "bandage syringe thermometer stethoscope scalpel",
    ),
    _field(
        "law",
        "lawyer judge notary paralegal",
        "court tribunal chamber archive",
        "contract verdict statute gavel robe",
    ),
    _field(
        "teaching",
        "teacher librarian professor tutor",
        "school library college classroom",
        "blackboard textbook chalk dictionary atlas",
    ),
    _field(
        "building",
        "carpenter plumber electrician painter",
        "workshop scaffold cellar roof",
        "hammer chisel wrench ladder drill",
    ),
    _field(
        "cooking",
        "baker cook butcher brewer",
        "kitchen bakery brewery pantry",
        "oven ladle dough kettle knife",
    ),
    _field(
        "farming",
        "farmer gardener shepherd beekeeper",
        "barn meadow orchard stable",
        "plough rake beehive tractor sickle",
    ),
)

# People whose pronouns are masculine and feminine alike, half of the time each.
PARTICIPANTS = (
    "visitor",
    "customer",
    "stranger",
    "neighbour",
    "guest",
    "traveller",
)

NAMES = {
    "feminine": _words("Mary Susan Linda Karen Helen Laura Sarah Emma Alice Julia"),
    "masculine": _words("John James David Peter Thomas Henry George Frank Paul Walter"),
}
GENDERED_NOUNS = {
    "feminine": _words("woman mother sister queen"),
    "masculine": _words("man father brother king"),
}

# What anybody might do, so that nothing but the frame tells of whom it is said.
PREDICATES = _words("slept waited smiled rested sang danced walked agreed")

THINGS = _words("key letter picture ticket umbrella")
MOODS = _words("calm busy cheerful quiet careful friendly")
TIMES = _words("morning afternoon evening winter summer")

# Frames of two people. After "told" and "promised" the pronoun means the first, after "asked ... if"
# the second.
FIRST_FRAMES = ("told {second}", "promised {second}")
SECOND_FRAMES = ("asked {second} if",)
# Frames in which only the gender of the people tells whom the pronoun means.
OPEN_FRAMES = ("met {second} when", "called {second} because")
