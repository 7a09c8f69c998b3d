"""One whole training step against an independent float64 implementation in NumPy, written here.

From the embeddings to the Adam update, with both heads: the forward pass, its gradient derived by
hand, a loss normalised in each gradient shard by itself, each shard's gradient clipped by itself,
their sum, Adam without bias correction, decoupled weight decay with its exclusions, the schedule,
and the hashed dropout.

Reference: Devlin et al., 2019; google-research/bert, `modeling.py`, `run_pretraining.py`,
`optimization.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.model.optimization import learning_rate_schedule
from multiberts.bert.randomness import generator, hash_bits
from multiberts.bert.training.engine import TrainerSettings, new_trainer
from multiberts.bert.training.state import TrainingState

CONFIG = BertConfig(
    vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=20,
)  # fmt: skip
LENGTH, PREDICTIONS, ROWS = 14, 4, 8
STEP, PEAK, WARMUP, NUM_STEPS, DROPOUT_SEED = 12, 3e-3, 8, 40, 11

Arrays = dict[str, np.ndarray]
Back = Callable[[np.ndarray], np.ndarray]


class Model:
    """The loss of one shard and its gradient, in float64.

    Every method returns its output and a function from the gradient of the output to that of the
    input; gradients of variables gather in `gradient`.
    """

    def __init__(self, parameters: Arrays, config: BertConfig, key: tuple[int, int] | None):
        self.p = {name: values.astype(np.float64) for name, values in parameters.items()}
        self.gradient = {name: np.zeros_like(values) for name, values in self.p.items()}
        self.config, self.key = config, key

    def dense(self, name: str, x: np.ndarray) -> tuple[np.ndarray, Back]:
        kernel, bias = self.p[f"{name}/kernel"], self.p[f"{name}/bias"]

        def back(d: np.ndarray) -> np.ndarray:
            flat = d.reshape(-1, d.shape[-1])
            self.gradient[f"{name}/kernel"] += x.reshape(-1, x.shape[-1]).T @ flat
            self.gradient[f"{name}/bias"] += flat.sum(0)
            return d @ kernel.T

        return x @ kernel + bias, back

    def layer_norm(self, name: str, x: np.ndarray) -> tuple[np.ndarray, Back]:
        gamma = self.p[f"{name}/gamma"]
        scale = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        normal = (x - x.mean(-1, keepdims=True)) * scale

        def back(d: np.ndarray) -> np.ndarray:
            axes = tuple(range(d.ndim - 1))
            self.gradient[f"{name}/gamma"] += (d * normal).sum(axes)
            self.gradient[f"{name}/beta"] += d.sum(axes)
            d = d * gamma
            along = (d * normal).mean(-1, keepdims=True)
            return scale * (d - d.mean(-1, keepdims=True) - normal * along)

        return normal * gamma + self.p[f"{name}/beta"], back

    @staticmethod
    def gelu(x: np.ndarray) -> tuple[np.ndarray, Back]:
        slope = np.sqrt(2 / np.pi)
        t = np.tanh(slope * (x + 0.044715 * x**3))
        inner = slope * (1 + 3 * 0.044715 * x**2)
        return 0.5 * x * (1 + t), lambda d: d * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner)

    def dropout(self, rate: float, site: int, x: np.ndarray) -> tuple[np.ndarray, Back]:
        if self.key is None:
            return x, lambda d: d
        kept = hashed_bits(x.shape, site, self.key) >= round(rate * 2**32)
        mask = kept / (1 - rate)
        return x * mask, lambda d: d * mask

    def attention(self, layer: int, x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, Back]:
        heads, name = self.config.num_attention_heads, f"bert/encoder/layer_{layer}/attention"
        rows, length, hidden = x.shape
        size = hidden // heads

        def split(y: np.ndarray) -> np.ndarray:  # to [rows, heads, length, size]
            return y.reshape(rows, length, heads, size).swapaxes(1, 2)

        def join(y: np.ndarray) -> np.ndarray:
            return y.swapaxes(1, 2).reshape(rows, length, hidden)

        parts, backs = zip(
            *(self.dense(f"{name}/self/{part}", x) for part in ("query", "key", "value")),
            strict=True,
        )
        query, key, value = (split(part) for part in parts)
        scores = query @ key.swapaxes(2, 3) / np.sqrt(size) - 10000.0 * (1 - mask)[:, None, None]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        rate = self.config.attention_probs_dropout_prob
        dropped, dropped_back = self.dropout(rate, 1 + 3 * layer, weights)
        out, out_back = self.dense(f"{name}/output/dense", join(dropped @ value))

        def back(d: np.ndarray) -> np.ndarray:
            d = split(out_back(d))
            d_weights = dropped_back(d @ value.swapaxes(2, 3))
            d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))
            d_scores /= np.sqrt(size)
            d_query, d_key = d_scores @ key, d_scores.swapaxes(2, 3) @ query
            d_parts = (d_query, d_key, dropped.swapaxes(2, 3) @ d)
            return sum(b(join(part)) for b, part in zip(backs, d_parts, strict=True))

        return out, back

    def block(self, layer: int, x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, Back]:
        name, rate = f"bert/encoder/layer_{layer}", self.config.hidden_dropout_prob
        site = 1 + 3 * layer
        attended, back_1 = self.attention(layer, x, mask)
        attended, back_2 = self.dropout(rate, site + 1, attended)
        middle, back_3 = self.layer_norm(f"{name}/attention/output/LayerNorm", x + attended)
        inner, back_4 = self.dense(f"{name}/intermediate/dense", middle)
        inner, back_5 = self.gelu(inner)
        inner, back_6 = self.dense(f"{name}/output/dense", inner)
        inner, back_7 = self.dropout(rate, site + 2, inner)
        out, back_8 = self.layer_norm(f"{name}/output/LayerNorm", middle + inner)

        def back(d: np.ndarray) -> np.ndarray:
            d = back_8(d)
            d = back_3(d + back_4(back_5(back_6(back_7(d)))))
            return d + back_1(back_2(d))

        return out, back

    def embeddings(self, batch: Arrays) -> tuple[np.ndarray, Back]:
        prefix = "bert/embeddings"
        ids, types = batch["input_ids"], batch["segment_ids"]
        x = self.p[f"{prefix}/word_embeddings"][ids]
        x = x + self.p[f"{prefix}/token_type_embeddings"][types]
        x = x + self.p[f"{prefix}/position_embeddings"][: ids.shape[1]]
        x, back_1 = self.layer_norm(f"{prefix}/LayerNorm", x)
        x, back_2 = self.dropout(self.config.hidden_dropout_prob, 0, x)

        def back(d: np.ndarray) -> np.ndarray:
            d = back_1(back_2(d))
            np.add.at(self.gradient[f"{prefix}/word_embeddings"], ids, d)
            np.add.at(self.gradient[f"{prefix}/token_type_embeddings"], types, d)
            self.gradient[f"{prefix}/position_embeddings"][: ids.shape[1]] += d.sum(0)
            return d

        return x, back

    def masked_lm(self, x: np.ndarray, batch: Arrays) -> tuple[float, np.ndarray]:
        """Its loss and the gradient with respect to the encoder's output."""
        rows, at = np.arange(len(x))[:, None], batch["masked_lm_positions"]
        name, words = "cls/predictions", "bert/embeddings/word_embeddings"
        h, back_1 = self.dense(f"{name}/transform/dense", x[rows, at])
        h, back_2 = self.gelu(h)
        h, back_3 = self.layer_norm(f"{name}/transform/LayerNorm", h)
        logits = h @ self.p[words].T + self.p[f"{name}/output_bias"]
        weights = batch["masked_lm_weights"].astype(np.float64)
        share = weights / (weights.sum() + 1e-5)
        losses, d = cross_entropy(logits, batch["masked_lm_ids"])
        d = d * share[:, :, None]
        flat = d.reshape(-1, d.shape[-1])
        self.gradient[words] += flat.T @ h.reshape(-1, h.shape[-1])
        self.gradient[f"{name}/output_bias"] += flat.sum(0)
        d_x = np.zeros_like(x)
        np.add.at(d_x, (rows, at), back_1(back_2(back_3(d @ self.p[words]))))
        return float((share * losses).sum()), d_x

    def next_sentence(self, x: np.ndarray, batch: Arrays) -> tuple[float, np.ndarray]:
        """Likewise."""
        hidden, back = self.dense("bert/pooler/dense", x[:, 0])
        pooled, name = np.tanh(hidden), "cls/seq_relationship"
        weights = self.p[f"{name}/output_weights"]
        logits = pooled @ weights.T + self.p[f"{name}/output_bias"]
        losses, d = cross_entropy(logits, batch["next_sentence_labels"])
        d = d / len(x)
        self.gradient[f"{name}/output_weights"] += d.T @ pooled
        self.gradient[f"{name}/output_bias"] += d.sum(0)
        d_x = np.zeros_like(x)
        d_x[:, 0] = back((d @ weights) * (1 - pooled**2))
        return float(losses.mean()), d_x

    def loss(self, batch: Arrays) -> float:
        """The loss; leaves its gradient in `gradient`."""
        x, back = self.embeddings(batch)
        backs = [back]
        for layer in range(self.config.num_hidden_layers):
            x, back = self.block(layer, x, batch["input_mask"].astype(np.float64))
            backs.append(back)
        masked, d_masked = self.masked_lm(x, batch)
        following, d_following = self.next_sentence(x, batch)
        d = d_masked + d_following
        for back in reversed(backs):
            d = back(d)
        return masked + following


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Losses, and their gradients with respect to the logits."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    one_hot = np.eye(logits.shape[-1])[labels]
    return -(log_p * one_hot).sum(-1), np.exp(log_p) - one_hot


def hashed_bits(shape: tuple[int, ...], site: int, key: tuple[int, int]) -> np.ndarray:
    """32 bits an element, hashed from its place with sequences numbered as if 1024 long."""
    if len(shape) == 3:
        row, place, column = np.indices(shape, np.uint64)
        position = (row * 1024 + place) * shape[2] + column
    else:
        row, head, query, place = np.indices(shape, np.uint64)
        position = ((row * shape[1] + head) * 1024 + query) * 1024 + place
    low = np.uint64(0xFFFFFFFF)
    bits = (position + np.uint64(site * 0x9E3779B9 + key[0])) & low
    bits ^= bits >> np.uint64(17)
    bits = (bits * np.uint64(0xED5AD4BB) + np.uint64(key[1])) & low
    bits ^= bits >> np.uint64(11)
    bits = (bits * np.uint64(0xAC4C1B51)) & low
    bits ^= bits >> np.uint64(15)
    bits = (bits * np.uint64(0x31848BAB)) & low
    return bits ^ (bits >> np.uint64(14))


def made_up_batch() -> Arrays:
    """Rows of different lengths and numbers of predictions, so that shards normalise differently."""
    draw = generator("golden training batch", 0)
    lengths = draw.integers(6, LENGTH + 1, ROWS)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    counts = draw.integers(1, PREDICTIONS + 1, ROWS)
    return {
        "input_ids": (draw.integers(0, CONFIG.vocab_size, (ROWS, LENGTH)) * mask).astype(np.int32),
        "input_mask": mask,
        "segment_ids": ((np.arange(LENGTH) >= lengths[:, None] // 2) * mask).astype(np.int32),
        "masked_lm_positions": draw.integers(0, 6, (ROWS, PREDICTIONS)).astype(np.int32),
        "masked_lm_ids": draw.integers(0, CONFIG.vocab_size, (ROWS, PREDICTIONS)).astype(np.int32),
        "masked_lm_weights": (np.arange(PREDICTIONS) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": draw.integers(0, 2, ROWS).astype(np.int32),
    }


def starting_state(config: BertConfig, fresh: bool) -> TrainingState:
    """Weights far from their initial values; moments of zero, or as in the middle of training."""
    draw = generator("golden training state", 0)
    parameters = {
        name: (values + draw.normal(0.0, 0.2, values.shape)).astype(np.float32)
        for name, values in initial_parameters(config, 0).items()
    }
    scale = 0.0 if fresh else 0.01
    m = {n: (scale * draw.normal(size=v.shape)).astype(np.float32) for n, v in parameters.items()}
    v = {
        name: (scale**2 * draw.uniform(0.5, 2.0, values.shape)).astype(np.float32)
        for name, values in parameters.items()
    }
    return TrainingState(parameters, m, v, STEP)


def reference_gradient(
    parameters: Arrays, config: BertConfig, batch: Arrays, shards: int
) -> tuple[Arrays, float, list[float]]:
    """The sum of the shards' clipped gradients, the mean of their losses, and their norms."""
    total = {name: np.zeros(values.shape) for name, values in parameters.items()}
    losses, norms = [], []
    for shard, rows in enumerate(np.split(np.arange(ROWS), shards)):
        word = int(hash_bits(DROPOUT_SEED, STEP, shard))
        key = (word >> 32, word & 0xFFFFFFFF) if config.hidden_dropout_prob else None
        model = Model(parameters, config, key)
        losses.append(model.loss({name: values[rows] for name, values in batch.items()}))
        norms.append(np.sqrt(sum((g**2).sum() for g in model.gradient.values())))
        for name, gradient in model.gradient.items():
            total[name] += gradient / max(1.0, norms[-1])
    return total, float(np.mean(losses)), norms


# Without dropout test_encoder.py compares the gradient; the compiler takes seconds, and test_engines.py
# compares what two of them make.
SLOW = [(False, 4, False), *((dropout, n, True) for dropout in (False, True) for n in (1, 4))]


@pytest.mark.parametrize(
    ("dropout", "shards", "compiled"),
    [(True, 4, False), *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)],
)
def test_one_step_equals_float64_numpy(shards: int, dropout: bool, compiled: bool) -> None:
    """Alone checks a whole update, forward and back, against a computation that is not ours to change."""
    config = CONFIG
    if not dropout:
        config = dataclasses.replace(
            config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
    state, batch = starting_state(config, fresh=not dropout), made_up_batch()
    gradient, loss, norms = reference_gradient(state.parameters, config, batch, shards)
    assert max(norms) > 1.0, "no shard was clipped"
    # After the warm-up the global step decays to zero at the last one, not offset by the warm-up.
    rate = PEAK * (1 - STEP / NUM_STEPS)

    trainer = new_trainer(
        lambda parameters, features, key, backend: pretraining_loss(
            parameters, config, features, key, backend=backend
        ),
        TrainerSettings(gradient_shards=shards, compile_step=compiled),
    )
    trainer.restore(state)
    schedule = learning_rate_schedule(STEP, PEAK, WARMUP, NUM_STEPS)
    metrics = trainer.step(batch, schedule, DROPOUT_SEED)
    found = trainer.state()

    assert found.step == STEP + 1
    assert float(metrics["loss"]) == pytest.approx(loss, rel=2e-6)
    assert float(metrics["gradient_norm"]) == pytest.approx(np.mean(norms), rel=2e-5)
    for name, start in state.parameters.items():
        # A sum of n float32 products errs by about sqrt(n) 2^-24 of its terms; through two blocks
        # and back, with a few hundred terms a sum, that is some 1e-6 of the largest. The gradient
        # of a key's bias is zero but for rounding (it moves all scores of a query alike): its
        # terms are those of the query's.
        sibling = name.replace("/key/bias", "/query/bias")
        error = 1e-5 * np.abs(gradient[sibling]).max()
        m0, v0 = state.m[name].astype(np.float64), state.v[name].astype(np.float64)
        m = 0.9 * m0 + 0.1 * gradient[name]
        v = 0.999 * v0 + 0.001 * gradient[name] ** 2
        assert np.abs(found.m[name] - m).max() <= 0.1 * error + 1e-6 * np.abs(m).max(), name
        root_error = np.sqrt(0.001) * error + 1e-6 * np.sqrt(v)
        assert (np.abs(np.sqrt(found.v[name]) - np.sqrt(v)) <= root_error).all(), name
        update = m / (np.sqrt(v) + 1e-6)
        decays = not ("LayerNorm" in name or name.endswith("bias"))
        expected = start - rate * (update + (0.01 * start if decays else 0.0))
        # What an error of the gradient makes of the quotient, to first order; and the roundings of
        # the update itself.
        share = (0.1 * error + np.abs(update) * root_error) / (np.sqrt(v) + 1e-6)
        allowed = rate * share + 4 * 2.0**-24 * (np.abs(start) + rate * np.abs(update))
        worst = np.abs(found.parameters[name] - expected) / allowed
        assert worst.max() <= 1.0, f"{name}: {worst.max():.2f} times what is allowed"
