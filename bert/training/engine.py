"""Trainers and predictors of this process's engine, TensorFlow or JAX; see `runs.environment.engine`.

An engine is imported on first use by a trainer or a forward pass; a few rows are predicted in NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from multiberts.bert.model.array_ops import numpy_arrays
from multiberts.bert.training.state import Arrays, DeviceWeights
from multiberts.bert.training.trainer import Array, Batch, Loss, Named, Trainer, TrainerSettings
from multiberts.runs.console import note_once
from multiberts.runs.environment import JAX, engine, is_engine_open
from multiberts.runs.processes import keep_freed_memory

# Re-exported, so that callers import one module.
__all__ = ["CompileChoice", "ForwardPass", "Loss", "Trainer", "TrainerSettings", "new_trainer"]

CompileChoice = bool | Literal["auto"]

# Multiply-adds by kernels up to which a forward pass in NumPy takes less time than the import of TensorFlow:
# about 1,200 word pieces for BERT-Base, or 32,000 for mini. docs/engines.md has the measurements.
_FEW_PRODUCTS = 10**11

keep_freed_memory()


def new_trainer(loss: Loss, settings: TrainerSettings | None = None) -> Trainer:
    """Returns a trainer of this process's engine; with several devices, before any other use of the engine.

    Args:
      loss: (parameters, batch, dropout key uint32 [2], backend) -> (scalar, scalars by name) of one gradient
        shard, pure.
    """
    settings = settings or TrainerSettings()
    if engine() == JAX:
        from multiberts.bert.training.jax_trainer import JaxTrainer

        return JaxTrainer(loss, settings)
    from multiberts.bert.training.tensorflow_trainer import TensorFlowTrainer

    return TensorFlowTrainer(loss, settings)


class ForwardPass:
    """A forward pass over named arrays, compiled once for every checkpoint of the same sizes.

    Attributes:
      is_compiled: whether each batch shape is compiled, so that few shapes beat small shapes.
    """

    is_compiled = True

    def __init__(
        self,
        function: Callable[[Mapping[str, Array], Mapping[str, Array]], Named],
        *,
        compile_step: CompileChoice = True,
    ):
        """Args:
        function: (parameters, batch) -> arrays by name, pure.
        compile_step: whether XLA compiles the pass; JAX always does. `auto`: XLA compiles it unless
          `suited_to` chooses NumPy.
        """
        self.function = function
        self._compile_step = compile_step

    def suited_to(self, parameters: Mapping[str, np.ndarray], num_rows: int) -> ForwardPass:
        """Returns the faster pass for this number of rows: this one or a NumPy one.

        The NumPy pass if there is little to compute, `compile_step` is `auto`, and `is_engine_open()`.

        Args:
          num_rows: rows of the matrix products, such as word pieces.
        """
        weights = sum(array.size for name, array in parameters.items() if name.endswith("kernel"))
        is_little = num_rows * weights <= _FEW_PRODUCTS
        if self._compile_step != "auto" or not is_little or not is_engine_open():
            return self
        note_once("NumPy computes these few rows, up to rounding as --engine=tensorflow does")
        return _NumpyPass(self.function)

    def __call__(self, parameters: Mapping[str, np.ndarray], batch: Batch) -> Arrays:
        """Args:
          parameters: float32 arrays by name; `DeviceWeights` are copied to the device once, others each time.

        Returns:
          Arrays by name.
        """
        put, compiled = self._compiled
        kept = parameters if isinstance(parameters, DeviceWeights) else DeviceWeights(parameters)
        outputs = compiled(kept.on_device(put), put(batch))
        return {name: np.asarray(value) for name, value in outputs.items()}

    @functools.cached_property
    def _compiled(self) -> tuple[Callable[..., Named], Callable[..., Named]]:
        if engine() == JAX:
            from multiberts.bert.training.jax_trainer import forward_pass
        else:
            from multiberts.bert.training.tensorflow_trainer import forward_pass
        return forward_pass(self.function, bool(self._compile_step))


class _NumpyPass(ForwardPass):
    """A forward pass in NumPy: slower per row than a compiled one, but without start-up time."""

    is_compiled = False

    def __call__(self, parameters: Mapping[str, np.ndarray], batch: Batch) -> Arrays:
        with numpy_arrays():
            return self.function(parameters, batch)
