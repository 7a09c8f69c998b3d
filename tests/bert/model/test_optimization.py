"""The schedule and the corrected update; `test_training_golden.py` has an update of the recipe."""

from __future__ import annotations

import numpy as np
import pytest

from multiberts.bert.model.optimization import (
    AdamSettings,
    Decay,
    adam_updates,
    bias_corrections,
    clipping_scale,
    learning_rate_schedule,
)


@pytest.mark.parametrize("warmup_steps", [0, 7])
@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_schedules_are_those_of_transformers(decay: Decay, warmup_steps: int) -> None:
    """But the release's linear one after a warm-up, which does not begin at the peak."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    name = {"constant": "constant_with_warmup"}.get(decay, decay)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-3)
    schedule = transformers.get_scheduler(name, optimizer, warmup_steps, 40)
    for step in range(41):
        found = learning_rate_schedule(step, 2e-3, warmup_steps, 40, decay)
        if decay == "linear" and step >= warmup_steps:
            found *= 40 / (40 - warmup_steps)
        assert found == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-15)
        optimizer.step()
        schedule.step()


def test_a_long_gradient_is_clipped_to_norm_one_and_a_short_one_stays() -> None:
    """The norm is that of all variables together."""
    for length, factor in ((0.5, 1.0), (1.0, 1.0), (1.6, 0.625), (5.0, 0.2)):
        parts = {"a": np.array([0.6 * length], "f"), "b": np.array([[0.8 * length]], "f")}
        assert [*map(float, clipping_scale(parts))] == pytest.approx([factor, length])


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
