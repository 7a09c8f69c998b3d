"""Progress and speed of pre-training, from the files in its directory and its attempts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multiberts.bert.training.log import METRICS, tail_of_metrics
from multiberts.launch.markers.attempts import Attempt
from multiberts.runs.files import PathLike
from multiberts.runs.plan_marker import MarkedRun

# Speed is averaged over this number of seconds before the last line of the log.
SECONDS_OF_SPEED = 600.0


@dataclass(frozen=True)
class Pretraining:
    """Progress of the pre-training of a seed.

    Attributes:
      path: the run's directory, relative to the root.
      state: as in `launch.status.STATES`.
      steps_per_second: average over the last minutes of the log, with checkpoints and evaluation; None
        while too little is logged.
      seconds_left: seconds to the last step at that speed; None unless it is running.
      hours: hours on the device, summed over attempts.
      where: engine, device and host of the last attempt; empty without one.
    """

    path: str
    procedure: str
    pretrain_seed: int | None
    num_steps: int
    state: str
    step: int
    steps_per_second: float | None
    seconds_left: float | None
    attempts: int
    hours: float
    where: str = ""

    @property
    def share(self) -> float:
        """Returns the finished share of the training, 0 to 1."""
        return min(1.0, self.step / self.num_steps) if self.num_steps else 0.0


def pretraining_of(
    root: PathLike, run: MarkedRun, state: str, attempts: Sequence[Attempt], now: float
) -> Pretraining:
    """Reads the progress of a pre-training run from its log."""
    num_steps = int(run.facts.get("num_steps") or 0)
    is_done = state == "done"
    lines = tail_of_metrics(os.path.join(root, run.path, METRICS))
    step = num_steps if is_done else max((line["step"] for line in lines), default=0)
    last = attempts[-1] if attempts else None
    # Ignore lines of earlier attempts: the run was idle since then.
    since = last.started if last is not None and not is_done else 0.0
    speed = speed_of([line for line in lines if line.get("time", 0.0) >= since])
    return Pretraining(
        path=run.path,
        procedure=str(run.facts.get("procedure") or ""),
        pretrain_seed=run.facts.get("pretrain_seed"),
        num_steps=num_steps,
        state=state,
        step=step,
        steps_per_second=speed,
        seconds_left=(num_steps - step) / speed if speed and state == "running" else None,
        attempts=len(attempts),
        hours=sum(seconds_of(attempt, now) for attempt in attempts) / 3600,
        where=last.where if last else "",
    )


def speed_of(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns the updates per second at the end of a log.

    Args:
      lines: lines of the log with `step`, `time` (Unix seconds) and `steps_per_second`, each optional.

    Returns:
      The mean over the last minutes, and over at least two lines; for a single line its
      `steps_per_second`; None without lines.
    """
    timed = [line for line in lines if isinstance(line.get("time"), (int, float))]
    if timed:
        last = timed[-1]
        window = [line for line in timed if line["time"] >= last["time"] - SECONDS_OF_SPEED]
        earlier = next((line for line in reversed(timed) if line["step"] < last["step"]), None)
        first = window[0] if window[0]["step"] < last["step"] else earlier
        if first is not None and last["time"] > first["time"]:
            return float((last["step"] - first["step"]) / (last["time"] - first["time"]))
    speeds = [line["steps_per_second"] for line in lines if line.get("steps_per_second")]
    return float(speeds[-1]) if speeds else None


def seconds_of(attempt: Attempt, now: float) -> float:
    """Returns the duration of an attempt, for a silent one until its last sign of life."""
    end = attempt.ended
    if end is None:
        end = attempt.heartbeat if attempt.is_silent(now) else now
    return max(0.0, end - attempt.started)
