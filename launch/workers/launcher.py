"""Carries out a plan: starts what can start, tries again what failed, and reports the rest."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tqdm import tqdm

from multiberts.bert.training.log import METRICS, tail_of_metrics
from multiberts.launch.estimate.estimate import estimate_plan, refuse_above
from multiberts.launch.markers.attempts import (
    Attempt,
    attempts_of,
    end_attempt,
    file_of_journal,
    make_journal,
    read_journal,
)
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import PlannedRun, fitting_name
from multiberts.launch.workers.chunks import RunChunk, WaitingRuns
from multiberts.launch.workers.engines import Engine
from multiberts.launch.workers.pool import SECONDS_TO_END, Pool
from multiberts.launch.workers.worker import (
    DISK_FULL,
    SECONDS_TO_SAVE,
    Call,
    Error,
    LaunchContext,
)
from multiberts.runs.bucket.lease import Lease
from multiberts.runs.console import report
from multiberts.runs.dask_cluster import BlamelessLossError, LostWorkerError
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import done_paths, is_done
from multiberts.runs.preemption import PreemptedError, preemption_notice

SECONDS_BETWEEN_LOOKS = 0.5
# Time until another machine's files appear on this one.
SECONDS_TO_APPEAR = 10.0

# Losses of a worker before the run has begun that count as one attempt.
_LOSSES_PER_TRY = 2


def carry_out(
    outcomes: Outcomes,
    engine: Engine,
    context: LaunchContext,
    lease: Lease,
    *,
    budget: float | None,
    silent_seconds: float,
    dashboard: bool,
) -> None:
    """Starts chunks as their parents finish, until nothing can start. Arguments: see `run_plan`.

    No worker is left when it returns or raises, also on SIGTERM (`PreemptedError`) and Ctrl-C.
    """
    plan, root, done = outcomes.plan, outcomes.root, outcomes.done
    if len(done) == len(plan):
        write_plan(root, plan)
        report(f"all {len(done)} runs of {root} are done")
        return

    # The unfinished runs and their cost. Jobs that need no launcher may be carrying out some of them.
    outcomes.attempts = attempts_of(root)
    for run in plan:
        last = outcomes.attempts.get(run.path, [None])[-1]
        if last is None or last.needs_launcher or run.path in done:
            continue
        if last.is_alive(time.time()):
            raise UserError(
                f"{run.name} is under way as job {last.job} of engine {last.engine}, and would be made "
                f"here, too; with --engine={last.engine} and its options the same command shows how far "
                "it is, and with --reap as well cancels it; or leave the run out of the plan"
            )
    engine = engine.for_at_most(len(plan) - len(done))
    estimate = estimate_plan(
        plan=plan, root=root, workers=engine.workers, done=done, attempts=outcomes.attempts
    )
    refuse_above(estimate, budget)
    expected = {path: run.seconds for path, run in estimate.runs.items()}
    waiting = outcomes.waiting = WaitingRuns(plan, done, expected)
    write_plan(root, plan)
    outcomes.close_open_attempts("lost")  # attempts that a dead launcher left open

    # Submit chunks and collect them; each has a journal.
    pool: Pool | None = None
    jobs: dict[Future[Any], tuple[RunChunk, str]] = {}
    finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    names = (f"launch-{context.owner}-{number}.jsonl" for number in itertools.count(1))
    with (
        preemption_notice() as should_stop,
        tqdm(total=len(plan), initial=len(done), unit="run", disable=None) as bar,
    ):
        try:
            while not (should_stop() or lease.lost.is_set()):
                # Two chunks per worker, so that none waits for this process.
                if pool is None:
                    pool = Pool(engine, context, silent_seconds, dashboard=dashboard)
                # The size of somebody else's cluster is known only after connecting.
                workers = max(engine.workers, pool.num_workers)
                while len(jobs) < 2 * workers and (chunk := waiting.take(workers)):
                    # Created here, because network file systems cache that a file does not exist.
                    journal = make_journal(root, next(names))
                    future = pool.submit([outcomes.call(run) for run in chunk.runs], journal)
                    jobs[future] = chunk, journal
                    future.add_done_callback(finished.put)
                if not jobs:
                    break

                # Finished chunks.
                with contextlib.suppress(queue.Empty):
                    future = finished.get(timeout=SECONDS_BETWEEN_LOOKS)
                    while True:
                        chunk, journal = jobs.pop(future)
                        seconds = outcomes.take(chunk, journal, future)
                        if bar.disable and seconds is not None:
                            report(f"[{len(done)}/{len(plan)}] {chunk.name}: {seconds:.0f} s")
                        future = finished.get_nowait()
                pool.look_after(len(jobs))
                if not bar.disable:
                    show_progress(bar, outcomes, list(jobs.values()), engine.workers)
        except BaseException as error:
            if pool is not None:
                # Runs may need minutes to save; a person who pressed Ctrl-C does not wait for them.
                pool.end(SECONDS_TO_SAVE if isinstance(error, UserError) else SECONDS_TO_END)
            with contextlib.suppress(
                OSError
            ):  # on a full disk the next launcher closes the attempts
                outcomes.close_open_attempts("preempted", jobs.values())
            raise

        # Inside the block, or a second signal would kill this process before workers have saved.
        is_stopped = should_stop() or lease.lost.is_set()
        if pool is not None:
            pool.end(SECONDS_TO_SAVE if is_stopped else SECONDS_TO_END)
        outcomes.close_open_attempts("preempted" if is_stopped else "lost", jobs.values())
        if lease.lost.is_set():
            raise UserError(
                f"another launcher took over {root} while this one was silent; let it continue, "
                "or stop it and start this one again"
            )
        if is_stopped:
            raise PreemptedError(
                f"asked to stop: {len(done)} of {len(plan)} runs of {root} are done; the same "
                "command resumes from here"
            )


class Outcomes:
    """Outcomes of the runs of a plan, from their markers, and the runs that wait to start.

    Attributes:
      done: paths of finished runs.
      attempts: attempts by the path of the run, in order; updated from a chunk's journal when it ends.
      waiting: runs that can start now or later.
      failures: failed runs by path.
    """

    def __init__(self, plan: Sequence[PlannedRun], root: Path, max_attempts: int, is_local: bool):
        self.plan = plan
        self.root = root
        self.done = done_paths(root, (run.path for run in plan))
        self.attempts: dict[str, list[Attempt]] = {}
        self.waiting = WaitingRuns(plan, self.done)
        self.failures: dict[str, FailedRun] = {}
        self._max_attempts = max_attempts
        self._is_local = is_local
        # Journals of chunks whose worker was given up, though it may continue for a while.
        self._lost: list[str] = []
        self._tries: Counter[str] = Counter()
        self._unbegun: Counter[str] = Counter()

    def call(self, run: PlannedRun) -> Call:
        """Returns the call of a run's next attempt."""
        number = len(self.attempts.get(run.path, ())) + 1
        arguments = run.arguments(self.root)
        return Call(run.path, run.stage, arguments, _log(run), number, run.promises)

    def read(self, journal: str) -> dict[str, Attempt]:
        """Reads the attempts of a chunk that has ended; returns them by run."""
        attempts = read_journal(file_of_journal(self.root, journal))
        for attempt in attempts:
            before = [a for a in self.attempts.get(attempt.path, ()) if a.journal != journal]
            in_order = sorted([*before, attempt], key=lambda a: (a.attempt, a.started))
            self.attempts[attempt.path] = in_order
        return {attempt.path: attempt for attempt in attempts}

    def take(self, chunk: RunChunk, journal: str, future: Future[Any]) -> float | None:
        """Records how the runs of a chunk ended; returns its seconds, or None if its worker is lost."""
        try:
            ended, seconds = future.result()
        except LostWorkerError as loss:
            self.take_lost(chunk, journal, loss)
            return None
        self.read(journal)
        for run in chunk.runs:
            if run.path in ended:
                self.note(run, *ended[run.path])
        self.waiting.add(run for run in chunk.runs if run.path not in ended)
        return float(seconds)

    def take_lost(self, chunk: RunChunk, journal: str, loss: LostWorkerError) -> None:
        """Records the progress of a chunk whose worker is gone, from its journal."""
        tried = self.read(journal)
        self._lost.append(journal)
        error: Error = {"kind": "WorkerLost", "message": str(loss)}
        is_fault = not isinstance(loss, BlamelessLossError)
        outcome = "lost" if is_fault else "preempted"
        for run in chunk.runs:
            attempt = tried.get(run.path)
            if run.done(self.root):
                self.note(run, "done", None)
            elif attempt is not None and attempt.outcome is not None:
                self.note(run, attempt.outcome, attempt.error)
            elif attempt is not None:
                # If the worker is alive after all, it records the end later.
                self._end(attempt, outcome, error=error)
                self.note(run, outcome, error)
            else:
                if run is chunk.runs[0] and is_fault:
                    # The worker may have died of its previous chunk, so only repeated losses count.
                    self._unbegun[run.path] += 1
                    if self._unbegun[run.path] % _LOSSES_PER_TRY == 0:
                        self.note(run, "lost", error)
                        continue
                self.waiting.add([run])

    def note(self, run: PlannedRun, outcome: str, error: Error | None) -> None:
        """Records the outcome of an attempt; a failure also fails the runs that depend on it."""
        if outcome == "done":
            # Network file systems may show the marker a little later.
            end = time.monotonic() + (0.0 if self._is_local else SECONDS_TO_APPEAR)
            while not (has_appeared := run.done(self.root)) and time.monotonic() < end:
                time.sleep(0.2)
            if has_appeared:
                self.done.add(run.path)
                self.waiting.note_done(run)
                return
        if outcome == "preempted":
            self.waiting.add(
                [run]
            )  # only its worker was asked to stop, so the run continues elsewhere
            return
        error = error or {"kind": "RuntimeError", "message": "it ended without its DONE marker"}
        if error["kind"] == DISK_FULL:
            raise UserError(f"{run.name}: {error['message']}")
        is_user_error = error["kind"] == UserError.__name__
        self._tries[run.path] += 1
        tries = self._tries[run.path]
        if not is_user_error and tries < self._max_attempts:
            self.waiting.add([run])
            return
        last = self.attempts.get(run.path, [])[-1:]
        if last and last[0].outcome != "failed":
            # Nobody tries again, so readers of the markers should see a failure.
            self._end(last[0], "failed", error=error, ended=last[0].ended)
        log = self.root / _log(run)
        self.failures[run.path] = FailedRun(run, error["message"], is_user_error, log, tries)
        message = f"not started, for {run.name} failed"
        for later in self.waiting.give_up_after(run):
            self.failures[later.path] = FailedRun(later, message, is_user_error, None)

    def close_open_attempts(self, outcome: str, jobs: Iterable[tuple[RunChunk, str]] = ()) -> None:
        """Closes the plan's open attempts when no worker is left; SkyPilot's jobs continue.

        Args:
          jobs: the running chunks and their journals.
        """
        for journal in (*self._lost, *(journal for _, journal in jobs)):
            self.done.update(path for path in self.read(journal) if is_done(self.root / path))
        for attempt in [a for run in self.plan for a in self.attempts.get(run.path, ())]:
            if attempt.ended is None and attempt.needs_launcher:
                self._end(attempt, outcome, ended=attempt.heartbeat)

    def _end(self, attempt: Attempt, outcome: str, **facts: Any) -> None:
        """Records the end of an attempt whose worker cannot; `facts` as in `end_attempt`."""
        of_run = self.attempts[attempt.path]
        of_run[of_run.index(attempt)] = end_attempt(self.root, attempt, outcome, **facts)


def show_progress(
    bar: tqdm[Any], outcomes: Outcomes, jobs: Collection[tuple[RunChunk, str]], workers: int
) -> None:
    """Draws the terminal's progress bar: finished runs, and running chunks with their steps."""
    files = [file_of_journal(outcomes.root, journal) for _, journal in jobs]
    bar.n = len(outcomes.done) + sum(_num_done_in(file, _size(file)) for file in files)
    words = []
    for chunk, _ in itertools.islice(jobs, workers):
        run = chunk.runs[0]
        metrics = outcomes.root / run.path / METRICS
        step = _last_step(metrics, _size(metrics)) if run.stage == "pretrain" else None
        words.append(chunk.name + (f" {step}/{run.parameters['num_steps']}" if step else ""))
    bar.set_postfix_str(" | ".join(words))


def _log(run: PlannedRun) -> str:
    return f"logs/{fitting_name(run.path.replace('/', '-'))}.log"


# The bar is drawn twice a second, so a log is read again only if its size has changed.
def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@functools.lru_cache(maxsize=1024)
def _num_done_in(journal: Path, _size: int) -> int:
    return sum(attempt.outcome == "done" for attempt in read_journal(journal))


@functools.lru_cache(maxsize=1024)
def _last_step(metrics: Path, _size: int) -> int | None:
    return max((line["step"] for line in tail_of_metrics(metrics)), default=None)
