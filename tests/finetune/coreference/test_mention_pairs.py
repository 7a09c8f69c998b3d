from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.coreference.conll import read_conll
from multiberts.finetune.coreference.gap import COLUMNS, GapExample, read_gap
from multiberts.finetune.coreference.mention_pairs import (
    MentionPairs,
    PairCollector,
    add_conll_pairs,
    add_gap_pairs,
    winogender_pairs,
)
from multiberts.finetune.coreference.mention_pairs import pair_texts as mention_texts
from multiberts.finetune.coreference.winogender_schemas import read_winogender
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import conll


def conll_pairs(documents, tokenizer: Vocabulary, *arguments, **options) -> MentionPairs:
    collector = PairCollector(tokenizer)
    add_conll_pairs(collector, documents, *arguments, **options)
    return collector.collected()


def gap_pairs(examples, tokenizer: Vocabulary, *arguments) -> MentionPairs:
    collector = PairCollector(tokenizer)
    add_gap_pairs(collector, examples, *arguments)
    return collector.collected()


def text_of(pairs: MentionPairs, tokenizer: Vocabulary, span: int) -> str:
    """The pieces of a span, joined."""
    window, first, last = pairs.spans[span]
    row = pairs.sequences.input_ids[window, first : last + 1]
    return " ".join(tokenizer.pieces[number] for number in row).replace(" ##", "")


def pair_texts(pairs: MentionPairs, tokenizer: Vocabulary) -> list[tuple[str, str, int]]:
    return [
        (text_of(pairs, tokenizer, pronoun), text_of(pairs, tokenizer, candidate), int(label))
        for (pronoun, candidate), label in zip(pairs.pairs, pairs.labels, strict=True)
    ]


def written(tmp_path: Path, *sentences: str) -> Path:
    path = tmp_path / "d.conll"
    path.write_text(conll({"d": list(sentences)}))
    return path


@pytest.fixture
def tokenizer(vocabulary: Path) -> Vocabulary:
    return Vocabulary.open(vocabulary)


@pytest.fixture
def document_file(tmp_path: Path) -> Path:
    first = "Mary/(1) told the/(2 zebra/2) she/(1) was"
    return written(tmp_path, first, "the/(2 zebra/2) and Paul/(3) came", "he/(3) is it")


def test_pronouns_meet_the_other_mentions_of_their_window(
    tokenizer: Vocabulary, document_file: Path
) -> None:
    pairs = conll_pairs(read_conll(document_file), tokenizer, 64, "dev")
    assert pair_texts(pairs, tokenizer) == [
        ("she", "mary", 1),
        ("she", "the zebra", 0),
        ("she", "the zebra", 0),
        ("she", "paul", 0),
        ("he", "mary", 0),
        ("he", "the zebra", 0),
        ("he", "the zebra", 0),
        ("he", "paul", 1),
    ]
    shown = mention_texts(pairs, np.array([6, 1]), tokenizer.pieces)
    assert shown["pronoun"] == ["he", "she"] and shown["mention"] == ["the zebra", "the zebra"]
    whole = "mary told the zebra she was the zebra and paul came he is it"
    assert shown["context"] == [whole, whole]
    assert pairs.pair_ids[0] == "dev/d/000/4-0-0"
    assert len(set(pairs.pair_ids)) == 8


def test_windows_are_whole_sentences_that_fit(tokenizer: Vocabulary, document_file: Path) -> None:
    documents = read_conll(document_file)
    # `zebra` and `came` fall into letters: the sentences have 10, 12 and 3 pieces.
    collector = PairCollector(tokenizer)
    add_conll_pairs(collector, documents, 17, "dev")
    pairs = collector.collected()
    assert pairs.sequences.lengths.tolist() == [12, 17]
    assert pair_texts(pairs, tokenizer) == [
        ("she", "mary", 1),
        ("she", "the zebra", 0),
        ("he", "the zebra", 0),
        ("he", "paul", 1),
    ]
    assert not collector.left_out
    # Longer ones are split, and counted.
    collector = PairCollector(tokenizer)
    add_conll_pairs(collector, documents, 11, "dev")
    pairs = collector.collected()
    # mary told the zebra she | was the zebra and ... | paul came he is it
    assert collector.left_out == {"sentences split": 2}
    assert pairs.sequences.lengths.max() <= 11
    assert pair_texts(pairs, tokenizer)[:2] == [("she", "mary", 1), ("she", "the zebra", 0)]
    # With 7 pieces a window the article of the first zebra stands in another one.
    collector = PairCollector(tokenizer)
    add_conll_pairs(collector, documents, 9, "dev")
    assert collector.left_out == {"sentences split": 2, "mentions across windows": 1}
    assert len(collector.collected().labels) == 0


def test_negatives_are_capped_by_address(tokenizer: Vocabulary, document_file: Path) -> None:
    documents = read_conll(document_file)
    everything = set(conll_pairs(documents, tokenizer, 64, "x").pair_ids)
    capped = conll_pairs(documents, tokenizer, 64, "x", max_negatives=1)
    again = conll_pairs(documents, tokenizer, 64, "x", max_negatives=1)
    assert capped.labels.tolist().count(1) == 2
    assert capped.labels.tolist().count(0) == 2
    assert set(capped.pair_ids) < everything
    assert capped.pair_ids == again.pair_ids


def test_winogender_spans_are_the_mentions(tokenizer: Vocabulary, winogender_data: Path) -> None:
    sentences = read_winogender(winogender_data).sentences
    file = winogender_data / "all_sentences.tsv"
    pairs = winogender_pairs(sentences, tokenizer, 64, file)
    assert len(pairs.labels) == 2 * len(sentences)
    texts = pair_texts(pairs, tokenizer)
    assert texts[:2] == [("he", "the baker", 1), ("he", "the guest", 0)]
    for row, sentence in enumerate(sentences):
        spans = (sentence.pronoun, sentence.occupation, sentence.participant)
        pronoun, occupation, participant = (sentence.text[a:b].lower() for a, b in spans)
        assert texts[2 * row] == (pronoun, occupation, int(sentence.answer == 0))
        assert texts[2 * row + 1] == (pronoun, participant, int(sentence.answer == 1))
        window = pairs.spans[pairs.pairs[2 * row, 0], 0]
        ids = pairs.sequences.input_ids[window, : pairs.sequences.lengths[window]]
        assert ids[1:-1].tolist() == tokenizer.encode(sentence.text)
    with pytest.raises(UserError, match=r"all_sentences.tsv line 2: the sentence has 12 tokens"):
        winogender_pairs(sentences, tokenizer, 10, file)


def test_gap_windows_hold_pronoun_and_name(tokenizer: Vocabulary, tmp_path: Path) -> None:
    text = "it is red " * 4 + "Mary told Anna about a cake and she was late " + "it is fine " * 4
    places = {name: text.index(name) for name in ("Mary", "Anna", "she")}

    def read(text: str) -> list[GapExample]:
        row = ["t-1", text, "she", places["she"]]
        row += ["Mary", places["Mary"], "TRUE", "Anna", places["Anna"], "FALSE", "u"]
        lines = ("\t".join(map(str, cells)) + "\n" for cells in (COLUMNS, row))
        (tmp_path / "gap.tsv").write_text("".join(lines))
        return read_gap(tmp_path / "gap.tsv")

    examples = read(text)
    pairs = gap_pairs(examples, tokenizer, 16, "gap")
    assert pair_texts(pairs, tokenizer) == [("she", "mary", 1), ("she", "anna", 0)]
    assert pairs.sequences.lengths.tolist() == [16, 16]
    # At the passage's end a window has more text before, and is as full: both are the same one.
    at_end = gap_pairs(read(text[: text.index(" was late")]), tokenizer, 14, "gap")
    assert pair_texts(at_end, tokenizer) == [("she", "mary", 1), ("she", "anna", 0)]
    assert at_end.sequences.lengths.tolist() == [14]
    # A passage that fits whole is one window.
    whole = gap_pairs(examples, tokenizer, 64, "gap")
    assert len(whole.sequences) == 1
    assert whole.pair_ids == pairs.pair_ids
    assert pair_texts(whole, tokenizer) == pair_texts(pairs, tokenizer)
    assert pairs.pair_ids == ["gap/t-1/A", "gap/t-1/B"]
    # Mary to she are 8 tokens, Anna to she 6: with [CLS] and [SEP] only the second fits into 9.
    collector = PairCollector(tokenizer)
    add_gap_pairs(collector, examples, 9, "gap")
    assert pair_texts(collector.collected(), tokenizer) == [("she", "anna", 0)]
    assert collector.left_out == {"GAP pairs longer than a window": 1}


def test_files_of_one_set_keep_their_spans(tokenizer: Vocabulary, document_file: Path) -> None:
    collector, texts, ids = PairCollector(tokenizer), [], []
    for length, name in ((20, "x"), (64, "y")):
        add_conll_pairs(collector, read_conll(document_file), length, name)
        alone = conll_pairs(read_conll(document_file), tokenizer, length, name)
        texts += pair_texts(alone, tokenizer)
        ids += alone.pair_ids
    joined = collector.collected()
    assert (pair_texts(joined, tokenizer), joined.pair_ids) == (texts, ids)
    assert np.all(joined.spans[:, 0] < len(joined.sequences))


def test_every_two_mentions_meet_either_way(tokenizer: Vocabulary, document_file: Path) -> None:
    documents = read_conll(document_file)
    pairs = conll_pairs(documents, tokenizer, 64, "x", every_two_mentions=True)
    # Mary, the zebra, she, the zebra, Paul and he: 6 x 5; each of the three entities has two mentions.
    assert len(pairs.labels) == 30
    assert pairs.labels.sum() == 6
    assert len(set(pairs.pair_ids)) == 30
    texts = pair_texts(pairs, tokenizer)
    assert ("paul", "he", 1) in texts
    assert ("he", "paul", 1) in texts
    assert ("he", "she", 0) in texts
    ways = {tuple(pair) for pair in pairs.pairs.tolist()}
    assert ways == {(candidate, pronoun) for pronoun, candidate in ways}


def test_litbank_pairs_are_those_of_a_plain_count(shared_data: Path) -> None:
    """Pronouns times other mentions that do not hold them, in whole documents, counted from brackets."""
    path = shared_data / "coref/litbank/litbank_100.conll.gz"
    documents = read_conll(path)[:6]
    lines = iter(gzip.decompress(path.read_bytes()).decode().splitlines())
    expected = []
    for _ in documents:
        words, spans, stack = [], [], []
        for line in itertools.takewhile(lambda line: line != "#end document", lines):
            columns = line.split("\t")
            if len(columns) < 13:
                continue
            words.append(columns[3].lower())
            for bracket in columns[12].split("|"):
                entity = bracket.strip("()_")
                if bracket.startswith("("):
                    stack.append((entity, len(words) - 1))
                if bracket.endswith(")"):
                    latest = max(n for n, (name, _) in enumerate(stack) if name == entity)
                    spans.append((stack.pop(latest)[1], len(words) - 1, entity))
        people = (
            "he him his himself she her hers herself they them their theirs themselves themself"
        )
        pronouns = [s for s in spans if s[0] == s[1] and words[s[0]] in people.split()]
        others = [s for s in spans if s not in pronouns]
        pairs = [(p, o) for p in pronouns for o in others if not o[0] <= p[0] <= o[1]]
        expected.append((len(pairs), sum(p[2] == o[2] for p, o in pairs)))
    tokenizer = Vocabulary.open(shared_data / "bert/vocab.txt")
    found = [conll_pairs([document], tokenizer, 10**6, "x") for document in documents]
    assert [(len(pairs.labels), int(pairs.labels.sum())) for pairs in found] == expected
    assert sum(count for count, _ in expected) > 10000


def test_a_place_with_two_entities_is_one_mention_and_a_pronoun_no_part_of_what_it_means(
    tokenizer: Vocabulary, tmp_path: Path
) -> None:
    path = written(tmp_path, "Mary/(1) told Anna/(2) she/(1)|(2) was early/(3)")
    pairs = conll_pairs(read_conll(path), tokenizer, 64, "dev")
    expected = [("she", "mary", 1), ("she", "anna", 1), ("she", "early", 0)]
    assert pair_texts(pairs, tokenizer) == expected
    path = written(tmp_path, "John/(1) told his/(2|(1) guest/2) about Anna/(3)")
    pairs = conll_pairs(read_conll(path), tokenizer, 64, "dev")
    assert pair_texts(pairs, tokenizer) == [("his", "john", 1), ("his", "anna", 0)]
    every = conll_pairs(read_conll(path), tokenizer, 64, "x", every_two_mentions=True)
    assert ("his", "his guest", 0) in pair_texts(every, tokenizer)
