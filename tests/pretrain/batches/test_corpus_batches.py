"""Batches of a corpus are opened as its description says, and refused where they cannot be made."""

import dataclasses
import shutil

import numpy as np
import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.batches.corpus_batches import Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.runs.errors import UserError

MASKING = Masking(sequence_length=32, max_predictions_per_sequence=5)


def test_an_epoch_has_every_instance_once(corpus):
    size = Batches(corpus, MASKING, data_seed=3, batch_size=8).num_instances
    batches = Batches(corpus, MASKING, data_seed=3, batch_size=size)
    assert batches.corpus == corpus
    assert batches.vocabulary.pieces == Vocabulary.open(corpus / "vocab.txt").pieces
    assert sorted(batches.instance_ids(1)) == list(range(size))


def test_files_of_several_corpora_are_refused_without_reading_them(corpus, tmp_path):
    for name, message in {
        "instances.npy": r"instances, but its description says",
        "vocab.txt": r"holds 61 pieces, but its description says 60",
    }.items():
        mixed = tmp_path / name
        shutil.copytree(corpus, mixed)
        if name == "vocab.txt":
            with (mixed / name).open("a") as handle:
                handle.write("more\n")
        else:
            shutil.copy(corpus.parent / "held_out" / name, mixed / name)
        with pytest.raises(UserError, match=message):
            Batches(mixed, MASKING, data_seed=0, batch_size=8)


def test_sequences_that_do_not_fit_are_refused(corpus):
    with pytest.raises(UserError, match=r"sequence_length 16 is shorter than the instances"):
        short = dataclasses.replace(MASKING, sequence_length=16)
        Batches(corpus, short, data_seed=0, batch_size=8)
    with pytest.raises(UserError, match=r"does not exist; give a directory that"):
        Batches(corpus / "absent", MASKING, data_seed=0, batch_size=8)


@pytest.mark.parametrize("whole_word_masks", [False, True])
def test_batches_made_at_once_are_those_made_one_by_one(corpus, whole_word_masks):
    """In the middle of an epoch, and over its end."""
    masking = dataclasses.replace(MASKING, whole_word_masks=whole_word_masks)
    batches = Batches(corpus, masking, data_seed=3, batch_size=8)
    plain = Batches(corpus, MASKING, data_seed=3, batch_size=8).batch(0)["masked_lm_positions"]
    assert np.array_equal(batches.batch(0)["masked_lm_positions"], plain) != whole_word_masks
    last = batches.num_instances // batches.batch_size
    for steps in (range(1, 4), range(last - 1, last + 3)):
        together = batches.batches(steps)
        for step, found in zip(steps, together, strict=True):
            expected = batches.batch(step)
            assert found.keys() == expected.keys()
            for name, values in expected.items():
                assert found[name].dtype == values.dtype
                assert np.array_equal(found[name], values), (step, name)
