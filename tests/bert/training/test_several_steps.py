"""Several updates in one program of TensorFlow, as short ones on a processor are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from multiberts.bert.randomness import generator
from multiberts.bert.training.engine import Trainer, TrainerSettings, new_trainer
from multiberts.bert.training.state import TrainingState
from multiberts.runs.environment import TENSORFLOW, engine

pytestmark = pytest.mark.skipif(
    engine() != TENSORFLOW, reason="TensorFlow joins steps on a processor"
)

STEPS, BLOCK = 11, 4


def loss(parameters: Any, batch: Any, dropout_key: Any, backend: Any) -> Any:
    """A regression whose targets depend on the dropout key, so that a wrong key shows."""
    from keras import ops

    found = ops.tanh(backend.dense(batch["x"], parameters["kernel"], parameters["bias"]))
    noise = ops.cast(dropout_key[0] % 7, "float32")
    value = ops.mean((found - batch["y"] - noise) ** 2)
    return value, {"largest": ops.max(ops.abs(found))}


def batch_at(step: int) -> dict[str, np.ndarray]:
    draw = generator("several steps", step)
    x, y = draw.normal(size=(6, 5)), draw.normal(size=(6, 3))
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def trained(trainer: Trainer, blocks: list[int]) -> tuple[TrainingState, dict[str, np.ndarray]]:
    """The state after the blocks, and the scalars of all steps."""
    draw = generator("several steps", "weights")
    kernel = draw.normal(size=(5, 3)).astype(np.float32)
    trainer.start({"kernel": kernel, "bias": np.zeros(3, np.float32)})
    scalars: list[dict[str, np.ndarray]] = []
    for count in blocks:
        steps = range(trainer.step_count, trainer.step_count + count)
        rates = [1e-2 / (step + 1) for step in steps]
        metrics = trainer.steps([batch_at(step) for step in steps], rates, dropout_seed=3)
        scalars.append({name: np.ravel(values)[:count] for name, values in metrics.items()})
    joined = {name: np.concatenate([part[name] for part in scalars]) for name in scalars[0]}
    return trainer.state(), joined


@pytest.mark.parametrize(
    ("shards", "corrected"),
    [*[(1, False), (2, True)],
     *(pytest.param(*row, marks=pytest.mark.slow) for row in ((1, True), (2, False)))],
)  # fmt: skip
def test_all_blocks_end_in_the_same_bytes(shards: int, corrected: bool) -> None:
    given = {"gradient_shards": shards, "bias_correction": corrected}
    trainer, single = (
        new_trainer(loss, TrainerSettings(**given, steps_per_dispatch=most)) for most in (BLOCK, 1)
    )
    assert (trainer.steps_per_dispatch, single.steps_per_dispatch) == (BLOCK, 1)
    state, scalars = trained(trainer, [4, 4, 3])
    cut, of_cut = trained(trainer, [1, 2, 1, 4, 3])
    assert cut.digest() == state.digest()
    assert {*scalars} >= {"loss", "gradient_norm", "largest"}
    one_by_one, expected = trained(single, STEPS * [1])
    assert one_by_one.step == state.step == STEPS
    for name, values in scalars.items():
        np.testing.assert_array_equal(of_cut[name], values)
        np.testing.assert_allclose(values, expected[name], rtol=1e-5)
    for part in ("parameters", "m", "v"):
        for name, array in getattr(state, part).items():
            np.testing.assert_allclose(array, getattr(one_by_one, part)[name], rtol=1e-4, atol=1e-7)


def test_what_is_not_compiled_is_updated_one_by_one() -> None:
    settings = TrainerSettings(compile_step=False, steps_per_dispatch=8)
    assert new_trainer(loss, settings).steps_per_dispatch == 1
