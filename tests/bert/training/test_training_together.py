"""Several seeds in one program, and runs whose updates are made together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.training.pack import Run, carry_out_together
from multiberts.runs.environment import ENGINE, JAX
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError

WORKER = Path(__file__).with_name("train_twins.py")


@pytest.mark.parametrize("devices", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_one_program_trains_each_seed_as_it_is_trained_alone(devices: str) -> None:
    """JAX's for accelerators, on a processor; its last bits may differ."""
    pytest.importorskip("jax", reason="needs JAX: pip install -r requirements-jax.txt")
    done = subprocess.run(
        [sys.executable, str(WORKER), devices],
        env={**os.environ, ENGINE: JAX},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    difference, *steps = done.stdout.split()
    assert float(difference) <= 1e-4
    assert steps == ["15", "15", "23"]


def test_an_error_ends_its_run_or_all_and_closes_the_others() -> None:
    closed = []

    def run(name: str, error: BaseException | None = None) -> Any:
        try:
            if error is not None:
                raise error
        finally:
            closed.append(name)
        yield from iter(())

    def of(errors: list[BaseException | None]) -> Iterator[Run]:
        return (run(str(number), error) for number, error in enumerate(errors))

    refused, stopped = UserError("refused"), PreemptedError("stopped")
    assert carry_out_together(list(of([refused, None, stopped]))) == [refused, None, stopped]
    assert closed == ["0", "1", "2"]
    with pytest.raises(ArithmeticError):
        carry_out_together(list(of([None, ArithmeticError(), None])))
