"""Attention as accelerators compute it is the plain one up to rounding, with the same elements dropped."""

from __future__ import annotations

import importlib.util

import pytest

from multiberts.runs.environment import ATTENTION, ENGINE, JAX, attention
from multiberts.runs.errors import UserError
from multiberts.tests.tools import own_process

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: the extra jax"
)


@pytest.mark.slow
def test_recomputed_attention_is_the_plain_one_up_to_rounding() -> None:
    found = own_process.call(
        "bert.training.attend_recomputed:differences", **{ENGINE: JAX, "JAX_PLATFORMS": "cpu"}
    )
    for case in ("dropout", "packed", "none"):
        assert found[case] <= 1e-6, case
    assert found["loss"] <= 1e-5
    assert found["same_elements"]
    assert 0.2 < found["share"] < 0.4  # of 0.3: elements were dropped at all


def test_a_way_that_is_not_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ATTENTION, "recompute")
    with pytest.raises(
        UserError, match="MULTIBERTS_ATTENTION is 'recompute'.*did you mean recomputed"
    ):
        attention()
