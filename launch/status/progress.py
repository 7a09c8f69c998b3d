"""Progress, speed and cost of pre-training, from the files in its directory and its attempts."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.training.log import HELD_OUT, tail_of_metrics, whole_lines
from multiberts.launch.markers.attempts import Attempt
from multiberts.runs.files import PathLike
from multiberts.runs.plan_marker import MarkedRun

METRICS = "metrics.jsonl"
# Where checkpoints and training states lie within a run.
FOLDERS_OF_STATES = ("checkpoints", "state")

# Points of a curve of which the log may have thousands.
MOST_POINTS = 60

# Speed is taken over this number of seconds before the last line of the log.
SECONDS_OF_SPEED = 600.0


@dataclass(frozen=True)
class Pretraining:
    """One row of the table of pre-training.

    Attributes:
      path: the run's directory, relative to the root.
      procedure, pretrain_seed, num_steps: which run it is.
      state: as in `launch.status.STATES`.
      step: finished updates; 0 before there are any.
      steps_per_second: over the last minutes of the log, checkpoints and evaluation included; None
        while too little is logged.
      seconds_left: to the last step at that speed; None unless it is running.
      attempts: how many there were.
      checkpoint_age: seconds since the newest checkpoint or training state; None without one, and when
        done.
      hours: hours on the device, over all attempts.
      dollars: their cost at the attempts' prices; None where no price is known.
      engine, host, device, zone, log: of the last attempt; empty where there was none or it has none.
      steps_before: updates of the checkpoint that it continues; 0 where it continues none.
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
    checkpoint_age: float | None
    hours: float
    dollars: float | None
    engine: str = ""
    host: str = ""
    device: str = ""
    zone: str = ""
    log: str = ""
    steps_before: int = 0

    @property
    def share(self) -> float:
        """Returns how much of the training is done, 0 to 1."""
        return min(1.0, self.step / self.num_steps) if self.num_steps else 0.0


def pretraining_of(
    root: PathLike,
    run: MarkedRun,
    state: str,
    attempts: Sequence[Attempt],
    now: float,
    steps_before: int,
) -> Pretraining:
    """Reads how far a run of stage `pretrain` has come, whose state and attempts are known."""
    directory = os.path.join(root, run.path)
    num_steps = int(run.facts.get("num_steps") or 0)
    is_done = state == "done"
    lines = tail_of_metrics(os.path.join(directory, METRICS))
    step = num_steps if is_done else max((line["step"] for line in lines), default=0)
    last = attempts[-1] if attempts else None
    # A run that goes on was idle before: its lines from then say nothing about its speed now.
    since = last.started if last is not None and not is_done else 0.0
    speed = speed_of([line for line in lines if line.get("time", 0.0) >= since])
    newest = None if is_done else newest_state(directory)
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
        checkpoint_age=None if newest is None else max(0.0, now - newest),
        hours=sum(seconds_of(attempt, now) for attempt in attempts) / 3600,
        dollars=dollars_of(attempts, now),
        engine=last.engine if last else "",
        host=last.host if last else "",
        device=(last.device or "") if last else "",
        zone=(last.zone or "") if last else "",
        log=(last.log or "") if last else "",
        steps_before=steps_before,
    )


def steps_before(run: MarkedRun, plan: Mapping[str, MarkedRun]) -> int:
    """Returns the updates behind the checkpoint that a pre-training continues, 0 where it continues none.

    Args:
      run: of stage `pretrain`.
      plan: all runs by their path.
    """
    started = [plan[path] for path in run.parents if path in plan]
    return sum(
        int(parent.facts.get("num_steps") or parent.facts.get("step") or 0)
        + steps_before(parent, plan)
        for parent in started
    )


@dataclass(frozen=True)
class LoggedCurves:
    """The log of a pre-training, at about `MOST_POINTS` of its steps, the first and the last among them.

    Attributes:
      loss: of the training batches, (step, loss); a loss may be NaN.
      accuracy: of masked words in the held-out text, (step, share); empty without such text.
    """

    loss: tuple[tuple[int, float], ...]
    accuracy: tuple[tuple[int, float], ...]

    def after(self, steps: int) -> LoggedCurves:
        """Returns the curves of a run that continues a checkpoint of that step."""
        return LoggedCurves(
            *(tuple((steps + step, value) for step, value in curve) for curve in astuple(self))
        )


def logged_curves(directory: PathLike) -> LoggedCurves:
    """Reads the curves of a pre-training from its log; empty where nothing is logged yet."""
    try:
        texts = Path(directory, METRICS).read_bytes().splitlines()
    except OSError:
        return LoggedCurves((), ())
    names = {"loss": b'"loss"', f"{HELD_OUT}masked_lm_accuracy": b'"%b' % HELD_OUT.encode()}
    found = []
    for name, mark in names.items():
        marked = [text for text in texts if mark in text]
        stride = math.ceil(len(marked) / MOST_POINTS) or 1
        # The first and the newest line are among them.
        lines = whole_lines([*marked[:1], *marked[:0:-1][::stride][::-1]])
        found.append(tuple((line["step"], line[name]) for line in lines if name in line))
    return LoggedCurves(*found)


def speed_of(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns the updates per second at the end of a log.

    Args:
      lines: `step`, `time` (Unix seconds) and `steps_per_second` of each, where it has them.

    Returns:
      The mean over the last minutes, or at least over the last two lines; of a single line its
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


def newest_state(directory: PathLike) -> float | None:
    """Returns when the newest checkpoint or training state of a run was written, in Unix seconds."""
    times = []
    for folder in FOLDERS_OF_STATES:
        with contextlib.suppress(OSError), os.scandir(Path(directory) / folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # an old state that was just removed
                    times.append(entry.stat().st_mtime)
    return max(times, default=None)


def seconds_of(attempt: Attempt, now: float) -> float:
    """Returns how long an attempt has lasted; one that fell silent, until its last sign of life."""
    end = attempt.ended
    if end is None:
        end = attempt.heartbeat if attempt.is_silent(now) else now
    return max(0.0, end - attempt.started)


def dollars_of(attempts: Sequence[Attempt], now: float) -> float | None:
    """Returns what attempts have cost so far; None where no price is known."""
    costs = [
        seconds_of(attempt, now) / 3600 * attempt.dollars_per_hour
        for attempt in attempts
        if attempt.dollars_per_hour is not None
    ]
    return sum(costs) if costs else None
