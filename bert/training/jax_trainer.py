"""Training with JAX, on one or several devices.

On accelerators an update is one compiled program, on all devices at once. On CPUs each shard is a
program of its own, then the sum, then Adam: a program for several devices is compiled otherwise than one
for one device (a quotient may become a product with the reciprocal), but the bytes of a run must not
depend on how many devices there are.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras  # noqa: F401 - here, so that it is not first imported within a trace
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from multiberts.bert.model.backend_ops import PLAIN
from multiberts.bert.training.devices import CPU, Devices
from multiberts.bert.training.jax_backend_ops import accelerated
from multiberts.bert.training.jax_devices import DATA, known_devices, open_devices
from multiberts.bert.training.state import Arrays
from multiberts.bert.training.trainer import (
    DROPOUT_KEYS,
    Array,
    Batch,
    GradientsOf,
    Loss,
    LossOf,
    Named,
    ShardGradients,
    State,
    Sums,
    Trainer,
    TrainerSettings,
    clipped,
)
from multiberts.runs.environment import HIGHEST, attention, matmul_precision

if matmul_precision() == HIGHEST:
    jax.config.update("jax_default_matmul_precision", HIGHEST)

# How arrays of a step, and of a block of steps, are divided among devices.
_WHOLE, _SHARDED, _SHARDED_BLOCK = (
    PartitionSpec(), PartitionSpec(DATA), PartitionSpec(None, DATA)
)  # fmt: skip

# The longest sequences whose shards an accelerator computes at once, and the most of them.
SHORT, SHARDS_AT_ONCE = 128, 4

# Compiler options on NVIDIA GPUs, which otherwise add as threads finish: the same order of sums on every run.
GPU_OPTIONS = {"xla_gpu_deterministic_ops": True}


class JaxTrainer(Trainer):
    """Updates in JAX, which always compiles them; see `Trainer`."""

    engine_errors = (jax.errors.JaxRuntimeError,)

    def __init__(self, loss: Loss, settings: TrainerSettings, devices: Devices | None = None):
        """Args:
        devices: device descriptions, to compile programs without running them; None: the devices of
          `settings`.
        """
        devices = devices or open_devices(settings.devices)
        self._on_cpu = devices.kind == CPU
        super().__init__(
            loss,
            settings,
            devices,
            PLAIN if self._on_cpu else accelerated(),
            joins_steps=not self._on_cpu,  # on CPUs Python's overhead is small
        )
        self._state: State = ({}, {}, {})
        self._compiled_shard = jax.jit(self._shard_gradients)
        self._compiled_add = jax.jit(_add_clipped, donate_argnums=0)
        # The old state's memory becomes the new one's.
        self._compiled_apply = jax.jit(self._apply_gradients, donate_argnums=0)
        self._compiled = self._compile(self._updated, _SHARDED, _WHOLE)
        self._compiled_block = self._compile(self._updated_block, _SHARDED_BLOCK, _WHOLE, _WHOLE)

    def _compile(self, update: Any, *specs: PartitionSpec) -> Any:
        """Compiles an update for accelerators: every device runs it on its part of the divided arrays.

        Args:
          update: function of a state and further arguments.
        """
        if self.devices.mesh is not None:
            update = jax.shard_map(
                update,
                mesh=self.devices.mesh,
                in_specs=(_WHOLE, *specs),
                out_specs=(_WHOLE, _WHOLE),
                check_vma=False,  # every device computes the same update
            )
        options = GPU_OPTIONS if jax.default_backend() == "gpu" else None
        return jax.jit(update, donate_argnums=0, compiler_options=options)

    def lower(self, state: State, arrays: Named, learning_rate: Array) -> jax.stages.Lowered:
        """Returns an accelerator's update, lowered but not compiled, for arguments without values.

        The devices may be descriptions (`jax.experimental.topologies`): compilers need none.

        Args:
          state: `jax.ShapeDtypeStruct` with shardings, like the other arguments.
          arrays: {name: array of the batch}.
        """
        lowered: jax.stages.Lowered = self._compiled.lower(state, arrays, learning_rate)
        return lowered

    def _versions(self) -> Mapping[str, object]:
        versions = {"compile_step": True, "threads": os.cpu_count(), "jax": jax.__version__}
        return versions if self._on_cpu else {**versions, "attention": attention()}

    def _put(self, state: tuple[Arrays, Arrays, Arrays]) -> None:
        first, second, third = (
            {name: self._device_put(part[name], _WHOLE) for name in sorted(part)} for part in state
        )
        self._state = first, second, third

    def _fetch(self, part: int) -> Arrays:
        return {
            name: np.array(array.addressable_data(0)) for name, array in self._state[part].items()
        }

    def _device_put(self, values: np.ndarray, spec: PartitionSpec) -> Array:
        if self.devices.mesh is None or self._on_cpu:
            return jnp.array(values)  # a copy: it may be donated
        sharding = NamedSharding(self.devices.mesh, spec)
        return jax.make_array_from_callback(
            values.shape, sharding, lambda index: np.array(values[index])
        )

    def _sharded(self, arrays: Batch, spec: PartitionSpec) -> Named:
        """Returns sharded arrays; with one device unchanged, since the program copies them."""
        if self.devices.mesh is None:
            return dict(arrays)
        return {name: self._device_put(values, spec) for name, values in arrays.items()}

    def _update(self, arrays: Batch, rate: np.ndarray, *num_steps: np.int32) -> Named:
        scalars: Named
        if self._on_cpu:
            return self._update_by_shards(dict(arrays), rate)
        compiled = self._compiled_block if num_steps else self._compiled
        sharded = self._sharded(arrays, _SHARDED_BLOCK if num_steps else _SHARDED)
        self._state, scalars = compiled(self._state, sharded, rate, *num_steps)
        return scalars

    def _update_by_shards(self, arrays: dict[str, np.ndarray], learning_rate: np.ndarray) -> Named:
        """Computes the update on CPUs: each device takes some shards, and the first one adds all in order."""
        shards = self.settings.gradient_shards
        keys = arrays.pop(DROPOUT_KEYS)
        parts = [arrays]
        if shards > 1:
            split = {name: np.split(values, shards) for name, values in arrays.items()}
            parts = [{name: split[name][shard] for name in split} for shard in range(shards)]
        devices = jax.devices()[: self.devices.count]
        weights = [jax.device_put(self._state[0], device) for device in devices]
        results = [
            # Each device takes consecutive shards, as on accelerators.
            self._compiled_shard(weights[n * len(devices) // shards], parts[n], keys[n])
            for n in range(shards)
        ]
        # One after the other, on one device: float32 sums depend on the order, and a run's bytes must not
        # depend on the number of devices.
        total: Sums = jax.tree.map(jnp.zeros_like, results[0][:2])
        for result in results:
            total = self._compiled_add(total, jax.device_put(result, devices[0]))
        self._state, means = self._compiled_apply(self._state, total, learning_rate)
        return dict(means)

    def _value_and_gradients(self, loss: LossOf, parameters: Named) -> tuple[Array, Named, Named]:
        (value, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        return value, metrics, gradients

    def _sum_in_order(
        self, gradients_of: GradientsOf, zeros: Sums, shards: Named, keys: Array
    ) -> Sums:
        at_once = shards_at_once(keys.shape[0], shards["input_ids"].shape[-1])

        def add(total: Sums, part: tuple[Named, Array]) -> tuple[Sums, None]:
            if at_once == 1:
                return _add_clipped(total, gradients_of(*part)), None
            gradients = jax.vmap(gradients_of)(*part)
            # Clipped while adding: scaling all of them at once would need another copy.
            for number in range(at_once):
                total = _add_clipped(total, jax.tree.map(operator.itemgetter(number), gradients))
            return total, None

        parts = (shards, keys)
        if at_once > 1:
            parts = jax.tree.map(
                lambda values: values.reshape(-1, at_once, *values.shape[1:]), parts
            )
        return jax.lax.scan(add, zeros, parts)[0]

    def _sum_over_devices(self, values: Any) -> Any:
        return values if self.devices.mesh is None else jax.lax.psum(values, DATA)

    def _shapes(self, function: Callable[..., Named], *arguments: Any) -> Named:
        shapes: Named = jax.eval_shape(function, *arguments)
        return shapes


def shards_at_once(count: int, length: int) -> int:
    """Returns how many shards an accelerator computes at once, as one batch axis.

    Shards of short sequences are small: at 128 a step of BERT-Base takes 0.74 of the cycles so, by the
    compiler for v5e, and 0.27 of the kernels for H200. A gradient of each is kept until all are clipped,
    so there are at most four. At 512 one shard has enough to do (docs/engines.md).
    """
    return math.gcd(count, SHARDS_AT_ONCE) if length <= SHORT else 1


def _add_clipped(total: Sums, shard: ShardGradients) -> Sums:
    added: Sums = jax.tree.map(jnp.add, total, clipped(*shard))
    return added


def forward_pass(
    function: Callable[..., Named], compile_step: bool
) -> tuple[Callable[..., Named], Callable[..., Named]]:
    """Returns a function that puts arrays on the device, and the compiled pass; see `engine.ForwardPass`."""
    del compile_step  # JAX always does
    known_devices()  # says so where none is

    def on_device(arrays: Batch) -> Named:
        return {name: jnp.asarray(values) for name, values in arrays.items()}

    return on_device, jax.jit(function)
