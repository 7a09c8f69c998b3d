"""Trainers and predictors of this process's engine, TensorFlow or JAX; see `runs.environment.engine`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from multiberts.bert.training.state import Arrays
from multiberts.bert.training.trainer import Array, Batch, Loss, Named, Trainer, TrainerSettings
from multiberts.runs.allocator import keep_freed_memory
from multiberts.runs.environment import JAX, engine

# Callers need one module.
__all__ = ["ForwardPass", "Loss", "Trainer", "TrainerSettings", "new_trainer"]

keep_freed_memory()


def new_trainer(loss: Loss, settings: TrainerSettings | None = None) -> Trainer:
    """Returns a trainer of this process's engine.

    Where several devices are asked for, make it before anything else of the engine's runs.

    Args:
      loss: (parameters, batch, dropout key uint32 [2], backend) -> (scalar, scalars by name) of one gradient
        shard, pure.
      settings: how updates are made.

    Raises:
      UserError: the devices are not there, cannot take equal numbers of shards, or the engine has one.
    """
    settings = settings or TrainerSettings()
    if engine() == JAX:
        from multiberts.bert.training.jax_trainer import JaxTrainer

        return JaxTrainer(loss, settings)
    from multiberts.bert.training.tensorflow_trainer import TensorFlowTrainer

    return TensorFlowTrainer(loss, settings)


class ForwardPass:
    """A compiled forward pass over named arrays, reused for every checkpoint of the same sizes.

    Attributes:
      function: what is compiled.
    """

    def __init__(
        self,
        function: Callable[[Mapping[str, Array], Mapping[str, Array]], Named],
        *,
        compile_step: bool = True,
    ):
        """Args:
        function: (parameters, batch) -> arrays by name, pure.
        compile_step: whether XLA compiles it; JAX always does.
        """
        if engine() == JAX:
            from multiberts.bert.training.jax_trainer import forward_pass
        else:
            from multiberts.bert.training.tensorflow_trainer import forward_pass
        self.function = function
        self._put, self._run = forward_pass(function, compile_step)
        self._source: Mapping[str, np.ndarray] | None = None
        self._on_device: Named = {}

    def __call__(self, parameters: Mapping[str, np.ndarray], batch: Batch) -> Arrays:
        """Args:
          parameters: float32 arrays by name; kept on the device while the same dict is given.
          batch: arrays by name.

        Returns:
          Arrays by name.
        """
        if parameters is not self._source:
            self._on_device = self._put(parameters)
            self._source = parameters
        return self._run(self._on_device, batch)
