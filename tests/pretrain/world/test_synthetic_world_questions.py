"""The synthetic world's questions: read as SQuAD is, and answered by one sentence only."""

from __future__ import annotations

import collections
import json
import re

import pytest

from multiberts.finetune.squad.questions import SquadExamples, read_squad
from multiberts.pretrain.world.grammar import FIELDS, draw_world
from multiberts.pretrain.world.synthetic_world import fact_occupations, questions

NUMBER = 600


@pytest.fixture(scope="module", params=["train", "dev"])
def split(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def examples(split: str, tmp_path_factory: pytest.TempPathFactory) -> SquadExamples:
    world = draw_world(world_seed=0)
    path = tmp_path_factory.mktemp("questions") / "questions.json"
    path.write_text(questions(world, split, NUMBER))
    return read_squad(path, with_unanswerable=False)


def answers(sentence: str) -> dict[str, str]:
    """What a sentence of the world says, as questions with their answers."""
    match = re.fullmatch(
        r"(The (\w+)) (took|used|was|said) (\w+ )?(.*?)(?: in the \w+)?\.", sentence
    )
    assert match is not None, sentence
    subject, worker, verb, second, rest = match.groups()
    if verb == "said":
        return {f"who {rest}?": subject}
    if verb == "was":
        mood, place = second.strip(), rest.split()[-1]
        return {f"who was {mood}?": subject, f"the {worker} was where?": place}
    return {f"who {verb} the {rest}?": subject, f"the {worker} {verb} what?": rest}


def test_one_sentence_answers_and_says_the_answer(examples: SquadExamples) -> None:
    assert len(examples) == NUMBER
    about: collections.Counter[tuple[int, str]] = collections.Counter()
    for row in range(NUMBER):
        context = examples.contexts[examples.context_of[row]]
        said = [answers(f"{sentence}.") for sentence in context.removesuffix(".").split(". ")]
        assert len(said) == 2
        fitting = [number for number in range(2) if examples.questions[row] in said[number]]
        assert len(fitting) == 1, context
        (text,), (start,) = examples.answers[row], examples.answer_starts[row]
        assert said[fitting[0]][examples.questions[row]] == text
        assert context[start : start + len(text)] == text
        assert (start > context.index(".")) == (fitting[0] == 1)
        about[fitting[0], examples.questions[row].split()[0]] += 1
    # Each place and kind of question often enough that none is a good guess.
    assert len(about) == 4 and min(about.values()) > NUMBER / 8


def test_workers_are_the_splits_own(examples: SquadExamples, split: str) -> None:
    own = fact_occupations(draw_world(world_seed=0), split)
    everybody = {name for field in FIELDS for name in field.occupations}
    found = {word for text in examples.contexts for word in re.findall(r"\w+", text.lower())}
    assert found & everybody == set(own)


def test_a_question_does_not_depend_on_how_many_there_are() -> None:
    world = draw_world(world_seed=2)
    few, many = (json.loads(questions(world, "dev", number))["data"][0] for number in (5, 20))
    assert many["paragraphs"][:5] == few["paragraphs"]
    other = json.loads(questions(draw_world(world_seed=3), "dev", 5))
    assert other["data"][0]["paragraphs"] != few["paragraphs"]
