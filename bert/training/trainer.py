"""One update of the weights, written once for both engines.

`TensorFlowTrainer` and `JaxTrainer` hold the weights and differentiate, compile and run this code.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multiberts.bert.model.array_ops import ops
from multiberts.bert.model.backend_ops import BackendOps
from multiberts.bert.model.optimization import (
    AdamSettings,
    adam_updates,
    bias_corrections,
    clipping_scale,
)
from multiberts.bert.randomness import hash_bits
from multiberts.bert.training.devices import AUTO, DeviceChoice, Devices
from multiberts.bert.training.state import Arrays, DeviceWeights, TrainingState
from multiberts.runs.environment import engine, machine, matmul_precision
from multiberts.runs.errors import UserError

Array = Any
Named = dict[str, Array]
Batch = Mapping[str, np.ndarray]
# (parameters, batch, dropout key uint32 [2], backend) -> (scalar, scalars by name), pure.
Loss = Callable[[Named, Named, Array, BackendOps], tuple[Array, Named]]
# Weights, m and v by name.
State = tuple[Named, Named, Named]
# Gradients and metrics by name.
Sums = tuple[Named, Named]
# Gradients and metrics of a shard by name, and the factor that clips the gradients.
ShardGradients = tuple[Named, Named, Array]
# Functions of a shard: weights by name -> result of `Loss`; (arrays, dropout key) -> gradients.
LossOf = Callable[[Named], tuple[Array, Named]]
GradientsOf = Callable[[Named, Array], ShardGradients]

# Name of the dropout keys among the arrays that are sent to the devices.
DROPOUT_KEYS = "dropout_keys"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerSettings(AdamSettings):
    """Settings of a trainer, the optimiser's among them.

    Attributes:
      gradient_shards: parts of a batch clipped apart.
      compile_step: whether to compile the step with XLA (changes speed and last bits only); JAX always does.
      devices: number of devices; `auto`: with JAX all accelerators, or one CPU. TensorFlow trains on
        one.
      steps_per_dispatch: maximum number of updates in one program, without Python in between.
    """

    gradient_shards: int = 1
    compile_step: bool = True
    devices: DeviceChoice = 1
    steps_per_dispatch: int = 1

    def __post_init__(self) -> None:
        if self.devices != AUTO and (not isinstance(self.devices, int) or self.devices < 1):
            raise UserError(f"devices is {self.devices!r}; give 'auto' or a number from 1")


class Trainer(contextlib.AbstractContextManager["Trainer"]):
    """Turns a state and a batch into the next state, compiled once for each batch shape.

    `with trainer:` spans a run, whose weights are released at its end; see `Trainers`.

    A batch is cut into `gradient_shards` equal parts. Each part's gradient is clipped to global norm 1, and
    the clipped gradients are summed, as on the original's replicas: the number of shards is part of the
    recipe, independent of the machine. Each device takes the same number of consecutive shards, and every
    device computes the same update. Dropout bits depend on the shard's index in the whole batch. CPUs add
    the shards one by one in a fixed order, so the bytes do not depend on the number of devices.
    Accelerators sum their own shards in order, and their collectives add these sums.

    Shards are also the micro-batches: computed one by one in the memory of one; on accelerators a few at a
    time if sequences are short (`jax_trainer.shards_at_once`). A shard cannot be split further: its loss is
    divided by its number of predictions and its gradient is clipped as a whole, so averaging gradients of
    its parts would change the recipe.

    Reference: google-research/bert, `optimization.py`; Sellam et al., 2022, section 2.1.

    Attributes:
      steps_per_dispatch: maximum number of updates per call of `steps`; 1 if the engine joins none.
      engine_errors: exception classes of the engine, for example out of memory.
    """

    engine_errors: tuple[type[Exception], ...] = ()

    def __init__(
        self,
        loss: Loss,
        settings: TrainerSettings,
        devices: Devices,
        backend: BackendOps,
        *,
        joins_steps: bool,
    ):
        """Args:
        backend: operations with a version for this engine.
        joins_steps: whether several updates in one program pay off.
        """
        devices.check_shards(settings.gradient_shards)
        self.settings = settings
        self.devices = devices
        self.step_count = 0
        self.has_updated = False  # the first update compiles
        self.steps_per_dispatch = settings.steps_per_dispatch if joins_steps else 1
        self.give_back: Callable[[], None] = lambda: None  # for `Trainers`
        self._loss = loss
        self._backend = backend

    def __exit__(self, *error: object) -> None:
        self._put(({}, {}, {}))
        self.give_back()

    @property
    def machine(self) -> dict[str, object]:
        """Returns facts of the machine that change the last bits of training; every state records them."""
        return {
            **machine(),
            "engine": engine(),
            "matmul_precision": matmul_precision(),
            "devices": self.devices.count,
            "device": self.devices.kind,
            "steps_per_dispatch": self.steps_per_dispatch,
            "numpy": np.__version__,
            **self._versions(),
        }

    def start(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Sets initial weights; moments and step become zero."""
        zeros = {name: np.zeros_like(values) for name, values in parameters.items()}
        self.restore(TrainingState(dict(parameters), zeros, zeros, 0))

    def restore(self, state: TrainingState) -> None:
        """Sets a state of either engine; equal names and shapes do not trigger recompilation."""
        self._put((state.parameters, state.m, state.v))
        self.step_count = state.step

    def state(self) -> TrainingState:
        parameters, m, v = map(self._fetch, range(3))
        return TrainingState(parameters, m, v, self.step_count, self.machine)

    def parameters(self) -> DeviceWeights:
        """Returns a copy of the weights, float32 by name."""
        return DeviceWeights(self._fetch(0))

    def step(self, batch: Batch, learning_rate: float, dropout_seed: int) -> Named:
        """Makes one update; see `steps`."""
        return self.steps([batch], [learning_rate], dropout_seed)

    def steps(
        self,
        batches: Sequence[Batch],
        learning_rates: Sequence[float],
        dropout_seed: int,
    ) -> Named:
        """Makes one update per batch, all in one program.

        Args:
          batches: 1 to `steps_per_dispatch`, of the same shapes: arrays by name, each [batch, ...]; batch a
            multiple of gradient_shards.
          dropout_seed: seed of the dropout bits, together with step and shard.

        Returns:
          Scalars by name, means over shards, perhaps still being computed: `loss`, `gradient_norm`, and the
          loss function's own. Where `steps_per_dispatch` is above 1: arrays of that length, whose first
          len(batches) values count.
        """
        most, count = self.steps_per_dispatch, len(batches)
        # One program serves all blocks: partial blocks are padded with a batch that is not used.
        numbers = self.step_count + np.arange(most)
        rates: list[Any] = [*learning_rates, *(most - count) * [0.0]]
        if self.settings.bias_correction:
            rates = [
                [rate, *bias_corrections(number, self.settings)]
                for rate, number in zip(rates, numbers.tolist(), strict=True)
            ]
        if most == 1:
            (batch,), (rate,) = batches, rates
            arrays = {**batch, DROPOUT_KEYS: self._dropout_keys(dropout_seed, numbers[0])}
            scalars = self._update(arrays, np.array(rate, np.float32))
        else:
            filled = [*batches, *(most - count) * [batches[-1]]]
            arrays = {name: np.stack([batch[name] for batch in filled]) for name in batches[0]}
            arrays[DROPOUT_KEYS] = self._dropout_keys(dropout_seed, numbers)
            scalars = self._update(arrays, np.array(rates, np.float32), np.int32(count))
        self.step_count += count
        return scalars

    def _dropout_keys(self, dropout_seed: int, step: int | np.ndarray) -> np.ndarray:
        """Returns the keys of a step (from 0), uint32 [shards, 2]; of several [steps, shards, 2]."""
        steps = np.asarray(step, np.int64)
        shards = np.arange(self.settings.gradient_shards, dtype=np.int64)
        bits = np.asarray(hash_bits(dropout_seed, steps[..., None], shards), np.uint64)
        # Two words of 32 bits: JAX has no 64-bit integers by default.
        keys = np.stack([bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)], axis=-1)
        return keys.astype(np.uint32)

    @contextlib.contextmanager
    def report_errors(self) -> Iterator[None]:
        """Reports in one line that an update does not fit the device's memory.

        On TPUs the compiler raises this before the first update; elsewhere the device does.
        """
        try:
            yield
        except self.engine_errors as error:
            too_large = re.search("(RESOURCE_EXHAUSTED|[Oo]ut of memory).*", str(error))
            if too_large is None:
                raise
            raise UserError(
                f"an update does not fit the device's memory ({too_large[0][:200]}); give compute_dtype = "
                "'bfloat16', a smaller batch_size, more gradient_shards (each is clipped apart) or more "
                "devices"
            ) from error

    # --- The update, as pure functions that an engine compiles -----------------------------------

    def _updated(self, state: State, arrays: Named, learning_rate: Array) -> tuple[State, Named]:
        """Returns the next state and the scalars of an update.

        Args:
          arrays: this device's part of the batch, and of `DROPOUT_KEYS`.
          learning_rate: learning rate of this update; [3] with Adam's bias corrections.
        """
        batch = dict(arrays)
        keys = batch.pop(DROPOUT_KEYS)
        sums = self._sum_over_devices(self._summed_gradients(state[0], batch, keys))
        return self._apply_gradients(state, sums, learning_rate)

    def _updated_block(
        self, state: State, arrays: Named, learning_rates: Array, num_steps: Array
    ) -> tuple[State, Named]:
        """Makes the first `num_steps` updates of a block; an input array, so that all blocks share a program.

        Args:
          arrays: arrays of a single update, stacked: [steps, ...].
          learning_rates: [steps, ...].
          num_steps: number of updates, from the first.
        """
        first = {name: values[0] for name, values in arrays.items()}
        key = first.pop(DROPOUT_KEYS)[0]
        types = self._types_of_scalars(state[0], first, key)
        empty = {name: ops.zeros(learning_rates.shape[:1], kind) for name, kind in types.items()}

        def update(step: Array, carried: tuple[State, Named]) -> tuple[State, Named]:
            batch = {name: values[step] for name, values in arrays.items()}
            state, scalars = self._updated(carried[0], batch, learning_rates[step])
            return state, {
                name: ops.scatter_update(values, [[step]], [scalars[name]])
                for name, values in carried[1].items()
            }

        updated: tuple[State, Named] = ops.fori_loop(0, num_steps, update, (state, empty))
        return updated

    def _summed_gradients(self, parameters: Named, batch: Named, keys: Array) -> Sums:
        """Sums the clipped gradients and the metrics over the shards [keys.shape[0]], in their order."""

        def gradients_of(shard: Named, key: Array) -> ShardGradients:
            return self._shard_gradients(parameters, shard, key)

        count = keys.shape[0]
        if count == 1:
            return clipped(*gradients_of(batch, keys[0]))
        shards = {
            name: ops.reshape(values, (count, values.shape[0] // count, *values.shape[1:]))
            for name, values in batch.items()
        }
        first = {name: values[0] for name, values in shards.items()}
        types = self._types_of_scalars(parameters, first, keys[0])
        zeros = (
            {name: ops.zeros(values.shape, values.dtype) for name, values in parameters.items()},
            {name: ops.zeros((), kind) for name, kind in types.items()},
        )
        return self._sum_in_order(gradients_of, zeros, shards, keys)

    def _types_of_scalars(
        self, parameters: Named, batch: Named, dropout_key: Array
    ) -> dict[str, Any]:
        """Returns the types of a shard's scalars by name, from tracing the loss alone, which is fast."""

        def scalars(parameters: Named, batch: Named, dropout_key: Array) -> Named:
            value, metrics = self._loss(parameters, batch, dropout_key, self._backend)
            return {"loss": value, "gradient_norm": value, **metrics}

        shapes = self._shapes(scalars, parameters, batch, dropout_key)
        return {name: shape.dtype for name, shape in shapes.items()}

    def _shard_gradients(
        self, parameters: Named, batch: Named, dropout_key: Array
    ) -> ShardGradients:
        """Returns gradients and metrics of a shard, and the factor that clips the gradients."""
        factor_of = self.settings.factor_of

        def loss(parameters: Named) -> tuple[Array, Named]:
            if factor_of is not None:
                # Frozen variables do not count towards the gradient norm.
                parameters = {
                    name: value if factor_of(name) else ops.stop_gradient(value)
                    for name, value in parameters.items()
                }
            return self._loss(parameters, batch, dropout_key, self._backend)

        value, metrics, gradients = self._value_and_gradients(loss, parameters)
        scale, norm = clipping_scale(gradients, self._backend.square)
        return gradients, {"loss": value, "gradient_norm": norm, **metrics}, scale

    def _apply_gradients(
        self, state: State, sums: Sums, learning_rate: Array
    ) -> tuple[State, Named]:
        """Returns the next state, and the means over shards of the metrics."""
        parameters, m, v = state
        gradients, metrics = sums
        # The sum over shards, not the mean: Adam cancels a common factor, except for epsilon.
        state = adam_updates(parameters, gradients, m, v, learning_rate, self.settings)
        count = self.settings.gradient_shards
        return state, {
            name: value / count if count > 1 else value for name, value in metrics.items()
        }

    # --- What an engine does in its own way ------------------------------------------------------

    @abc.abstractmethod
    def _versions(self) -> Mapping[str, object]:
        """Returns settings and versions of the engine that change the last bits of training."""

    @abc.abstractmethod
    def _put(self, state: tuple[Arrays, Arrays, Arrays]) -> None:
        """Puts weights, m and v on the devices."""

    @abc.abstractmethod
    def _fetch(self, part: int) -> Arrays:
        """Returns a copy of the weights (0), m (1) or v (2)."""

    @abc.abstractmethod
    def _update(self, arrays: Batch, rate: np.ndarray, *num_steps: np.int32) -> Named:
        """Replaces the state by that of `_updated`, or `_updated_block`, compiled; returns the scalars."""

    @abc.abstractmethod
    def _value_and_gradients(self, loss: LossOf, parameters: Named) -> tuple[Array, Named, Named]:
        """Returns a loss, its scalars by name, and its gradients by name."""

    @abc.abstractmethod
    def _sum_in_order(
        self, gradients_of: GradientsOf, zeros: Sums, shards: Named, keys: Array
    ) -> Sums:
        """Sums the outputs of `clipped` over the shards, in order, in the memory of one or a few shards."""

    @abc.abstractmethod
    def _shapes(self, function: Callable[..., Named], *arguments: Any) -> Named:
        """Returns arrays, or descriptions, with the shapes and types of a function's outputs."""

    def _sum_over_devices(self, values: Any) -> Any:
        """Returns the sums over all devices; with one device the values themselves."""
        return values


class Trainers:
    """Trainers of one network. Idle ones keep their compiled programs, not their weights."""

    def __init__(self, make: Callable[[], Trainer]):
        self._make = make
        self._idle: list[Trainer] = []

    def take(self) -> Trainer:
        """Returns a trainer that no other run uses; `with trainer:` gives it back."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        trainer = self._make()
        trainer.give_back = lambda: self._idle.append(trainer)
        return trainer


def clipped(gradients: Named, metrics: Named, scale: Array) -> Sums:
    return {name: gradient * scale for name, gradient in gradients.items()}, metrics
