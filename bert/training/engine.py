"""The training engine: compiled steps over named arrays. The loop is `bert.training.loop`.

What is the same on every engine stands here; `tensorflow_engine` and `jax_engine` do the rest, each as
`interface` says. A process computes with one of them: see `runs.environment.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from multiberts.bert.model.optimization import bias_corrections
from multiberts.bert.randomness import hash_bits
from multiberts.bert.training.devices import DeviceChoice, Processes, open_devices
from multiberts.bert.training.interface import (
    DROPOUT_KEYS,
    NOTICES,
    Array,
    Batch,
    Forward,
    Function,
    Loss,
    Recipe,
    Step,
)
from multiberts.bert.training.state import Arrays, TrainingState
from multiberts.runs.allocator import keep_freed_memory
from multiberts.runs.environment import JAX, engine, machine

keep_freed_memory()


def _implementation() -> tuple[type[Step], type[Forward]]:
    if engine() == JAX:
        from multiberts.bert.training.jax_engine import JaxForward, JaxStep

        return JaxStep, JaxForward
    from multiberts.bert.training.tensorflow_engine import TensorFlowForward, TensorFlowStep

    return TensorFlowStep, TensorFlowForward


def _without_frozen(loss: Loss, factor_of: Callable[[str], float]) -> Loss:
    """Returns the loss without gradients of the variables that stay."""
    from keras import ops

    def of_trained(
        parameters: Mapping[str, Array], batch: Mapping[str, Array], dropout_key: Array
    ) -> tuple[Array, dict[str, Array]]:
        held = {
            name: value if factor_of(name) else ops.stop_gradient(value)
            for name, value in parameters.items()
        }
        return loss(held, batch, dropout_key)

    return of_trained


class Trainer:
    """Turns a state and a batch into the next state, compiled once for each batch shape.

    A batch is cut into `gradient_shards` equal parts. Each part's gradient is clipped to global
    norm 1 by itself, and the clipped gradients are summed, as the original's replicas did: the
    number of shards belongs to the recipe, not to the machine. Several devices take equal runs of
    consecutive shards, and every device makes the same update. A shard's dropout is addressed by its
    number in the whole batch. CPUs add the shards one by one in their order, whoever made them, so any
    number of devices ends in the same bytes. Accelerators each sum their own
    shards in order; how these sums are added is left to their collectives.

    Shards are the micro-batches too: one after the other, in the memory of one. A shard is not cut
    further: its loss is divided by its own number of predictions and its gradient clipped as a
    whole, so the mean of its pieces' gradients would be another recipe.

    Reference: google-research/bert, `optimization.py`; Sellam et al., 2022, section 2.

    Attributes:
      devices: that share the work.
      step_count: finished updates.
      steps_per_dispatch: the most updates that `steps` makes; 1 where the engine joins none.
    """

    def __init__(
        self,
        loss: Loss,
        *,
        gradient_shards: int = 1,
        weight_decay_rate: float = 0.01,
        compile_step: bool = True,
        devices: DeviceChoice = 1,
        steps_per_dispatch: int = 1,
        bias_correction: bool = False,
        factor_of: Callable[[str], float] | None = None,
    ):
        """Args:
        loss: (parameters, batch, dropout key uint32 [2]) -> (scalar, scalars by name), pure.
        gradient_shards: parts of a batch clipped apart.
        weight_decay_rate: for all but layer normalisation and biases.
        compile_step: whether XLA compiles the step (changes speed and last bits only); JAX always
          does.
        devices: how many share the work, in all processes; `auto`: all accelerators, or one CPU.
          Where several, make the trainer before anything else of the engine's runs.
        steps_per_dispatch: the most updates that `steps` makes without Python in between; JAX on
          accelerators alone does so.
        bias_correction: whether Adam's moments are corrected for their start at zero.
        factor_of: name -> by what the learning rate of a variable is multiplied; 0 keeps it as it is,
          and out of the gradient's norm. None: one.

        Raises:
          UserError: the devices are not there, or cannot take equal numbers of shards.
        """
        self.step_count = 0
        self.devices = open_devices(devices)
        self.devices.check_shards(gradient_shards)
        self._gradient_shards = gradient_shards
        self._bias_correction = bias_correction
        recipe = Recipe(
            loss=loss if factor_of is None else _without_frozen(loss, factor_of),
            gradient_shards=gradient_shards,
            weight_decay_rate=weight_decay_rate,
            compile_step=compile_step,
            factor_of=factor_of,
        )
        self._step = _implementation()[0](recipe, self.devices)
        self.steps_per_dispatch = steps_per_dispatch if self._step.several else 1

    @property
    def processes(self) -> Processes:
        """Processes that train together; one of them, the chief, writes states and checkpoints."""
        return self.devices.processes

    @property
    def machine(self) -> dict[str, object]:
        """Returns what changes the last bits of training besides the recipe; every state records it."""
        return {
            **machine(),
            "engine": engine(),
            "devices": self.devices.count,
            "device": self.devices.kind,
            "steps_per_dispatch": self.steps_per_dispatch,
            "numpy": np.__version__,
            **self._step.machine,
        }

    def start(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Takes initial weights; moments and step are zero."""
        zeros = {name: np.zeros_like(values) for name, values in parameters.items()}
        self.restore(TrainingState(dict(parameters), zeros, zeros, 0))

    def restore(self, state: TrainingState) -> None:
        """Takes a state, of either engine. Of the same names and shapes, nothing recompiles."""
        self._step.place(state.parameters, state.m, state.v)
        self.step_count = state.step

    def state(self) -> TrainingState:
        """Returns a copy of all that training carries."""
        return TrainingState(
            self.parameters(), *self._step.moments(), self.step_count, self.machine
        )

    def parameters(self) -> Arrays:
        """Returns a copy of the weights, float32 by name."""
        return self._step.parameters()

    def has_equal_copies(self) -> bool:
        """Returns whether all devices of this process hold the same bits."""
        return self._step.has_equal_copies()

    def step(
        self, batch: Batch, learning_rate: float, dropout_seed: int, has_notice: bool = False
    ) -> dict[str, Array]:
        """Makes one update.

        Args:
          batch: arrays by name, each [batch, ...]; batch a multiple of gradient_shards. The whole
            batch in every process.
          learning_rate: of this update.
          dropout_seed: with the step and the shard, the address of all dropout bits.
          has_notice: of several processes: whether this one was asked to stop.

        Returns:
          Scalars by name, means over shards: `loss`, `gradient_norm`, and the loss function's own;
          with several processes also `NOTICES`, above 0 where one of them was asked to stop.
        """
        arrays = {**batch, **self._further(dropout_seed, has_notice, self.step_count)}
        metrics = self._step(arrays, self._rate(learning_rate, self.step_count))
        self.step_count += 1
        return metrics

    def steps(
        self,
        batches: Sequence[Batch],
        learning_rates: Sequence[float],
        dropout_seed: int,
        has_notice: bool = False,
    ) -> dict[str, Array]:
        """Makes an update with each batch, as `step` does, all of them in one program.

        Args:
          batches: 1 to `steps_per_dispatch`, of the same shapes.
          learning_rates: of each update.
          dropout_seed: as `step` takes it.
          has_notice: as `step` takes it.

        Returns:
          As `step`. Where several can be made at once: arrays [steps_per_dispatch], of which the first
          len(batches) count.
        """
        most, several = self.steps_per_dispatch, self._step.several
        if several is None or most == 1:
            (batch,), (learning_rate,) = batches, learning_rates
            return self.step(batch, learning_rate, dropout_seed, has_notice)
        # One program serves all: what is missing to a whole block is not looked at.
        filled = [*batches, *(most - len(batches)) * [batches[-1]]]
        arrays = {name: np.stack([batch[name] for batch in filled]) for name in batches[0]}
        numbers = self.step_count + np.arange(most)
        padded = [*learning_rates, *(most - len(batches)) * [0.0]]
        rates = np.array(list(map(self._rate, padded, numbers.tolist())), np.float32)
        arrays |= self._further(dropout_seed, has_notice, numbers)
        metrics = several(arrays, rates, len(batches))
        self.step_count += len(batches)
        return metrics

    def _rate(self, learning_rate: float, step: int) -> float | np.ndarray:
        """Returns the learning rate as the engine takes it, with the corrections of the moments."""
        if not self._bias_correction:
            return learning_rate
        return np.array([learning_rate, *bias_corrections(step)], np.float32)

    def _further(
        self, dropout_seed: int, has_notice: bool, step: int | np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns what goes to the devices beside a batch: keys, and of several processes notices.

        Args:
          dropout_seed: of the run.
          has_notice: whether this process was asked to stop.
          step: from 0; an array [steps] gives as many of each.
        """
        steps = np.asarray(step, np.int64)
        shards = np.arange(self._gradient_shards, dtype=np.int64)
        bits = np.asarray(hash_bits(dropout_seed, steps[..., None], shards), np.uint64)
        keys = np.stack([bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)], axis=-1)
        further = {DROPOUT_KEYS: keys.astype(np.uint32)}
        if self.processes.count > 1:
            further[NOTICES] = np.full((*steps.shape, self.devices.count), has_notice, np.float32)
        return further


class Predictor:
    """A compiled forward pass over named arrays, reused for every checkpoint of the same sizes."""

    def __init__(
        self,
        function: Function,
        *,
        compile_step: bool = True,
    ):
        """Args:
        function: (parameters, batch) -> arrays by name, pure.
        compile_step: whether XLA compiles it.
        """
        self._forward = _implementation()[1](function, compile_step)
        self._source: Mapping[str, np.ndarray] | None = None
        self._placed: Mapping[str, Array] = {}

    def __call__(self, parameters: Mapping[str, np.ndarray], batch: Batch) -> Arrays:
        """Args:
          parameters: float32 arrays by name; kept on the device while the same dict is given.
          batch: arrays by name.

        Returns:
          Arrays by name.
        """
        if parameters is not self._source:
            self._placed = self._forward.placed(parameters)
            self._source = parameters
        return self._forward(self._placed, batch)
