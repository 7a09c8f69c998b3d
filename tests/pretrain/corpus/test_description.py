"""A corpus that is not as it was made is refused, in a line that says which file and what to do."""

import json
import shutil

import pytest

from multiberts.pretrain.corpus.description import check_corpus, read_description
from multiberts.runs.errors import UserError


@pytest.fixture
def copied(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "copied")
    return tmp_path / "copied"


def test_a_whole_corpus_says_what_it_holds(copied):
    facts = check_corpus(copied)
    assert facts == read_description(copied) == json.loads((copied / "corpus.json").read_text())
    assert facts["counts"]["documents"] == 40


@pytest.mark.parametrize(
    "name",
    ["vocab.txt", "tokens.npy", "sentence_offsets.npy", "document_offsets.npy", "instances.npy"],
)
def test_one_bit_of_any_file_is_noticed(copied, name):
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} does not have the checksum that .*corpus.json"):
        check_corpus(copied)
    (copied / name).unlink()
    with pytest.raises(UserError, match=rf"{name} is missing; prepare the corpus again"):
        check_corpus(copied)


def test_what_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"absent does not exist; give a directory that"):
        read_description(tmp_path / "absent")
    with pytest.raises(UserError, match=r"has no corpus.json; give a directory that"):
        read_description(tmp_path)
    for text, reason in {
        "{": "Expecting",
        "[]": "no 'sequence_length'",
        '{"sequence_length": 8, "fresh_masks": false, "counts": {}}': "no 'sha256'",
    }.items():
        (tmp_path / "corpus.json").write_text(text)
        with pytest.raises(UserError, match=rf"corpus.json is not what prepare writes.*{reason}"):
            check_corpus(tmp_path)
