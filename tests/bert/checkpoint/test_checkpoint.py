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
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError

CONFIG = BertConfig(
    vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
PROVENANCE = {"procedure": "base", "pretrain_seed": 3, "data_seed": 4, "step": 20}


def write(folder: Path, weights: Any, vocabulary: Path, facts: Any = PROVENANCE) -> None:
    write_checkpoint(folder, weights, CONFIG, Vocabulary.open(vocabulary), facts)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    vocabulary = tmp_path / "given_vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    directory = tmp_path / "step_20"
    write(directory, initial_parameters(CONFIG, 3), vocabulary)
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
    write(second, initial_parameters(CONFIG, 3), checkpoint / "vocab.txt")
    for file in checkpoint.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_layout_of_a_tf1_checkpoint(checkpoint: Path) -> None:
    import tensorflow as tf

    variables = dict(tf.train.list_variables(str(checkpoint / "bert.ckpt")))
    assert variables["bert/encoder/layer_0/attention/self/query/kernel"] == [8, 8]
    assert variables["global_step"] == []
    assert {"bert_config.json", "vocab.txt", INDEX, DATA} < {p.name for p in checkpoint.iterdir()}


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
        tmp_path / "slots",
        {**parameters, **slots},
        CONFIG,
        Vocabulary.open(checkpoint / "vocab.txt"),
        PROVENANCE,
    )
    assert read_checkpoint(tmp_path / "slots").parameters.keys() == parameters.keys()


def test_unknown_step_is_not_made_up(tmp_path: Path, checkpoint: Path) -> None:
    parameters = initial_parameters(CONFIG, 3)
    write(tmp_path / "unknown", parameters, checkpoint / "vocab.txt", {})
    assert set(read_checkpoint(tmp_path / "unknown").provenance.values()) == {None}
    (tmp_path / "unknown" / "checkpoint.json").unlink()
    assert read_checkpoint(tmp_path / "unknown").provenance["step"] is None


def test_step_of_a_foreign_checkpoint_is_its_global_step(checkpoint: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()
    assert read_checkpoint(checkpoint).provenance["step"] == 20


def test_further_facts_are_kept(tmp_path: Path, checkpoint: Path) -> None:
    facts = {**PROVENANCE, "training": {"batch_size": 256}, "corpus": {"counts": {"tokens": 9}}}
    parameters = initial_parameters(CONFIG, 3)
    write(tmp_path / "facts", parameters, checkpoint / "vocab.txt", facts)
    assert read_checkpoint(tmp_path / "facts").provenance == facts


@pytest.mark.parametrize("prefix", ["bert_model.ckpt", "model.ckpt-20"])
def test_other_published_prefixes(checkpoint: Path, prefix: str) -> None:
    (checkpoint / "checkpoint.json").unlink()
    for name in (INDEX, DATA):
        (checkpoint / name).rename(checkpoint / name.replace("bert.ckpt", prefix))
    Checkpoint.open(checkpoint)
    assert read_checkpoint(checkpoint).parameters.keys() == initial_parameters(CONFIG, 3).keys()


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


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(checkpoint: Path, value: float) -> None:
    weights = initial_parameters(CONFIG, 3)
    weights["bert/pooler/dense/bias"][0] = value
    write(checkpoint, weights, checkpoint.parent / "given_vocab.txt")
    with pytest.raises(
        UserError, match="bert/pooler/dense/bias has numbers that are NaN or infini"
    ):
        read_checkpoint(checkpoint)


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
            vocabulary, provenance = read.vocabulary.where, read.provenance
            write_checkpoint(
                copy,
                read.parameters,
                read.config,
                Vocabulary.open(vocabulary),
                provenance,
                layout=layout,
            )
            read_checkpoint(copy)
            assert Vocabulary.open(copy / "vocab.txt").lower_case is said
            assert "tokenizer_config.json" in read_provenance(copy)["files"]
    assert "cased" not in capsys.readouterr().err


def test_validation_needs_no_tensorflow(checkpoint: Path, run_python: Callable[..., Any]) -> None:
    code = (
        "import sys; from multiberts.bert.checkpoint.checkpoint import Checkpoint; "
        f"Checkpoint.open({str(checkpoint)!r}); "
        "assert not {'tensorflow', 'keras', 'torch', 'transformers'} & set(sys.modules)"
    )
    assert run_python("-c", code).returncode == 0


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
    write(checkpoint, initial_parameters(CONFIG, 4), checkpoint / "vocab.txt")
    assert Checkpoint.open(checkpoint) != first
