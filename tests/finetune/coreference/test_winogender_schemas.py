from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

from multiberts.finetune.coreference.winogender_schemas import PRONOUNS, read_winogender
from multiberts.runs.errors import UserError


def mentions(sentence) -> list[str]:
    spans = (sentence.occupation, sentence.participant, sentence.pronoun)
    return [sentence.text[begin:end] for begin, end in spans]


def test_mentions_are_found_in_every_form(winogender_data: Path) -> None:
    schemas = read_winogender(winogender_data)
    found = {sentence.identity: sentence for sentence in schemas.sentences}
    assert len(found) == 15
    assert mentions(found["baker.guest.0.female"]) == ["The baker", "the guest", "she"]
    assert mentions(found["baker.someone.0.neutral"]) == ["The baker", "someone", "they"]
    assert mentions(found["baker.someone.1.male"]) == ["the baker", "Someone", "his"]
    assert mentions(found["plumber.client.0.female"]) == ["The plumber", "the client", "her"]
    assert found["baker.guest.1.male"].answer == 1
    assert found["baker.guest.1.male"].gender == "masculine"
    assert schemas.percent_feminine == {"baker": 60.5, "plumber": 3.5}


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("all_sentences.tsv", "told the guest that he", "told the guest if he", "line 2: found 'The baker"),
        ("all_sentences.tsv", "baker.someone.0.male", "baker.guest.0.male", "line 3: sentid"),
        ("all_sentences.tsv", "baker.guest.0.male", "cook.guest.0.male", "line 2: sentid"),
        ("all_sentences.tsv", "baker.guest.0.male", "baker.guest.0.other", "line 2: sentid"),
        ("templates.tsv", "$NOM_PRONOUN", "she", "line 2: found the slots $OCCUPATION, $PARTICIPANT, "),
        ("templates.tsv", "guest\t1", "guest\t2", "line 3: found answer '2'"),
        ("templates.tsv", "baker\tguest\t0\t", "baker\tguest\t", "line 2: found 3 columns, expected 4"),
        ("templates.tsv", "baker\tguest\t1", "baker\tguest\t0", "'baker', 'guest', '0' is in line 2 already"),
        ("occupations-stats.tsv", "60.5", "many", "line 2: found bls_pct_female 'many'"),
        ("occupations-stats.tsv", "plumber", "baker", "line 3: occupation 'baker' is in line 2"),
        ("occupations-stats.tsv", "plumber", "cook", "line 4: occupation 'plumber' is not in"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_with_their_line(
    winogender_data: Path, file: str, old: str, new: str, message: str
) -> None:
    path = winogender_data / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_winogender(winogender_data)
    assert message in str(caught.value)


def test_release_is_read_whole(shared_data: Path) -> None:
    schemas = read_winogender(shared_data / "winogender")
    assert len(schemas.sentences) == 720
    assert len(schemas.templates) == 120
    assert len(schemas.percent_feminine) == 60
    # Two templates an occupation, one for each answer, each in 3 genders and with 2 participants.
    per_cell = collections.Counter(
        (s.occupation_name, s.answer, s.gender) for s in schemas.sentences
    )
    assert set(per_cell.values()) == {2}
    assert len(per_cell) == 60 * 2 * 3
    pronouns = {form for forms in PRONOUNS.values() for form in forms.values()}
    for sentence in schemas.sentences:
        occupation, _, pronoun = mentions(sentence)
        assert occupation.lower().split()[-1] == sentence.occupation_name.split()[-1]
        assert pronoun.lower() in pronouns


def test_shares_of_women_are_those_the_papers_notebook_printed(shared_data: Path) -> None:
    """The table of 60 occupations that the MultiBERTs' coreference scores are set against."""
    cells = json.loads(
        (shared_data / "reference/multiberts_notebook_printed_results.json").read_text()
    )
    (printed,) = (
        "\n".join(cell["printed_output"])
        for cell in cells
        if cell["notebook"] == "coref.ipynb" and cell["cell"] == 11
    )
    rows = [line.split() for line in printed.splitlines()]
    expected = {row[0]: float(row[1]) for row in rows if len(row) == 2}
    assert len(expected) == 60
    found = read_winogender(shared_data / "winogender").percent_feminine
    assert {name: round(share / 100, 6) for name, share in found.items()} == expected
