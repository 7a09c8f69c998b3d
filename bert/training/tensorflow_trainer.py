"""Training with TensorFlow: one device, compiled by XLA."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import keras  # noqa: F401 - here, so that it is not first imported within a trace
import numpy as np
import tensorflow as tf

from multiberts.bert.model.backend_ops import PLAIN
from multiberts.bert.training.devices import AUTO, CPU, Devices
from multiberts.bert.training.state import Arrays
from multiberts.bert.training.tensorflow_matmuls import COMPILED_ON_CPU
from multiberts.bert.training.trainer import (
    Array,
    Batch,
    GradientsOf,
    Loss,
    LossOf,
    Named,
    State,
    Sums,
    Trainer,
    TrainerSettings,
    clipped,
)
from multiberts.runs.environment import HIGHEST, matmul_precision
from multiberts.runs.errors import UserError

# The same order of sums on every run: gradients of gathers would otherwise be summed in the order in which
# threads finish.
tf.config.experimental.enable_op_determinism()
if matmul_precision() == HIGHEST:
    tf.config.experimental.enable_tensor_float_32_execution(False)

_EMPTY = np.zeros(0, np.float32)


class TensorFlowTrainer(Trainer):
    """Updates in TensorFlow; see `Trainer`. On a processor, XLA's program may make several."""

    def __init__(self, loss: Loss, settings: TrainerSettings):
        if settings.devices not in (1, AUTO):
            raise UserError(
                f"devices is {settings.devices}, but the engine tensorflow trains on one device; add "
                "--engine=jax, or give 1"
            )
        gpus, kind = tf.config.list_physical_devices("GPU"), CPU
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            kind = str(details.get("device_name", "GPU"))
        is_compiled_on_cpu = settings.compile_step and kind == CPU
        super().__init__(
            loss,
            settings,
            Devices(mesh=None, count=1, kind=kind),
            COMPILED_ON_CPU if is_compiled_on_cpu else PLAIN,
            joins_steps=is_compiled_on_cpu,
        )
        self._state: State = {}, {}, {}  # of tf.Variable
        self._shape_of: dict[str, tuple[int, ...]] = {}

    def _versions(self) -> Mapping[str, object]:
        return {
            "compile_step": self.settings.compile_step,
            "threads": tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count(),
            "tensorflow": tf.__version__,
        }

    def _put(self, state: tuple[Arrays, Arrays, Arrays]) -> None:
        shapes = {name: values.shape for name, values in state[0].items()}
        if shapes and shapes != self._shape_of:
            self._shape_of = shapes
            # Variables of any shape, which the end of a run can empty.
            for part in self._state:
                part.clear()
                for name in sorted(shapes):
                    part[name] = tf.Variable(_EMPTY, shape=tf.TensorShape(None))
            # A compiled function keeps the variables of its first call: new variables need a new function.
            self._compiled = self._compile(self._updated, self.settings.compile_step)
            self._compiled_block = self._compile(self._updated_block, True)
        self._assign(state)

    def _compile(self, updated: Callable[..., Any], compile_step: bool) -> Callable[..., Named]:
        """Compiles (arrays, learning rate, ...) -> scalars, which replaces the state."""

        def update(*arguments: Any) -> Named:
            values = [
                {name: tf.ensure_shape(part[name], self._shape_of[name]) for name in sorted(part)}
                for part in self._state
            ]
            state, scalars = updated(tuple(values), *arguments)
            self._assign(state)
            return dict(scalars)

        compiled: Callable[..., Named] = tf.function(
            update, jit_compile=compile_step, autograph=False
        )
        return compiled

    def _assign(self, state: tuple[Named, Named, Named]) -> None:
        for variables, values in zip(self._state, state, strict=True):
            for name in sorted(variables):
                variables[name].assign(values.get(name, _EMPTY))

    def _fetch(self, part: int) -> Arrays:
        return {name: variable.numpy() for name, variable in self._state[part].items()}

    def _update(self, arrays: Batch, rate: np.ndarray, *num_steps: np.int32) -> Named:
        compiled = self._compiled_block if num_steps else self._compiled
        return compiled(_tensors(arrays), *map(tf.constant, (rate, *num_steps)))

    def _value_and_gradients(self, loss: LossOf, parameters: Named) -> tuple[Array, Named, Named]:
        names = sorted(parameters)
        weights = [parameters[name] for name in names]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value, metrics = loss(parameters)
        gradients = tape.gradient(value, weights, unconnected_gradients="zero")
        # Dense gradients, also of gathers.
        pairs = zip(names, map(tf.convert_to_tensor, gradients), strict=True)
        return value, metrics, dict(pairs)

    def _sum_in_order(
        self, gradients_of: GradientsOf, zeros: Sums, shards: Named, keys: Array
    ) -> Sums:
        def add(number: Array, total: Any) -> tuple[Array, Any]:
            shard = {name: values[number] for name, values in shards.items()}
            part = clipped(*gradients_of(shard, keys[number]))
            return number + 1, tf.nest.map_structure(tf.add, total, part)

        count = keys.shape[0]
        sums: Sums
        _, sums = tf.while_loop(lambda number, _: number < count, add, (tf.constant(0), zeros))
        return sums

    def _shapes(self, function: Callable[..., Named], *arguments: Any) -> Named:
        return function(*arguments)  # XLA removes unused results


def _tensors(arrays: Mapping[str, np.ndarray]) -> Named:
    return {name: tf.convert_to_tensor(values) for name, values in arrays.items()}


def forward_pass(
    function: Callable[..., Named], compile_step: bool
) -> tuple[Callable[..., Named], Callable[..., Named]]:
    """Returns a function that puts arrays on the device, and the compiled pass; see `engine.ForwardPass`."""
    return _tensors, tf.function(function, jit_compile=compile_step, autograph=False)
