"""Checkpoints: the released layout, whole or refused."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import (
    DATA,
    INDEX,
    Checkpoint,
    read_checkpoint,
    read_provenance,
    write_checkpoint,
)
from multiberts.bert.checkpoint.tensor_bundle import write_bundle
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.tests.bert.small_checkpoint import CONFIG, write_small


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_small(tmp_path / "step_20")


def test_variables_in_pieces_are_joined_by_the_printed_cure(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces as a partitioner of TensorFlow saves them."""
    import tensorflow as tf

    values = initial_parameters(CONFIG, 3)
    names, slices, tensors = [], [], []
    for name, array in values.items():
        parts = np.array_split(array, 2) if array.ndim == 2 else [array]
        begins = np.cumsum([0, *(len(part) for part in parts)])
        for begin, part in zip(begins, parts, strict=False):
            shape = " ".join(map(str, array.shape))
            names.append(name)
            tensors.append(part)
            slices.append(f"{shape} {begin},{len(part)}:-" if len(parts) > 1 else "")
    for file in (INDEX, DATA, "checkpoint.json"):
        (checkpoint / file).unlink()
    prefix = str(checkpoint / "model.ckpt")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=slices, tensors=tensors)
    with pytest.raises(UserError, match=r"model\.ckpt\.index has bert/.* in pieces") as refused:
        read_checkpoint(checkpoint)
    line = str(refused.value).partition("python -c ")[2]
    script, *arguments = shlex.split(line)
    monkeypatch.setattr(sys, "argv", ["-c", *arguments])
    exec(script, {})
    read = read_checkpoint(checkpoint).parameters
    assert read.keys() == values.keys()
    assert all(np.array_equal(read[name], values[name]) for name in values)


def test_a_checkpoint_of_objects_is_named_and_its_arrays_can_be_written_by_name(
    checkpoint: Path,
) -> None:
    import tensorflow as tf

    values = initial_parameters(CONFIG, 3)
    for file in (INDEX, DATA, "checkpoint.json"):
        (checkpoint / file).unlink()
    objects = {f"layer{number}": tf.Variable(array) for number, array in enumerate(values.values())}
    saved = tf.train.Checkpoint(**objects).save(str(checkpoint / "ckpt"))
    with pytest.raises(UserError, match=r"ckpt-1\.index is of tf\.train\.Checkpoint.*write_bundle"):
        read_checkpoint(checkpoint)
    # Its cure.
    reader = tf.train.load_checkpoint(saved)
    arrays = {
        name: reader.get_tensor(f"layer{number}/.ATTRIBUTES/VARIABLE_VALUE")
        for number, name in enumerate(values)
    }
    write_bundle(checkpoint / "bert.ckpt", arrays)
    read = read_checkpoint(checkpoint).parameters
    assert all(np.array_equal(read[name], values[name]) for name in values)


def test_unknown_step_is_not_made_up(tmp_path: Path) -> None:
    unknown = write_small(tmp_path / "unknown", provenance={})
    assert set(read_checkpoint(unknown).provenance.values()) == {None}
    (unknown / "checkpoint.json").unlink()
    assert read_checkpoint(unknown).provenance["step"] is None


@pytest.mark.parametrize("prefix", ["bert.ckpt", "bert_model.ckpt", "model.ckpt-20"])
def test_the_step_of_a_foreign_checkpoint_is_its_global_step(checkpoint: Path, prefix: str) -> None:
    """Under each of the published prefixes."""
    (checkpoint / "checkpoint.json").unlink()
    for name in (INDEX, DATA):
        (checkpoint / name).rename(checkpoint / name.replace("bert.ckpt", prefix))
    read = read_checkpoint(checkpoint)
    assert read.provenance["step"] == 20
    assert read.parameters.keys() == initial_parameters(CONFIG, 3).keys()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (10**9, "expected int at least 1 and at most 65536"),
        (60_000, "holds 1 layers, but its conf"),
    ],
)
def test_a_configuration_too_large_is_refused_before_a_model_is_built(
    checkpoint: Path, size: int, message: str
) -> None:
    (checkpoint / "checkpoint.json").unlink()
    path = checkpoint / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": size}))
    with pytest.raises(UserError, match=message):
        read_checkpoint(checkpoint, initialise_missing=0)


def test_a_cased_vocabulary_is_said(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the released layout, which has no flag for it; a copy keeps what was said."""
    (checkpoint / "checkpoint.json").unlink()
    (checkpoint / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nThe\n")
    Checkpoint.open(checkpoint)
    assert "holds capitals, so the model is taken for a cased one" in capsys.readouterr().err
    for said in (True, False):
        (checkpoint / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": said}))
        read = read_checkpoint(checkpoint)
        for layout in ("tf1", "hugging_face"):
            copy = checkpoint.parent / f"{layout}_{said}"
            parts = (read.parameters, read.config, Vocabulary.open(read.vocabulary.where))
            write_checkpoint(copy, *parts, read.provenance, layout=layout)
            read_checkpoint(copy)
            assert Vocabulary.open(copy / "vocab.txt").lower_case is said
            assert "tokenizer_config.json" in read_provenance(copy)["files"]
    assert "cased" not in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["tf1", "hugging_face"])
def test_full_disk_keeps_the_last_checkpoint(
    checkpoint: Path, run_python: Callable[..., Any], layout: str
) -> None:
    """The disk is played by a limit on the size of files, which the weights exceed."""
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    code = f"""
import resource
from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
from multiberts.runs.errors import UserError
read = read_checkpoint({str(checkpoint)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write_checkpoint({str(checkpoint)!r}, read.parameters, read.config, read.vocabulary,
                     {{"step": 40}}, layout={layout!r})
except UserError as error:
    print(error)
"""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"cannot write {checkpoint}: File too large")
    assert done.stdout.count("\n") == 1 and "free some space" in done.stdout
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == [
        "given_vocab.txt",
        "step_20",
    ]


def test_opened_twice_a_checkpoint_is_equal_until_its_files_change(checkpoint: Path) -> None:
    first, again = Checkpoint.open(checkpoint), Checkpoint.open(checkpoint)
    assert first == again
    assert len({first, again}) == 1
    write_small(checkpoint, seed=4)
    assert Checkpoint.open(checkpoint) != first
