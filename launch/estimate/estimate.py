"""Estimates hours, dollars and disk of a plan before it starts.

From each run's operations (`work`) and dated figures of devices (`prices`), or from the times of runs of the
same shape in this experiment (`measured`).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multiberts.launch.estimate.accelerators import ask_driver, visible_gpus
from multiberts.launch.estimate.measured import Measurements, measure
from multiberts.launch.estimate.prices import Device, Prices, load_prices
from multiberts.launch.estimate.work import (
    Work,
    finetuned_model,
    finetuning_work,
    pretrained_model,
    pretraining_work,
    shape_of,
)
from multiberts.launch.markers.attempts import Attempt, attempts_of
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import done_paths
from multiberts.runs.processes import available_cores

# Only these stages run on the device, the others on the launcher's machine.
DEVICE_STAGES = frozenset({"pretrain", "finetune"})
_MEASURED_STAGES = {"make_world", "prepare", "finetune", "score", "report", "paper"}

# Size in bytes assumed for a source that does not exist yet, such as a world's text.
BYTES_OF_UNSEEN_SOURCE = 2e6


@dataclass(frozen=True)
class RunEstimate:
    """The rest of one run.

    Attributes:
      measured: whether the time was measured rather than assumed.
      assumed: the assumptions about the run, in words.
    """

    device: str
    seconds: float
    dollars: float
    bytes: float
    measured: bool
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanEstimate:
    """The rest of a plan.

    Attributes:
      runs: estimates of the unfinished runs, by path.
      device: device of pre-training and usually of fine-tuning.
      workers: number of these runs at a time, each on its own device.
      host: device of the other runs.
      longest_chain: seconds of the longest chain of runs that wait for each other.
      spot: whether prices are of spot capacity.
    """

    runs: Mapping[str, RunEstimate]
    device: Device
    workers: int
    host: Device
    longest_chain: float
    spot: bool

    @property
    def device_hours(self) -> float:
        return sum(run.seconds for run in self.runs.values()) / 3600

    @property
    def least_seconds(self) -> float:
        """A lower bound in seconds: all workers always busy, or the longest chain."""
        shared = [run.seconds for run in self.runs.values() if run.device == self.device.name]
        return max(sum(shared) / self.workers, self.longest_chain)

    @property
    def dollars(self) -> float:
        return sum(run.dollars for run in self.runs.values())

    @property
    def bytes(self) -> float:
        return sum(run.bytes for run in self.runs.values())


def refuse_above(estimate: PlanEstimate, budget: float | None) -> None:
    if budget is not None and estimate.dollars > budget:
        raise UserError(
            f"what is left is estimated at {estimate.dollars:,.2f} dollars "
            f"({estimate.device_hours:,.1f} hours of {estimate.device.name}), above the budget of "
            f"{budget:,.2f} dollars; raise --budget, choose another device, or plan fewer runs"
        )


def estimate_plan(
    *,
    plan: Sequence[PlannedRun],
    root: str | Path,
    device: str | None = None,
    workers: int | None = None,
    spot: bool = False,
    done: Collection[str] | None = None,
    attempts: Mapping[str, Sequence[Attempt]] | None = None,
) -> PlanEstimate:
    """Estimates what is left of a plan.

    Args:
      plan: every run after its parents.
      root: the experiment's root; the times of its runs replace assumed ones.
      device: device of the runs, a name of `prices.toml`; None: this machine's GPU, else its cores, shared
        among the workers.
      workers: number of runs at a time; None: one per core of this machine, one on another device.
      done: paths of finished runs; None: those with a DONE marker.
      attempts: attempts by the path of the run, in order; None: read from their markers.
    """
    prices = load_prices()
    chosen, workers = _chosen_device(prices, device, workers)
    host = chosen if chosen.is_processor else _chosen_device(prices, "cpu", None)[0]
    done = done_paths(root, [run.path for run in plan]) if done is None else done
    attempts = attempts_of(root) if attempts is None else attempts

    def counts(run: PlannedRun, device_of_run: str | None) -> bool:
        expected = chosen if run.stage in DEVICE_STAGES else host
        if device is None or device_of_run == expected.name:
            return True
        return device_of_run in (None, "cpu") and expected.is_processor

    measured = measure(root, plan, done, attempts, counts)
    runs = {}
    for run in plan:
        if run.path not in done:
            runs_on = chosen if run.stage in DEVICE_STAGES else host
            runs[run.path] = _estimate_run(run, runs_on, measured, Path(root), spot)
    # Finished runs, and runs outside the plan, take no time in the longest chain.
    ends: dict[str, float] = {}
    for run in plan:
        before = max((ends.get(parent.path, 0.0) for parent in run.parents), default=0.0)
        ends[run.path] = before + (runs[run.path].seconds if run.path in runs else 0.0)
    return PlanEstimate(runs, chosen, workers, host, max(ends.values(), default=0.0), spot)


def _estimate_run(
    run: PlannedRun, device: Device, measured: Measurements, root: Path, spot: bool
) -> RunEstimate:
    """Estimates the remaining time, cost and disk of a run on a device."""
    stages = {name: figure.value for name, figure in load_prices().stages.items()}
    work = _work_of(run, measured, stages, root)
    seconds, measured_seconds, assumed = work.seconds, None, work.assumed
    if run.stage in DEVICE_STAGES:
        is_pretraining = run.stage == "pretrain"
        model = pretrained_model(run) if is_pretraining else finetuned_model(run)
        compute_dtype = run.parameters["compute_dtype"] if is_pretraining else "float32"
        shape = model[0].hidden_size, run.parameters["sequence_length"]
        seconds += work.flops / device.flops_per_second(compute_dtype, *shape)
        compiled = device.compiled_for(*shape)
        if compiled is not None:
            assumed += (f"{compiled.share:.1%} of the peak, by the compiler for {compiled.model}",)
    if run.stage == "pretrain":
        left = max(0, work.steps - measured.steps.get(run.path, 0))
        step_seconds = measured.seconds_per_step.get(shape_of(run))
        if step_seconds is not None:
            measured_seconds = left * step_seconds
        elif work.steps:
            seconds *= left / work.steps
    elif run.stage in _MEASURED_STAGES:
        measured_seconds = measured.seconds_per_run.get(shape_of(run))
    if measured_seconds is None:
        is_short = run.stage == "finetune"
        seconds += stages["seconds_to_start_finetuning" if is_short else "seconds_to_start"]
    else:
        seconds = measured_seconds
    return RunEstimate(
        device=device.name,
        seconds=seconds,
        dollars=seconds / 3600 * device.dollars_per_hour(spot),
        bytes=work.bytes,
        measured=measured_seconds is not None,
        assumed=assumed,
    )


def _work_of(
    run: PlannedRun, measured: Measurements, stages: Mapping[str, float], root: Path
) -> Work:
    """Returns a run's work; other stages than training have seconds and bytes in `prices.toml`."""
    if run.stage == "pretrain":
        return pretraining_work(run)
    if run.stage == "finetune":
        key = (run.parameters["task"], run.parameters.get("max_train_examples"))
        return finetuning_work(run, stages["bytes_per_prediction"], measured.examples.get(key))
    if run.stage == "prepare":
        size, unseen = 0.0, []
        for source in run.parameters.get("sources") or ():
            if isinstance(source, Output):
                path, name = root / source.run.path / source.inside, source.inside
            else:
                path, name = Path(str(source)), str(source)
            try:
                size += path.stat().st_size
            except OSError:
                size += BYTES_OF_UNSEEN_SOURCE
                unseen.append(name)
        passes = run.parameters.get("dupe_factor") or 1
        return Work(
            seconds=size * passes / stages["bytes_prepared_per_second"],
            bytes=size * stages["bytes_kept_per_byte_prepared"],
            assumed=tuple(f"{name} has {BYTES_OF_UNSEEN_SOURCE / 1e6:g} MB" for name in unseen),
        )
    if run.stage in ("score", "report", "paper"):
        making = 0.0 if run.stage == "score" else stages["seconds_to_report"]
        return Work(seconds=len(run.parents) * stages["seconds_to_score_a_run"] + making)
    return Work()


def _chosen_device(prices: Prices, name: str | None, workers: int | None) -> tuple[Device, int]:
    cores = available_cores()
    if name is None:
        gpus, names = visible_gpus(), []
        if gpus:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                names = ask_driver("name")
        words = names[0].replace("-", " ").split() if names else []
        for chip in prices.chips:
            if chip in words:
                return prices.device(chip), workers or len(gpus)
        count = workers or cores
        each = max(1, cores // count)
        return prices.device("cpu" if each == 1 else f"{each}xcpu"), count
    device = prices.device(name)
    return device, workers or (cores // device.chips or 1 if device.is_processor else 1)
