"""A learned vocabulary is the same on every run, and fits the tokeniser."""

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus import vocabulary
from multiberts.pretrain.corpus.vocabulary import count_words, learn_vocabulary
from multiberts.runs.errors import UserError

# Many pairs of equal count, so that ties decide.
TEXT = [
    " ".join("".join(random.Random(i).choices("abcdefghijklmnop", k=5)) for i in range(start, start + 20))
    for start in range(0, 4000, 20)
] * 2  # fmt: skip


def test_words_are_counted_as_the_tokeniser_cuts_them(monkeypatch):
    sentences = ["The naïve THE,the.", "中文 the", "ΟΣ x\u200dy\u3000z"]
    expected = Counter(
        {"the": 4, "naive": 1, ",": 1, ".": 1, "中": 1, "文": 1, "ος": 1, "xy": 1, "z": 1}
    )
    assert count_words(sentences) == expected
    monkeypatch.setattr(vocabulary, "_MOST_CHUNKS_HELD", 1)
    assert count_words(sentences) == expected


def test_other_processes_and_another_order_of_the_text_learn_the_same_vocabulary(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT))
    program = (
        "import sys; from multiberts.pretrain.corpus.vocabulary import *;"
        "lines = open(sys.argv[1]).read().split('\\n');"
        "print(*learn_vocabulary(count_words(lines), 600))"
    )
    here = learn_vocabulary(count_words(TEXT), 600)
    for run in range(3):
        given = {"PYTHONHASHSEED": str(run), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program, str(text)]
        learned = subprocess.check_output(command, env={**os.environ, **given}, text=True)
        assert learned.split() == here
    assert learn_vocabulary(count_words(random.Random(1).sample(TEXT, len(TEXT))), 600) == here


def test_first_merges_are_the_most_frequent_pairs():
    """Worked by hand: in "ab ab ab cd cd" the pair a, ##b comes first, then c, ##d."""
    pieces = learn_vocabulary(Counter({"ab": 3, "cd": 2, "ae": 1}), 50)
    assert pieces == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *("a", "b", "c", "d", "e", "##b", "##d", "##e", "ab", "cd"),
    ]
    with pytest.raises(UserError, match=r"prepare.vocabulary_size is 10, expected at least 13"):
        learn_vocabulary(Counter({"ab": 3, "cd": 2, "ae": 1}), 10)
    with pytest.raises(UserError, match="no words"):
        learn_vocabulary(Counter(), 100)


def test_vocabulary_has_the_size_asked_for_and_covers_its_text(tmp_path):
    pieces = learn_vocabulary(count_words(TEXT), 500)
    assert len(pieces) == len(set(pieces)) == 500
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    tokenizer = Vocabulary.open(path)
    assert all(tokenizer.unk_id not in ids for ids in tokenizer.encode_batch(TEXT))


def ideographs(pieces):
    return sum(len(piece) == 1 and piece >= "一" for piece in pieces)


def test_rare_letters_are_left_out():
    """Ideographs that occur once do not take the place of words where they are few of the letters."""
    rare = {chr(0x4E00 + i): 1 for i in range(500)}
    counts = Counter(rare | {"abc": 100_000, "abd": 90_000})
    pieces = learn_vocabulary(counts, 400)
    assert ideographs(pieces) == 100 - 4
    assert "abc" in pieces


def test_a_letter_in_a_thousand_is_not_left_out_of_a_large_vocabulary():
    """1,000 signs a thousand times each and 700 once: 99.99 % of 1,000,700 occurrences take 1,600 of them."""
    counts = Counter({chr(0x4E00 + i): 1000 if i < 1000 else 1 for i in range(1700)})
    assert ideographs(learn_vocabulary(counts, 30_522)) == 1600


def test_a_script_of_many_signs_gets_the_letters_of_the_text(capsys):
    """5,000 signs twice each and 100 once: 99.99 % of 10,100 occurrences take 5,099 of them.

    Half of 8,000 pieces holds 4,000 (none of them continues a word), as the note says with what holds all.
    """
    counts = Counter({chr(0x4E00 + i): 2 for i in range(5000)})
    counts |= Counter({chr(0x4E00 + 5000 + i): 1 for i in range(100)})
    assert ideographs(learn_vocabulary(counts, 30_522)) == 5099
    assert capsys.readouterr().err == ""
    assert ideographs(learn_vocabulary(counts, 8000)) == 4000
    assert (
        "note: 8,000 pieces hold 4,000 of the text's 5,100 letters, which make 79.21% of it; "
        "prepare.vocabulary_size = 10198 holds those of 99.99%" in capsys.readouterr().err
    )
    assert ideographs(learn_vocabulary(counts, 10_198)) == 5099
    assert capsys.readouterr().err == ""
