"""The encoder against PyTorch's gradients, and against itself."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.hugging_face import hugging_face_name
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.encoder import Packing, encode
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.randomness import generator
from multiberts.runs.environment import ENGINES, JAX
from multiberts.tests.bert import unoptimised

CONFIG = BertConfig(
    vocab_size=211, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=96, max_position_embeddings=40,
)  # fmt: skip
# What is compiled: each layer takes the compiler seconds.
ONE_LAYER = dataclasses.replace(CONFIG, num_hidden_layers=1)
LENGTH = 24

INPUTS = ("input_ids", "input_mask", "segment_ids")
KEY = np.array([3, 5], np.uint32)


def _weights(config: BertConfig = CONFIG) -> dict[str, np.ndarray]:
    """Weights far from their initial values, so that every term shows in the output."""
    draw = generator("golden", 0)
    return {
        name: (values + draw.normal(0.0, 0.15, values.shape)).astype(np.float32)
        for name, values in initial_parameters(config, 0).items()
    }


def _as_state_dict(parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Names and orientation of `transformers`' BertForPreTraining."""
    return {
        hugging_face_name(name): values.T if name.endswith("kernel") else values
        for name, values in parameters.items()
    }


def _inputs() -> dict[str, np.ndarray]:
    draw = generator("golden inputs", 0)
    lengths = draw.integers(5, LENGTH + 1, 6)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    return {
        "input_ids": (draw.integers(0, CONFIG.vocab_size, (6, LENGTH)) * mask).astype(np.int32),
        "input_mask": mask,
        "segment_ids": (np.arange(LENGTH) >= lengths[:, None] // 2).astype(np.int32) * mask,
        "masked_lm_positions": draw.integers(0, 5, (6, 4)).astype(np.int32),
    }


def _oracle(parameters: dict[str, np.ndarray], hidden_act: str) -> Any:
    """`transformers`' model with our weights, without dropout."""
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    transformers = pytest.importorskip("transformers")
    oracle = transformers.BertForPreTraining(
        transformers.BertConfig(
            **{**json.loads(ONE_LAYER.to_json()), "hidden_act": hidden_act}, layer_norm_eps=1e-12
        )
    ).eval()
    state = {name: torch.from_numpy(v.copy()) for name, v in _as_state_dict(parameters).items()}
    missing, unexpected = oracle.load_state_dict(state, strict=False)
    assert not unexpected
    # The tied decoder shares the word embeddings and the bias.
    assert all(name.startswith("cls.predictions.decoder") for name in missing)
    oracle.cls.predictions.decoder.weight = oracle.bert.embeddings.word_embeddings.weight
    oracle.cls.predictions.decoder.bias = oracle.cls.predictions.bias
    # It gives [PAD] no gradient; the original code does.
    oracle.bert.embeddings.word_embeddings.padding_idx = None
    return oracle


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("hidden_act", "their_name"),
    [
        ("gelu", "gelu_pytorch_tanh"),
        # test_saved_by_transformers.py compares this one's values.
        pytest.param("gelu_exact", "gelu", marks=pytest.mark.slow),
    ],
)
def test_same_gradient_of_the_loss_as_pytorch(
    tmp_path: Path, engine: str, hidden_act: str, their_name: str
) -> None:
    """Of the compiled loss with respect to every variable, relative to the variable's largest."""
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    if engine == JAX:
        pytest.importorskip("jax")
    parameters, inputs = _weights(ONE_LAYER), _inputs()
    draw = generator("golden labels", 0)
    inputs["masked_lm_ids"] = draw.integers(0, CONFIG.vocab_size, (6, 4)).astype(np.int32)
    inputs["masked_lm_weights"] = np.ones((6, 4), np.float32)
    inputs["next_sentence_labels"] = draw.integers(0, 2, 6).astype(np.int32)
    np.savez(tmp_path / "parameters.npz", **parameters)
    np.savez(tmp_path / "batch.npz", **inputs)
    (tmp_path / "config.json").write_text(
        dataclasses.replace(ONE_LAYER, hidden_act=hidden_act).to_json()
    )
    function = "bert.model.loss_gradients:write_gradients"
    value = unoptimised.call(engine, function, str(tmp_path))
    oracle = _oracle(parameters, their_name)
    ids, mask, segments = (torch.from_numpy(inputs[name]).long() for name in INPUTS)
    theirs = oracle(input_ids=ids, attention_mask=mask, token_type_ids=segments)
    at = torch.from_numpy(inputs["masked_lm_positions"]).long()[:, :, None]
    masked = torch.gather(theirs.prediction_logits, 1, at.expand(-1, -1, CONFIG.vocab_size))
    labels = torch.from_numpy(inputs["masked_lm_ids"]).long()
    following = torch.from_numpy(inputs["next_sentence_labels"]).long()
    cross_entropy = torch.nn.functional.cross_entropy
    loss = cross_entropy(masked.flatten(0, 1), labels.flatten())
    loss = loss + cross_entropy(theirs.seq_relationship_logits, following)
    loss.backward()
    expected = {name: p.grad.numpy() for name, p in oracle.named_parameters()}
    assert value == pytest.approx(float(loss.detach()), rel=1e-5)
    found = _as_state_dict(dict(np.load(tmp_path / "gradients.npz")))
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        # A key's bias moves all scores of a query alike: its true gradient is zero.
        scale = 1.0 if name.endswith("key.bias") else np.abs(expected[name]).max()
        assert np.abs(gradient - expected[name]).max() < 2e-5 * scale, name


def test_padding_changes_nothing_even_with_dropout() -> None:
    """Dropout bits belong to positions, so a longer padding leaves the real positions as they are."""
    parameters, inputs = _weights(), _inputs()
    short = slice(0, 16)
    real = inputs["input_mask"][:, short].astype(bool)
    inputs["input_mask"][:, 16:] = 0

    def run(part: slice, key: np.ndarray | None = KEY) -> np.ndarray:
        given = (inputs[name][:, part] for name in INPUTS)
        return np.asarray(encode(parameters, CONFIG, *given, dropout_key=key))

    whole, trimmed = run(slice(0, LENGTH)), run(short)
    np.testing.assert_allclose(whole[:, short][real], trimmed[real], atol=2e-5)
    assert np.abs(whole - run(slice(0, LENGTH), None)).max() > 0.1


def _states_and_gradients(
    inputs: dict[str, np.ndarray], places: np.ndarray | None = None, **how: Any
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the states, with dropout, and the gradients of a loss of those at some places."""
    import tensorflow as tf

    parameters = {name: tf.constant(values) for name, values in _weights().items()}
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        given = (tf.constant(inputs[name]) for name in INPUTS)
        states = encode(parameters, CONFIG, *given, dropout_key=tf.constant(KEY), **how)
        if places is not None:
            states = tf.gather(states, places, batch_dims=1)
        loss = tf.reduce_sum(tf.sin(states))
    gradients = tape.gradient(loss, parameters, unconnected_gradients="zero")
    return states.numpy(), {n: tf.convert_to_tensor(g).numpy() for n, g in gradients.items()}


def _assert_same(found: Any, expected: Any, atol: float = 2e-5) -> None:
    (states, gradients), (expected_states, expected_gradients) = found, expected
    np.testing.assert_allclose(states, expected_states, atol=atol)
    for name, values in expected_gradients.items():
        scale = max(1.0, np.abs(values).max())
        assert np.abs(gradients[name] - values).max() < 1e-4 * scale, name


def test_states_at_some_places_are_those_of_the_whole_sequence() -> None:
    """A place that is read twice counts twice in the gradient."""
    inputs = _inputs()
    places, first = np.tile([[0, 7, 2, 7]], (6, 1)), np.zeros((6, 1), np.int64)
    found = _states_and_gradients(inputs, output_positions=places)
    _assert_same(found, _states_and_gradients(inputs, places))
    found = _states_and_gradients(inputs, first_token_only=True)
    _assert_same(found, _states_and_gradients(inputs, first), atol=1e-5)


def test_packed_sequences_have_the_states_and_gradients_of_rows_of_their_own() -> None:
    """Two in the first row, one in the second, and none in the third."""
    inputs, lengths = _inputs(), [9, 16, 7]
    plain = {name: np.zeros((3, 16), np.int32) for name in INPUTS}
    packed = {name: np.zeros((3, 16), np.int32) for name in (*INPUTS, "positions")}
    packed["sequences"] = np.full((3, 16), -1, np.int32)
    for number, (row, first) in enumerate(((0, 7), (1, 0), (0, 0))):
        length = lengths[number]
        own, shared = (number, slice(length)), (row, slice(first, first + length))
        for name in ("input_ids", "segment_ids"):
            plain[name][own] = packed[name][shared] = inputs[name][number % 2, :length]
        plain["input_mask"][own] = packed["input_mask"][shared] = 1
        packed["positions"][shared] = np.arange(length)
        packed["sequences"][shared] = number
    firsts = np.array([[0, 7], [0, 0], [0, 0]], np.int32)
    arrays = (packed["sequences"], packed["positions"], firsts, np.array([1, 2, 0], np.int32))
    found = _states_and_gradients(packed, first_token_only=True, packing=Packing(*arrays))
    assert found[0].shape == (3, 1, CONFIG.hidden_size)
    _assert_same(found, _states_and_gradients(plain, first_token_only=True))
