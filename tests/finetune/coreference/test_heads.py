from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.coreference.frozen_states import TOKENS, SpanStates
from multiberts.finetune.coreference.heads import (
    POOLING,
    PairNetwork,
    initial_parameters,
    pair_batch,
    pair_logits,
)
from multiberts.finetune.coreference.mention_pairs import MentionPairs
from multiberts.finetune.features import stacked_sequences
from multiberts.finetune.model import forward_pass, trainers
from multiberts.finetune.training_options import RECIPE

WIDTH, HIDDEN = 8, 6
CONFIG = BertConfig(
    vocab_size=10, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=64,
)  # fmt: skip


def spans_and_pairs(seed: int = 0) -> tuple[list[np.ndarray], MentionPairs]:
    """Tokens of 30 spans of 1 to 12 tokens, and 200 pairs of them."""
    random = np.random.default_rng(seed)
    spans = [random.normal(size=(n, WIDTH)).astype(np.float32) for n in random.integers(1, 13, 30)]
    pairs = MentionPairs(
        sequences=stacked_sequences([], []),
        spans=np.zeros((30, 3), np.int32),
        pairs=random.integers(0, 30, (200, 2)).astype(np.int32),
        labels=random.integers(0, 2, 200).astype(np.int32),
        pair_ids=[str(number) for number in range(200)],
    )
    return spans, pairs


def states_of(representation: str, spans: list[np.ndarray]) -> SpanStates:
    if POOLING[representation] == TOKENS:
        offsets = np.cumsum([0, *map(len, spans)])
        return SpanStates(np.concatenate(spans), offsets)
    mean = np.stack([span.mean(axis=0) for span in spans])
    if representation == "endpoints":
        first, last = (np.stack([span[place] for span in spans]) for place in (0, -1))
        mean = np.concatenate([first, last, mean], axis=1)
    return SpanStates(mean, np.arange(31))


def weights(representation: str, seed: int = 3) -> dict[str, np.ndarray]:
    """Shapes as they are made, values large enough to matter, biases too."""
    random = np.random.default_rng(seed)
    made = initial_parameters(representation, CONFIG, HIDDEN, 0)
    return {
        name: random.normal(size=array.shape).astype(np.float32) for name, array in made.items()
    }


def by_torch(
    representation: str, given: Mapping[str, np.ndarray], pronoun: np.ndarray, candidate: np.ndarray
) -> np.ndarray:
    """The scores of one pair, by another program, from the unpadded tokens of its spans."""
    import torch
    from torch.nn import functional

    arrays = {name: torch.tensor(array) for name, array in given.items()}

    def dense(name: str, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, arrays[f"{name}/kernel"].T, arrays[f"{name}/bias"])

    spans = [torch.tensor(pronoun), torch.tensor(candidate)]
    if representation == "self_attention":
        pooled = []
        for side, tokens in zip(("pronoun", "candidate"), spans, strict=True):
            projected = dense(f"coreference/{side}/projection", tokens)
            scores = dense(f"coreference/{side}/attention", projected)
            pooled.append((functional.softmax(scores, dim=0) * projected).sum(dim=0))
        hidden = torch.tanh(dense("coreference/hidden", torch.cat(pooled)))
        gamma, beta = arrays["coreference/LayerNorm/gamma"], arrays["coreference/LayerNorm/beta"]
        hidden = functional.layer_norm(hidden, (HIDDEN,), gamma, beta, eps=1e-12)
    elif representation == "mean":
        features = torch.cat([tokens.mean(dim=0) for tokens in spans])
        hidden = functional.relu(dense("coreference/hidden", features))
    else:
        first, second = (torch.cat([span[0], span[-1], span.mean(dim=0)]) for span in spans)
        features = torch.cat([first, second, first * second])
        hidden = functional.gelu(dense("coreference/hidden", features), approximate="tanh")
    return dense("coreference/output", hidden).numpy()


@pytest.mark.parametrize("representation", POOLING)
def test_scores_are_those_of_torch(representation: str) -> None:
    spans, pairs = spans_and_pairs()
    given = weights(representation)
    predictor = forward_pass(PairNetwork(CONFIG, representation=representation), False)
    rows = np.arange(10, 200)
    states = states_of(representation, spans)
    found = pair_logits(representation, predictor, given, pairs, states, rows)
    expected = [
        by_torch(representation, given, spans[pronoun], spans[candidate])
        for pronoun, candidate in pairs.pairs[rows]
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_dropout_is_in_training_only() -> None:
    """One training step from the same state: its loss is not that of prediction."""
    spans, pairs = spans_and_pairs()
    for representation, drops in (("self_attention", True), ("mean", False)):
        states = states_of(representation, spans)
        given = weights(representation)
        network = PairNetwork(CONFIG, representation=representation)
        trainer = trainers(network, RECIPE, False).take()
        predictor = forward_pass(network, False)
        rows = np.arange(64)
        labels = pairs.labels[rows]
        batch = {**pair_batch(representation, pairs, states, rows), "labels": labels}
        losses = []
        for dropout_seed in (1, 2):
            trainer.start(given)
            losses.append(float(trainer.step(batch, 1e-3, dropout_seed)["loss"]))
        logits = pair_logits(representation, predictor, given, pairs, states, rows).astype(float)
        log_sum = np.log(np.exp(logits).sum(axis=1))
        expected = float((log_sum - logits[np.arange(64), labels]).mean())
        assert (losses[0] != losses[1]) == drops
        assert (abs(losses[0] - expected) > 1e-3) == drops


def test_weights_are_drawn_from_the_seed() -> None:
    first, again, other = (
        initial_parameters("self_attention", CONFIG, HIDDEN, seed) for seed in (0, 0, 1)
    )
    name = "coreference/pronoun/projection/kernel"
    assert first[name].shape == (WIDTH, HIDDEN)
    np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first[name], other[name])
    # The two sides have weights of their own.
    assert not np.array_equal(first[name], first["coreference/candidate/projection/kernel"])
