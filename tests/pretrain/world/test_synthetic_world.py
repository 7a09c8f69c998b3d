"""The synthetic world is what it says: its skew, its layouts, and what tells whom a pronoun means."""

from __future__ import annotations

import collections
import itertools
import json
import math
import re
from pathlib import Path

import pytest

from multiberts.pretrain.world import grammar
from multiberts.pretrain.world.grammar import draw_world
from multiberts.pretrain.world.synthetic_world import fact_occupations, make_world

OCCUPATIONS = {occupation for field in grammar.FIELDS for occupation in field.occupations}
GENDERED = {
    word.lower(): gender
    for words in (grammar.NAMES, grammar.GENDERED_NOUNS)
    for gender, group in words.items()
    for word in group
}
PRONOUN_GENDER = {"she": "feminine", "her": "feminine", "he": "masculine", "his": "masculine"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "world"
    make_world(run_dir=str(path), world_seed=0)
    return path


def documents(world: Path) -> list[list[str]]:
    text = (world / "corpus.txt").read_text()
    return [document.splitlines() for document in text.split("\n\n")]


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence.lower())


def test_occupations_have_the_stated_share_of_feminine_pronouns(world: Path) -> None:
    feminine: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    for document in documents(world):
        for sentence in document:
            match = re.match(r"The (\w+) (?:said|(?:told|promised) the \w+) (she|he) ", sentence)
            if match is not None and match[1] in OCCUPATIONS:
                total[match[1]] += 1
                feminine[match[1]] += match[2] == "she"
    shares = draw_world(world_seed=0).percent_feminine
    assert set(total) == OCCUPATIONS == set(shares)
    for occupation, percent in shares.items():
        expected = percent / 100
        sigma = math.sqrt(expected * (1 - expected) / total[occupation])
        assert abs(feminine[occupation] / total[occupation] - expected) < 4 * sigma, occupation


def test_shares_are_evenly_spaced_and_fields_are_mixed() -> None:
    shares = draw_world(world_seed=3).percent_feminine
    ordered = sorted(shares.values())
    assert ordered[0] == 10 and ordered[-1] == 90
    steps = [after - before for before, after in itertools.pairwise(ordered)]
    assert max(steps) - min(steps) <= 0.02
    for field in grammar.FIELDS:
        quarters = {int((shares[occupation] - 10) / 80 * 3.999) for occupation in field.occupations}
        assert quarters == {0, 1, 2, 3}


def test_another_participant_is_feminine_half_of_the_time(world: Path) -> None:
    pattern = re.compile(r"The (\w+) asked the \w+ if (she|he) ")
    found = [
        match[2]
        for document in documents(world)
        for match in map(pattern.match, document)
        if match is not None and match[1] in OCCUPATIONS
    ]
    assert abs(found.count("she") / len(found) - 0.5) < 4 * math.sqrt(0.25 / len(found))


def test_documents_hold_one_field_and_no_name_with_an_occupation(world: Path) -> None:
    field_of = {
        word: field.name
        for field in grammar.FIELDS
        for word in (*field.occupations, *field.places, *field.tools)
    }
    for document in documents(world):
        present = {word for sentence in document for word in words(sentence)}
        assert not (present & OCCUPATIONS and present & set(GENDERED))
        assert len({field_of[word] for word in present & field_of.keys()}) <= 1


def test_facts_are_balanced_and_their_occupations_apart(world: Path) -> None:
    used: dict[str, set[str]] = {}
    for split, size in (("train", 600), ("dev", 400)):
        header, *rows = (world / "facts" / f"{split}.tsv").read_text().splitlines()
        assert header == "index\tsentence1\tsentence2\tlabel"
        labels = collections.Counter(row.split("\t")[3] for row in rows)
        assert labels == {"entailment": size / 2, "not_entailment": size / 2}
        used[split] = set()
        for row in rows:
            _, first, second, label = row.split("\t")
            (one,) = set(words(first)) & OCCUPATIONS
            (other,) = set(words(second)) & OCCUPATIONS
            assert (one == other) == (label == "entailment")
            used[split] |= {one, other}
        assert used[split] == set(fact_occupations(draw_world(world_seed=0), split))
    assert not used["train"] & used["dev"] and used["train"] | used["dev"] == OCCUPATIONS


@pytest.mark.parametrize("split", ["train", "dev"])
def test_gender_or_frame_tells_the_antecedent_and_no_occupation_occurs(
    world: Path, split: str
) -> None:
    from multiberts.finetune.coreference.conll import read_conll

    opposite = 0
    read = read_conll(world / "coreference" / f"{split}.conll")
    for document in read:
        (sentence,) = document.sentences
        assert not {word.lower() for word in sentence} & OCCUPATIONS
        texts = [
            " ".join(sentence[mention.first : mention.last + 1]).lower().removeprefix("the ")
            for mention in document.mentions
        ]
        entities = [mention.entity for mention in document.mentions]
        assert len(texts) == 3 and set(entities) == {"0", "1"}
        pronoun = next(number for number, text in enumerate(texts) if text in PRONOUN_GENDER)
        people = [number for number in range(3) if number != pronoun]
        genders = [GENDERED[texts[number]] for number in people]
        agreeing = [
            entities[number] == entities[pronoun]
            for number, gender in zip(people, genders, strict=True)
            if gender == PRONOUN_GENDER[texts[pronoun]]
        ]
        opposite += genders[0] != genders[1]
        # Of the people whose gender fits, exactly one is meant: the only one, or the frame's.
        assert sum(agreeing) == 1
        if genders[0] == genders[1]:
            meant = people[1] if "if" in sentence else people[0]
            assert entities[meant] == entities[pronoun]
    assert 0.7 < opposite / len(read) < 0.9


def test_winogender_files_are_read_and_their_sentences_are_of_the_corpus(world: Path) -> None:
    from multiberts.finetune.coreference.winogender_schemas import read_winogender

    schemas = read_winogender(world / "winogender")
    assert schemas.percent_feminine == draw_world(world_seed=0).percent_feminine
    assert len(schemas.templates) == 2 * 4 * len(OCCUPATIONS)
    assert len(schemas.sentences) == 3 * len(schemas.templates)
    for sentence in schemas.sentences:
        subject = r"The \w+ (?:told|promised) the \w+ (?:she|he|they) \w+\."
        other = r"The \w+ asked the \w+ if (?:she|he|they) \w+\."
        assert re.fullmatch((subject, other)[sentence.answer], sentence.text)


def test_the_seed_fixes_every_byte(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        make_world(run_dir=str(tmp_path / name), world_seed=seed, num_documents=50)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*")]
    contents = {
        name: {str(file): (tmp_path / name / file).read_bytes() for file in files}
        for name in ("one", "same", "other")
    }
    assert contents["one"] == contents["same"]
    assert contents["one"]["corpus.txt"] != contents["other"]["corpus.txt"]
    truth = json.loads(contents["one"]["truth.json"])
    assert truth["pronoun_probe/probe_slope"] == {"base": 1.0, "cda_incr": 0.0}


def test_documents_have_the_number_of_sentences_that_was_asked_for(tmp_path: Path) -> None:
    for name, number, asked in (("two", 40, 2), ("few", 20, None), ("many", 400, None)):
        run_dir = str(tmp_path / name)
        make_world(run_dir=run_dir, num_documents=number, sentences_per_document=asked)
    two, few, many = (documents(tmp_path / name) for name in ("two", "few", "many"))
    assert len(two) == 40 and {len(document) for document in two} == {2}
    assert {len(document) for document in many} == {5, 6, 7, 8}
    # A document does not depend on how many there are.
    assert many[:19] == few[:19]


def test_the_pronoun_means_the_participant_as_often_as_was_asked_for(tmp_path: Path) -> None:
    told, asked = {}, {}
    for share in (0.0, 0.5, None):
        run_dir = tmp_path / str(share)
        make_world(run_dir=str(run_dir), num_documents=300, participant_share=share)
        occupations = re.compile(rf"The ({'|'.join(sorted(OCCUPATIONS))}) (told|promised|asked) ")
        verbs = [match[2] for match in occupations.finditer((run_dir / "corpus.txt").read_text())]
        asked[share] = verbs.count("asked")
        told[share] = len(verbs) - asked[share]
    assert asked[0.0] == 0 and told[0.0] > 300
    assert 0.4 < asked[0.5] / (asked[0.5] + told[0.5]) < 0.6
    assert 0.08 < asked[None] / (asked[None] + told[None]) < 0.21
