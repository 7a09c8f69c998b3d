"""The table of a status and the lines around it, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from multiberts.launch.estimate import quantities
from multiberts.launch.status.snapshot import STATES, Failure, Status
from multiberts.runs.errors import counted

# Seeds in these states have their own row below the stage; others are only counted.
_PRETRAINING_SHOWN = ("failed", "lost", "running", "retrying")


@dataclass(frozen=True)
class Row:
    """A row: a stage, or the unfinished pre-training of a seed.

    Attributes:
      name: the stage's command, or procedure and seed.
      done: finished runs of all, or finished updates of all.
      shares: share in each state except waiting.
      words: (state, text) of the other states, or of the seed's state.
      pace: the seed's speed, time left and number of attempts; empty for a stage.
      path, where: the seed's run, and where its last attempt ran; empty for a stage.
    """

    name: str
    done: str
    shares: Mapping[str, float]
    words: tuple[tuple[str, str], ...]
    hours: float
    pace: str = ""
    path: str = ""
    where: str = ""


def headline(status: Status) -> str:
    """Says how many runs are done, running, failed and so on."""
    counts = status.counts
    share = counts["done"] / status.total if status.total else 0.0
    parts = [f"{counts['done']:,} of {status.total:,} runs done ({quantities.percent(share)})"]
    parts += [
        f"{counts[state]:,} {state}"
        for state in ("running", "retrying", "lost", "failed")
        if counts[state]
    ]
    return ", ".join(parts)


def launched(status: Status) -> str:
    """Says when the status was collected, who launches, and how many hours devices worked."""
    text = f"{quantities.moment(status.time)}; "
    if status.launcher is not None:
        text += f"launched by process {status.launcher.pid} on {status.launcher.host}"
    else:
        text += "no launcher is running"
        if status.counts["done"] < status.total:
            text += ", the command that was given resumes from here"
    return f"{text}; {quantities.duration(3600 * status.hours)} of device time so far"


def rows_of(status: Status, most: int | None = None) -> list[Row]:
    """Returns the rows of the table.

    Args:
      most: largest number of seeds, those in trouble first; None: all.
    """
    begun = [row for row in status.pretraining if row.state in _PRETRAINING_SHOWN]
    by_state = sorted(begun, key=lambda row: _PRETRAINING_SHOWN.index(row.state))
    chosen = {row.path for row in by_state[:most]}
    rows = []
    for stage in status.stages:
        others = [state for state in STATES if state != "done" and stage.counts[state]]
        rows.append(
            Row(
                name=stage.command,
                done=f"{stage.counts['done']:,} of {stage.total:,}",
                shares={
                    s: stage.counts[s] / stage.total for s in ("done", *others) if s != "waiting"
                },
                words=tuple((state, f"{stage.counts[state]:,} {state}") for state in others),
                hours=stage.hours,
            )
        )
        for row in begun if stage.stage == "pretrain" else ():
            pace = []
            if row.seconds_left is not None:
                pace.append(f"{quantities.speed(row.steps_per_second)} steps/s")
                pace.append(f"{quantities.duration(row.seconds_left)} left")
            if row.attempts > 1:
                pace.append(f"attempt {row.attempts}")
            if row.path in chosen:
                rows.append(
                    Row(
                        name=f"{row.procedure} {row.pretrain_seed}",
                        done=f"{quantities.compact(row.step)} of {quantities.compact(row.num_steps)}",
                        shares={row.state: row.share},
                        words=((row.state, row.state),),
                        hours=row.hours,
                        pace=", ".join(pace),
                        path=row.path,
                        where=row.where,
                    )
                )
    return rows


def failure_line(failure: Failure) -> str:
    """Says which run stopped, and why."""
    attempts = counted(failure.attempts, "attempt")
    return f"{failure.name} ({failure.state}, {attempts}): {failure.message}"


def orphan_lines(status: Status) -> list[str]:
    """Names each attempt that continues without a launcher."""
    return [
        f"{attempt.path}: {attempt.where}, "
        f"process {attempt.pid}{f', job {attempt.job}' if attempt.job else ''}, "
        f"for {quantities.duration(status.time - attempt.started)}"
        for attempt in status.orphans
    ]
