"""The engine in JAX.

On accelerators an update is one compiled program, on all devices at once. On CPUs each shard is a
program of its own, then the sum, then Adam: a program for several devices is compiled otherwise than one
for one device (a quotient may become a product with the reciprocal), but the bytes of a run must not
depend on how many devices there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from multiberts.bert.model.optimization import adam_updates, clipping_scale
from multiberts.bert.model.ways import Ways, computed_in
from multiberts.bert.training.devices import Devices
from multiberts.bert.training.interface import (
    DROPOUT_KEYS,
    NOTICES,
    Array,
    Batch,
    Function,
    Recipe,
    Several,
)
from multiberts.bert.training.jax_attention import chosen_core
from multiberts.bert.training.jax_devices import CPU, DATA
from multiberts.bert.training.state import Arrays
from multiberts.runs.environment import attention

_Named = dict[str, Array]
# Weights, m and v by name.
_State = tuple[_Named, _Named, _Named]
# Gradients and metrics by name.
_Sums = tuple[_Named, _Named]
# How the arrays of a step, and those of a block of steps, are dealt to devices.
_DEALT, _BLOCK_DEALT = PartitionSpec(DATA), PartitionSpec(None, DATA)


class JaxStep:
    """One update of weights and moments; see `interface.Step`. JAX always compiles it."""

    def __init__(self, recipe: Recipe, devices: Devices):
        """Args:
        recipe: what an update does.
        devices: that share the work.
        """
        self._recipe = recipe
        self._devices = devices
        self._state: _State = ({}, {}, {})
        self._shard_sums = jax.jit(self._shard_gradients)
        self._add = jax.jit(_added, donate_argnums=0)
        # The old state's memory becomes the new one's.
        self._adam = jax.jit(self._adam_step, donate_argnums=0)
        self._update = self._on_all_devices(self._updated, _DEALT)
        self._updates = self._on_all_devices(self._updated_in_turn, _BLOCK_DEALT)

    def _on_all_devices(self, update: Any, dealt: PartitionSpec) -> Any:
        """Compiles an update of an accelerator, whose second argument is dealt to all of them."""
        whole = PartitionSpec()
        if self._devices.strategy is not None:
            update = jax.shard_map(
                update,
                mesh=self._devices.strategy,
                in_specs=(whole, dealt, whole),
                out_specs=(whole, whole),
                check_vma=False,  # every device makes the same update
            )
        # The same sums in the same order on every run: NVIDIA's GPUs else add as threads come.
        options = {"xla_gpu_deterministic_ops": True} if jax.default_backend() == "gpu" else None
        return jax.jit(update, donate_argnums=0, compiler_options=options)

    @property
    def several(self) -> Several | None:
        """Returns what makes several updates in one program; None on CPUs, where Python costs little."""
        return None if self._devices.kind == CPU else self._several

    @property
    def machine(self) -> dict[str, object]:
        """Returns what changes the last bits of training besides the recipe."""
        found: dict[str, object] = {
            "compile_step": True,
            "threads": os.cpu_count(),
            "jax": jax.__version__,
        }
        return found if self._devices.kind == CPU else {**found, "attention": attention()}

    def place(self, parameters: Arrays, m: Arrays, v: Arrays) -> None:
        """Takes weights and moments."""
        first, second, third = (
            {name: self._placed(part[name], PartitionSpec()) for name in sorted(part)}
            for part in (parameters, m, v)
        )
        self._state = first, second, third

    def parameters(self) -> Arrays:
        """Returns a copy of the weights."""
        return _copied(self._state[0])

    def moments(self) -> tuple[Arrays, Arrays]:
        """Returns copies of m and v."""
        return _copied(self._state[1]), _copied(self._state[2])

    def has_equal_copies(self) -> bool:
        """Returns whether the devices of this process hold the same bits."""
        return all(
            np.array_equal(array.addressable_data(0), other.data)
            for array in jax.tree.leaves(self._state)
            for other in array.addressable_shards
        )

    def __call__(self, arrays: Batch, learning_rate: float | np.ndarray) -> dict[str, Array]:
        """Makes one update; see `interface.Step`."""
        if self._devices.kind == CPU:
            return self._update_by_shards(dict(arrays), np.float32(learning_rate))
        metrics: _Named
        dealt = self._dealt(arrays, _DEALT)
        self._state, metrics = self._update(self._state, dealt, np.float32(learning_rate))
        return metrics

    def lower(self, state: _State, arrays: _Named, learning_rate: Array) -> jax.stages.Lowered:
        """Returns an accelerator's update, not compiled yet, of arguments without values.

        The devices may be descriptions (`jax.experimental.topologies`): compilers need none.

        Args:
          state: `jax.ShapeDtypeStruct` with shardings, as the others are.
          arrays: of the batch, by name.
          learning_rate: of the update.
        """
        lowered: jax.stages.Lowered = self._update.lower(state, arrays, learning_rate)
        return lowered

    def _several(
        self, arrays: Batch, learning_rates: np.ndarray, num_steps: int
    ) -> dict[str, Array]:
        metrics: _Named
        dealt = self._dealt(arrays, _BLOCK_DEALT)
        of_steps = (learning_rates, np.int32(num_steps))
        self._state, metrics = self._updates(self._state, dealt, of_steps)
        return metrics

    def _dealt(self, arrays: Batch, spec: PartitionSpec) -> _Named:
        """Returns the arrays as a program takes them: on one device it fetches them itself."""
        if self._devices.strategy is None:
            return dict(arrays)
        return {name: self._placed(values, spec) for name, values in arrays.items()}

    def _placed(self, values: np.ndarray, spec: PartitionSpec) -> Array:
        if self._devices.strategy is None or self._devices.kind == CPU:
            return jnp.array(values)  # a copy: it may be donated
        sharding = NamedSharding(self._devices.strategy, spec)
        return jax.make_array_from_callback(
            values.shape, sharding, lambda index: np.array(values[index])
        )

    def _update_by_shards(
        self, arrays: dict[str, np.ndarray], learning_rate: np.float32
    ) -> dict[str, Array]:
        """Makes the update on CPUs: each device takes some shards, the first adds all in order."""
        processes, shards = self._devices.processes, self._recipe.gradient_shards
        asked = arrays.pop(NOTICES, None)
        keys = arrays.pop(DROPOUT_KEYS)
        parts = [arrays]
        if shards > 1:
            split = {name: np.split(values, shards) for name, values in arrays.items()}
            parts = [{name: split[name][shard] for name in split} for shard in range(shards)]
        local = jax.local_devices()[: max(1, self._devices.count // processes.count)]
        weights = [jax.device_put(self._state[0], device) for device in local]
        each = shards // processes.count
        first = jax.process_index() * each if processes.count > 1 else 0
        results = [
            self._shard_sums(weights[n * len(local) // each], parts[first + n], keys[first + n])
            for n in range(each)
        ]
        notices = {}
        if asked is not None:
            # Notices travel with the gradients: no message of their own.
            stacked = jax.tree.map(lambda *values: np.stack(values), *results)
            every, asked = multihost_utils.process_allgather((stacked, asked[:1]))
            flat = [values.reshape(-1, *values.shape[2:]) for values in jax.tree.leaves(every)]
            tree = jax.tree.structure(every)
            results = [jax.tree.unflatten(tree, shard) for shard in zip(*flat, strict=True)]
            notices = {NOTICES: asked.sum()}
        total: _Sums = jax.tree.map(jnp.zeros_like, results[0][:2])
        for result in results:
            total = self._add(total, jax.device_put(result, local[0]))
        self._state, means = self._adam(self._state, total, learning_rate)
        return {**means, **notices}

    def _updated(
        self, state: _State, arrays: _Named, learning_rate: Array
    ) -> tuple[_State, _Named]:
        """Makes the update on an accelerator, with the part of the arrays that was dealt to it."""
        batch = dict(arrays)
        keys = batch.pop(DROPOUT_KEYS)
        notices = {name: jnp.sum(batch.pop(name)) for name in (NOTICES,) if name in batch}
        with computed_in(Ways(attention=chosen_core(), labels_compared=True)):
            sums = self._summed(state[0], batch, keys)
        if self._devices.strategy is not None:
            sums, notices = jax.lax.psum((sums, notices), DATA)
        state, means = self._adam_step(state, sums, learning_rate)
        return state, {**means, **notices}

    def _updated_in_turn(
        self, state: _State, arrays: _Named, of_steps: tuple[Array, Array]
    ) -> tuple[_State, _Named]:
        """Makes the first updates of a block; as many as a number says, so all blocks share a program."""
        learning_rates, num_steps = of_steps

        def update(step: Array, carried: tuple[_State, _Named]) -> tuple[_State, _Named]:
            batch = {name: values[step] for name, values in arrays.items()}
            new_state, scalars = self._updated(carried[0], batch, learning_rates[step])
            return new_state, {
                name: values.at[step].set(scalars[name]) for name, values in carried[1].items()
            }

        first = {name: values[0] for name, values in arrays.items()}
        scalars = jax.eval_shape(self._updated, state, first, learning_rates[0])[1]
        empty = {
            name: jnp.zeros(learning_rates.shape[:1], value.dtype)
            for name, value in scalars.items()
        }
        found: tuple[_State, _Named] = jax.lax.fori_loop(0, num_steps, update, (state, empty))
        return found

    def _summed(self, parameters: _Named, batch: _Named, keys: Array) -> _Sums:
        """Sums over the shards [keys.shape[0]] in order, in the memory of one."""
        count = keys.shape[0]
        if count == 1:
            gradients, metrics, scale = self._shard_gradients(parameters, batch, keys[0])
            return {name: gradient * scale for name, gradient in gradients.items()}, metrics
        parts = {
            name: values.reshape(count, values.shape[0] // count, *values.shape[1:])
            for name, values in batch.items()
        }

        def add(total: _Sums, shard: tuple[_Named, Array]) -> tuple[_Sums, None]:
            return _added(total, self._shard_gradients(parameters, *shard)), None

        one = jax.tree.map(lambda values: values[0], (parts, keys))
        shapes = jax.eval_shape(self._shard_gradients, parameters, *one)[:2]
        zeros: _Sums = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return jax.lax.scan(add, zeros, (parts, keys))[0]

    def _shard_gradients(
        self, parameters: _Named, batch: _Named, key: Array
    ) -> tuple[_Named, _Named, Array]:
        """Gradients and metrics of a shard, and the factor that clips the gradients."""
        (loss, metrics), gradients = jax.value_and_grad(self._recipe.loss, has_aux=True)(
            parameters, batch, key
        )
        scale, norm = clipping_scale(gradients)
        return gradients, {"loss": loss, "gradient_norm": norm, **metrics}, scale

    def _adam_step(self, state: _State, sums: _Sums, learning_rate: Array) -> tuple[_State, _Named]:
        """Returns the next state, and the means over shards of the metrics."""
        parameters, m, v = state
        gradients, metrics = sums
        recipe = self._recipe
        new = adam_updates(
            parameters, gradients, m, v, learning_rate, recipe.weight_decay_rate, recipe.factor_of
        )
        first, second, third = ({name: new[name][part] for name in new} for part in range(3))
        means = {name: value / self._recipe.gradient_shards for name, value in metrics.items()}
        return (first, second, third), means


def _added(total: _Sums, shard: tuple[_Named, _Named, Array]) -> _Sums:
    """Adds a shard's gradients, clipped, and its metrics."""
    gradients, metrics, scale = shard
    clipped = {name: gradient * scale for name, gradient in gradients.items()}
    found: _Sums = jax.tree.map(jnp.add, total, (clipped, metrics))
    return found


def _copied(arrays: Mapping[str, Array]) -> Arrays:
    return {name: np.array(array.addressable_data(0)) for name, array in arrays.items()}


class JaxForward:
    """A forward pass; see `interface.Forward`. JAX always compiles it."""

    def __init__(self, function: Function, compile_step: bool):
        """Args:
        function: (parameters, batch) -> arrays by name, pure.
        compile_step: not used.
        """
        del compile_step
        self._function = jax.jit(function)

    def placed(self, parameters: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """Returns the weights on the device."""
        return {name: jnp.asarray(values) for name, values in parameters.items()}

    def __call__(self, parameters: Mapping[str, Array], batch: Batch) -> Arrays:
        """Returns the outputs, by name."""
        outputs = self._function(parameters, dict(batch))
        return {name: np.asarray(value) for name, value in outputs.items()}
