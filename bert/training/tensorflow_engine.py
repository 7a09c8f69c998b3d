"""The engine in TensorFlow: one update on one or several devices, compiled by XLA."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import tensorflow as tf

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
from multiberts.bert.training.state import Arrays
from multiberts.bert.training.tensorflow_products import COMPILED, squares

# The same sums in the same order on every run: gradients of gathers would otherwise be summed by
# whichever thread comes first.
tf.config.experimental.enable_op_determinism()

# The weights, m and v, each by name.
_Parts = tuple[dict[str, Array], ...]


class TensorFlowStep:
    """One update of weights and moments; see `interface.Step`."""

    def __init__(self, recipe: Recipe, devices: Devices):
        """Args:
        recipe: what an update does.
        devices: that share the work.
        """
        self._loss = recipe.loss
        self._gradient_shards = recipe.gradient_shards
        self._weight_decay_rate = recipe.weight_decay_rate
        self._factor_of = recipe.factor_of
        self.devices = devices
        self._compile_step = recipe.compile_step and devices.compiles
        self._on_processor = self._compile_step and devices.kind == "CPU"
        self._variables: dict[str, tf.Variable] = {}
        self._m: dict[str, tf.Variable] = {}
        self._v: dict[str, tf.Variable] = {}
        self._update: Callable[..., dict[str, Array]] = self._updated
        self._updates: Callable[..., dict[str, Array]] = self._updated_in_turn

    @property
    def several(self) -> Several | None:
        """Returns what makes several updates in one program; None but on one processor, compiled."""
        return self._several if self._on_processor and self.devices.strategy is None else None

    @property
    def machine(self) -> dict[str, object]:
        """Returns what changes the last bits of training besides the recipe."""
        return {
            "compile_step": self._compile_step,
            "threads": tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count(),
            "tensorflow": tf.__version__,
        }

    def place(self, parameters: Arrays, m: Arrays, v: Arrays) -> None:
        """Takes weights and moments. Variables of the same names and shapes are reused."""
        shapes = {name: values.shape for name, values in parameters.items()}
        known = {name: tuple(variable.shape) for name, variable in self._variables.items()}
        if shapes != known:
            for part in (self._variables, self._m, self._v):
                part.clear()
                part.update({name: self._new_variable(shapes[name]) for name in sorted(shapes)})
            # A compiled function holds on to the variables it first met: new ones need a new one.
            self._update = self._new_update()
            self._updates = tf.function(self._updated_in_turn, jit_compile=True, autograph=False)
        for name in shapes:
            self._variables[name].assign(parameters[name])
            self._m[name].assign(m[name])
            self._v[name].assign(v[name])

    def parameters(self) -> Arrays:
        """Returns a copy of the weights."""
        return self._copied(self._variables)

    def moments(self) -> tuple[Arrays, Arrays]:
        """Returns copies of m and v."""
        return self._copied(self._m), self._copied(self._v)

    def has_equal_copies(self) -> bool:
        """Returns whether the devices of this process hold the same bits."""
        strategy = self.devices.strategy
        if strategy is None:
            return True
        copies = [
            [copy.numpy() for copy in strategy.experimental_local_results(variable)]
            for part in (self._variables, self._m, self._v)
            for variable in part.values()
        ]
        return all(np.array_equal(first, other) for first, *others in copies for other in others)

    def __call__(self, arrays: Batch, learning_rate: float | np.ndarray) -> dict[str, Array]:
        """Makes one update; see `interface.Step`."""
        return self._update(self._dealt(arrays), tf.constant(learning_rate, tf.float32))

    def _several(
        self, arrays: Batch, learning_rates: np.ndarray, num_steps: int
    ) -> dict[str, Array]:
        rates = tf.constant(learning_rates, tf.float32)
        return self._updates(self._dealt(arrays), rates, tf.constant(num_steps))

    def _new_variable(self, shape: tuple[int, ...]) -> tf.Variable:
        zeros = np.zeros(shape, np.float32)
        strategy = self.devices.strategy
        if strategy is None:
            return tf.Variable(zeros)
        # Every device assigns its own copy, and all make the same update: so nothing is sent.
        with strategy.scope():
            return tf.Variable(
                zeros,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def _copied(self, variables: Mapping[str, tf.Variable]) -> Arrays:
        strategy = self.devices.strategy
        if strategy is None:
            return {name: variable.numpy() for name, variable in variables.items()}
        return {
            name: strategy.experimental_local_results(variable)[0].numpy()
            for name, variable in variables.items()
        }

    def _dealt(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """Returns the arrays [batch, shards or devices; ...]; with several devices, each device's part."""
        strategy, count = self.devices.strategy, self.devices.count
        if strategy is None:
            return {name: tf.convert_to_tensor(values) for name, values in arrays.items()}

        def part(context: tf.distribute.ValueContext) -> dict[str, Array]:
            number = context.replica_id_in_sync_group
            return {
                name: tf.convert_to_tensor(np.split(np.asarray(values), count)[number])
                for name, values in arrays.items()
            }

        return dict(strategy.experimental_distribute_values_from_function(part))

    def _new_update(self) -> Callable[..., dict[str, Array]]:
        """Compiles the step: (arrays as dealt, learning rate) -> metrics."""
        strategy = self.devices.strategy
        if strategy is None:
            found: Callable[..., dict[str, Array]] = tf.function(
                self._updated, jit_compile=self._compile_step, autograph=False
            )
            return found
        # XLA compiles what a device does by itself, before and after the sum over devices.

        def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
            # Without XLA no function of its own: TensorFlow would rewrite its graph by itself.
            if not self._compile_step:
                return function
            return cast(
                "Callable[..., Any]", tf.function(function, jit_compile=True, autograph=False)
            )

        summed = compiled(self._summed_gradients)
        unclipped, added = compiled(self._unclipped_gradients), compiled(_added_in_order)
        adam = compiled(self._adam)

        def update(dealt: Mapping[str, Array], learning_rate: Array) -> dict[str, Array]:
            batch = dict(dealt)
            keys = batch.pop(DROPOUT_KEYS)
            # Notices travel with the gradients: no message of their own.
            notices = {name: tf.reduce_sum(batch.pop(name)) for name in (NOTICES,) if name in batch}
            values = self._parts()
            context = tf.distribute.get_replica_context()
            if self.devices.kind == "CPU":
                shards = _one_after_the_other(unclipped, values[0], batch, keys)
                gradients, metrics = added(*self._gathered(context, shards))
                notices = {
                    name: context.all_reduce(tf.distribute.ReduceOp.SUM, value)
                    for name, value in notices.items()
                }
            else:
                sums = (*summed(values[0], batch, keys), notices)
                gradients, metrics, notices = context.all_reduce(tf.distribute.ReduceOp.SUM, sums)
            self._assign(adam(values[0], gradients, *values[1:], learning_rate))
            return {**self._mean(metrics), **notices}

        def on_all(dealt: Any, learning_rate: Array) -> dict[str, Array]:
            metrics = strategy.run(update, args=(dealt, learning_rate))
            return {
                name: strategy.experimental_local_results(value)[0]
                for name, value in metrics.items()
            }

        found = tf.function(on_all, autograph=False)
        return found

    def _gathered(self, context: Any, shards: Any) -> Any:
        """Gathers the shards of all devices, in order."""
        return tf.nest.map_structure(
            lambda values: tf.ensure_shape(values, (self._gradient_shards, *values.shape[1:])),
            context.all_gather(shards, axis=0),
        )

    def _updated(self, arrays: Mapping[str, Array], learning_rate: Array) -> dict[str, Array]:
        """Makes the step on one device."""
        values, means = self._new_values(self._parts(), arrays, learning_rate)
        self._assign(values)
        return means

    def _updated_in_turn(
        self, arrays: Mapping[str, Array], learning_rates: Array, num_steps: Array
    ) -> dict[str, Array]:
        """Makes the first steps of a block; as many as a number says, so all blocks share a program."""
        parts = self._parts()
        first = {name: values[0] for name, values in arrays.items()}
        # For the names of the scalars alone: XLA drops what nothing reads.
        names = self._new_values(parts, first, learning_rates[0])[1]
        empty = {name: tf.zeros(learning_rates.shape[:1]) for name in names}

        def update(step: Array, parts: _Parts, scalars: dict[str, Array]) -> Any:
            batch = {name: values[step] for name, values in arrays.items()}
            values, means = self._new_values(parts, batch, learning_rates[step])
            parts = tuple({name: new[n] for name, new in values.items()} for n in range(3))
            scalars = {
                name: tf.tensor_scatter_nd_update(scalars[name], [[step]], [means[name]])
                for name in names
            }
            return step + 1, parts, scalars

        _, parts, scalars = tf.while_loop(
            lambda step, *_: step < num_steps, update, (tf.constant(0), parts, empty)
        )
        self._assign({name: tuple(part[name] for part in parts) for name in parts[0]})
        found: dict[str, Array] = scalars
        return found

    def _parts(self) -> _Parts:
        """Returns the values of the weights, m and v."""
        return tuple(
            {name: tf.convert_to_tensor(part[name]) for name in sorted(part)}
            for part in (self._variables, self._m, self._v)
        )

    def _new_values(
        self, parts: _Parts, arrays: Mapping[str, Array], learning_rate: Array
    ) -> tuple[dict[str, tuple[Array, Array, Array]], dict[str, Array]]:
        """Returns new parameter, m and v by name after an update on one device, and its scalars."""
        batch, (weights, m, v) = dict(arrays), parts
        keys = batch.pop(DROPOUT_KEYS)
        gradients, metrics = self._summed_gradients(weights, batch, keys)
        return self._adam(weights, gradients, m, v, learning_rate), self._mean(metrics)

    def _adam(
        self,
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        m: Mapping[str, Array],
        v: Mapping[str, Array],
        learning_rate: Array,
    ) -> dict[str, tuple[Array, Array, Array]]:
        """Returns new parameter, m and v by name."""
        return adam_updates(
            parameters,
            gradients,
            m,
            v,
            learning_rate,
            self._weight_decay_rate,
            self._factor_of,
        )

    def _assign(self, values: Mapping[str, tuple[Array, Array, Array]]) -> None:
        for name in sorted(values):
            parameter, m, v = values[name]
            self._variables[name].assign(parameter)
            self._m[name].assign(m)
            self._v[name].assign(v)

    def _mean(self, metrics: Mapping[str, Array]) -> dict[str, Array]:
        """Means over shards of sums over shards."""
        count = self._gradient_shards
        return {name: value / count if count > 1 else value for name, value in metrics.items()}

    def _summed_gradients(
        self, parameters: Mapping[str, Array], batch: dict[str, Array], keys: Array
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Sums of the clipped gradients and of the metrics over the shards [keys.shape[0]]."""
        count = keys.shape[0]
        if count == 1:
            return self._shard_gradients(parameters, batch, keys[0])
        parts = _cut(batch, count)
        first = {name: values[0] for name, values in parts.items()}
        shapes = self._shard_gradients(parameters, first, keys[0])
        total = tf.nest.map_structure(tf.zeros_like, shapes)

        def add(shard: Array, total: Any) -> tuple[Array, Any]:
            part = {name: values[shard] for name, values in parts.items()}
            result = self._shard_gradients(parameters, part, keys[shard])
            return shard + 1, tf.nest.map_structure(tf.add, total, result)

        # One shard after the other, in order: memory of one shard, and always the same sum.
        _, sums = tf.while_loop(lambda shard, _: shard < count, add, (tf.constant(0), total))
        found: tuple[dict[str, Array], dict[str, Array]] = sums
        return found

    def _shard_gradients(
        self, parameters: Mapping[str, Array], batch: dict[str, Array], key: Array
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Clipped gradients and metrics of a shard."""
        gradients, metrics, scale = self._unclipped_gradients(parameters, batch, key)
        return {name: gradient * scale for name, gradient in gradients.items()}, metrics

    def _unclipped_gradients(
        self, parameters: Mapping[str, Array], batch: Mapping[str, Array], key: Array
    ) -> tuple[dict[str, Array], dict[str, Array], Array]:
        """Gradients and metrics of a shard, and the factor that clips the gradients."""
        names = sorted(parameters)
        with tf.GradientTape() as tape:
            tape.watch([parameters[name] for name in names])
            with computed_in(Ways(products=COMPILED) if self._on_processor else Ways()):
                loss, metrics = self._loss(parameters, batch, key)
        gradients = tape.gradient(
            loss, [parameters[name] for name in names], unconnected_gradients="zero"
        )
        dense = {
            name: tf.convert_to_tensor(value) for name, value in zip(names, gradients, strict=True)
        }
        scale, norm = clipping_scale(dense, squares if self._on_processor else tf.square)
        return dense, {"loss": loss, "gradient_norm": norm, **metrics}, scale


def _one_after_the_other(
    function: Callable[..., Any],
    parameters: Mapping[str, Array],
    batch: Mapping[str, Array],
    keys: Array,
) -> Any:
    """Returns a function's results for each shard of a device, in its structure: [shards, ...].

    A loop in the memory of one shard, and as on one device also where it holds one alone: so the
    graph of a step that is not compiled is rewritten in the same way.
    """
    parts = _cut(batch, keys.shape[0])
    first = {name: values[0] for name, values in parts.items()}
    shapes = tf.nest.map_structure(
        lambda value: tf.TensorSpec(value.shape, value.dtype),
        function(parameters, first, keys[0]),
    )
    return tf.map_fn(
        lambda shard: function(parameters, *shard),
        (parts, keys),
        parallel_iterations=1,
        fn_output_signature=shapes,
    )


def _cut(batch: Mapping[str, Array], count: int) -> dict[str, Array]:
    """Returns the arrays cut into equal parts, [count, batch / count, ...]."""
    return {
        name: tf.reshape(values, (count, values.shape[0] // count, *values.shape[1:]))
        for name, values in batch.items()
    }


def _added_in_order(
    gradients: Mapping[str, Array], metrics: Mapping[str, Array], scales: Array
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Sums of clipped gradients and of metrics over the shards, the first axis, as on one device.

    There the product of the clipping and the sum stand in one program, which rounds them once where the
    processor can; so they do here.
    """

    def add(shard: Array, total: Any) -> tuple[Array, Any]:
        result = (
            {name: values[shard] * scales[shard] for name, values in gradients.items()},
            {name: values[shard] for name, values in metrics.items()},
        )
        return shard + 1, tf.nest.map_structure(tf.add, total, result)

    total = tf.nest.map_structure(
        lambda values: tf.zeros_like(values[0]), (dict(gradients), dict(metrics))
    )
    count = scales.shape[0]
    _, sums = tf.while_loop(lambda shard, _: shard < count, add, (tf.constant(0), total))
    found: tuple[dict[str, Array], dict[str, Array]] = sums
    return found


class TensorFlowForward:
    """A forward pass; see `interface.Forward`."""

    def __init__(self, function: Function, compile_step: bool):
        """Args:
        function: (parameters, batch) -> arrays by name, pure.
        compile_step: whether XLA compiles it.
        """
        self._function = tf.function(function, jit_compile=compile_step, autograph=False)

    def placed(self, parameters: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """Returns the weights on the device."""
        return {name: tf.constant(values) for name, values in parameters.items()}

    def __call__(self, parameters: Mapping[str, Array], batch: Batch) -> Arrays:
        """Returns the outputs, by name."""
        outputs = self._function(
            parameters, {name: tf.constant(values) for name, values in batch.items()}
        )
        return {name: value.numpy() for name, value in outputs.items()}
