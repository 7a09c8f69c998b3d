"""Carries out a plan: starts what can start, tries again what failed, and reports the rest."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import time
from collections import Counter
from collections.abc import Sequence
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
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.workers.bundles import Bundle, WaitingRuns
from multiberts.launch.workers.engines import Engine
from multiberts.launch.workers.pool import SECONDS_TO_END, Pool
from multiberts.launch.workers.worker import (
    DISK_FULL,
    SECONDS_TO_SAVE,
    Call,
    Error,
    WorkerPlace,
)
from multiberts.runs.bucket.lease import Lease
from multiberts.runs.console import report
from multiberts.runs.dask_cluster import BlamelessLossError, LostWorkerError
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import done_paths, is_done
from multiberts.runs.preemption import PreemptedError, preemption_notice

SECONDS_BETWEEN_LOOKS = 0.5
# Until what another machine has written appears here.
SECONDS_TO_APPEAR = 10.0

# Workers that may be lost before a run has begun, until that counts as one of its attempts.
_LOSSES_PER_TRY = 2


class OnePass:
    """Carries out what of a plan is not done; see `run_plan` for the arguments."""

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        engine: Engine,
        place: WorkerPlace,
        attempts: int,
        budget: float | None,
        silent_seconds: float,
        dashboard: bool = False,
    ):
        self._plan = plan
        self._place = place
        self._root = Path(place.root)
        self._attempts = attempts
        self._silent_seconds = silent_seconds
        self._dashboard = dashboard
        self.done = done_paths(place.root, (run.path for run in plan))
        self._engine = engine.for_at_most(len(plan) - len(self.done))
        self.had_work = len(self.done) < len(plan)
        expected: dict[str, float] = {}
        # By run, in order; read once, and then journal by journal as bundles end.
        self.attempts: dict[str, list[Attempt]] = {}
        if self.had_work:
            self.attempts = attempts_of(self._root)
            self._refuse_what_trains_elsewhere()
            estimate = estimate_plan(
                plan=plan,
                root=self._root,
                workers=self._engine.workers,
                done=self.done,
                attempts=self.attempts,
            )
            refuse_above(estimate, budget)
            expected = {path: run.seconds for path, run in estimate.runs.items()}
        self._waiting = WaitingRuns(plan, self.done, expected)
        # With the journal of each bundle.
        self._jobs: dict[Future[Any], tuple[Bundle, str]] = {}
        self._names = (f"launch-{place.owner}-{number}.jsonl" for number in itertools.count(1))
        # Journals of bundles whose worker was given up; it may go on for a while.
        self._lost: list[str] = []
        self._finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._tries: Counter[str] = Counter()
        self._unbegun: Counter[str] = Counter()
        self._failures: dict[str, FailedRun] = {}
        self._pool: Pool | None = None

    def _refuse_what_trains_elsewhere(self) -> None:
        """Refuses runs that a job carries out which needs no launcher: they would be made twice."""
        for run in self._plan:
            last = self.attempts.get(run.path, [None])[-1]
            if last is None or last.needs_launcher or run.path in self.done:
                continue
            if last.is_alive(time.time()):
                raise UserError(
                    f"{run.name} is under way as job {last.job} of engine {last.engine}, and would be made "
                    f"here, too; with --engine={last.engine} and its options the same command shows how far "
                    "it is, and with --reap as well cancels it; or leave the run out of the plan"
                )

    def carry_out(self, lease: Lease) -> list[FailedRun]:
        """Starts bundles as their parents finish, until nothing can start any more.

        No worker is left when it ends, also by SIGTERM (`PreemptedError`) or Ctrl-C.

        Returns:
          The runs that failed, in the order of the plan.
        """
        write_plan(self._root, self._plan)
        if not self.had_work:
            report(f"all {len(self.done)} runs of {self._root} are done")
            return []
        # A launcher that is gone may have left attempts open.
        self._close_open_attempts("lost")
        with (
            preemption_notice() as should_stop,
            tqdm(total=len(self._plan), initial=len(self.done), unit="run", disable=None) as bar,
        ):
            try:
                while not (should_stop() or lease.lost.is_set()):
                    self._start_jobs()
                    if not self._jobs:
                        break
                    self._take_finished(bar)
                    self._show_progress(bar)
            except BaseException as error:
                if self._pool is not None:
                    # Other runs may need minutes to save; who gives Ctrl-C does not wait for them.
                    is_error = isinstance(error, UserError)
                    self._pool.end(SECONDS_TO_SAVE if is_error else SECONDS_TO_END)
                with contextlib.suppress(OSError):  # on a full disk the next launcher closes them
                    self._close_open_attempts("preempted")
                raise
            # Within the block, as a second signal would kill this process before workers have saved.
            if should_stop() or lease.lost.is_set():
                self._stop(lease)
            elif self._pool is not None:
                self._pool.end(SECONDS_TO_END)
                self._close_open_attempts("lost")
        return [self._failures[run.path] for run in self._plan if run.path in self._failures]

    def _stop(self, lease: Lease) -> None:
        if self._pool is not None:
            self._pool.end(SECONDS_TO_SAVE)
        self._close_open_attempts("preempted")
        if lease.lost.is_set():
            raise UserError(
                f"another launcher took over {self._root} while this one was silent; let it continue, "
                "or stop it and start this one again"
            )
        raise PreemptedError(
            f"asked to stop: {len(self.done)} of {len(self._plan)} runs of {self._root} are done; the same "
            "command resumes from here"
        )

    def _start_jobs(self) -> None:
        """Submits enough bundles that no worker waits for this process."""
        if self._pool is None:
            self._pool = Pool(
                self._engine, self._place, self._silent_seconds, dashboard=self._dashboard
            )
        # The size of a cluster that others started is known once it is there.
        workers = max(self._engine.workers, self._pool.num_workers)
        # For each worker one that is carried out and one that waits.
        while len(self._jobs) < 2 * workers:
            bundle = self._waiting.take(workers)
            if bundle is None:
                return
            calls = [
                Call(
                    run.path,
                    run.stage,
                    run.arguments(self._root),
                    _log(run),
                    len(self.attempts.get(run.path, ())) + 1,
                )
                for run in bundle.runs
            ]
            # Made here, as network file systems remember for a while that a file was not there.
            journal = make_journal(self._root, next(self._names))
            future = self._pool.submit(calls, journal)
            self._jobs[future] = bundle, journal
            future.add_done_callback(self._finished.put)

    def _take_finished(self, bar: tqdm[Any]) -> None:
        """Waits a little for bundles to finish, and records their outcomes."""
        try:
            future = self._finished.get(timeout=SECONDS_BETWEEN_LOOKS)
            while True:
                self._take(future, bar)
                future = self._finished.get_nowait()
        except queue.Empty:
            pass
        if self._pool is not None:
            self._pool.look_after(len(self._jobs))

    def _take(self, future: Future[Any], bar: tqdm[Any]) -> None:
        """Records the outcomes of a bundle."""
        bundle, journal = self._jobs.pop(future)
        try:
            outcomes, seconds = future.result()
        except LostWorkerError as loss:
            self._take_lost(bundle, journal, loss)
            return
        self._note_attempts(journal)
        for run in bundle.runs:
            if run.path in outcomes:
                self._note(run, *outcomes[run.path])
        self._waiting.add(run for run in bundle.runs if run.path not in outcomes)
        if bar.disable:
            report(f"[{len(self.done)}/{len(self._plan)}] {bundle.name}: {seconds:.0f} s")

    def _show_progress(self, bar: tqdm[Any]) -> None:
        """Draws the bar of a terminal: runs done, and what is being carried out."""
        if bar.disable:
            return
        files = [file_of_journal(self._root, journal) for _, journal in self._jobs.values()]
        bar.n = len(self.done) + sum(_num_done_in(file, _size(file)) for file in files)
        running = itertools.islice(self._jobs.values(), self._engine.workers)
        bar.set_postfix_str(" | ".join(self._in_words(bundle) for bundle, _ in running))

    def _in_words(self, bundle: Bundle) -> str:
        """Returns a bundle's name, with the step that a pre-training has reached."""
        run = bundle.runs[0]
        if run.stage != "pretrain":
            return bundle.name
        metrics = self._root / run.path / METRICS
        step = _last_step(metrics, _size(metrics))
        return bundle.name + (f" {step}/{run.parameters['num_steps']}" if step else "")

    def _note_attempts(self, journal: str) -> dict[str, Attempt]:
        """Notes the attempts of a bundle that has ended, and returns them by run."""
        attempts = read_journal(file_of_journal(self._root, journal))
        for attempt in attempts:
            before = [a for a in self.attempts.get(attempt.path, ()) if a.journal != journal]
            in_order = sorted([*before, attempt], key=lambda a: (a.attempt, a.started))
            self.attempts[attempt.path] = in_order
        return {attempt.path: attempt for attempt in attempts}

    def _take_lost(self, bundle: Bundle, journal: str, loss: LostWorkerError) -> None:
        """Records how far a bundle came whose worker is gone, by its journal."""
        tried = self._note_attempts(journal)
        self._lost.append(journal)
        error: Error = {"kind": "WorkerLost", "message": str(loss)}
        is_fault = not isinstance(loss, BlamelessLossError)
        outcome = "lost" if is_fault else "preempted"
        for run in bundle.runs:
            attempt = tried.get(run.path)
            if run.done(self._root):
                self._note(run, "done", None)
            elif attempt is not None and attempt.outcome is not None:
                self._note(run, attempt.outcome, attempt.error)
            elif attempt is not None:
                # A worker that is there all the same records later how it ended.
                self._end(attempt, outcome, error=error)
                self._note(run, outcome, error)
            else:
                if run is bundle.runs[0] and is_fault:
                    # Its worker may have died of the bundle before; one whose workers always die is given up.
                    self._unbegun[run.path] += 1
                    if self._unbegun[run.path] % _LOSSES_PER_TRY == 0:
                        self._note(run, "lost", error)
                        continue
                self._waiting.add([run])

    def _note(self, run: PlannedRun, outcome: str, error: Error | None) -> None:
        """Records the outcome of an attempt at a run; a failure also of the runs that build on it."""
        if outcome == "done" and self._has_appeared(run):
            self.done.add(run.path)
            self._waiting.note_done(run)
            return
        if outcome == "preempted":
            self._waiting.add([run])  # only its worker was asked to stop: it continues
            return
        error = error or {"kind": "RuntimeError", "message": "it ended without its DONE marker"}
        if error["kind"] == DISK_FULL:
            raise UserError(f"{run.name}: {error['message']}")
        is_user_error = error["kind"] == UserError.__name__
        self._tries[run.path] += 1
        tries = self._tries[run.path]
        if is_user_error or tries >= self._attempts:
            log = self._root / _log(run)
            last = self.attempts.get(run.path, [])[-1:]
            if last and last[0].outcome != "failed":
                # Nobody tries again: for whoever reads the markers it is a failure, too.
                self._end(last[0], "failed", error=error, ended=last[0].ended)
            self._failures[run.path] = FailedRun(run, error["message"], is_user_error, log, tries)
            message = f"not started, for {run.name} failed"
            for later in self._waiting.give_up_after(run):
                self._failures[later.path] = FailedRun(later, message, is_user_error, None)
        else:
            self._waiting.add([run])

    def _has_appeared(self, run: PlannedRun) -> bool:
        """Returns whether the DONE marker is there; network file systems show it a little later."""
        end = time.monotonic() + SECONDS_TO_APPEAR
        while not run.done(self._root):
            if self._engine.is_local or time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True

    def _close_open_attempts(self, outcome: str) -> None:
        """Ends attempts at the plan's runs, when no worker is left; jobs of SkyPilot go on."""
        for journal in (*self._lost, *(journal for _, journal in self._jobs.values())):
            tried = self._note_attempts(journal)
            self.done.update(path for path in tried if is_done(self._root / path))
        for attempt in [a for run in self._plan for a in self.attempts.get(run.path, ())]:
            if attempt.ended is None and attempt.needs_launcher:
                self._end(attempt, outcome, ended=attempt.heartbeat)

    def _end(self, attempt: Attempt, outcome: str, **facts: Any) -> None:
        """Records how an attempt ended whose worker cannot; `facts` are those of `end_attempt`."""
        of_run = self.attempts[attempt.path]
        of_run[of_run.index(attempt)] = end_attempt(self._root, attempt, outcome, **facts)


def _log(run: PlannedRun) -> str:
    return f"logs/{run.path.replace('/', '-')}.log"


# A bar is drawn twice a second: a growing file is read again only if its size is another.
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
