"""The optimiser against the recipe's facts and an independent float64 implementation."""

from __future__ import annotations

import numpy as np
import pytest

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.model.optimization import (
    AdamSettings,
    Decay,
    adam_updates,
    bias_corrections,
    is_decayed,
    learning_rate_schedule,
)
from multiberts.bert.randomness import generator
from multiberts.bert.training.engine import TrainerSettings, new_trainer

CONFIG = BertConfig(
    vocab_size=53, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip


def test_schedule_of_the_release() -> None:
    def at(step: int) -> float:
        return learning_rate_schedule(step, 1e-4, 10_000, 2_000_000)

    assert at(0) == 0.0
    assert at(5_000) == pytest.approx(5e-5)
    # Just after the warm-up the decay of the global step shows: 1e-4 x (1 - 10000 / 2e6).
    assert at(10_000) == pytest.approx(9.95e-5)
    assert at(2_000_000) == 0.0


@pytest.mark.parametrize("warmup_steps", [0, 7])
@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_schedules_are_those_of_transformers(decay: Decay, warmup_steps: int) -> None:
    """But the release's linear one after a warm-up, which does not begin at the peak."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    name = {"constant": "constant_with_warmup"}.get(decay, decay)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-3)
    schedule = transformers.get_scheduler(name, optimizer, warmup_steps, 40)
    for step in range(40):
        found = learning_rate_schedule(step, 2e-3, warmup_steps, 40, decay)
        if decay == "linear" and step >= warmup_steps:
            found *= 40 / (40 - warmup_steps)
        assert found == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-15)
        optimizer.step()
        schedule.step()


def test_layer_norm_and_biases_are_not_decayed() -> None:
    kept = [name for name in initial_parameters(CONFIG, 0) if not is_decayed(name)]
    assert "cls/predictions/output_bias" in kept
    assert "bert/encoder/layer_0/output/LayerNorm/gamma" in kept
    assert "bert/pooler/dense/bias" in kept
    assert all(name.endswith(("bias", "gamma", "beta")) for name in kept)
    # Four layer normalisations; biases of six dense layers a block, pooler, transform, two heads.
    assert len(kept) == 4 * 2 + 6 + 1 + 1 + 2


def _batch(rows: int) -> dict[str, np.ndarray]:
    draw = generator("optimiser test", 0)
    return {
        "input_ids": draw.integers(0, 53, (rows, 12)).astype(np.int32),
        "input_mask": np.ones((rows, 12), np.int32),
        "segment_ids": np.repeat([[0] * 6 + [1] * 6], rows, 0).astype(np.int32),
        "masked_lm_positions": np.repeat([[1, 4, 9]], rows, 0).astype(np.int32),
        "masked_lm_ids": draw.integers(0, 53, (rows, 3)).astype(np.int32),
        "masked_lm_weights": np.repeat([[1.0, 1.0, 0.0]], rows, 0).astype(np.float32),
        "next_sentence_labels": draw.integers(0, 2, rows).astype(np.int32),
    }


def _loss(parameters, batch, dropout_key, backend):
    return pretraining_loss(parameters, CONFIG, batch, dropout_key, backend=backend)


def _gradient(
    parameters: dict[str, np.ndarray], batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    import tensorflow as tf

    tensors = {name: tf.constant(values) for name, values in parameters.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss, _ = pretraining_loss(tensors, CONFIG, batch, None)
    gradients = tape.gradient(loss, tensors, unconnected_gradients="zero")
    return {
        name: tf.convert_to_tensor(g).numpy().astype(np.float64) for name, g in gradients.items()
    }


# One shard is compared by test_several_steps.py.
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_two_steps_equal_float64_numpy(shards: int) -> None:
    """Per-shard clipping to norm 1, sums not means, no bias correction, decoupled decay."""
    scale = 6.0  # weights large enough that clipping bites
    weights = {name: values * scale for name, values in initial_parameters(CONFIG, 1).items()}
    batch = _batch(8)
    # Uncompiled: the gradients then come from the very kernels the reference uses, and what is
    # compared is the optimiser.
    trainer = new_trainer(_loss, TrainerSettings(gradient_shards=shards, compile_step=False))
    trainer.start(weights)
    rates = [1e-2, 2e-2]

    expected = {name: values.astype(np.float64) for name, values in weights.items()}
    m, v, m_error, root_error, allowed = (
        {name: np.zeros_like(values) for name, values in expected.items()} for _ in range(5)
    )
    clipped = 0
    for rate in rates:
        total = {name: np.zeros_like(values) for name, values in expected.items()}
        # At the trainer's own weights, so that both have the same gradient but for rounding.
        now = trainer.parameters()
        for rows in np.split(np.arange(8), shards):
            gradient = _gradient(now, {name: values[rows] for name, values in batch.items()})
            norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
            clipped += norm > 1.0
            for name in total:
                total[name] += gradient[name] / max(norm, 1.0)
        for name, values in expected.items():
            m[name] = 0.9 * m[name] + 0.1 * total[name]
            v[name] = 0.999 * v[name] + 0.001 * total[name] ** 2
            update = m[name] / (np.sqrt(v[name]) + 1e-6)
            if name.endswith(("kernel", "embeddings", "weights")):
                update = update + 0.01 * values
            expected[name] = values - rate * update
            # Processors sum in other orders: an element of the gradient errs by 2e-6 of the largest,
            # and the quotient by that over the root of v, however small the root is. The gradient of
            # a key's bias is zero but for rounding; its terms are those of the query's.
            error = 2e-6 * np.abs(total[name.replace("/key/bias", "/query/bias")]).max()
            m_error[name] = 0.9 * m_error[name] + 0.1 * error
            root_error[name] = np.sqrt(0.999 * root_error[name] ** 2 + 0.001 * error**2)
            share = (m_error[name] + np.abs(update) * root_error[name]) / (np.sqrt(v[name]) + 1e-6)
            rounding = 8 * 2.0**-24 * (np.abs(values) + rate * np.abs(update))
            allowed[name] = allowed[name] + rate * share + rounding
        trainer.step(batch, rate, 0)

    assert clipped > 0
    found = trainer.state()
    for name, values in found.parameters.items():
        usual = 2e-5 + 2e-4 * np.abs(expected[name])
        worst = np.abs(values - expected[name]) / np.maximum(usual, allowed[name])
        assert worst.max() <= 1.0, f"{name}: {worst.max():.2f} times what is allowed"
        np.testing.assert_allclose(found.m[name], m[name], rtol=1e-5, atol=m_error[name].max())
        # Most elements keep the usual bound; the others have a gradient near zero.
        assert name.endswith("/key/bias") or (allowed[name] > usual).mean() < 0.5, name


@pytest.mark.parametrize(
    "settings", [AdamSettings(), AdamSettings(beta_1=0.8, beta_2=0.98, epsilon=1e-3)]
)
def test_the_corrected_update_is_that_of_pytorch(settings: AdamSettings) -> None:
    """torch.optim.AdamW, whose decay also goes with the learning rate, over twenty updates."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    start = random.normal(size=(4, 3)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(start))
    betas = settings.beta_1, settings.beta_2
    optimizer = torch.optim.AdamW(
        [theirs], lr=1e-2, betas=betas, eps=settings.epsilon, weight_decay=0.01
    )
    parameters, zeros = {"kernel": start}, {"kernel": np.zeros_like(start)}
    m, v = zeros, zeros
    for step in range(20):
        gradient = random.normal(size=start.shape).astype(np.float32)
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        rate = np.array([1e-2, *bias_corrections(step, settings)], np.float32)
        new = adam_updates(parameters, {"kernel": gradient}, m, v, rate, settings)
        parameters, m, v = ({"kernel": np.asarray(part["kernel"])} for part in new)
    np.testing.assert_allclose(parameters["kernel"], theirs.detach().numpy(), atol=2e-6)
