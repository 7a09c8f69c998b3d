"""Pronouns are swapped as asked, and the rule for "her" and "his" is right as often as stated."""

import csv
import itertools
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus.counterfactual import (
    NAME_COUNTERPARTS,
    NOUN_COUNTERPARTS,
    Swapper,
    Unit,
    counterpart,
    swap_ids,
)
from multiberts.pretrain.corpus.documents import Piece, read_documents

pytestmark = pytest.mark.seconds

# `counterfactuals.csv` has sentences by part. At hand: with every pronoun swapped, written by hand before
# the rule was run; its word lists were then extended with these. Held out: written after the rule was
# finished, to be hard for it, and not used to change it. Fresh: written after the word lists were extended by
# what real text showed, and not used to change them, with the counterpart of each her, his, hers and him.
TABLE = Path(__file__).with_name("counterfactuals.csv")


def swap_pronouns(text, *, counterfactual_seed, document, probability=0.5):
    """The new text, how many occurrences were swapped, and how many there are."""
    swapped = Swapper(counterfactual_seed, probability).swap(text, document=document)
    return swapped.text, swapped.counts["swapped_pronouns"], swapped.counts["pronouns"]


def swap_all(text):
    return swap_pronouns(text, counterfactual_seed=0, document=0, probability=1.0)[0]


AMBIGUOUS = re.compile(r"\b(?:her|his|hers|him)\b", re.IGNORECASE)


def right_and_all(labelled):
    """Of the ambiguous pronouns in sentences with known counterparts, how many come out right."""
    right = total = 0
    for text, expected in labelled:
        places = [
            number
            for number, word in enumerate(re.findall(r"\w+", text))
            if AMBIGUOUS.fullmatch(word)
        ]
        new, wanted = re.findall(r"\w+", swap_all(text)), re.findall(r"\w+", expected)
        right += sum(new[place] == wanted[place] for place in places)
        total += len(places)
    return right, total


def filled_in(text, counterparts):
    """The sentence with other pronouns as the rule has them and the ambiguous ones as labelled."""
    answers = iter(counterparts.split())
    return AMBIGUOUS.sub(lambda match: next(answers), text)


def test_rule_is_right_as_often_as_measured_on_more_than_200_cases():
    """Measured: at hand 71 of 71; held out 26 of 33; fresh 116 of 124 (94 %). Text is easier."""
    parts = defaultdict(list)
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            expected = row["expected"]
            if row["part"] == "fresh":
                expected = filled_in(row["text"], expected)
            parts[row["part"].partition(":")[0]].append((row["text"], expected))
    at_hand, held_out, fresh = (right_and_all(parts[n]) for n in ("at hand", "held out", "fresh"))
    assert at_hand[1] + held_out[1] + fresh[1] >= 200
    assert at_hand[0] == at_hand[1], at_hand
    assert held_out[0] >= 0.78 * held_out[1], held_out
    assert fresh[0] >= 0.93 * fresh[1], fresh


@pytest.mark.parametrize(
    ("name", "num_documents", "least"),
    [
        ("enwiki_2015_wikiextractor_sample.txt.gz", 240, 0.975),
        ("gutenberg_litbank25_books.txt.gz", 8, 0.965),
    ],
)
def test_rule_puts_him_and_his_back_in_real_text(shared_data, name, num_documents, least):
    """Real text labels "her" itself: where a man's text has him or his, "her" must become just that.

    Measured on all 17,752 and 37,843 places: 97.9 % of Wikipedia's and 96.9 % of the books'. The test
    looks at the first articles or books, and at the first 400 places of each.
    """
    right = total = 0
    documents = read_documents([Piece(str(shared_data / "pretrain" / name), "wikiextractor")])
    for document in itertools.islice(documents, num_documents):
        text = "\n".join(document)
        for match in itertools.islice(re.finditer(r"\b(?:him|his)\b", text), 400):
            before = text[: match.start()][-100:]
            feminine = f"{before}her{text[match.end() : match.end() + 100]}"
            here = re.compile("her").match(feminine, len(before))
            right += counterpart(feminine, here) == match[0]
            total += 1
    assert total > 2900
    assert right >= least * total, (right, total)


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 1.0])
def test_share_swapped_is_the_probability(probability):
    text = "He saw himself and she saw herself. " * 5000
    new, swapped, total = swap_pronouns(
        text, counterfactual_seed=4, document=2, probability=probability
    )
    assert total == 20_000
    sigma = (total * probability * (1 - probability)) ** 0.5
    assert abs(swapped - probability * total) <= 4 * sigma
    old_words, new_words = re.findall(r"\w+", text), re.findall(r"\w+", new)
    assert sum(a != b for a, b in zip(old_words, new_words, strict=True)) == swapped


def test_draws_are_addressed_by_seed_and_document():
    text = "he " * 200

    def swap(counterfactual_seed, document):
        return swap_pronouns(text, counterfactual_seed=counterfactual_seed, document=document)[0]

    assert swap(1, 1) == swap(1, 1)
    assert len({swap(1, 1), swap(2, 1), swap(1, 2)}) == 3


def test_words_that_hold_a_pronoun_or_none_stay():
    text = "The other theme: there, this, shell, helm, chisel, heritage, ushers.\n"
    assert swap_pronouns(text, counterfactual_seed=0, document=0, probability=1.0) == (text, 0, 0)


@pytest.mark.parametrize("pairs", [NOUN_COUNTERPARTS, NAME_COUNTERPARTS])
def test_word_lists_are_pairs(pairs):
    assert all(pairs[pairs[word]] == word != pairs[word] for word in pairs)
    assert len(pairs) >= 150


def test_nouns_are_swapped_where_asked_for():
    text = "The KING and his daughter met a waitress; kingdom, human. Mrs Oak."
    swapper = Swapper(0, probability=1.0, nouns=True)
    swapped = swapper.swap(text, document=0)
    assert swapped.text == "The QUEEN and her son met a waiter; kingdom, human. Mr Oak."
    assert swapped.counts == {"pronouns": 1, "swapped_pronouns": 1, "nouns": 4, "swapped_nouns": 4}
    assert Swapper(0, probability=1.0).swap(text, document=0).text == text.replace("his", "her")


def test_nouns_do_not_move_the_draws_of_pronouns():
    text = "He and the woman saw her father. " * 200
    alone = Swapper(3).swap(text, document=1).text
    both = Swapper(3, nouns=True).swap(text, document=1)
    pronouns = re.compile(r"\b(?:he|she|her|his|him)\b", re.IGNORECASE)
    # Save "her", whose counterpart may change with the noun, every draw is the same.
    assert pronouns.findall(alone) == pronouns.findall(both.text)
    assert abs(both.counts["swapped_nouns"] - 200) < 4 * 10


def test_a_name_is_one_name_throughout_a_document():
    text = "Mary met James. James saw Mary; Linda and john ran. " * 20
    outcomes = set()
    for document in range(40):
        swapped = Swapper(5, names=True).swap(text, document=document)
        words = swapped.text.split()[: len(text.split()) // 20]
        outcomes.add((words[0], words[2], words[5].rstrip(";")))
        assert swapped.text == (" ".join(words) + " ") * 20
        # Mary and James stand next to each other and change places together; a small john is not a name.
        assert {words[0], words[2].rstrip(".")} == {"Mary", "James"}
        assert "john ran" in swapped.text
    assert len(outcomes) == 2


def test_a_store_is_swapped_as_its_text(tmp_path):
    words = "he she him her his hers himself her ##elf saw a books . book the friend of mary james gave ##s"
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *words.split()]))
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = Vocabulary.open(tmp_path / "vocab.txt")
    sentences = [
        "She saw her book.",
        "A friend of his saw himself.",
        "Mary gave her books the book.",
    ]
    swapper = Swapper(0, probability=1.0, names=True)
    ids, counts = swap_ids(
        tokenizer.encode_batch(sentences), vocabulary=tokenizer, swapper=swapper, document=0
    )
    swapped = swapper.swap("\n".join(sentences), document=0)
    assert ids == tokenizer.encode_batch(swapped.text.split("\n"))
    assert counts == swapped.counts
    # "herself" is two pieces where the masculine is one.
    assert tokenizer.encode("herself") == ids[1][-3:-1]


def test_a_long_run_of_adverbs_is_read_to_its_end():
    """No depth of the text is a depth of calls: 80 MB of stack would not do."""
    adverbs = "very newly " * 100_000
    assert swap_all(f"Her {adverbs}built house.") == f"His {adverbs}built house."
    assert swap_all(f"I saw her {adverbs}.") == f"I saw him {adverbs}."


def units_swapped(unit, documents=400):
    """Of the two words in each of six sentences, which become feminine: bool [documents, 6, 2]."""
    text = "\n".join(["The king saw that he came ."] * 6)
    swapper = Swapper(2, nouns=True, unit=unit)
    texts = [swapper.swap(text, document=document).text for document in range(documents)]
    found = [re.findall(r"\b(he|she|king|queen)\b", text) for text in texts]
    return np.isin(found, ["she", "queen"]).reshape(documents, 6, 2)


def test_one_draw_decides_for_a_pronoun_a_sentence_or_a_document():
    """About half of the units change, and within a unit all words or none."""
    swapped = {unit: units_swapped(unit) for unit in get_args(Unit)}
    for unit, draws in {"pronoun": 4800, "sentence": 2400, "document": 400}.items():
        assert abs(swapped[unit].mean() - 0.5) < 4 * (0.25 / draws) ** 0.5, unit
    words, sentences, documents = swapped.values()
    assert (sentences[:, :, 0] == sentences[:, :, 1]).all()
    assert (documents == documents[:, :1, :1]).all()
    # Neither do sentences of a document go together, nor the words of a sentence.
    assert 0.4 < (sentences[:, 0, 0] == sentences[:, 1, 0]).mean() < 0.6
    assert 0.4 < (words[:, :, 0] == words[:, :, 1]).mean() < 0.6
    agree = (words[:, 1:, 0] == words[:, :-1, 0]).mean()
    assert abs(agree - 0.5) < 4 * (0.25 / 2000) ** 0.5


def test_names_go_with_their_document():
    """One draw per pair of names, or the document's own draw; never one per sentence."""
    text = "\n".join(["Mary saw that he came ."] * 6)
    for unit in get_args(Unit):
        swapper = Swapper(2, names=True, unit=unit)
        for document in range(40):
            found = re.findall(r"Mary|James|\bs?he\b", swapper.swap(text, document=document).text)
            assert len(set(found[::2])) == 1
            if unit == "document":
                assert set(found) in ({"Mary", "he"}, {"James", "she"})


def test_copies_follow_the_documents_they_are_made_from():
    original, swapped = ["He came ."], ["She came ."]
    counts = Counter()
    assert list(Swapper(0).variants(original, swapped, counts)) == [swapped]
    copying = Swapper(0, copies=True)
    assert list(copying.variants(original, swapped, counts)) == [original, swapped]
    assert list(copying.variants(original, original, counts)) == [original]
    assert counts == {"copied_documents": 1}
