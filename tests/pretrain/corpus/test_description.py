"""A corpus that is not as it was made is refused, in a line that says which file and what to do."""

import json
import shutil

import pytest

from multiberts.pretrain.batches.corpus_batches import Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.corpus.description import check_corpus, read_description
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.tests.pretrain.corpus.test_preparation import OUTPUTS


@pytest.fixture
def copied(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "copied")
    return tmp_path / "copied"


def test_a_whole_corpus_says_what_it_holds(copied):
    facts = check_corpus(copied)
    assert facts == read_description(copied) == json.loads((copied / "corpus.json").read_text())
    assert facts["counts"]["documents"] == 40


@pytest.mark.parametrize("name", OUTPUTS)
def test_one_bit_of_any_file_is_noticed(copied, name):
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} does not have the checksum that .*DONE states"):
        check_corpus(copied)
    (copied / name).unlink()
    with pytest.raises(UserError, match=rf"{name}(;| is missing; prepare the corpus again)"):
        check_corpus(copied)


def test_an_edited_description_is_noticed_before_anything_is_trained(copied):
    """Other masks, or no checksums, under the fingerprint of the corpus as it was made."""

    def batches(folder):
        masking = Masking(sequence_length=32, max_predictions_per_sequence=5)
        return Batches(folder, masking, data_seed=0, batch_size=8)

    facts = json.loads((copied / "corpus.json").read_text())
    for change in ({"instance_seed": 7}, {"sha256": {}}, {"fresh_masks": True}):
        (copied / "corpus.json").write_text(json.dumps({**facts, **change}, indent=1) + "\n")
        for reader in (check_corpus, read_description, batches):
            with pytest.raises(UserError, match=r"corpus.json does not have the checksum that"):
                reader(copied)


def test_a_marker_that_states_no_checksums_is_refused(copied):
    for outputs in ({}, {"vocab.txt": {"bytes": 1, "sha256": "0"}}):
        (copied / "DONE").write_text(json.dumps({"stage": "prepare", "outputs": outputs}))
        with pytest.raises(UserError, match=r"corpus.json does not have the checksum that .*DONE"):
            check_corpus(copied)
    (copied / "DONE").unlink()
    with pytest.raises(UserError, match=r"copied has no DONE; give a directory that"):
        check_corpus(copied)


def test_what_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"absent does not exist; give a directory that"):
        read_description(tmp_path / "absent")
    with pytest.raises(UserError, match=r"has no corpus.json; give a directory that"):
        read_description(tmp_path)
    for number, (text, reason) in enumerate(
        {
            "{": "is not whole JSON",
            "[]": "holds .*, expected fields by name",
            "[" * 100_000: "nested too deep",
            '{"sequence_length": 8, "fresh_masks": false, "counts": {}}': "sha256 is missing",
        }.items()
    ):
        run = RunDirectory(tmp_path / str(number), stage="prepare", parameters={})
        with run:
            (run.path / "corpus.json").write_text(text)
            run.finish(["corpus.json"])
        with pytest.raises(UserError, match=rf"corpus.json:? .*{reason}.*; give a directory that"):
            check_corpus(run.path)
