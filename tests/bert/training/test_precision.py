"""`MULTIBERTS_MATMUL_PRECISION` reaches the compiler, whichever engine computes."""

from __future__ import annotations

import pytest

from multiberts.runs.environment import ENGINE, ENGINES, PRECISION, matmul_precision
from multiberts.runs.errors import UserError
from multiberts.tests.tools import own_process


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_the_highest_precision_is_asked_of_the_compiler(engine: str) -> None:
    if engine == "jax":
        pytest.importorskip("jax")
    programs = {
        precision: own_process.call(
            "bert.training.products:told",
            **{ENGINE: engine, PRECISION: precision, "JAX_PLATFORMS": "cpu"},
        ).lower()
        for precision in ("default", "highest")
    }
    assert "highest" in programs["highest"] and "highest" not in programs["default"]


def test_a_precision_that_is_not_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRECISION, "higest")
    with pytest.raises(UserError, match="PRECISION is 'higest', .*did you mean highest"):
        matmul_precision()
