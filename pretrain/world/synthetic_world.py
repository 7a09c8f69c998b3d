"""The synthetic world on disk: text for pre-training and three tasks, with a truth that is known.

Everything is written in the layouts of the real data, so the rest of the pipeline cannot see the
difference:

* `corpus.txt`: one sentence per line, a blank line between documents;
* `facts/{train,dev}.tsv`: sentence pairs in the layout of GLUE's RTE. The second sentence says less of
  the same event, and follows from the first if it speaks of the same worker. The occupations of the two
  files differ, so who does well compares words rather than having learned the answers;
* `coreference/{train,dev}.conll`: CoNLL-2012 documents with gold mentions. Only people of known
  gender occur, no occupation: what a model thinks of occupations comes from its encoder;
* `questions/{train,dev}.json`: questions on short paragraphs in the layout of SQuAD 1.1. The occupations
  of the two files differ here, too;
* `winogender/`: schemas with the occupations, in the layout of the Winogender release;
* `predictions/{base,new}.csv`: answers on `facts/dev.tsv` of made-up models, to try comparisons on:
  two procedures from the same five seeds. How often each is right has effects of procedure, seed and
  example, as in a study of real ones;
* `truth.json`: what a perfect model scores.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from multiberts.bert.randomness import generator
from multiberts.pretrain.world import grammar
from multiberts.pretrain.world.grammar import (
    GENDERS,
    NOMINATIVE,
    POSSESSIVE,
    World,
    choose,
    document,
    draw_person,
    draw_world,
    sentence_start,
    two_people,
)
from multiberts.runs.directory import RunDirectory
from multiberts.runs.files import write_atomically
from multiberts.runs.identity import Identity
from multiberts.runs.parameters import PositiveInt, Range, Seed, Share

# Occupations of each field (of four) whose facts and questions are for training.
TRAIN_OCCUPATIONS_PER_FIELD = 2

# In coreference, the shares of sentences in which the gender alone shows whom the pronoun means, and
# in which frame and gender agree; in the rest both people have one gender and the frame decides.
GENDER_TELLS_SHARE = 0.6
BOTH_TELL_SHARE = 0.2

PARTICIPANTS_PER_OCCUPATION = 4

PRONOUNS_BY_FILE_NAME = {"male": "he", "female": "she", "neutral": "they"}

# Slope of P(she) / (P(she) + P(he)) on percent_feminine / 100 of a perfect masked language model of
# the text that each procedure ends on.
TRUTH = {"pronoun_probe/probe_slope": {"base": 1.0, "cda_incr": 0.0}}


# Made-up models by procedure: mean of a normal variable, which is above 0 for a right answer. They are
# far apart, so that a first comparison is clear.
SKILLS = {"base": 0.6, "new": 1.2}
NUM_MADE_UP_SEEDS = 5


IDENTITY = Identity()

_Several = Annotated[int, Range(least=2)]


def make_world(
    *,
    run_dir: str,
    world_seed: Seed = 0,
    num_documents: _Several = 6000,
    people_share: Share = 0.3,
    sentences_per_document: PositiveInt | None = None,
    participant_share: Share | None = None,
    num_train_facts: _Several = 600,
    num_dev_facts: _Several = 400,
    num_train_coreference: _Several = 800,
    num_dev_coreference: _Several = 200,
    num_train_questions: _Several = 800,
    num_dev_questions: _Several = 200,
) -> None:
    """Writes a synthetic world.

    Args:
      run_dir: the run's directory.
      world_seed: fixes everything; another seed gives other occupations the feminine pronouns.
      num_documents: documents of the corpus.
      people_share: share of documents about people of known gender rather than about work.
      sentences_per_document: sentences in each document; None: 5 to 8, drawn. Three fit uncut into a
        sequence of 28 pieces.
      participant_share: share of two-person sentences whose pronoun refers to the other person ("asked
        the visitor if she"); None: 1/7. With fewer, a model learns sooner that a pronoun means the worker.
      num_train_facts: sentence pairs to train on, half of them true.
      num_dev_facts: sentence pairs to evaluate on, half of them true.
      num_train_coreference: documents to train on, of one sentence each.
      num_dev_coreference: the same, to evaluate on.
      num_train_questions: questions to train on, each on a paragraph of its own.
      num_dev_questions: the same, to evaluate on.
    """
    parameters, _ = IDENTITY.of(locals())
    run = RunDirectory(run_dir, stage="make_world", parameters=parameters)
    if run.done:
        return
    world = draw_world(
        world_seed=world_seed,
        people_share=people_share,
        sentences_per_document=sentences_per_document,
        participant_share=participant_share,
    )
    files = {
        "corpus.txt": corpus(world, num_documents),
        "facts/train.tsv": facts(world, "train", num_train_facts),
        "facts/dev.tsv": facts(world, "dev", num_dev_facts),
        "coreference/train.conll": coreference(world, "train", num_train_coreference),
        "coreference/dev.conll": coreference(world, "dev", num_dev_coreference),
        "questions/train.json": questions(world, "train", num_train_questions),
        "questions/dev.json": questions(world, "dev", num_dev_questions),
        **{f"winogender/{name}": text for name, text in winogender(world).items()},
        **{f"predictions/{name}.csv": predictions(world, name, num_dev_facts) for name in SKILLS},
        "truth.json": json.dumps(TRUTH, indent=1) + "\n",
    }
    with run:
        for name, text in files.items():
            (run.path / name).parent.mkdir(exist_ok=True)
            write_atomically(run.path / name, text)
        run.finish(list(files))


def corpus(world: World, num_documents: int) -> str:
    """Writes the text to pre-train on: one sentence per line, a blank line between documents."""
    documents = ("\n".join(document(world, index)) for index in range(num_documents))
    return "\n\n".join(documents) + "\n"


def fact_occupations(world: World, split: str) -> tuple[str, ...]:
    """Returns the occupations that facts and questions of a split (`train` or `dev`) speak of."""
    chosen: list[str] = []
    for field in grammar.FIELDS:
        random = generator("world", world.world_seed, "fact occupations", field.name)
        order = [str(name) for name in random.permutation(field.occupations)]
        cut = TRAIN_OCCUPATIONS_PER_FIELD
        chosen.extend(order[:cut] if split == "train" else order[cut:])
    return tuple(chosen)


def facts(world: World, split: str, num_examples: int) -> str:
    """Writes sentence pairs in the layout of RTE, true and false ones in turn.

    In a false pair the second sentence has another of the split's occupations; each occupation is as
    likely in every place, so neither sentence alone reveals the label.
    """
    occupations = fact_occupations(world, split)
    lines = ["index\tsentence1\tsentence2\tlabel"]
    for index in range(num_examples):
        random = generator("world", world.world_seed, "facts", split, index)
        follows = index % 2 == 0
        first = choose(random, occupations)
        others = tuple(name for name in occupations if name != first)
        second = first if follows else choose(random, others)
        label = "entailment" if follows else "not_entailment"
        lines.append("\t".join([str(index), *_fact_sentences(first, second, random), label]))
    return "\n".join(lines) + "\n"


def predictions(world: World, procedure: str, num_examples: int) -> str:
    """Writes what made-up models answer on the facts to evaluate on, one row per seed and example."""
    lines = ["seed,id,prediction,label"]
    name = ("world", world.world_seed, "predictions")
    difficulty = generator(*name, "examples").normal(size=num_examples)
    for seed in range(NUM_MADE_UP_SEEDS):
        # The seed moves both procedures, and each a little by itself.
        shift = 0.1 * generator(*name, seed).normal()
        random = generator(*name, seed, procedure)
        skill = SKILLS[procedure] + shift + 0.1 * random.normal()
        is_right = skill + difficulty + random.normal(size=num_examples) > 0
        for index, right in enumerate(is_right.tolist()):
            label = int(index % 2 == 0)
            lines.append(f"{seed},{index},{label if right else 1 - label},{label}")
    return "\n".join(lines) + "\n"


def _fact_sentences(first: str, second: str, random: np.random.Generator) -> tuple[str, str]:
    """Writes what one worker did, and less about the same of a second, who may be the first.

    Pronouns are feminine half of the time: they carry no information about who is meant.
    """
    (field,) = (field for field in grammar.FIELDS if first in field.occupations)
    gender, kind = choose(random, GENDERS), random.integers(3)
    if kind == 0:
        pronoun, predicate = NOMINATIVE[gender], choose(random, grammar.PREDICATES)
        participant = f"the {choose(random, grammar.PARTICIPANTS)}"
        frame = choose(random, grammar.FIRST_FRAMES)
        told = two_people(f"the {first}", frame, participant, pronoun, predicate)
        return told, f"The {second} said {pronoun} {predicate}."
    if kind == 1:
        mood, workplace = choose(random, grammar.MOODS), choose(random, field.places)
        at_place = f"The {first} was {mood} at {POSSESSIVE[gender]} {workplace}."
        return at_place, f"The {second} was {mood} at work."
    tool, time = choose(random, field.tools), choose(random, grammar.TIMES)
    used = f"The {first} used the {tool} in the {time}."
    return used, f"The {second} used a tool in the {time}."


def coreference(world: World, split: str, num_documents: int) -> str:
    """Documents of one sentence with two people and a pronoun, in the layout of CoNLL-2012."""
    return "".join(
        _coreference_document(
            f"world_{split}_{index:04d}",
            generator("world", world.world_seed, "coreference", split, index),
        )
        for index in range(num_documents)
    )


def _coreference_document(name: str, random: np.random.Generator) -> str:
    kind = random.random()
    meant = int(random.integers(2))
    genders = [choose(random, GENDERS)] * 2
    if kind < GENDER_TELLS_SHARE + BOTH_TELL_SHARE:
        genders[1] = GENDERS[1 - GENDERS.index(genders[0])]
    frames = (grammar.FIRST_FRAMES, grammar.SECOND_FRAMES)[meant]
    if kind < GENDER_TELLS_SHARE:
        frames = grammar.OPEN_FRAMES
    first, second = (draw_person(random, gender).words for gender in genders)
    while second == first:
        second = draw_person(random, genders[1]).words
    pronoun = NOMINATIVE[genders[meant]]
    sentence = two_people(
        first, choose(random, frames), second, pronoun, choose(random, grammar.PREDICATES)
    )
    words = [*sentence.removesuffix(".").split(), "."]
    begin = words.index(second.split()[0], len(first.split()))
    spans = {
        (0, len(first.split()) - 1): 0,
        (begin, begin + len(second.split()) - 1): 1,
        (words.index(pronoun), words.index(pronoun)): meant,
    }
    lines = [f"#begin document ({name}); part 000"]
    for number, word in enumerate(words):
        # Such as `(1` at a mention's first word, `1)` at its last, `(1)` if it has one word.
        marks = "|".join(
            f"{'(' * (number == first)}{entity}{')' * (number == last)}"
            for (first, last), entity in spans.items()
            if number in (first, last)
        )
        columns = [name, "0", str(number), word, "-", "*", "-", "-", "-", "-", "*", marks or "-"]
        lines.append("\t".join(columns))
    return "\n".join([*lines, "", "#end document", ""])


def winogender(world: World) -> dict[str, str]:
    """Writes the three files of the Winogender release, with this world's occupations.

    Every sentence is one that the grammar makes, so a perfect model's answer is known.
    """
    templates = ["occupation(0)\tother-participant(1)\tanswer\tsentence"]
    sentences = ["sentid\tsentence"]
    statistics = ["occupation\tbergsma_pct_female\tbls_pct_female\tbls_year"]
    for occupation, percent in world.percent_feminine.items():
        statistics.append(f"{occupation}\t{percent}\t{percent}\t0")
        random = generator("world", world.world_seed, "winogender", occupation)
        participants = random.permutation(grammar.PARTICIPANTS)[:PARTICIPANTS_PER_OCCUPATION]
        for participant in participants:
            for answer, frames in ((1, grammar.SECOND_FRAMES), (0, grammar.FIRST_FRAMES)):
                template = two_people(
                    "the $OCCUPATION",
                    choose(random, frames),
                    "the $PARTICIPANT",
                    "$NOM_PRONOUN",
                    choose(random, grammar.PREDICATES),
                )
                templates.append(f"{occupation}\t{participant}\t{answer}\t{template}")
                text = template.replace("$OCCUPATION", occupation)
                text = text.replace("$PARTICIPANT", participant)
                for gender, pronoun in PRONOUNS_BY_FILE_NAME.items():
                    identity = f"{occupation}.{participant}.{answer}.{gender}.txt"
                    sentences.append(f"{identity}\t{text.replace('$NOM_PRONOUN', pronoun)}")
    return {
        "templates.tsv": "\n".join(templates) + "\n",
        "all_sentences.tsv": "\n".join(sentences) + "\n",
        "occupations-stats.tsv": "\n".join(statistics) + "\n",
    }


# A sentence, and the questions it answers, each with its answer.
Event = tuple[str, tuple[tuple[str, str], ...]]


def questions(world: World, split: str, num_questions: int) -> str:
    """Writes paragraphs with a question each in the layout of SQuAD 1.1, about a split's occupations.

    A paragraph says what two workers did; a question asks who did one of these things, or with what, or
    where. Only one sentence answers it, so a model answers right if it finds that sentence by the words of
    the question, and in it the worker, the tool or the place.
    """
    occupations = fact_occupations(world, split)
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
    predicates = _two(random, grammar.PREDICATES)
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
    first, second = random.permutation(len(items))[:2]
    return items[first], items[second]


def _event(random: np.random.Generator, worker: str, predicate: str) -> Event:
    """Writes what a worker did; pronouns are feminine half of the time, so they reveal nothing."""
    (field,) = (field for field in grammar.FIELDS if worker in field.occupations)
    gender, kind = choose(random, GENDERS), int(random.integers(4))
    the_worker = f"the {worker}"
    subject = sentence_start(the_worker)
    if kind == 3:
        said = f"{subject} said {NOMINATIVE[gender]} {predicate}."
        return said, ((f"who {predicate}?", subject),)
    if kind == 1:
        mood, workplace = choose(random, grammar.MOODS), choose(random, field.places)
        sentence = f"{subject} was {mood} at {POSSESSIVE[gender]} {workplace}."
        return sentence, ((f"who was {mood}?", subject), (f"{the_worker} was where?", workplace))
    tool = choose(random, field.tools)
    if kind == 0:
        verb, sentence = "took", f"{subject} took {POSSESSIVE[gender]} {tool}."
    else:
        verb = "used"
        sentence = f"{subject} used the {tool} in the {choose(random, grammar.TIMES)}."
    return sentence, ((f"who {verb} the {tool}?", subject), (f"{the_worker} {verb} what?", tool))
