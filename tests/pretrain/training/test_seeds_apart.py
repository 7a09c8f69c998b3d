"""Each source of randomness in pre-training has a seed of its own, which changes nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.pretrain.batches.corpus_batches import Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.pretrain.training.settings import IDENTITY, PretrainingSettings
from multiberts.tests.pretrain.conftest import Arguments

MASKING = Masking(sequence_length=32, max_predictions_per_sequence=5)
STEPS = {"num_steps": 3, "checkpoint_steps": [0]}


def weights(run: Path, step: int) -> dict[str, np.ndarray]:
    return dict(read_checkpoint(checkpoint_path(run, step)).parameters)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_seed_changes_its_source_and_no_other(arguments: Arguments, tmp_path: Path) -> None:
    """Without dropout its seed moves no bit: the world in which a source is switched off."""
    found = {}
    for name, changes in {
        "plain": {},
        "said": {"initialisation_seed": 3, "data_seed": 3, "dropout_seed": 3},
        "initialisation": {"initialisation_seed": 4},
        "data": {"data_seed": 4},
        "masks": {"mask_seed": 4},
        "dropout": {"dropout_seed": 4},
    }.items():
        given = arguments(tmp_path / name, **STEPS, **changes)
        given["model"] = {
            **given["model"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0
        }  # fmt: skip
        pretrain(**given)
        found[name] = [weights(tmp_path / name, step) for step in (0, 3)]
    plain = found.pop("plain")
    equal = {
        name: [same(*pair) for pair in zip(plain, own, strict=True)] for name, own in found.items()
    }
    assert equal == {
        "said": [True, True],
        "initialisation": [False, False],
        "data": [True, False],
        "masks": [True, False],
        "dropout": [True, True],
    }
    record = read_checkpoint(checkpoint_path(tmp_path / "masks", 3)).provenance["training"]
    assert record["mask_seed"] == 4 and record["dropout_seed"] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("initialisation_seed", 3), ("mask_seed", 3), ("dropout_seed", 3)),
        # From scratch, too: with `constant` the rate does not decay after the warm-up.
        *(("learning_rate_treatment", "constant"), ("whole_word_masks", True)),
    ],
)
def test_what_changes_the_numbers_identifies_a_run(name: str, value: object) -> None:
    given = PretrainingSettings(run_dir="r", corpus="c", model={}, pretrain_seed=3, num_steps=5)
    plain, _ = IDENTITY.of(vars(given))
    changed, _ = IDENTITY.of(vars(dataclasses.replace(given, **{name: value})))
    assert changed == {**plain, name: value} != plain


@pytest.mark.parametrize("fresh_masks", [False, True])
def test_the_seed_of_masks_changes_masks_alone(
    corpus: Path, tmp_path: Path, fresh_masks: bool
) -> None:
    if fresh_masks:
        prepare(
            run_dir=str(tmp_path / "fresh"), sources=[str(corpus.parent / "prepared.txt")],
            source_format="sentences", vocabulary=str(corpus / "vocab.txt"), sequence_length=32,
            dupe_factor=None,
        )  # fmt: skip
        corpus = tmp_path / "fresh"
    plain, other, third = (
        Batches(corpus, MASKING, data_seed=data_seed, batch_size=8, mask_seed=mask_seed)
        for data_seed, mask_seed in ((3, None), (3, 9), (4, 9))
    )
    assert np.array_equal(plain.instance_ids(0), other.instance_ids(0))
    one, two, three = (batches.batch(0) for batches in (plain, other, third))
    assert not np.array_equal(one["masked_lm_positions"], two["masked_lm_positions"])
    assert np.array_equal(one["segment_ids"], two["segment_ids"])
    assert not np.array_equal(two["segment_ids"], three["segment_ids"])
