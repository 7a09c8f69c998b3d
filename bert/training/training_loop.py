"""The training loop. Killed at any point, it resumes and ends in the same bits."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from multiberts.bert.training.devices import CPU
from multiberts.bert.training.log import METRICS, TrainingLog, refused_writes, tail_of_metrics
from multiberts.bert.training.state import STATE, StateWriter, TrainingState, load_newest_state
from multiberts.bert.training.trainer import Array, Batch, Trainer
from multiberts.runs import console
from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import MAINTENANCE, PreemptedError

_Batch = TypeVar("_Batch")


class DivergedError(UserError):
    """Training diverged to values that are not finite; earlier saved states are valid."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """The steps of a run, as functions of the step alone.

    Attributes:
      initial_parameters: function that returns weights at step 0, by name; called only without a saved state.
      batches_at: returns the batches of consecutive steps, from 0.
      learning_rate_at: returns the learning rate of a step, from 0.
      batch_threads: threads that make batches ahead of the device.
      steps_per_job: minimum number of steps per job of a thread; see `batches_ahead`.
    """

    num_steps: int
    initial_parameters: Callable[[], Mapping[str, np.ndarray]]
    batches_at: Callable[[range], Sequence[Batch]]
    learning_rate_at: Callable[[int], float]
    dropout_seed: int
    batch_threads: int = 1
    steps_per_job: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saving:
    """The files that a training run writes while it runs, and when.

    Attributes:
      directory: folder of the run, for `metrics.jsonl` and `state/`.
      save_state_every_steps: steps between states, at most lost by a kill.
      save_state_every_seconds: seconds between states, in addition; None: steps only.
      tensorboard: whether to also write TensorBoard's `tensorboard/`.
    """

    directory: Path
    save_state_every_steps: int
    log_every_steps: int
    save_state_every_seconds: float | None = None
    tensorboard: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions that the loop calls between steps.

    Attributes:
      at_steps: numbers of finished updates at which `on_step` is called.
      on_step: takes the number of finished updates and the trainer; returns numbers for the log, or
        None. A resumed run may call it again for the same step, with the same weights.
      describe_batch: describes the batch of a step (from 0), for the message about divergence.
      speed_at: returns further numbers for the log, such as sequences per second, from the updates
        per second.
      should_stop: called before the first step and after each; if true, the loop saves and stops.
      has_ended: called before the first step and after each call of `on_step`; if true, training ends as
        after the last step.
    """

    at_steps: Collection[int] = ()
    on_step: Callable[[int, Trainer], Mapping[str, float] | None] | None = None
    describe_batch: Callable[[int], str] | None = None
    speed_at: Callable[[float], Mapping[str, float]] | None = None
    should_stop: Callable[[], bool] = lambda: False
    has_ended: Callable[[], bool] = lambda: False


def train(
    trainer: Trainer,
    schedule: Schedule,
    saving: Saving,
    callbacks: Callbacks,
    *,
    description: str = "training",
) -> None:
    """Trains to `schedule.num_steps`, resuming from the last saved state if any.

    Killed at any point and called again it ends in the same bits, because batches, learning rates and
    dropout are functions of the step alone. A state is copied between two steps and written in the
    background; the loop returns after the last write.
    """
    directory, num_steps, on_step = saving.directory, schedule.num_steps, callbacks.on_step
    scheduled = set(callbacks.at_steps)

    # --- Resume from the newest state, or begin -----------------------------------------------------

    with refused_writes(directory / STATE):  # before the first step, so that an error loses no work
        (directory / STATE).mkdir(parents=True, exist_ok=True)
    with trainer.report_errors():
        _resume(trainer, directory, schedule.initial_parameters)

    # --- Open the output files, which are always closed at the end -----------------------------------

    with (
        ProgressBar(
            total=num_steps, initial=trainer.step_count, desc=description, unit="step"
        ) as bar,
        trainer.report_errors(),
        TrainingLog(directory, trainer.step_count, tensorboard=saving.tensorboard) as log,
        StateWriter(directory) as writer,
    ):
        # --- Before the first step ------------------------------------------------------------------

        if on_step and trainer.step_count == 0 and 0 in scheduled:
            log.write(0, on_step(0, trainer))
        if callbacks.should_stop():
            raise _preempted(trainer.step_count, num_steps)
        if callbacks.has_ended():
            return
        blocks = _blocks(
            trainer.step_count,
            num_steps,
            trainer.steps_per_dispatch,
            (saving.save_state_every_steps, saving.log_every_steps),
            scheduled,
        )
        watch = _Watch(callbacks.describe_batch)
        clock = _Clock()
        saved_at = time.monotonic()

        for steps, batches in batches_ahead(
            schedule.batches_at, blocks, schedule.batch_threads, schedule.steps_per_job
        ):
            # --- Update: the device may still compute when `trainer.steps` returns ------------------

            # Checked before the update: if a state cannot be written, later steps would be lost at the next
            # stop.
            writer.check()
            rates = [schedule.learning_rate_at(step) for step in steps]
            metrics = _update(trainer, bar, batches, rates, schedule.dropout_seed)
            done = steps.stop
            clock.count(len(steps))
            bar.update(len(steps))

            # --- Find what is due after these steps -------------------------------------------------

            # A notice to stop after the last step is ignored, so that the run finishes.
            is_stopped = callbacks.should_stop() and done < num_steps
            is_announced = MAINTENANCE.acquire(blocking=False) and done < num_steps
            watch.add(steps, metrics)
            is_logged = done % saving.log_every_steps == 0 or done == num_steps
            is_scheduled = done in scheduled
            is_saved = done < num_steps and (
                is_stopped
                or is_announced
                or done % saving.save_state_every_steps == 0
                or (
                    saving.save_state_every_seconds is not None
                    and time.monotonic() - saved_at >= saving.save_state_every_seconds
                )
            )
            if not (is_logged or is_scheduled or is_saved):
                continue

            # --- Check and log: waits for the device ------------------------------------------------

            # Checked before writing, so that no log line, checkpoint or state has values that are not
            # finite.
            values = watch.check()
            clock.pause()
            if is_logged:
                speed = clock.steps_per_second()
                further = dict(callbacks.speed_at(speed)) if callbacks.speed_at else {}
                line = {"learning_rate": rates[-1], **values}
                log.write(done, {**line, "steps_per_second": round(speed, 3), **further})
                bar.set_postfix_str(_status(done, values["loss"], further), refresh=False)
                clock.restart()

            # --- Evaluate and keep a checkpoint -----------------------------------------------------

            if on_step and is_scheduled:
                log.write(done, on_step(done, trainer))

            # --- Save the state in a thread during the next steps -----------------------------------

            if is_saved:
                writer.wait()  # waits before the next copy: memory has room for one
                writer.save(trainer.state())
                saved_at = time.monotonic()
                if is_announced:
                    console.progress(
                        f"maintenance of this machine is announced: the state is saved at step {done}"
                    )

            # --- Stop early -------------------------------------------------------------------------

            if is_stopped:
                writer.wait()
                raise _preempted(done, num_steps)
            if is_scheduled and callbacks.has_ended():
                return
            clock.resume()


def _update(trainer: Trainer, bar: ProgressBar, *arguments: Any) -> dict[str, Array]:
    """Makes updates; the bar reports that a trainer's first update compiles, which may take minutes."""
    if trainer.has_updated:
        return trainer.steps(*arguments)
    bar.set_postfix_str("compiling")
    metrics = trainer.steps(*arguments)
    trainer.has_updated = True
    bar.set_postfix_str("", refresh=False)
    return metrics


class _Clock:
    """Updates per second, without the time spent on checkpoints and evaluation."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._steps, self._seconds, self._since = 0, 0.0, time.perf_counter()

    def count(self, steps: int) -> None:
        self._steps += steps

    def pause(self) -> None:
        self._seconds += time.perf_counter() - self._since

    def resume(self) -> None:
        self._since = time.perf_counter()

    def steps_per_second(self) -> float:
        return self._steps / max(self._seconds, 1e-9)


class _Watch:
    """Checks the values of every step, many steps at once, because reading values waits for the device."""

    def __init__(self, describe_batch: Callable[[int], str] | None):
        self._describe_batch = describe_batch
        self._pending: list[tuple[range, Mapping[str, Array]]] = []

    def add(self, steps: range, metrics: Mapping[str, Array]) -> None:
        self._pending.append((steps, metrics))

    def check(self) -> dict[str, float]:
        """Checks all steps since the last check.

        Returns:
          The values of the last one.
        """
        pending, self._pending = self._pending, []
        for step, values in (pair for block in pending for pair in _values_by_step(*block)):
            if not all(math.isfinite(value) for value in values.values()):
                shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
                batch = (
                    f"; its batch: {self._describe_batch(step - 1)}" if self._describe_batch else ""
                )
                raise DivergedError(
                    f"step {step}: training is not finite ({shown}); states and checkpoints before it are "
                    f"kept: look at the batch and change learning_rate{batch}"
                )
        return values


def _values_by_step(
    steps: range, metrics: Mapping[str, Array]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields each update's number, from 1, and its scalars; waits for the device once."""
    columns = {name: np.ravel(np.asarray(values)).tolist() for name, values in metrics.items()}
    for index, step in enumerate(steps):
        yield step + 1, {name: values[index] for name, values in columns.items()}


def _blocks(
    first: int, last: int, most: int, every: Collection[int], scheduled: Collection[int]
) -> Iterator[range]:
    """Yields blocks of steps to dispatch together; logging, saving or evaluation is due only after a block.

    Blocks depend only on the steps, so a resumed run has the same blocks as an uninterrupted one.

    Args:
      first: the first step, from 0.
      most: maximum steps of a block; blocks end at multiples of it.
      every: block ends at multiples of these.
      scheduled: block ends at these numbers of finished updates.

    Examples:
      >>> [list(block) for block in _blocks(2, 9, 4, [100], [5])]
      [[2, 3], [4], [5, 6, 7], [8]]
    """
    while first < last:
        ends = (first + 1 + n for n in range(last - first))
        end = next(
            end
            for end in ends
            if end == last
            or end in scheduled
            or any(end % number == 0 for number in (most, *every))
        )
        yield range(first, end)
        first = end


def batches_ahead(
    batches_at: Callable[[range], Sequence[_Batch]],
    blocks: Iterator[range],
    threads: int,
    steps_per_job: int = 1,
) -> Iterator[tuple[range, Sequence[_Batch]]]:
    """Yields blocks of steps and their batches, while threads make the next batches.

    Args:
      blocks: consecutive steps, from 0.
      steps_per_job: minimum number of steps whose batches a thread makes in one job. Threads wait for each
        other between NumPy operations (the GIL), so only large jobs benefit from threads.

    Examples:
      >>> blocks = iter([range(2), range(2, 3)])
      >>> list(batches_ahead(lambda steps: [{"step": step} for step in steps], blocks, threads=2))
      [(range(0, 2), [{'step': 0}, {'step': 1}]), (range(2, 3), [{'step': 2}])]
    """
    jobs: collections.deque[tuple[list[range], concurrent.futures.Future[Sequence[_Batch]]]]
    jobs = collections.deque()

    def begin_job() -> None:
        job: list[range] = []
        for block in blocks:
            job.append(block)
            if block.stop - job[0].start >= steps_per_job:
                break
        if job:
            jobs.append((job, pool.submit(batches_at, range(job[0].start, job[-1].stop))))

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(threads):
            begin_job()
        while jobs:
            job, pending = jobs.popleft()
            batches = pending.result()
            begin_job()
            for steps in job:
                yield steps, batches[steps.start - job[0].start : steps.stop - job[0].start]


def _resume(
    trainer: Trainer, directory: Path, initial_parameters: Callable[[], Mapping[str, np.ndarray]]
) -> None:
    """Restores the newest saved state, or starts from the initial parameters."""
    state = load_newest_state(directory)
    if state is not None:
        _report_another_machine(state, trainer.machine)
        trainer.restore(state)
    else:
        last = tail_of_metrics(directory / METRICS)[-1:]
        if last and last[0]["step"]:
            # If somebody removed the folder of states, the run looks as if it had not started.
            console.progress(
                f"note: {directory / METRICS} has step {last[0]['step']}, but no state is saved: training "
                "starts again from step 0"
            )
        trainer.start(initial_parameters())


def _report_another_machine(state: TrainingState, machine: Mapping[str, object]) -> None:
    """Warns if a state was trained on another machine than the one that resumes."""
    names = state.machine.keys() & machine.keys()
    if state.machine.get("device") == machine.get("device") == CPU:
        names -= {"devices"}  # any number of CPU devices gives the same bytes
    differences = [
        f"{name} {state.machine[name]}, now {machine[name]}"
        for name in sorted(names)
        if state.machine[name] != machine[name]
    ]
    if differences:
        console.progress(
            f"warning: the state at step {state.step} was trained with {'; '.join(differences)}: the "
            "last bits of the weights will not be those of a run on one machine"
        )


def _status(step: int, loss: float, further: Mapping[str, float]) -> str:
    """Returns the text after the progress bar: a step's loss, and speeds once measured."""
    parts = [f"step {step}: loss {loss:.4f}"]
    if "sequences_per_second" in further:
        parts.append(f"{further['sequences_per_second']:.1f} sequences/s")
    if "mfu" in further:
        parts.append(f"MFU {further['mfu']:.1%}")
    return ", ".join(parts)


def _preempted(step: int, num_steps: int) -> PreemptedError:
    return PreemptedError(
        f"asked to stop: saved at step {step} of {num_steps}; the same command resumes there"
    )
