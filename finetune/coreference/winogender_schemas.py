"""Winogender schemas (Rudinger et al. 2018): templates, their sentences, occupation statistics.

A folder has the release's three files:

* `templates.tsv`: occupation, other participant, answer (0 the occupation, 1 the participant) and a
  sentence with $OCCUPATION, $PARTICIPANT and one of $NOM_PRONOUN, $POSS_PRONOUN, $ACC_PRONOUN;
* `all_sentences.tsv`: every template in three genders, with the participant and with `someone`; the
  id is `<occupation>.<participant or someone>.<answer>.<gender>.txt`;
* `occupations-stats.tsv`: the percentage of women in each occupation.

Sentences are compared with their filled templates, which locate the mentions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import PathLike
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import read_rows

FILES = ("templates.tsv", "all_sentences.tsv", "occupations-stats.tsv")
PRONOUNS = {
    "$NOM_PRONOUN": {"male": "he", "female": "she", "neutral": "they"},
    "$POSS_PRONOUN": {"male": "his", "female": "her", "neutral": "their"},
    "$ACC_PRONOUN": {"male": "him", "female": "her", "neutral": "them"},
}
GENDER_NAMES = {"male": "masculine", "female": "feminine", "neutral": "neutral"}
SOMEONE = "someone"
_RESTORE = "restore the file from the Winogender release"
_SLOT = re.compile(r"(?:\b(?P<determiner>[Tt]he|[Aa]n?) )?(?P<slot>\$[A-Z_]+)")

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Template:
    """One template.

    Attributes:
      answer: 0 if the pronoun means the occupation, 1 if it means the participant.
      pronoun_slot: a key of `PRONOUNS`, the pronoun's case.
    """

    occupation: str
    participant: str
    answer: int
    sentence: str
    pronoun_slot: str


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence with its three mentions.

    Attributes:
      identity: the id without `.txt`.
      occupation, participant, pronoun: first and last + 1 character of each mention, with its article.
      answer: 0 the occupation, 1 the participant.
      gender: masculine, feminine or neutral.
    """

    identity: str
    line: int
    text: str
    occupation: Span
    participant: Span
    pronoun: Span
    answer: int
    gender: str
    occupation_name: str


@dataclasses.dataclass(frozen=True)
class Winogender:
    """The schemas of a folder, in file order.

    Attributes:
      percent_feminine: percentage of women by occupation, 0 to 100 (column bls_pct_female).
    """

    templates: list[Template]
    sentences: list[Sentence]
    percent_feminine: dict[str, float]


def winogender_files(folder: PathLike) -> list[Path]:
    paths = [Path(folder) / name for name in FILES]
    for path in paths:
        if not path.is_file():
            raise UserError(
                f"{path} does not exist; give the data folder of the Winogender release"
            )
    return paths


def winogender_folder(winogender_dir: str | Sequence[str] | None) -> Path | None:
    """Returns the folder; a run's frozen configuration lists its files instead."""
    if winogender_dir is None:
        return None
    if isinstance(winogender_dir, str):
        return Path(winogender_dir)
    folders = {Path(path).parent for path in winogender_dir}
    if len(folders) != 1:
        raise UserError(
            f"winogender_dir lists files of {len(folders)} folders; give the one folder instead"
        )
    return folders.pop()


def read_winogender(folder: PathLike) -> Winogender:
    templates_file, sentences_file, statistics_file = winogender_files(folder)

    # The templates.
    templates: list[Template] = []
    columns: tuple[str, ...] = ("occupation(0)", "other-participant(1)", "answer", "sentence")
    for row in read_rows(templates_file, columns, unique=columns[:3], cure=_RESTORE):
        occupation, participant, answer, sentence = (row[column] for column in columns)
        slots = [match["slot"] for match in _SLOT.finditer(sentence)]
        pronouns = [slot for slot in slots if slot in PRONOUNS]
        expected_slots = ["$OCCUPATION", "$PARTICIPANT", *pronouns]
        if len(pronouns) != 1 or sorted(slots) != sorted(expected_slots):
            raise UserError(
                f"{row.where}: found the slots {listed(slots) or 'none'}, expected $OCCUPATION, "
                f"$PARTICIPANT and one of {', '.join(PRONOUNS)}; correct the sentence"
            )
        row.one_of("answer", ("0", "1"))
        templates.append(Template(occupation, participant, int(answer), sentence, pronouns[0]))

    # Shares of women in the occupations.
    columns = ("occupation", "bls_pct_female")
    rows = read_rows(statistics_file, columns, unique=columns[:1], cure=_RESTORE)
    percent_feminine = {row["occupation"]: row.number(columns[1], 0, 100) for row in rows}
    for number, template in enumerate(templates, start=2):
        if template.occupation not in percent_feminine:
            raise UserError(
                f"{templates_file} line {number}: occupation {shortened(template.occupation)} is not in "
                f"{statistics_file}; add its percentage there"
            )

    # The sentences, compared with their templates.
    by_key = {(t.occupation, t.participant, t.answer): t for t in templates}
    for template in templates:
        by_key.setdefault((template.occupation, SOMEONE, template.answer), template)
    sentences = []
    for row in read_rows(sentences_file, ["sentid", "sentence"], unique=["sentid"], cure=_RESTORE):
        identity, text = row["sentid"], row["sentence"]
        parts = identity.removesuffix(".txt").split(".")
        key = (parts[0], parts[1], int(parts[2])) if len(parts) == 4 and parts[2] in "01" else None
        if key is None or key not in by_key or parts[3] not in GENDER_NAMES:
            raise UserError(
                f"{row.where}: sentid {shortened(identity)} belongs to no template, expected "
                "<occupation>.<participant or someone>.<answer>.<male, female or neutral>.txt of a "
                "template; correct the id or add the template"
            )
        template = by_key[key]
        expected, spans = instantiate(template, parts[3], parts[1])
        if text != expected:
            raise UserError(
                f"{row.where}: found {text!r}, but the template of {identity} gives {expected!r}; "
                "correct the sentence or the template"
            )
        sentences.append(
            Sentence(
                identity=identity.removesuffix(".txt"),
                line=row.line,
                text=text,
                occupation=spans["$OCCUPATION"],
                participant=spans["$PARTICIPANT"],
                pronoun=spans[template.pronoun_slot],
                answer=template.answer,
                gender=GENDER_NAMES[parts[3]],
                occupation_name=template.occupation,
            )
        )
    return Winogender(templates, sentences, percent_feminine)


def instantiate(template: Template, gender: str, participant: str) -> tuple[str, dict[str, Span]]:
    """Fills a template as the release does.

    `someone` takes no article, and `they` turns `was` into `were`.

    Args:
      gender: male, female or neutral.
      participant: the template's participant, or `someone`.

    Returns:
      The sentence, and the character span of each slot with its article.
    """
    fillers = {
        "$OCCUPATION": template.occupation,
        "$PARTICIPANT": participant,
        template.pronoun_slot: PRONOUNS[template.pronoun_slot][gender],
    }
    text, position, spans = "", 0, {}
    for match in _SLOT.finditer(template.sentence):
        text += template.sentence[position : match.start()]
        determiner, slot = match["determiner"], match["slot"]
        filler = fillers[slot]
        if slot == "$PARTICIPANT" and participant == SOMEONE and determiner:
            filler = SOMEONE.capitalize() if determiner[0].isupper() else SOMEONE
        elif determiner:
            filler = f"{determiner} {filler}"
        elif not text:
            filler = filler[0].upper() + filler[1:]
        spans[slot] = (len(text), len(text) + len(filler))
        text += filler
        position = match.end()
        if filler == "they" and template.sentence.startswith(" was ", position):
            text += " were "
            position += len(" was ")
    return text + template.sentence[position:], spans
