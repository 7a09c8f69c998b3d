"""`multiberts checkpoint inspect|convert|compare`, as it is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
from multiberts.bert.checkpoint.commands import inspect_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.tests.checkpoint_command import checkpoint_command

CONFIG = BertConfig(
    vocab_size=7, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=16,
)  # fmt: skip
PROVENANCE = {"procedure": "base", "pretrain_seed": 3, "data_seed": 4, "step": 20_000}
FACTS = {"training": {"batch_size": 256}, "corpus": {"counts": {"tokens": 9}}}
KERNEL = "bert/encoder/layer_1/output/dense/kernel"


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "given_vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    return path


@pytest.fixture
def make(tmp_path: Path, vocabulary: Path) -> Callable[..., Path]:
    """Makes a checkpoint, with one number of one kernel changed if wanted."""

    def make(name: str, value: float | None = None, **provenance: Any) -> Path:
        parameters = initial_parameters(CONFIG, 3)
        if value is not None:
            parameters[KERNEL][3, 5] = value
        given = {**PROVENANCE, **provenance}
        write_checkpoint(tmp_path / name, parameters, CONFIG, Vocabulary.open(vocabulary), given)
        return tmp_path / name

    return make


def _odd_weights() -> dict[str, np.ndarray]:
    """Every kind of finite float32: random bits, so subnormals and both zeros, too."""
    draw = np.random.default_rng(0)
    bits = {
        name: draw.integers(0, 2**32, values.shape, dtype=np.uint32).view(np.float32)
        for name, values in initial_parameters(CONFIG, 0).items()
    }
    return {name: np.where(np.isfinite(odd), odd, np.float32(-0.0)) for name, odd in bits.items()}


@pytest.mark.parametrize("start", ["tf1", "hugging_face"])
def test_round_trip_gives_the_same_bytes(tmp_path: Path, vocabulary: Path, start: str) -> None:
    other = "hugging_face" if start == "tf1" else "tf1"
    weights = _odd_weights()
    first, there, back = (tmp_path / name for name in ("first", "there", "back"))
    known, opened = PROVENANCE | FACTS, Vocabulary.open(vocabulary)
    write_checkpoint(first, weights, CONFIG, opened, known, layout=start)
    assert checkpoint_command("convert", first, there, "--to", other) == 0
    assert checkpoint_command("convert", there, back, "--to", start) == 0
    for directory in (there, back):
        read = read_checkpoint(directory, need_finite=False)
        assert read.provenance == known and read.config == CONFIG
        assert read.parameters.keys() == weights.keys()
        for name, values in weights.items():
            assert read.parameters[name].tobytes() == values.tobytes(), name
    for file in first.iterdir():
        assert file.read_bytes() == (back / file.name).read_bytes(), file.name
    assert checkpoint_command("compare", first, there, "--strict", "true") == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_numbers_are_not_converted(
    tmp_path: Path, make: Callable[..., Path], capsys: pytest.CaptureFixture[str], value: float
) -> None:
    command = ("convert", make("broken", value), tmp_path / "new", "--to", "hugging_face")
    assert f"{KERNEL} has numbers that are NaN or infinite" in _refused(capsys, *command)
    assert not (tmp_path / "new").exists()


def test_what_conversion_leaves(
    tmp_path: Path, make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source = make("source")
    assert checkpoint_command("convert", source, tmp_path / "new", "--to", "hugging_face") == 0
    assert capsys.readouterr().out == f"{source} -> {tmp_path / 'new'}\n"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "README.md", "checkpoint.json", "config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    # Others may read what we wrote, weights too.
    modes = {path.stat().st_mode for path in (tmp_path / "new").iterdir()}
    assert len(modes) == 1


def test_many_are_named_as_released_and_can_be_resumed(
    tmp_path: Path, make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [make("run/step_0", step=0), make("run/step_20000", 0.5, step=20_000)]
    command = ("convert", *sources, tmp_path / "out", "--to", "hugging_face")
    assert checkpoint_command(*command, "--named_as_released=step") == 0
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["multiberts-seed_3-step_0k", "multiberts-seed_3-step_20k"]
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "out").iterdir())]
    # The same again touches nothing and says so; other weights under a name there are refused.
    capsys.readouterr()
    assert checkpoint_command(*command, "--named_as_released=step") == 0
    assert capsys.readouterr().out.count("(there already, left as it is)") == 2
    assert times == [path.stat().st_mtime_ns for path in sorted((tmp_path / "out").iterdir())]
    other = make("other", 0.25)
    capsys.readouterr()
    line = _refused(
        capsys, "convert", other, tmp_path / "out", "--to=tf1", "--named_as_released=step"
    )
    assert "step_20k exists already and holds something else" in line
    # So are those of another vocabulary.
    vocabulary = sources[1] / "vocab.txt"
    text = vocabulary.read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*text[:-1], "another"]) + "\n")
    more = ("--named_as_released=step", f"--vocabulary={tmp_path / 'vocab.txt'}")
    assert checkpoint_command(*command, *more) == 2
    assert "step_0k exists already and holds something else" in capsys.readouterr().err
    # Without a record, as the hub has them, the name alone tells.
    (tmp_path / "out" / made[1] / "checkpoint.json").unlink()
    known = read_checkpoint(tmp_path / "out" / made[1]).provenance
    assert (known["pretrain_seed"], known["step"]) == (3, 20_000)


def _refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Runs what must fail with one line on standard error; returns the line."""
    assert checkpoint_command(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_bad_input_leaves_nothing(
    tmp_path: Path, make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = make("source"), tmp_path / "target"
    cda = make("cda", procedure="cda_incr")
    scores = tmp_path / "scores.csv"
    scores.write_text("metric,score\naccuracy,good\n")
    long = tmp_path / "long.txt"
    long.write_text((source / "vocab.txt").read_text() + "eight\n")
    to = ("--to", "hugging_face")
    for message, arguments in {
        "does not exist": (tmp_path / "nowhere", target, *to),
        "several checkpoints cannot go into one": (source, cda, target, *to),
        "procedure 'cda_incr'; the release has names for 'base'": (
            cda, target, *to, "--named_as_released=seed",
        ),
        "scores.csv line 2: the score is 'good', expected a number": (
            source, target, *to, "--scores", scores,
        ),
        "source/bert_config.json says vocab_size 7; use the vocabulary": (
            source, target, *to, "--vocabulary", long,
        ),
        "corpus.json does not exist": (source, target, *to, "--corpus", tmp_path / "corpus.json"),
    }.items():  # fmt: skip
        assert message in _refused(capsys, "convert", *arguments)
        assert not target.exists()
    assert "exists already" in _refused(capsys, "convert", source, cda, "--to", "tf1")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cda", "given_vocab.txt", "long.txt", "scores.csv", "source",
    ]  # fmt: skip


def test_missing_heads_are_drawn_on_request_and_said(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = {n: v for n, v in initial_parameters(CONFIG, 3).items() if n.startswith("bert/")}
    write_checkpoint(tmp_path / "encoder", encoder, CONFIG, Vocabulary.open(vocabulary), {})
    command = ("convert", tmp_path / "encoder", tmp_path / "new", "--to", "hugging_face")
    assert "--initialise_missing" in _refused(capsys, *command)
    assert not (tmp_path / "new").exists()
    assert checkpoint_command(*command, "--initialise_missing=9") == 0
    card = (tmp_path / "new/README.md").read_text()
    assert "**Not all of it was pre-trained.**" in card and "`cls/predictions/output_bias`" in card
    expected = initial_parameters(CONFIG, 9)["cls/seq_relationship/output_weights"]
    read = read_checkpoint(tmp_path / "new")
    assert np.array_equal(read.parameters["cls/seq_relationship/output_weights"], expected)
    assert read.provenance["initialised"]["pretrain_seed"] == 9


def test_inspect(make: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint_command("inspect", make("sound")) == 0
    text = capsys.readouterr().out
    total = sum(values.size for values in initial_parameters(CONFIG, 3).values())
    kernel = initial_parameters(CONFIG, 3)[KERNEL]
    for pattern in (
        r"layout +TF1, as released",
        rf"parameters +{total:,} in 46 variables",
        r"pretrain_seed +3",
        r"step +20000",
        r"checksums +match checkpoint\.json",
        r"[0-9a-f]{64} .* bert\.ckpt\.data-00000-of-00001",
        rf"{KERNEL} +16 x 8 +{kernel.mean():.6f} +{kernel.std():.6f} +-",
        r"all numbers are finite",
    ):
        assert re.search(pattern, text), pattern
    assert checkpoint_command("inspect", make("broken", np.nan)) == 0
    text = capsys.readouterr().out
    assert re.search(rf"{KERNEL} .* nan +nan +1\n", text)
    assert "1 numbers are NaN or infinite" in text


def test_inspect_needs_neither_vocabulary_nor_tensorflow(
    tmp_path: Path, make: Callable[..., Path], run_python: Callable[..., Any]
) -> None:
    assert (
        checkpoint_command("convert", make("source"), tmp_path / "alone", "--to", "hugging_face")
        == 0
    )
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "checkpoint.json"):
        (tmp_path / "alone" / name).unlink()
    code = (
        "import sys; from multiberts.bert.checkpoint.commands import inspect_checkpoint; "
        f"print(inspect_checkpoint(checkpoint={str(tmp_path / 'alone')!r})); "
        "assert not {'tensorflow', 'keras', 'torch', 'transformers'} & set(sys.modules)"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "not checked: there is no checkpoint.json" in done.stdout
    assert "there is no vocab.txt" in done.stdout and "procedure      unknown" in done.stdout


def test_inspect_refuses_a_damaged_tokeniser(make: Callable[..., Path]) -> None:
    directory = make("damaged")
    (directory / "tokenizer_config.json").write_text('{"do_lower')
    with pytest.raises(UserError, match=r"tokenizer_config\.json is not whole JSON"):
        inspect_checkpoint(checkpoint=str(directory))


def test_compare(make: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = make("first", 0.5), make("second", 0.4)
    assert checkpoint_command("compare", first, make("same", 0.5), "--strict", "true") == 0
    assert capsys.readouterr().out == "46 of 46 variables are equal bit for bit\n"
    assert checkpoint_command("compare", first, second) == 0
    last = f"45 of 46 variables are equal bit for bit; the largest difference is 0.1, in {KERNEL}"
    assert capsys.readouterr().out == f"{last}\n"
    assert checkpoint_command("compare", first, second, "--strict", "true") == 1
    header, row, summary = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["variable", "first", "second"]
    # |0.5 - 0.4| and, relative to the larger, a fifth.
    assert row.split() == [KERNEL, "16", "x", "8", "16", "x", "8", "0.1", "0.2"]
    assert summary == last
    assert "does not exist" in _refused(capsys, "compare", first, first / "nowhere")
    # Zero is not minus zero.
    signs = make("plus", 0.0), make("minus", -0.0)
    assert checkpoint_command("compare", *signs, "--strict", "true") == 1
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["0", "0"]


def test_compare_models_of_other_sizes(
    tmp_path: Path, make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {**json.loads(CONFIG.to_json()), "num_hidden_layers": 1, "vocab_size": 8}
    smaller = BertConfig.from_mapping(fields, "here")
    vocabulary = tmp_path / "more.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n")
    write_checkpoint(
        tmp_path / "small",
        initial_parameters(smaller, 3),
        smaller,
        Vocabulary.open(vocabulary),
        PROVENANCE,
    )
    assert checkpoint_command("compare", make("first"), tmp_path / "small", "--strict", "true") == 1
    text = capsys.readouterr().out
    assert "num_hidden_layers: 2 and 1\n" in text and "vocab.txt differ\n" in text
    assert re.search(rf"{KERNEL} +16 x 8 +missing +nan", text)
    assert re.search(r"word_embeddings +7 x 8 +8 x 8 +nan", text)
