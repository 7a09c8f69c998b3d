"""Updates by JAX: several shards in one batch axis, and one that the device's memory does not hold."""

from __future__ import annotations

import importlib.util

import pytest

from multiberts.runs.environment import ENGINE, JAX
from multiberts.tests.tools import own_process

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: the extra jax"
)


# Shards of a device, length of the sequences: shards at once.
RULE = {(32, 128): 4, (4, 64): 4, (6, 128): 2, (3, 128): 1, (1, 128): 1, (32, 512): 1}


def test_shards_of_short_sequences_are_computed_at_once() -> None:
    from multiberts.bert.training.jax_trainer import shards_at_once

    assert {given: shards_at_once(*given) for given in RULE} == RULE


@pytest.mark.slow
def test_an_update_of_shards_at_once_is_that_of_one_by_one_up_to_rounding() -> None:
    found = own_process.call(
        "bert.training.sum_at_once:differences", **{ENGINE: JAX, "JAX_PLATFORMS": "cpu"}
    )
    assert found["gradient_norm"] > 1.0, "nothing was clipped"
    assert found["gradients"] <= 1e-5
    assert found["scalars"] <= 1e-5


@pytest.mark.slow
def test_an_update_that_memory_does_not_hold_is_refused_with_cures() -> None:
    found = own_process.call(
        "bert.training.exhaust_memory:message", **{ENGINE: JAX, "JAX_PLATFORMS": "cpu"}
    )
    assert "does not fit the device's memory (Out of memory" in found
    assert "bfloat16" in found and "\n" not in found
