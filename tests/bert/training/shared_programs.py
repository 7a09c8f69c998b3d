"""What models and runs of one network share in a process: compiled programs, and no weights."""

from __future__ import annotations

import functools
import gc
import threading
import time
from types import FrameType
from typing import Any

import numpy as np

from multiberts.bert.model.array_ops import ops
from multiberts.bert.training.engine import ForwardPass, TrainerSettings, new_trainer
from multiberts.bert.training.engine import __file__ as engine_file
from multiberts.bert.training.state import DeviceWeights
from multiberts.bert.training.trainer import Trainer, Trainers
from multiberts.runs.environment import JAX, engine

ROUNDS, CALLS = 20, 5


def live_bytes() -> int:
    """Returns the bytes of arrays that the engine holds for trainers and forward passes."""
    gc.collect()
    if engine() == JAX:
        import jax

        return sum(array.nbytes for array in jax.live_arrays())
    import tensorflow as tf

    by_type = functools.cache(lambda kind: issubclass(kind, tf.Variable))  # which is slow to ask
    variables = [each for each in gc.get_objects() if by_type(type(each))]
    return sum(variable.numpy().nbytes for variable in variables)


def wrong_answers() -> int:
    """Two models of one network answer in two threads: returns the rounds with another one's answer."""
    predictor = ForwardPass(lambda weights, batch: {"product": weights["w"] * batch["x"]})
    batch, wrong = {"x": np.ones(8, np.float32)}, [0, 0]
    models = [DeviceWeights({"w": np.full(8, n + 1, np.float32)}) for n in range(2)]
    for weights in models:
        predictor(weights, batch)  # compiles
    start = threading.Barrier(2)

    def ask(number: int) -> None:
        start.wait()
        for _ in range(ROUNDS):
            answers = {float(predictor(models[number], batch)["product"][0]) for _ in range(CALLS)}
            wrong[number] += answers != {number + 1.0}

    threading.settrace(_take_turns)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(wrong)


def _take_turns(frame: FrameType, event: str, _: Any) -> Any:
    """Lets the other thread go on before every line of a forward pass."""
    if frame.f_code.co_filename != engine_file:
        return None
    if event == "line":
        time.sleep(1e-4)
    return _take_turns


def runs_of_one_network() -> dict[str, Any]:
    """Two runs, one after the other, and a third at the same time as the second."""
    traces = [0]

    def loss(parameters: Any, batch: Any, key: Any, backend: Any) -> Any:
        traces[0] += 1
        return ops.mean(ops.square(parameters["w"] * batch["x"])), {}

    settings = TrainerSettings(gradient_shards=2)
    trainers = Trainers(lambda: new_trainer(loss, settings))

    def trained(trainer: Trainer) -> bytes:
        trainer.start({"w": np.ones(9, np.float32)})
        for step in range(3):
            trainer.step({"x": np.full((4, 9), step, np.float32)}, 1e-3, dropout_seed=0)
        return trainer.state().digest()

    found: dict[str, Any] = {"traces": [], "bytes": []}
    digests = []
    for _ in range(2):
        with trainers.take() as trainer:
            digests.append(trained(trainer))
        found["traces"].append(traces[0])
        found["bytes"].append(live_bytes())
    with trainers.take() as trainer, trainers.take() as another:
        found["is_another"] = trainer is not another
        trainer.start({"w": np.zeros(9, np.float32)})
        digests.append(trained(another))
        found["are_apart"] = not trainer.parameters()["w"].any()
    found["are_equal"] = len(set(digests)) == 1
    return found
