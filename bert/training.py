"""The training engine: compiled steps over named arrays, and a loop that can be killed anywhere."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import math
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert.optimization import adam_update, clip_by_global_norm, is_decayed
from bert.randomness import hash_bits
from runs.errors import UserError
from runs.files import replaced, write_atomically

Array = Any
Batch = Mapping[str, np.ndarray]
Arrays = dict[str, np.ndarray]
Loss = Callable[[Mapping[str, Array], Mapping[str, Array], Array], tuple[Array, dict[str, Array]]]

# The same sums in the same order on every run: gradients of gathers would otherwise be summed by
# whichever thread comes first.
tf.config.experimental.enable_op_determinism()


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """All that training carries from one step to the next, as float32 arrays by variable name."""

    parameters: Arrays
    m: Arrays
    v: Arrays
    step: int

    def save(self, path: Path) -> None:
        """Writes one `.npz` file, whole or not at all."""
        arrays = {
            f"{part}:{name}": values
            for part in ("parameters", "m", "v")
            for name, values in getattr(self, part).items()
        }
        with replaced(path) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, allow_pickle=False, step=np.int64(self.step), **arrays)

    @classmethod
    def load(cls, path: Path) -> TrainingState:
        """Reads what `save` wrote.

        Raises:
          UserError: the file is damaged (its checksums fail).
        """
        parts: dict[str, Arrays] = {"parameters": {}, "m": {}, "v": {}}
        try:
            with np.load(path, allow_pickle=False) as content:
                step = int(content["step"])
                for key in content.files:
                    part, separator, name = key.partition(":")
                    if separator:
                        parts[part][name] = content[key]
        except (zipfile.BadZipFile, ValueError, KeyError, OSError, EOFError) as error:
            raise UserError(
                f"{path} is damaged ({error}); remove it to resume from an earlier state"
            ) from error
        return cls(parts["parameters"], parts["m"], parts["v"], step)


class Trainer:
    """Turns a state and a batch into the next state, compiled once for each batch shape.

    A batch is cut into `gradient_shards` equal parts. Each part's gradient is clipped to global
    norm 1 by itself, and the clipped gradients are summed, as the original's replicas did: the
    number of shards belongs to the recipe, not to the machine.

    Reference: google-research/bert, `optimization.py`; Sellam et al., 2022, section 2.
    """

    def __init__(
        self,
        loss: Loss,
        *,
        gradient_shards: int = 1,
        weight_decay_rate: float = 0.01,
        compile_step: bool = True,
    ):
        """Args:
        loss: (parameters, batch, dropout key uint32 [2]) -> (scalar, scalars by name), pure.
        gradient_shards: parts of a batch clipped apart.
        weight_decay_rate: for all but layer normalisation and biases.
        compile_step: whether XLA compiles the step (changes speed and last bits only).
        """
        self._loss = loss
        self._gradient_shards = gradient_shards
        self._weight_decay_rate = weight_decay_rate
        self._variables: dict[str, tf.Variable] = {}
        self._m: dict[str, tf.Variable] = {}
        self._v: dict[str, tf.Variable] = {}
        self._step = 0
        self._compile_step = compile_step
        self._update: Callable[..., dict[str, Array]] = self._updated

    @property
    def step_count(self) -> int:
        """Finished updates."""
        return self._step

    def start(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Takes initial weights; moments and step are zero."""
        zeros = {name: np.zeros_like(values) for name, values in parameters.items()}
        self.restore(TrainingState(dict(parameters), zeros, zeros, 0))

    def restore(self, state: TrainingState) -> None:
        """Takes a state. Variables of the same names and shapes are reused: nothing recompiles."""
        shapes = {name: values.shape for name, values in state.parameters.items()}
        known = {name: tuple(variable.shape) for name, variable in self._variables.items()}
        if shapes != known:
            for part in (self._variables, self._m, self._v):
                part.clear()
                part.update(
                    {
                        name: tf.Variable(np.zeros(shapes[name], np.float32))
                        for name in sorted(shapes)
                    }
                )
            # A compiled function holds on to the variables it first met: new ones need a new one.
            self._update = tf.function(
                self._updated, jit_compile=self._compile_step, autograph=False
            )
        for name in shapes:
            self._variables[name].assign(state.parameters[name])
            self._m[name].assign(state.m[name])
            self._v[name].assign(state.v[name])
        self._step = state.step

    def state(self) -> TrainingState:
        """A copy of all that training carries."""
        return TrainingState(
            self.parameters(),
            {name: variable.numpy() for name, variable in self._m.items()},
            {name: variable.numpy() for name, variable in self._v.items()},
            self._step,
        )

    def parameters(self) -> Arrays:
        """A copy of the weights, float32 by name."""
        return {name: variable.numpy() for name, variable in self._variables.items()}

    def step(self, batch: Batch, learning_rate: float, dropout_seed: int) -> dict[str, Array]:
        """One update.

        Args:
          batch: arrays by name, each [batch, ...]; batch a multiple of gradient_shards.
          learning_rate: of this update.
          dropout_seed: with the step and the shard, the address of all dropout bits.

        Returns:
          Scalars by name, means over shards: `loss`, `gradient_norm`, and the loss function's own.
        """
        shards = np.arange(self._gradient_shards, dtype=np.int64)
        bits = np.asarray(hash_bits(dropout_seed, self._step, shards), np.uint64)
        keys = np.stack([bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)], axis=1)
        metrics = self._update(
            {name: tf.convert_to_tensor(values) for name, values in batch.items()},
            tf.constant(learning_rate, tf.float32),
            tf.constant(keys.astype(np.uint32)),
        )
        self._step += 1
        return metrics

    def _updated(
        self, batch: dict[str, Array], learning_rate: Array, keys: Array
    ) -> dict[str, Array]:
        gradients, metrics = self._summed_gradients(batch, keys)
        for name in sorted(self._variables):
            rate = self._weight_decay_rate if is_decayed(name) else 0.0
            parameter, m, v = adam_update(
                self._variables[name],
                gradients[name],
                self._m[name],
                self._v[name],
                learning_rate,
                rate,
            )
            self._variables[name].assign(parameter)
            self._m[name].assign(m)
            self._v[name].assign(v)
        return metrics

    def _summed_gradients(
        self, batch: dict[str, Array], keys: Array
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        count = self._gradient_shards
        if count == 1:
            return self._shard_gradients(batch, keys[0])
        parts = {
            name: tf.reshape(values, (count, values.shape[0] // count, *values.shape[1:]))
            for name, values in batch.items()
        }
        shapes = self._shard_gradients({name: values[0] for name, values in parts.items()}, keys[0])
        total = tf.nest.map_structure(tf.zeros_like, shapes)

        def add(shard: Array, total: Any) -> tuple[Array, Any]:
            part = {name: values[shard] for name, values in parts.items()}
            result = self._shard_gradients(part, keys[shard])
            return shard + 1, tf.nest.map_structure(tf.add, total, result)

        # One shard after the other, in order: memory of one shard, and always the same sum.
        _, (gradients, metrics) = tf.while_loop(
            lambda shard, _: shard < count, add, (tf.constant(0), total)
        )
        return gradients, {name: value / count for name, value in metrics.items()}

    def _shard_gradients(
        self, batch: dict[str, Array], key: Array
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        names = sorted(self._variables)
        with tf.GradientTape() as tape:
            loss, metrics = self._loss(self._variables, batch, key)
        gradients = tape.gradient(
            loss, [self._variables[name] for name in names], unconnected_gradients="zero"
        )
        dense = {
            name: tf.convert_to_tensor(value) for name, value in zip(names, gradients, strict=True)
        }
        clipped, norm = clip_by_global_norm(dense)
        return clipped, {"loss": loss, "gradient_norm": norm, **metrics}


class Predictor:
    """A compiled forward pass over named arrays, reused for every checkpoint of the same sizes."""

    def __init__(
        self,
        function: Callable[[Mapping[str, Array], Mapping[str, Array]], dict[str, Array]],
        *,
        compile_step: bool = True,
    ):
        """Args:
        function: (parameters, batch) -> arrays by name, pure.
        compile_step: whether XLA compiles it.
        """
        self._function = tf.function(function, jit_compile=compile_step, autograph=False)
        self._source: Mapping[str, np.ndarray] | None = None
        self._tensors: dict[str, Array] = {}

    def __call__(self, parameters: Mapping[str, np.ndarray], batch: Batch) -> Arrays:
        """Args:
          parameters: float32 arrays by name; kept on the device while the same dict is given.
          batch: arrays by name.

        Returns:
          Arrays by name.
        """
        if parameters is not self._source:
            self._tensors = {name: tf.constant(values) for name, values in parameters.items()}
            self._source = parameters
        outputs = self._function(
            self._tensors, {name: tf.constant(values) for name, values in batch.items()}
        )
        return {name: values.numpy() for name, values in outputs.items()}


def train(
    trainer: Trainer,
    *,
    directory: Path,
    initial_parameters: Callable[[], Mapping[str, np.ndarray]],
    batch_at: Callable[[int], Batch],
    learning_rate_at: Callable[[int], float],
    num_steps: int,
    dropout_seed: int,
    save_state_every_steps: int,
    log_every_steps: int,
    at_steps: Collection[int] = (),
    on_step: Callable[[int, Trainer], None] | None = None,
    description: str = "training",
) -> None:
    """Trains to `num_steps`, resuming from the last saved state where there is one.

    Killed anywhere and called again it ends in the same bits: batches, learning rates and dropout
    are functions of the step alone. Writes `metrics.jsonl` and `state/` in `directory`.

    Args:
      trainer: the engine.
      directory: of the run.
      initial_parameters: weights at step 0, by name; called only where nothing was saved.
      batch_at: the batch of a step.
      learning_rate_at: the learning rate of a step.
      num_steps: updates in all.
      dropout_seed: of this run.
      save_state_every_steps: how much work a kill may cost.
      log_every_steps: between lines of the log.
      at_steps: numbers of finished updates at which `on_step` is called.
      on_step: gets the number of finished updates and the trainer; must do nothing where its
        result is there already.
      description: of the progress bar.

    Raises:
      FloatingPointError: the loss is not finite, naming the step.
    """
    scheduled = set(at_steps)
    _resume(trainer, directory, initial_parameters)
    log = directory / "metrics.jsonl"
    _cut_log(log, trainer.step_count)
    if on_step and trainer.step_count in scheduled:
        on_step(trainer.step_count, trainer)
    bar = tqdm(
        total=num_steps, initial=trainer.step_count, desc=description, unit="step", disable=None
    )
    with bar, open(log, "a", encoding="utf-8") as handle:
        since, counted = time.perf_counter(), 0
        for step, batch in _ahead(batch_at, trainer.step_count, num_steps):
            metrics = trainer.step(batch, learning_rate_at(step), dropout_seed)
            done, counted = step + 1, counted + 1
            if done % log_every_steps == 0 or done == num_steps or done in scheduled:
                values = _finite(metrics, done)
                if done % log_every_steps == 0 or done == num_steps:
                    elapsed = time.perf_counter() - since
                    line = {
                        "step": done,
                        "learning_rate": learning_rate_at(step),
                        **values,
                        "steps_per_second": round(counted / max(elapsed, 1e-9), 3),
                    }
                    handle.write(json.dumps(line) + "\n")
                    handle.flush()
                    bar.set_postfix(loss=f"{values['loss']:.4f}")
                    since, counted = time.perf_counter(), 0
            bar.update()
            if on_step and done in scheduled:
                on_step(done, trainer)
            if done % save_state_every_steps == 0 and done < num_steps:
                _save_state(trainer, directory)


def _ahead(batch_at: Callable[[int], Batch], first: int, last: int) -> Iterator[tuple[int, Batch]]:
    """Steps and their batches, the next batch made while the present one is trained on."""
    if first >= last:
        return
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(batch_at, first)
        for step in range(first, last):
            batch = future.result()
            if step + 1 < last:
                future = pool.submit(batch_at, step + 1)
            yield step, batch


def _states(directory: Path) -> list[Path]:
    """Saved states, the oldest first."""
    found = (directory / "state").glob("step_*.npz")
    return sorted(found, key=lambda path: int(path.stem.removeprefix("step_")))


def _resume(
    trainer: Trainer, directory: Path, initial_parameters: Callable[[], Mapping[str, np.ndarray]]
) -> None:
    states = _states(directory)
    if states:
        trainer.restore(TrainingState.load(states[-1]))
    else:
        trainer.start(initial_parameters())


def _save_state(trainer: Trainer, directory: Path) -> None:
    """Saves a state and drops those before the last two."""
    trainer.state().save(directory / "state" / f"step_{trainer.step_count}.npz")
    for old in _states(directory)[:-2]:
        old.unlink()


def _cut_log(log: Path, step: int) -> None:
    """Drops lines of steps after the one resumed from: they will be written again."""
    if not log.exists():
        return
    kept = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except json.JSONDecodeError:  # the line being written when the process was killed
            continue
    write_atomically(log, "".join(kept))


def _finite(metrics: Mapping[str, Array], step: int) -> dict[str, float]:
    values = {name: float(value) for name, value in metrics.items()}
    if not all(math.isfinite(value) for value in values.values()):
        raise FloatingPointError(f"at step {step} the training values are not finite: {values}")
    return values
