"""The Hugging Face layout, with `transformers` as the other program."""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from multiberts.bert.checkpoint.conversion import convert_checkpoint
from multiberts.bert.model.configuration import BertConfig, parameter_shapes
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.randomness import generator
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError

PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s"]
PIECES += [",", ".", "a", "e", "##e", "##t", "u", "##u", "n", "##n"]
CONFIG = BertConfig(
    vocab_size=len(PIECES), hidden_size=24, num_hidden_layers=3, num_attention_heads=2,
    intermediate_size=40, max_position_embeddings=16,
)  # fmt: skip
PROVENANCE = {"procedure": "base", "pretrain_seed": 3, "data_seed": 4, "step": 20}


def _weights() -> dict[str, np.ndarray]:
    """Weights far from their initial values, so that every one shows in the output."""
    draw = generator("hugging face", 0)
    return {
        name: (values + draw.normal(0.0, 0.1, values.shape)).astype(np.float32)
        for name, values in initial_parameters(CONFIG, 0).items()
    }


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "given_vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES))
    return path


@pytest.fixture
def exported(tmp_path: Path, vocabulary: Path) -> Path:
    opened = Vocabulary.open(vocabulary)
    directory = tmp_path / "exported"
    write_checkpoint(directory, _weights(), CONFIG, opened, PROVENANCE, layout="hugging_face")
    return directory


def _torch_and_transformers() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    return torch, pytest.importorskip("transformers")


@contextmanager
def _no_complaints() -> Iterator[None]:
    """Neither a Python warning nor a line in a library's log."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    collector = Collector(logging.WARNING)
    logger = logging.getLogger("transformers")
    logger.addHandler(collector)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        logger.removeHandler(collector)
    assert lines == []


def _their_config(transformers: Any, **changed: Any) -> Any:
    sizes = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}
    return transformers.BertConfig(**{**sizes, "hidden_act": "gelu_new", **changed})


def _save(
    directory: Path, vocabulary: Path, architecture: str = "BertForPreTraining", **changed: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    """Saves a model and a tokeniser as theirs do; returns it and its arrays by its own names."""
    _, transformers = _torch_and_transformers()
    model = getattr(transformers, architecture)(_their_config(transformers, **changed))
    model.save_pretrained(directory)
    transformers.BertTokenizer(vocab=str(vocabulary)).save_pretrained(directory)
    assert not (directory / "vocab.txt").exists()  # transformers 4 wrote it
    return model, {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def _edit_config(directory: Path, **changed: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def _as_foreign(directory: Path) -> Path:
    (directory / "checkpoint.json").unlink()
    return directory


def _save_tensors(directory: Path, tensors: Mapping[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    save_file(contiguous, directory / "model.safetensors", metadata={"format": "pt"})


def _tensors(directory: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(directory / "model.safetensors")


def test_transformers_loads_our_export_without_a_complaint(exported: Path) -> None:
    """That it then computes the same, `test_saved_by_transformers.py` shows of converted models."""
    _, transformers = _torch_and_transformers()
    with _no_complaints():
        model, report = transformers.BertForPreTraining.from_pretrained(
            exported, output_loading_info=True
        )
    assert not any(report.values()), report
    words = model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.weight is words
    assert model.config.hidden_act == "gelu_new"


@pytest.mark.parametrize("kind", ["AutoTokenizer", "BertTokenizer"])
def test_transformers_loads_our_tokenizer_and_gives_the_same_ids(exported: Path, kind: str) -> None:
    _, transformers = _torch_and_transformers()
    with _no_complaints():
        theirs = getattr(transformers, kind).from_pretrained(exported)
    assert theirs.model_max_length == 16
    ours = Vocabulary.open(exported / "vocab.txt")
    first, second = "The CATS, seen.", "Un thé\u0301!"
    expected = [ours.cls_id, *ours.encode(first), ours.sep_id, *ours.encode(second), ours.sep_id]
    assert theirs(first, second)["input_ids"] == expected
    assert theirs.mask_token_id == ours.mask_id and theirs.pad_token_id == ours.pad_id


def test_a_tokenizer_that_transformers_saved_without_a_limit_of_length_is_read(
    exported: Path,
) -> None:
    _, transformers = _torch_and_transformers()
    theirs = transformers.BertTokenizerFast(str(exported / "vocab.txt"))
    theirs.save_pretrained(_as_foreign(exported))
    assert '"model_max_length": 1000000000' in (exported / "tokenizer_config.json").read_text()
    assert Checkpoint.open(exported).config == CONFIG


def test_tokenizer_file_has_the_originals_longest_word(exported: Path) -> None:
    from tokenizers import Tokenizer as LibraryTokenizer

    theirs = LibraryTokenizer.from_file(str(exported / "tokenizer.json"))
    for length, unknown in ((200, False), (201, True)):
        ids = theirs.encode("e" * length, add_special_tokens=False).ids
        assert (ids == [PIECES.index("[UNK]")]) is unknown


def test_we_load_what_transformers_saved(tmp_path: Path, vocabulary: Path) -> None:
    _, state = _save(tmp_path / "theirs", vocabulary)
    Checkpoint.open(tmp_path / "theirs")
    read = read_checkpoint(tmp_path / "theirs")
    assert read.config == CONFIG and read.layout == "hugging_face"
    assert {name: v.shape for name, v in read.parameters.items()} == parameter_shapes(CONFIG)
    kernel = read.parameters["bert/encoder/layer_2/intermediate/dense/kernel"]
    assert np.array_equal(kernel, state["bert.encoder.layer.2.intermediate.dense.weight"].T)

    # What we write from it holds the same tensors under the same names, in the same bytes.
    ours = (read.parameters, read.config, Vocabulary.open(vocabulary), {})
    write_checkpoint(tmp_path / "ours", *ours, layout="hugging_face")
    written, stored = _tensors(tmp_path / "ours"), _tensors(tmp_path / "theirs")
    assert written.keys() == stored.keys()
    assert all(written[name].tobytes() == stored[name].tobytes() for name in stored)


def _old_names(name: str) -> str:
    if "LayerNorm" in name:
        return name.replace("weight", "gamma").replace("bias", "beta")
    return name


@pytest.mark.parametrize("of_2019", [False, True])
def test_old_pytorch_file(exported: Path, of_2019: bool) -> None:
    """As early releases are: old names, tied weights twice, a counter among the weights.

    Of 2019, as pytorch-pretrained-bert saved them: next to `bert_config.json` and `vocab.txt` alone.
    """
    torch, _ = _torch_and_transformers()
    tensors = {_old_names(name): torch.tensor(v) for name, v in _tensors(exported).items()}
    tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    torch.save(tensors, exported / "pytorch_model.bin")
    expected = read_checkpoint(exported).parameters
    _as_foreign(exported)
    (exported / "model.safetensors").unlink()
    if of_2019:
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (exported / name).unlink()
        (exported / "bert_config.json").write_text(CONFIG.to_json())
    assert Checkpoint.open(exported).config == CONFIG
    read = read_checkpoint(exported).parameters
    assert read.keys() == expected.keys()
    assert all(np.array_equal(read[name], expected[name]) for name in expected)


def test_old_pytorch_file_without_pytorch(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_foreign(exported)
    (exported / "model.safetensors").rename(exported / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match="only be read with PyTorch.*pip install torch"):
        read_checkpoint(exported)


def test_untied_output_is_refused(exported: Path) -> None:
    tensors = _tensors(_as_foreign(exported))
    words = tensors["bert.embeddings.word_embeddings.weight"]
    _save_tensors(exported, {**tensors, "cls.predictions.decoder.weight": words})
    read_checkpoint(exported)
    _save_tensors(exported, {**tensors, "cls.predictions.decoder.weight": words + 1})
    with pytest.raises(UserError, match=r"decoder\.weight differs from .*word_embeddings"):
        read_checkpoint(exported)


def test_heads_of_another_kind_are_left_out_with_a_note(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    added = {"classifier.weight": np.zeros((2, 24), np.float32)}
    _save_tensors(exported, {**_tensors(_as_foreign(exported)), **added})
    assert read_checkpoint(exported).parameters.keys() == _weights().keys()
    assert "model.safetensors: left out are classifier.weight\n" in capsys.readouterr().err
    # But what lies inside the encoder changes what it computes.
    added = {"bert.encoder.layer.0.attention.self.distance_embedding.weight": np.zeros(2, "f4")}
    _save_tensors(exported, {**_tensors(exported), **added})
    with pytest.raises(UserError, match=r"holds bert\.encoder.*distance_embedding.*something else"):
        read_checkpoint(exported)


def _wrapped(torch: Any, model: Any, form: str) -> Any:
    """Returns what users of PyTorch save of a model."""
    if form == "DataParallel":
        return torch.nn.DataParallel(model).state_dict()
    if form == "compiled, DataParallel":
        return torch.nn.DataParallel(torch.compile(model)).state_dict()
    holder = torch.nn.Module()
    holder.net = model  # as Lightning's modules have theirs
    if form == "Lightning":
        return {"state_dict": holder.state_dict(), "epoch": 3, "optimizer_states": []}
    optimizer = torch.optim.AdamW(model.parameters())
    model.bert(torch.zeros(1, 3, dtype=torch.long)).last_hidden_state.sum().backward()
    optimizer.step()
    theirs = {  # layers with their activation have a name of their own there
        re.sub(r"(intermediate|pooler|transform)\.dense\.", r"\1.dense_act.", name): tensor
        for name, tensor in model.state_dict().items()
    }
    return {"model": theirs, "optimizer": optimizer.state_dict(), "files": ["a"], "epoch": 1}


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("DataParallel", ["'module.' before the names"]),
        pytest.param("compiled, DataParallel", ["'module._orig_mod.' before the names"],
                     marks=pytest.mark.slow),
        ("Lightning", ["a training state; its weights are read from 'state_dict'", "'net.' before"]),
        ("DeepLearningExamples", ["a training state; its weights are read from 'model'"]),
    ],
)  # fmt: skip
def test_weights_as_users_of_pytorch_save_them(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str], form: str, said: list[str]
) -> None:
    torch, _ = _torch_and_transformers()
    model, _ = _save(tmp_path / "saved", vocabulary)
    (tmp_path / "saved" / "model.safetensors").unlink()
    torch.save(_wrapped(torch, model, form), tmp_path / "saved" / "pytorch_model.bin")
    read = read_checkpoint(tmp_path / "saved").parameters
    lines = capsys.readouterr().err
    assert all(line in lines for line in said)
    model.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "pytorch_model.bin").unlink()
    expected = read_checkpoint(tmp_path / "saved").parameters
    assert read.keys() == expected.keys() == parameter_shapes(CONFIG).keys()
    assert all(np.array_equal(values, expected[name]) for name, values in read.items())


@pytest.mark.parametrize(
    ("form", "held"),
    [*((form, "argparse.Namespace") for form in ("DeepSpeed", "flat")), ("model", "transformers")],
)
def test_the_printed_cure_saves_the_weights_of_a_file_with_other_objects(
    tmp_path: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch, form: str, held: str
) -> None:
    """The line of Python, as printed; `tests/test_obeying_training.py` gives it to a new Python."""
    torch, _ = _torch_and_transformers()
    model, state = _save(tmp_path / "saved", vocabulary)
    (tmp_path / "saved" / "model.safetensors").unlink()
    given = {"args": argparse.Namespace(lr=1e-4)}
    saved = {
        "DeepSpeed": {"module": model.state_dict(), **given},
        "flat": {**model.state_dict(), **given},
        "model": model,
    }[form]
    torch.save(saved, tmp_path / "saved" / "pytorch_model.bin")
    before = (tmp_path / "saved" / "pytorch_model.bin").read_bytes()
    with pytest.raises(UserError, match=f"holds {held}.* besides tensors") as refused:
        read_checkpoint(tmp_path / "saved")
    line = str(refused.value).partition("python -c ")[2]
    code, *arguments = shlex.split(line)
    monkeypatch.setattr(sys, "argv", ["-c", *arguments])
    exec(code, {"__name__": "__main__"})
    words = read_checkpoint(tmp_path / "saved").parameters["bert/embeddings/word_embeddings"]
    assert np.array_equal(words, state["bert.embeddings.word_embeddings.weight"])
    # Nothing is lost.
    assert (tmp_path / "saved" / "pytorch_model.bin.whole").read_bytes() == before


def test_nobody_is_advised_to_load_unsafely(tmp_path: Path, vocabulary: Path) -> None:
    _save(tmp_path / "saved", vocabulary, "BertModel")
    (tmp_path / "saved" / "model.safetensors").rename(tmp_path / "saved" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"cannot be read \([^()]+\); it is .*copy") as refused:
        read_checkpoint(tmp_path / "saved")
    assert "weights_only" not in str(refused.value)


def test_a_pickle_that_would_run_code_is_refused(exported: Path, tmp_path: Path) -> None:
    _torch_and_transformers()

    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "harm"),))

    (_as_foreign(exported) / "model.safetensors").unlink()
    (exported / "pytorch_model.bin").write_bytes(pickle.dumps(Harm(), protocol=2))
    with pytest.raises(UserError, match=r"pytorch_model\.bin cannot be read"):
        read_checkpoint(exported)
    assert not (tmp_path / "harm").exists()


def test_rows_without_a_piece_stay_unused(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, transformers = _torch_and_transformers()
    _, state = _save(tmp_path / "padded", vocabulary, "BertForMaskedLM", vocab_size=64)
    read = read_checkpoint(tmp_path / "padded")
    said = "44 of 64 rows of the embeddings in .*padded have no piece in tokenizer.json and stay unused"
    assert re.search(said, capsys.readouterr().err)
    assert Checkpoint.open(tmp_path / "padded").config.vocab_size == 64
    assert np.array_equal(
        read.parameters["cls/predictions/output_bias"], state["cls.predictions.bias"]
    )
    # Written for transformers, it loads there, and a tokeniser of 20 pieces with it.
    whole = read_checkpoint(tmp_path / "padded", initialise_missing=1)
    initial = initial_parameters(whole.config, 1)
    absent = [
        *(f"bert/pooler/dense/{name}" for name in ("bias", "kernel")),
        *(f"cls/seq_relationship/output_{name}" for name in ("bias", "weights")),
    ]
    assert whole.provenance["initialised"] == {"pretrain_seed": 1, "variables": absent}
    assert all(np.array_equal(whole.parameters[name], initial[name]) for name in absent)
    parts = (whole.parameters, whole.config, whole.vocabulary, {})
    write_checkpoint(tmp_path / "new", *parts, layout="hugging_face")
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / "new")) == len(PIECES)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "new").state_dict()
    words = "bert.embeddings.word_embeddings.weight"
    assert np.array_equal(theirs[words].numpy(), state[words])
    # Padding does not give 1003 rows: the file may be cut off.
    pieces = [*PIECES, *(f"x{number}" for number in range(970))]
    (tmp_path / "cut.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    _save(tmp_path / "odd", tmp_path / "cut.txt", "BertModel", vocab_size=1003)
    Checkpoint.open(tmp_path / "odd")
    said = "13 of 1003 rows .* stay unused; if the file was cut off, fetch it again"
    assert re.search(said, capsys.readouterr().err)
    # Much more than padding is another model's vocabulary; and more pieces than rows always are.
    for size in (4_000, 19):
        _save(tmp_path / str(size), vocabulary, "BertModel", vocab_size=size)
        message = f"has 20 pieces, but .* says vocab_size {size}; use the"
        with pytest.raises(UserError, match=message):
            Checkpoint.open(tmp_path / str(size))


def test_padding_of_the_weights_alone_is_left_out(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As run_pretraining of DeepLearningExamples leaves it; transformers refuses such a pair."""
    _, state = _save(tmp_path / "padded", vocabulary, vocab_size=24)
    _edit_config(tmp_path / "padded", vocab_size=len(PIECES))
    read = read_checkpoint(tmp_path / "padded")
    said = "24 rows of embeddings, and config.json says vocab_size 20: the last 4"
    assert said in capsys.readouterr().err
    assert read.config.vocab_size == len(PIECES)
    words = state["bert.embeddings.word_embeddings.weight"][: len(PIECES)]
    assert np.array_equal(read.parameters["bert/embeddings/word_embeddings"], words)
    assert np.array_equal(
        read.parameters["cls/predictions/output_bias"], state["cls.predictions.bias"][:20]
    )


def test_a_number_of_labels_names_them_as_transformers_does(
    tmp_path: Path, vocabulary: Path
) -> None:
    model, _ = _save(tmp_path / "five", vocabulary, "BertForSequenceClassification", num_labels=5)
    expected = [model.config.id2label[number] for number in range(5)]
    _edit_config(tmp_path / "five", num_labels=5, id2label=None, label2id=None)
    assert read_checkpoint(tmp_path / "five").provenance["finetuned"]["head"]["labels"] == expected


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "vocab.txt", "config.json"]
)
def test_a_pointer_of_git_lfs_is_named(exported: Path, name: str) -> None:
    _as_foreign(exported)
    if name == "pytorch_model.bin":
        pytest.importorskip("torch")
        (exported / "model.safetensors").unlink()
    lines = ("version https://git-lfs.github.com/spec/v1", f"oid sha256:{'4d7a' * 16}", "size 438")
    (exported / name).write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UserError, match=rf"{name} is a pointer of Git LFS.*`git lfs pull`"):
        read_checkpoint(exported)


def test_a_vocabulary_in_the_tokenizer_only(tmp_path: Path, vocabulary: Path) -> None:
    """As transformers 5 saves a tokeniser."""
    _, transformers = _torch_and_transformers()
    folder = tmp_path / "theirs"
    _save(folder, vocabulary)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    text = "The cats sat, a unet."
    expected = theirs.encode(text, add_special_tokens=False)
    assert Checkpoint.open(folder).config == CONFIG
    assert read_checkpoint(folder).vocabulary.encode(text) == expected
    # Each layout gets a vocab.txt, the same as it was.
    for layout in ("tf1", "hugging_face"):
        convert_checkpoint(folder, tmp_path / layout, layout)
        assert (tmp_path / layout / "vocab.txt").read_bytes() == vocabulary.read_bytes()
    # Without either there is nothing to read.
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"has no vocab\.txt; put the model's vocabulary there"):
        Checkpoint.open(folder)
