"""Estimates device-hours, wall time, dollars, CO2e and disk of a plan before anything is started.

From each run's operations (`work`) and the dated figures of devices (`prices`); where runs of the same
shape are done or running, from the times they took (`measured`).
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.model.configuration import BertConfig
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
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import done_paths

# These stages are carried out on the device, the others on the machine that launches.
DEVICE_STAGES = frozenset({"pretrain", "finetune"})
_MEASURED_STAGES = {"make_world", "prepare", "finetune", "score", "report", "paper"}

# Bytes of a source whose size is not known, such as a world's text that is not written yet.
BYTES_OF_UNSEEN_SOURCE = 2e6


@dataclass(frozen=True)
class RunEstimate:
    """The rest of one run.

    Attributes:
      device: its name.
      seconds, dollars: on that device.
      kilograms: of CO2e.
      bytes: that it leaves on the disk.
      measured: whether the time was measured rather than assumed.
      assumed: what was not known of the run, in words.
    """

    device: str
    seconds: float
    dollars: float
    kilograms: float
    bytes: float
    measured: bool
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanEstimate:
    """The rest of a plan.

    Attributes:
      runs: of every run that is not done, by path.
      device: that pre-training, and mostly fine-tuning, are carried out on.
      workers: how many of these runs are carried out at a time, each on its own device.
      host: that the other runs are carried out on.
      wall_seconds: from now to the end of the last run.
      critical_seconds: the same with any number of workers.
      spot: whether prices are those of spot capacity.
    """

    runs: Mapping[str, RunEstimate]
    device: Device
    workers: int
    host: Device
    wall_seconds: float
    critical_seconds: float
    spot: bool

    @property
    def device_hours(self) -> float:
        """Returns the hours of devices of all runs."""
        return sum(run.seconds for run in self.runs.values()) / 3600

    @property
    def dollars(self) -> float:
        """Returns the dollars of all runs."""
        return sum(run.dollars for run in self.runs.values())

    @property
    def kilograms(self) -> float:
        """Returns the CO2e of all runs."""
        return sum(run.kilograms for run in self.runs.values())

    @property
    def bytes(self) -> float:
        """Returns the disk space that the runs will take."""
        return sum(run.bytes for run in self.runs.values())


def checked_estimates(
    *,
    plan: Sequence[PlannedRun],
    root: str | Path,
    budget: float | None = None,
    device: str | None = None,
    workers: int | None = None,
    spot: bool = False,
) -> dict[str, dict[str, Any]]:
    """Returns `device`, `seconds` and `dollars` of every run that is left, by path; see `estimate_plan`.

    Raises:
      UserError: the estimate is above `budget`, in dollars, or the device is unknown.
    """
    estimate = estimate_plan(plan=plan, root=root, device=device, workers=workers, spot=spot)
    refuse_above(estimate, budget)
    return {
        path: {"device": run.device, "seconds": round(run.seconds, 3), "dollars": run.dollars}
        for path, run in estimate.runs.items()
    }


def refuse_above(estimate: PlanEstimate, budget: float | None) -> None:
    """Refuses an estimate above the budget, in dollars."""
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
    device_stages: Collection[str] = DEVICE_STAGES,
) -> PlanEstimate:
    """Estimates what is left of a plan.

    Args:
      plan: every run after its parents.
      root: the experiment's root, whose done and running runs show how long such runs take.
      device: that each run is carried out on, a name of `prices.toml`; None: this machine's GPU, else
        its cores, shared among the workers.
      workers: how many runs are carried out at a time; None: one per core of this machine, one on
        another device.
      spot: prices of capacity that can be taken away.
      device_stages: that are carried out on the device; the others are on this machine.

    Raises:
      UserError: an unknown device.
    """
    prices = load_prices()
    chosen, workers = _chosen_device(prices, device, workers)
    host, host_workers = chosen, workers
    if not chosen.is_processor:
        trains_here = "finetune" not in device_stages
        host, host_workers = _chosen_device(prices, None if trains_here else "cpu", None)
    done = done_paths(root, [run.path for run in plan])

    def counts(run: PlannedRun, found: str | None) -> bool:
        expected = chosen if run.stage in device_stages else host
        if device is None or found == expected.name:
            return True
        return found in (None, "cpu") and expected.is_processor

    def pool(run: PlannedRun) -> str:
        is_apart = host is not chosen and run.stage not in device_stages
        return "host" if is_apart else "device"

    measured = measure(root, plan, done, counts)
    estimator = _Estimator(prices, spot, measured, Path(root))
    runs = {
        run.path: estimator.run(run, chosen if run.stage in device_stages else host)
        for run in plan
        if run.path not in done
    }
    seconds = {path: estimate.seconds for path, estimate in runs.items()}
    pools = {"device": workers, "host": host_workers}
    return PlanEstimate(
        runs=runs,
        device=chosen,
        workers=workers,
        host=host,
        wall_seconds=wall_seconds(plan, seconds, pools, pool),
        critical_seconds=critical_seconds(plan, seconds),
        spot=spot,
    )


class _Estimator:
    """Estimates single runs."""

    def __init__(self, prices: Prices, spot: bool, measured: Measurements, root: Path):
        self._prices = prices
        self._stages = {name: figure.value for name, figure in prices.stages.items()}
        self._spot = spot
        self._measured = measured
        self._root = root

    def run(self, run: PlannedRun, device: Device) -> RunEstimate:
        """Returns what is left of a run that is carried out on a device."""
        work, seconds = self._work(run, device)
        known = None
        if run.stage == "pretrain":
            left = max(0, work.steps - self._measured.steps.get(run.path, 0))
            a_step = self._measured.seconds_per_step.get(shape_of(run))
            if a_step is not None:
                known = left * a_step
            elif work.steps:
                seconds *= left / work.steps
        elif run.stage in _MEASURED_STAGES:
            known = self._measured.seconds_per_run.get(shape_of(run))
        if known is None:
            is_short = run.stage == "finetune"
            start = "seconds_to_start_finetuning" if is_short else "seconds_to_start"
            seconds += self._stages[start]
        else:
            seconds = known
        hours = seconds / 3600
        return RunEstimate(
            device=device.name,
            seconds=seconds,
            dollars=hours * device.dollars_per_hour(self._spot),
            kilograms=self._prices.kilograms_co2e(device, hours),
            bytes=work.bytes,
            measured=known is not None,
            assumed=work.assumed,
        )

    def _work(self, run: PlannedRun, device: Device) -> tuple[Work, float]:
        """Returns a run's work and how many seconds it is assumed to take, the start apart."""
        if run.stage == "pretrain":
            work = pretraining_work(run)
            return self._priced(
                work, device, run, pretrained_model(run)[0], run.parameters["compute_dtype"]
            )
        if run.stage == "finetune":
            key = (run.parameters["task"], run.parameters.get("max_train_examples"))
            examples = self._measured.examples.get(key)
            work = finetuning_work(run, self._stages["bytes_per_prediction"], examples)
            return self._priced(work, device, run, finetuned_model(run)[0], "float32")
        if run.stage == "prepare":
            size, unseen = self._bytes_of_sources(run)
            assumed = [f"{source} has {BYTES_OF_UNSEEN_SOURCE / 1e6:g} MB" for source in unseen]
            passes = run.parameters.get("dupe_factor") or 1
            kept = size * self._stages["bytes_kept_per_byte_prepared"]
            work = Work(bytes=kept, assumed=tuple(assumed))
            return work, size * passes / self._stages["bytes_prepared_per_second"]
        if run.stage in ("score", "report", "paper"):
            reading = len(run.parents) * self._stages["seconds_to_score_a_run"]
            making = 0.0 if run.stage == "score" else self._stages["seconds_to_report"]
            return Work(), reading + making
        return Work(), 0.0

    def _priced(
        self, work: Work, device: Device, run: PlannedRun, config: BertConfig, compute_dtype: str
    ) -> tuple[Work, float]:
        """Returns the work of a model and its seconds, with the share of the peak that is assumed."""
        shape = config.hidden_size, run.parameters["sequence_length"]
        compiled = device.compiled_for(*shape)
        if compiled is not None:
            text = f"{compiled.share:.1%} of the peak, by the compiler for {compiled.model}"
            work = dataclasses.replace(work, assumed=(*work.assumed, text))
        return work, work.flops / device.flops_per_second(compute_dtype, *shape)

    def _bytes_of_sources(self, run: PlannedRun) -> tuple[float, list[str]]:
        """Returns the size of a corpus's sources, and the names of those whose size cannot be seen."""
        size, unseen = 0.0, []
        for source in run.parameters.get("sources") or ():
            if isinstance(source, Output):
                place, name = self._root / source.run.path / source.inside, source.inside
            else:
                place, name = Path(str(source)), str(source)
            try:
                size += place.stat().st_size
            except OSError:
                size += BYTES_OF_UNSEEN_SOURCE
                unseen.append(name)
        return size, unseen


def _chosen_device(prices: Prices, name: str | None, workers: int | None) -> tuple[Device, int]:
    """Returns the device of one worker, and how many workers there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    if name is None:
        gpus = visible_gpus()
        name = _kind_of_gpus(prices) if gpus else None
        if name is not None:
            return prices.device(name), workers or len(gpus)
        count = workers or cores
        each = max(1, cores // count)
        return prices.device("cpu" if each == 1 else f"{each}xcpu"), count
    device = prices.device(name)
    return device, workers or (cores // device.chips or 1 if device.is_processor else 1)


def _kind_of_gpus(prices: Prices) -> str | None:
    """Returns the chip of `prices.toml` that this machine's first GPU is; None: it is not listed."""
    try:
        names = ask_driver("name")
    except (OSError, subprocess.SubprocessError):
        return None
    words = names[0].replace("-", " ").split() if names else []
    return next((chip for chip in prices.chips if chip in words), None)


def wall_seconds(
    plan: Sequence[PlannedRun],
    seconds: Mapping[str, float],
    workers: Mapping[str, int],
    pool_of: Callable[[PlannedRun], str],
) -> float:
    """Returns the seconds until a plan is done if a free worker takes the next run that can start.

    Args:
      plan: every run after its parents.
      seconds: of each run by its path; runs without are done already.
      workers: by pool, how many runs are carried out at a time.
      pool_of: the pool whose workers carry out a run.
    """
    left = [run for run in plan if run.path in seconds]
    pools = [pool_of(run) for run in left]
    number_of = {run.path: number for number, run in enumerate(left)}
    missing = [0] * len(left)
    children: list[list[int]] = [[] for _ in left]
    ready: dict[str, list[int]] = {pool: [] for pool in workers}
    for number, run in enumerate(left):
        parents = [number_of[parent.path] for parent in run.parents if parent.path in number_of]
        missing[number] = len(parents)
        for parent in parents:
            children[parent].append(number)
        if not parents:
            heapq.heappush(ready[pools[number]], number)
    free = dict(workers)
    running: list[tuple[float, int]] = []
    now = 0.0
    while True:
        for pool, numbers in ready.items():
            while numbers and free[pool]:
                number = heapq.heappop(numbers)
                free[pool] -= 1
                heapq.heappush(running, (now + seconds[left[number].path], number))
        if not running:
            return now
        now, number = heapq.heappop(running)
        free[pools[number]] += 1
        for child in children[number]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready[pools[child]], child)


def critical_seconds(plan: Sequence[PlannedRun], seconds: Mapping[str, float]) -> float:
    """Returns the seconds of the longest chain of runs that wait for each other; see `wall_seconds`."""
    ends: dict[str, float] = {}
    for run in plan:
        # Parents outside the plan take no time.
        before = max((ends.get(parent.path, 0.0) for parent in run.parents), default=0.0)
        ends[run.path] = before + seconds.get(run.path, 0.0)
    return max(ends.values(), default=0.0)
