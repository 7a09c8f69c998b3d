"""Questions about short paragraphs of the synthetic world, whose answers are spans of them.

A paragraph says of two workers what each did; a question asks who did the one thing, or with what or
where the one did it. Only one of the sentences answers it, so whoever finds that sentence by the words
of the question, and in it the worker, the tool or the place, answers right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from multiberts.bert.randomness import generator
from multiberts.pretrain.world import lexicon
from multiberts.pretrain.world.grammar import (
    GENDERS,
    NOMINATIVE,
    POSSESSIVE,
    World,
    choose,
    sentence_start,
)
from multiberts.pretrain.world.lexicon import Field

# A sentence, and the questions it answers, each with its answer.
Event = tuple[str, tuple[tuple[str, str], ...]]


def questions(world: World, split: str, num_questions: int, occupations: Sequence[str]) -> str:
    """Questions in the layout of SQuAD 1.1, one a paragraph.

    Args:
      world: the world they are about.
      split: `train` or `dev`.
      num_questions: how many.
      occupations: those of the workers.

    Returns:
      A JSON document.
    """
    paragraphs = []
    for index in range(num_questions):
        random = generator("world", world.world_seed, "questions", split, index)
        context, question, answer, start = _example(random, occupations)
        entry = {
            "id": f"{split}_{index:04d}",
            "question": question,
            "answers": [{"text": answer, "answer_start": start}],
        }
        paragraphs.append({"context": context, "qas": [entry]})
    content = {"version": "1.1", "data": [{"title": f"world {split}", "paragraphs": paragraphs}]}
    return json.dumps(content, indent=1) + "\n"


def _example(random: np.random.Generator, occupations: Sequence[str]) -> tuple[str, str, str, int]:
    """Draws a paragraph, a question, its answer, and where in the paragraph the answer begins."""
    first, second = _two(random, occupations)
    predicates = _two(random, lexicon.PREDICATES)
    while True:
        events = [
            _event(random, worker, predicate)
            for worker, predicate in zip((first, second), predicates, strict=True)
        ]
        asked = [{question for question, _ in answered} for _, answered in events]
        if not asked[0] & asked[1]:
            break
    about = int(random.integers(2))
    sentence, answered = events[about]
    question, answer = choose(random, answered)
    begin = len(events[0][0]) + 1 if about else 0
    context = " ".join(text for text, _ in events)
    return context, question, answer, begin + sentence.rindex(answer)


def _two(random: np.random.Generator, items: Sequence[str]) -> tuple[str, str]:
    """Draws two different items."""
    first, second = random.permutation(len(items))[:2]
    return items[first], items[second]


def _event(random: np.random.Generator, worker: str, predicate: str) -> Event:
    """Writes what a worker did; pronouns are feminine half of the time, so they reveal nothing."""
    (field,) = (field for field in lexicon.FIELDS if worker in field.occupations)
    kinds = (_took, _was, _used)
    gender, kind = choose(random, GENDERS), int(random.integers(len(kinds) + 1))
    the_worker = f"the {worker}"
    subject = sentence_start(the_worker)
    if kind == len(kinds):
        said = f"{subject} said {NOMINATIVE[gender]} {predicate}."
        return said, ((f"who {predicate}?", subject),)
    return kinds[kind](random, the_worker, POSSESSIVE[gender], field)


def _took(random: np.random.Generator, worker: str, possessive: str, field: Field) -> Event:
    subject, tool = sentence_start(worker), choose(random, field.tools)
    sentence = f"{subject} took {possessive} {tool}."
    return sentence, ((f"who took the {tool}?", subject), (f"{worker} took what?", tool))


def _was(random: np.random.Generator, worker: str, possessive: str, field: Field) -> Event:
    subject = sentence_start(worker)
    mood, place = choose(random, lexicon.MOODS), choose(random, field.places)
    sentence = f"{subject} was {mood} at {possessive} {place}."
    return sentence, ((f"who was {mood}?", subject), (f"{worker} was where?", place))


def _used(random: np.random.Generator, worker: str, possessive: str, field: Field) -> Event:
    del possessive
    subject = sentence_start(worker)
    tool, time = choose(random, field.tools), choose(random, lexicon.TIMES)
    sentence = f"{subject} used the {tool} in the {time}."
    return sentence, ((f"who used the {tool}?", subject), (f"{worker} used what?", tool))
