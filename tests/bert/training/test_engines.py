"""The two engines compute the same training up to rounding, and continue each other's states."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.training.state import TrainingState
from multiberts.runs.environment import ENGINE, ENGINES, JAX, TENSORFLOW
from multiberts.tests import own_process

pytest.importorskip("jax", reason="needs JAX: the extra jax")


def trained(engine: str, *arguments: Path) -> list[float]:
    losses: list[float] = own_process.call(
        "bert.training.train_across_engines:train_with_states",
        *map(str, arguments),
        **{ENGINE: engine},
    )
    return losses


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the states of a run of each engine, and with the losses as text."""
    folder = tmp_path_factory.mktemp("engines")
    for engine in ENGINES:
        losses = trained(engine, folder / engine)
        (folder / engine / "losses.txt").write_text(" ".join(map(str, losses)))
    return folder


def state_at(folder: Path, step: int, way: str = "dropout") -> TrainingState:
    return TrainingState.load(folder / way / "state" / f"step_{step}.npz")


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest difference of an element, as a share of its array's largest.

    A key's bias has no effect (it moves all scores of a query alike), so its gradient is rounding alone:
    of the query's size. The bias of the two answers on sentence order passes 0: of its weights' size.
    """
    others = {"/key/bias": "/query/bias", "relationship/output_bias": "relationship/output_weights"}
    largest = {}
    for name in expected:
        scale = name
        for bias, other in others.items():
            scale = scale.replace(bias, other)
        largest[name] = np.abs(expected[scale]).max()
    return max(
        float(np.abs(found[name] - expected[name]).max() / largest[name]) for name in expected
    )


@pytest.mark.parametrize("way", ["dropout", "plain"])
def test_both_compute_the_same_loss_gradients_and_weights(runs: Path, way: str) -> None:
    ours, theirs = (runs / engine for engine in (JAX, TENSORFLOW))
    first = 0 if way == "dropout" else 3
    losses = [
        np.array((folder / "losses.txt").read_text().split(), float)[first : first + 3]
        for folder in (ours, theirs)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    # From moments of zero, m is a tenth of the gradient.
    assert difference(state_at(ours, 1, way).m, state_at(theirs, 1, way).m) <= 1e-5
    end, expected = state_at(ours, 20, way), state_at(theirs, 20, way)
    assert difference(end.parameters, expected.parameters) <= 1e-4
    assert end.machine["engine"] == JAX and expected.machine["engine"] == TENSORFLOW


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_each_continues_the_state_of_the_other(runs: Path, tmp_path: Path, engine: str) -> None:
    other = TENSORFLOW if engine == JAX else JAX
    trained(engine, tmp_path, runs / other / "dropout" / "state" / "step_10.npz")
    expected = state_at(runs / other, 20)
    assert difference(state_at(tmp_path, 20).parameters, expected.parameters) <= 1e-4


def test_an_engine_that_is_not_one_is_refused() -> None:
    for environment, flags, word in (
        ({ENGINE: "torch"}, [], "MULTIBERTS_ENGINE is 'torch', not an engine"),
        ({}, ["--engine=jaxx"], "--engine is 'jaxx', not an engine; did you mean jax?"),
        ({}, ["--engine"], "--engine is '', not an engine"),
    ):
        code = "from multiberts.runs.command_line.command import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "pretrain", *flags],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert word in line
