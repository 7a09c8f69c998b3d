"""The two engines compute the same training up to rounding, and continue each other's states."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.training.state import TrainingState
from multiberts.runs.environment import ENGINE, ENGINES, JAX, TENSORFLOW
from multiberts.tests.bert import unoptimised

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: the extra jax"
)


Runs = Callable[..., tuple[Path, list[float]]]


def trained(
    engine: str, folder: Path, way: str, is_compiled: bool = True, *state: str
) -> list[float]:
    function = "bert.training.train_across_engines:train_with_states"
    arguments = (str(folder), way, is_compiled, *state)
    losses: list[float] = unoptimised.call(engine, function, *arguments)
    return losses


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Makes the run of an engine with or without dropout, once; gives its folder and losses."""
    folder = tmp_path_factory.mktemp("engines")

    @functools.cache
    def run(engine: str, way: str, is_compiled: bool = True) -> tuple[Path, list[float]]:
        directory = folder / engine / f"{way}-{is_compiled}"
        return directory, trained(engine, directory, way, is_compiled)

    return run


def state_at(folder: Path, step: int) -> TrainingState:
    return TrainingState.load(folder / "state" / f"step_{step}.npz")


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


@pytest.mark.parametrize(
    ("way", "is_compiled"),
    [
        # XLA takes seconds for TensorFlow's; test_encoder.py compares what it makes of the gradient.
        ("dropout", False),
        pytest.param("dropout", True, marks=pytest.mark.slow),
        pytest.param("plain", True, marks=pytest.mark.slow),
    ],
)
def test_both_compute_the_same_loss_gradients_and_weights(
    runs: Runs, way: str, is_compiled: bool
) -> None:
    """Alone compares the updates of both engines, with dropout and two shards."""
    ours, our_losses = runs(JAX, way)
    theirs, their_losses = runs(TENSORFLOW, way, is_compiled)
    assert our_losses == pytest.approx(their_losses, rel=1e-5)
    # From moments of zero, m is a tenth of the gradient.
    assert difference(state_at(ours, 1).m, state_at(theirs, 1).m) <= 1e-5
    end, expected = state_at(ours, 20), state_at(theirs, 20)
    assert difference(end.parameters, expected.parameters) <= 1e-4
    assert end.machine["engine"] == JAX and expected.machine["engine"] == TENSORFLOW


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_each_continues_the_state_of_the_other(runs: Runs, tmp_path: Path, engine: str) -> None:
    folder, _ = runs(TENSORFLOW if engine == JAX else JAX, "dropout")
    trained(engine, tmp_path, "dropout", True, str(folder / "state" / "step_10.npz"))
    expected = state_at(folder, 20)
    assert difference(state_at(tmp_path, 20).parameters, expected.parameters) <= 1e-4


def test_an_engine_that_is_not_one_is_refused() -> None:
    for changes, flags, word in (
        ({ENGINE: "torch"}, [], "MULTIBERTS_ENGINE is 'torch', not an engine"),
        ({}, ["--engine=jaxx"], "--engine is 'jaxx', not an engine; did you mean jax?"),
        ({}, ["--engine"], "--engine is '', not an engine"),
    ):
        code = "from multiberts.runs.command_line.command import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "pretrain", *flags],
            env={**os.environ, **changes},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert word in line
