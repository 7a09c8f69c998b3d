"""Checkpoints: the released layout, whole or refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bert.checkpoint import DATA, INDEX, check_checkpoint, read_checkpoint, write_checkpoint
from bert.configuration import BertConfig
from bert.initialization import initial_parameters
from runs.errors import UserError

CONFIG = BertConfig(
    vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
PROVENANCE = {"procedure": "base", "pretrain_seed": 3, "data_seed": 4, "step": 20}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    vocabulary = tmp_path / "given_vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    directory = tmp_path / "step_20"
    write_checkpoint(directory, initial_parameters(CONFIG, 3), CONFIG, vocabulary, PROVENANCE)
    return directory


def test_round_trip(checkpoint: Path) -> None:
    read = read_checkpoint(checkpoint)
    assert read.config == CONFIG
    assert read.provenance == PROVENANCE
    wanted = initial_parameters(CONFIG, 3)
    assert read.parameters.keys() == wanted.keys()
    assert all(np.array_equal(read.parameters[name], wanted[name]) for name in wanted)


def test_written_twice_gives_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    second = tmp_path / "again"
    write_checkpoint(
        second, initial_parameters(CONFIG, 3), CONFIG, checkpoint / "vocab.txt", PROVENANCE
    )
    for file in checkpoint.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_layout_of_a_tf1_checkpoint(checkpoint: Path) -> None:
    import tensorflow as tf

    variables = dict(tf.train.list_variables(str(checkpoint / "bert.ckpt")))
    assert variables["bert/encoder/layer_0/attention/self/query/kernel"] == [8, 8]
    assert variables["global_step"] == []
    assert {"bert_config.json", "vocab.txt", INDEX, DATA} < {p.name for p in checkpoint.iterdir()}


def test_released_directory_without_our_record(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()
    released = checkpoint.rename(tmp_path / "multiberts-seed_4-step_200k")
    provenance = read_checkpoint(released).provenance
    assert (provenance["pretrain_seed"], provenance["step"]) == (4, 200_000)
    assert provenance["procedure"] == "multiberts"


def test_optimiser_slots_are_left_out(tmp_path: Path, checkpoint: Path) -> None:
    parameters = initial_parameters(CONFIG, 3)
    slots = {f"{name}/adam_m": values for name, values in parameters.items()}
    write_checkpoint(
        tmp_path / "slots", {**parameters, **slots}, CONFIG, checkpoint / "vocab.txt", PROVENANCE
    )
    assert read_checkpoint(tmp_path / "slots").parameters.keys() == parameters.keys()


@pytest.mark.parametrize("record", [True, False])
def test_truncated_data_is_refused(checkpoint: Path, record: bool) -> None:
    data = checkpoint / DATA
    data.write_bytes(data.read_bytes()[:-100])
    if not record:  # a foreign checkpoint: TensorFlow's own checks must notice
        (checkpoint / "checkpoint.json").unlink()
    with pytest.raises(UserError, match=r"bert\.ckpt\.data.*(truncated|damaged).*copy it again"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize("record", [True, False])
def test_flipped_bit_is_refused(checkpoint: Path, record: bool) -> None:
    data = checkpoint / DATA
    content = bytearray(data.read_bytes())
    content[200] ^= 1
    data.write_bytes(content)
    if not record:
        (checkpoint / "checkpoint.json").unlink()
    with pytest.raises(UserError, match="damaged"):
        read_checkpoint(checkpoint)


def test_missing_file_is_named(checkpoint: Path) -> None:
    (checkpoint / INDEX).unlink()
    with pytest.raises(UserError, match=r"has no bert\.ckpt\.index"):
        check_checkpoint(checkpoint)


def test_vocabulary_of_another_model(checkpoint: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()
    with open(checkpoint / "vocab.txt", "a") as handle:
        handle.write("extra\n")
    with pytest.raises(UserError, match=r"vocab\.txt has 8 pieces.*vocab_size 7"):
        check_checkpoint(checkpoint)


def test_configuration_of_another_model(checkpoint: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()
    config = json.loads((checkpoint / "bert_config.json").read_text())
    config["intermediate_size"] = 24
    (checkpoint / "bert_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"shape \(8, 16\).*\(8, 24\)"):
        read_checkpoint(checkpoint)
