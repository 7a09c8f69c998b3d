"""The Hugging Face layout, with `transformers` as the other program."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import (
    check_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from multiberts.bert.model.configuration import BertConfig, parameter_shapes
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.randomness import generator
from multiberts.bert.tokenization import Tokenizer
from multiberts.runs.errors import UserError

PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s"]
PIECES += [",", ".", "a", "e", "##e", "##t", "u", "##u", "n", "##n"]
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=16,
)
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
    directory = tmp_path / "exported"
    write_checkpoint(directory, _weights(), CONFIG, vocabulary, PROVENANCE, layout="hugging_face")
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


def _save(model: Any, directory: Path, vocabulary: Path) -> dict[str, np.ndarray]:
    """Saves a model of theirs with a vocabulary; returns its arrays by its own names."""
    model.save_pretrained(directory)
    (directory / "vocab.txt").write_bytes(vocabulary.read_bytes())
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


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


def test_transformers_loads_our_export_and_computes_the_same(exported: Path) -> None:
    torch, transformers = _torch_and_transformers()
    from multiberts.bert.model.encoder import encode, pool
    from multiberts.bert.model.heads import masked_lm_logits, next_sentence_logits

    with _no_complaints():
        model, report = transformers.BertForPreTraining.from_pretrained(
            exported, output_loading_info=True
        )
    assert not any(report.values()), report
    words = model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.weight is words
    assert model.config.hidden_act == "gelu_new"

    draw = generator("hugging face inputs", 0)
    mask = (np.arange(16) < draw.integers(4, 17, 5)[:, None]).astype(np.int32)
    ids = (draw.integers(0, len(PIECES), (5, 16)) * mask).astype(np.int32)
    segments = ((np.arange(16) >= 6) * mask).astype(np.int32)
    with torch.no_grad():
        theirs = model.eval()(
            input_ids=torch.from_numpy(ids).long(),
            attention_mask=torch.from_numpy(mask).long(),
            token_type_ids=torch.from_numpy(segments).long(),
        )
    parameters = read_checkpoint(exported).parameters
    hidden = encode(parameters, CONFIG, ids, mask, segments)
    everywhere = np.broadcast_to(np.arange(16, dtype=np.int32), (5, 16))
    words_logits = np.asarray(masked_lm_logits(parameters, CONFIG, hidden, everywhere))
    next_logits = np.asarray(next_sentence_logits(parameters, pool(parameters, hidden)))
    real = mask.astype(bool)
    assert np.abs(words_logits[real]).max() > 1  # so that 1e-5 means something
    np.testing.assert_allclose(
        words_logits[real], theirs.prediction_logits.numpy()[real], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        next_logits, theirs.seq_relationship_logits.numpy(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["AutoTokenizer", "BertTokenizer"])
def test_transformers_loads_our_tokenizer_and_gives_the_same_ids(exported: Path, kind: str) -> None:
    _, transformers = _torch_and_transformers()
    with _no_complaints():
        theirs = getattr(transformers, kind).from_pretrained(exported)
    assert theirs.model_max_length == 16
    ours = Tokenizer(exported / "vocab.txt")
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
    assert check_checkpoint(exported) == CONFIG


def test_tokenizer_file_has_the_originals_longest_word(exported: Path) -> None:
    from tokenizers import Tokenizer as LibraryTokenizer

    theirs = LibraryTokenizer.from_file(str(exported / "tokenizer.json"))
    for length, unknown in ((200, False), (201, True)):
        ids = theirs.encode("e" * length, add_special_tokens=False).ids
        assert (ids == [PIECES.index("[UNK]")]) is unknown


def test_we_load_what_transformers_saved(tmp_path: Path, vocabulary: Path) -> None:
    torch, transformers = _torch_and_transformers()
    torch.manual_seed(0)
    theirs = transformers.BertForPreTraining(_their_config(transformers))
    state = _save(theirs, tmp_path / "theirs", vocabulary)
    check_checkpoint(tmp_path / "theirs")
    read = read_checkpoint(tmp_path / "theirs")
    assert read.config == CONFIG and read.layout == "hugging_face"
    assert {name: v.shape for name, v in read.parameters.items()} == parameter_shapes(CONFIG)
    kernel = read.parameters["bert/encoder/layer_2/intermediate/dense/kernel"]
    assert np.array_equal(kernel, state["bert.encoder.layer.2.intermediate.dense.weight"].T)

    # What we write from it holds the same tensors under the same names, in the same bytes.
    write_checkpoint(
        tmp_path / "ours", read.parameters, read.config, vocabulary, {}, layout="hugging_face"
    )
    ours, stored = _tensors(tmp_path / "ours"), _tensors(tmp_path / "theirs")
    assert ours.keys() == stored.keys()
    assert all(ours[name].tobytes() == stored[name].tobytes() for name in stored)


def test_masked_word_model_lacks_the_pooler(tmp_path: Path, vocabulary: Path) -> None:
    torch, transformers = _torch_and_transformers()
    torch.manual_seed(0)
    state = _save(
        transformers.BertForMaskedLM(_their_config(transformers)), tmp_path / "mlm", vocabulary
    )
    with pytest.raises(UserError, match=r"lacks the pooler .*--initialise_missing"):
        read_checkpoint(tmp_path / "mlm")
    read = read_checkpoint(tmp_path / "mlm", initialise_missing=5)
    initial = initial_parameters(CONFIG, 5)
    drawn = read.provenance["initialised"]
    assert drawn["pretrain_seed"] == 5
    assert drawn["variables"] == [
        "bert/pooler/dense/bias",
        "bert/pooler/dense/kernel",
        "cls/seq_relationship/output_bias",
        "cls/seq_relationship/output_weights",
    ]
    assert all(np.array_equal(read.parameters[n], initial[n]) for n in drawn["variables"])
    bias = read.parameters["cls/predictions/output_bias"]
    assert np.array_equal(bias, state["cls.predictions.bias"])


def test_encoder_alone_cannot_be_written_for_pretraining(tmp_path: Path, vocabulary: Path) -> None:
    encoder = {name: v for name, v in _weights().items() if name.startswith("bert/")}
    with pytest.raises(UserError, match=r"lacks cls/.*--initialise_missing"):
        write_checkpoint(tmp_path / "x", encoder, CONFIG, vocabulary, {}, layout="hugging_face")
    assert not (tmp_path / "x").exists()


def _old_names(name: str) -> str:
    if "LayerNorm" in name:
        return name.replace("weight", "gamma").replace("bias", "beta")
    return name


def test_old_pytorch_file(exported: Path) -> None:
    """As early releases are: old names, tied weights twice, a counter among the weights."""
    torch, _ = _torch_and_transformers()
    tensors = {_old_names(name): torch.tensor(v) for name, v in _tensors(exported).items()}
    tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    torch.save(tensors, exported / "pytorch_model.bin")
    expected = read_checkpoint(exported).parameters
    _as_foreign(exported)
    (exported / "model.safetensors").unlink()
    read = read_checkpoint(exported).parameters
    assert read.keys() == expected.keys()
    assert all(np.array_equal(read[name], expected[name]) for name in expected)

    content = (exported / "pytorch_model.bin").read_bytes()
    (exported / "pytorch_model.bin").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"pytorch_model\.bin cannot be read.*copy it again"):
        read_checkpoint(exported)


def test_old_pytorch_file_without_pytorch(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_foreign(exported)
    (exported / "model.safetensors").rename(exported / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match="only be read with PyTorch.*pip install torch"):
        read_checkpoint(exported)


def test_the_two_gelus_differ_by_what_we_say() -> None:
    from scipy import special

    inputs = np.linspace(-8, 8, 200_001)
    exact = inputs * special.ndtr(inputs)
    cubic = np.sqrt(2 / np.pi) * (inputs + 0.044715 * inputs**3)
    tanh = 0.5 * inputs * (1 + np.tanh(cubic))
    assert 0.0004 < np.abs(exact - tanh).max() < 0.0005


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"layer_norm_eps": 1e-5}, r"layer_norm_eps is 1e-05, expected 1e-12"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"model_type": "roberta"}, "model_type is 'roberta', expected 'bert'"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_size": 48}, r"shape .* but config.json says"),
        ({"num_hidden_layers": 2}, "holds 3 layers, but .* num_hidden_layers 2"),
        ({"num_hidden_layers": 4}, "holds 3 layers, but .* num_hidden_layers 4"),
    ],
)
def test_models_that_would_compute_something_else(
    exported: Path, changed: dict[str, Any], message: str
) -> None:
    _edit_config(_as_foreign(exported), **changed)
    with pytest.raises(UserError, match=message):
        read_checkpoint(exported)


def test_untied_output_is_refused(exported: Path) -> None:
    tensors = _tensors(_as_foreign(exported))
    words = tensors["bert.embeddings.word_embeddings.weight"]
    _save_tensors(exported, {**tensors, "cls.predictions.decoder.weight": words})
    read_checkpoint(exported)
    _save_tensors(exported, {**tensors, "cls.predictions.decoder.weight": words + 1})
    with pytest.raises(UserError, match=r"decoder\.weight differs from .*word_embeddings"):
        read_checkpoint(exported)


def test_fine_tuned_classifier_is_refused(exported: Path) -> None:
    classifier = {"classifier.weight": np.zeros((2, 24), np.float32)}
    _save_tensors(exported, {**_tensors(_as_foreign(exported)), **classifier})
    with pytest.raises(UserError, match=r"holds classifier\.weight.*BertForPreTraining"):
        read_checkpoint(exported)


@pytest.mark.parametrize("has_record", [True, False])
def test_truncated_weights_are_refused_without_reading_them(
    exported: Path, has_record: bool
) -> None:
    path = exported / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    if not has_record:
        _as_foreign(exported)
    with pytest.raises(UserError, match=r"model\.safetensors .*(truncated|damaged).*copy it again"):
        check_checkpoint(exported)


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt", "tokenizer.json"])
def test_flipped_bit_is_refused(exported: Path, name: str) -> None:
    content = bytearray((exported / name).read_bytes())
    content[-20] ^= 1
    (exported / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} does not match the checksum .*copy it again"):
        read_checkpoint(exported)


def test_weights_in_several_parts(exported: Path) -> None:
    _as_foreign(exported)
    (exported / "model.safetensors").rename(exported / "model-00001-of-00002.safetensors")
    (exported / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match="several parts.*save it again"):
        check_checkpoint(exported)


def test_vocabulary_inside_the_tokenizer_only(exported: Path) -> None:
    """As transformers 5 saves a tokeniser."""
    _as_foreign(exported)
    (exported / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"has no vocab\.txt; `multiberts checkpoint convert"):
        check_checkpoint(exported)
