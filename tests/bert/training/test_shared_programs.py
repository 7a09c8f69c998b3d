"""Models and runs of one network share compiled programs, never weights."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from multiberts.bert.training.engine import ForwardPass
from multiberts.bert.training.state import DeviceWeights
from multiberts.runs.environment import ENGINE, ENGINES, JAX
from multiberts.tests.tools import warm

HAS_JAX = importlib.util.find_spec("jax") is not None
engines = pytest.mark.parametrize("engine", [name for name in ENGINES if name != JAX or HAS_JAX])


@engines
def test_two_models_in_two_threads_get_their_own_answers(engine: str) -> None:
    wrong = warm.call(
        "bert.training.shared_programs:wrong_answers", kind=engine, **{ENGINE: engine}
    )
    assert wrong == 0


@engines
def test_a_run_leaves_programs_and_no_weights(engine: str) -> None:
    found = warm.call(
        "bert.training.shared_programs:runs_of_one_network", kind=engine, **{ENGINE: engine}
    )
    assert found["bytes"] == [0, 0]
    assert found["traces"][0] == found["traces"][1], "the second run compiled again"
    assert found["is_another"] and found["are_apart"] and found["are_equal"]


@pytest.mark.seconds
def test_weights_are_copied_to_the_device_once() -> None:
    class Counted(DeviceWeights):
        copies = 0

        def items(self):
            self.copies += 1
            return super().items()

    predictor = ForwardPass(lambda weights, batch: {"y": weights["w"] + batch["x"]})
    weights = Counted({"w": np.ones(2, np.float32)})
    for number in range(3):
        answer = predictor(weights, {"x": np.full(2, number, np.float32)})
        np.testing.assert_array_equal(answer["y"], [1.0 + number] * 2)
    assert weights.copies == 1
    other = {"w": np.zeros(2, np.float32)}
    predictor(other, {"x": np.ones(2, np.float32)})
    other["w"] += 5  # a plain mapping may change between calls
    np.testing.assert_array_equal(predictor(other, {"x": np.ones(2, np.float32)})["y"], [6.0, 6.0])
