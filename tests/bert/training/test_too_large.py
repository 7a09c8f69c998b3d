"""An update that does not fit the device's memory ends with one line that names cures."""

from __future__ import annotations

import importlib.util

import pytest

from multiberts.runs.environment import ENGINE, JAX
from multiberts.tests.tools import own_process

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: the extra jax"
)


@pytest.mark.slow
def test_an_update_that_memory_does_not_hold_is_refused() -> None:
    found = own_process.call(
        "bert.training.exhaust_memory:message", **{ENGINE: JAX, "JAX_PLATFORMS": "cpu"}
    )
    assert "does not fit the device's memory (Out of memory" in found
    assert "bfloat16" in found and "\n" not in found
