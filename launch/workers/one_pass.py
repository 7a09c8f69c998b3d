"""Carries out a plan: starts what can start, tries again what failed, and reports the rest."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tqdm import tqdm

from multiberts.bert.training.log import METRICS, tail_of_metrics
from multiberts.launch.estimate.estimate import estimate_plan, refuse_above
from multiberts.launch.markers.attempts import attempts_at, close_open_attempts, end_attempt
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.lease import Lease, read_lease
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.status.page import PAGE, write_status_page
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.workers.bundles import Bundle, WaitingRuns
from multiberts.launch.workers.engines import Engine
from multiberts.launch.workers.leftovers import end_processes, end_slurm_jobs
from multiberts.launch.workers.pool import SECONDS_TO_END, Pool
from multiberts.launch.workers.worker import (
    DISK_FULL,
    SECONDS_TO_SAVE,
    Call,
    Error,
    WorkerPlace,
)
from multiberts.runs.console import progress, report
from multiberts.runs.dask_cluster import BlamelessLossError, LostWorkerError
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import done_paths
from multiberts.runs.preemption import PreemptedError, preemption_notice

SECONDS_BETWEEN_LOOKS = 0.5
# Until what another machine has written appears here.
SECONDS_TO_APPEAR = 10.0

# Workers that may be lost before a run has begun, until that counts as one of its attempts.
_LOSSES_PER_TRY = 2


class OnePass:
    """Carries out what of a plan is not done; see `carry_out_plan` for the arguments."""

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
        self._done = done_paths(place.root, (run.path for run in plan))
        self._engine = engine.for_at_most(len(plan) - len(self._done))
        self.had_work = len(self._done) < len(plan)
        expected: dict[str, float] = {}
        if self.had_work:
            estimate = estimate_plan(plan=plan, root=self._root, workers=self._engine.workers)
            refuse_above(estimate, budget)
            expected = {path: run.seconds for path, run in estimate.runs.items()}
        self._waiting = WaitingRuns(plan, self._done, expected)
        # With how many attempts at each run there were before.
        self._jobs: dict[Future[Any], tuple[Bundle, list[int]]] = {}
        self._finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._tries: dict[str, int] = {}
        self._unbegun: dict[str, int] = {}
        self._failures: dict[str, FailedRun] = {}
        self._pool: Pool | None = None

    def carry_out(self, lease: Lease) -> list[FailedRun]:
        """Starts bundles as their parents finish, until nothing can start any more.

        No worker is left when it ends, also by SIGTERM (`PreemptedError`) or Ctrl-C.

        Args:
          lease: of the root, held.

        Returns:
          The runs that failed, in the order of the plan.
        """
        write_plan(self._root, self._plan)
        if len(self._done) == len(self._plan):
            report(f"all {len(self._done)} runs of {self._root} are done")
            return []
        # A launcher that is gone may have left attempts open.
        left = (run.path for run in self._plan if run.path not in self._done)
        close_open_attempts(self._root, left, "lost")
        with (
            preemption_notice() as should_stop,
            tqdm(total=len(self._plan), initial=len(self._done), unit="run", disable=None) as bar,
        ):
            try:
                while not (should_stop() or lease.lost.is_set()):
                    self._start_jobs()
                    if not self._jobs:
                        break
                    self._take_finished(bar)
                    self._show_progress(bar)
            except BaseException:
                if self._pool is not None:
                    self._pool.end(SECONDS_TO_END)
                with contextlib.suppress(OSError):  # on a full disk the next launcher closes them
                    self._close_open_attempts()
                raise
        if should_stop() or lease.lost.is_set():
            self._stop(lease)
        elif self._pool is not None:
            self._pool.end(SECONDS_TO_END)
        return [self._failures[run.path] for run in self._plan if run.path in self._failures]

    def _stop(self, lease: Lease) -> None:
        if self._pool is not None:
            self._pool.end(SECONDS_TO_SAVE)
        self._close_open_attempts()
        if lease.lost.is_set():
            raise UserError(
                f"another launcher took over {self._root} while this one was silent; let it continue, "
                "or stop it and start this one again"
            )
        raise PreemptedError(
            f"asked to stop: {self._num_done()} of {len(self._plan)} runs of {self._root} are done; the same "
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
                Call(run.path, run.stage, run.arguments(self._root), _log(run))
                for run in bundle.runs
            ]
            known = [len(attempts_at(self._root, run.path)) for run in bundle.runs]
            future = self._pool.submit(calls, known)
            self._jobs[future] = bundle, known
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
        bundle, known = self._jobs.pop(future)
        try:
            outcomes, seconds = future.result()
        except LostWorkerError as loss:
            self._take_lost(bundle, known, loss)
            return
        for run, (outcome, error) in zip(bundle.runs, outcomes, strict=False):
            self._note(run, outcome, error)
        self._waiting.put_back(bundle.runs[len(outcomes) :])
        if bar.disable:
            report(f"[{len(self._done)}/{len(self._plan)}] {bundle.name}: {seconds:.0f} s")

    def _show_progress(self, bar: tqdm[Any]) -> None:
        """Draws the bar of a terminal: runs done, and what is being carried out."""
        if bar.disable:
            return
        bar.n = self._num_done()
        running = itertools.islice(self._jobs.values(), self._engine.workers)
        bar.set_postfix_str(" | ".join(self._in_words(bundle) for bundle, _ in running))

    def _num_done(self) -> int:
        """Counts the runs that are done, those of bundles that have not ended included."""
        running = (run for bundle, _ in self._jobs.values() for run in bundle.runs)
        within = (run for run in running if run.path not in self._done)
        return len(self._done) + sum(run.done(self._root) for run in within)

    def _in_words(self, bundle: Bundle) -> str:
        """Returns a bundle's name, with the step that a pre-training has reached."""
        run = bundle.runs[0]
        lines = tail_of_metrics(self._root / run.path / METRICS)
        if run.stage != "pretrain" or not lines:
            return bundle.name
        return f"{bundle.name} {lines[-1]['step']}/{run.parameters['num_steps']}"

    def _take_lost(self, bundle: Bundle, known: Sequence[int], loss: LostWorkerError) -> None:
        """Records how far a bundle came whose worker is gone, by its markers."""
        error: Error = {"kind": "WorkerLost", "message": str(loss)}
        is_fault = not isinstance(loss, BlamelessLossError)
        outcome = "lost" if is_fault else "preempted"
        for run, before in zip(bundle.runs, known, strict=True):
            attempts = attempts_at(self._root, run.path)[before:]
            if run.done(self._root):
                self._note(run, "done", None)
            elif attempts and attempts[-1].outcome is not None:
                self._note(run, attempts[-1].outcome, attempts[-1].error)
            elif attempts:
                # A worker that is there all the same records later how it ended.
                end_attempt(self._root, attempts[-1], outcome, error)
                self._note(run, outcome, error)
            else:
                if run is bundle.runs[0] and is_fault:
                    # Its worker may have died of the bundle before; one whose workers always die is given up.
                    self._unbegun[run.path] = self._unbegun.get(run.path, 0) + 1
                    if self._unbegun[run.path] % _LOSSES_PER_TRY == 0:
                        self._note(run, "lost", error)
                        continue
                self._waiting.put_back([run])

    def _note(self, run: PlannedRun, outcome: str, error: Error | None) -> None:
        """Records the outcome of an attempt at a run; a failure also of the runs that build on it."""
        if outcome == "done" and self._has_appeared(run):
            self._done.add(run.path)
            self._waiting.note_done(run)
            return
        if outcome == "preempted":
            self._waiting.put_back([run])  # only its worker was asked to stop: it continues
            return
        error = error or {"kind": "RuntimeError", "message": "it ended without its DONE marker"}
        if error["kind"] == DISK_FULL:
            raise UserError(f"{run.name}: {error['message']}")
        is_user_error = error["kind"] == UserError.__name__
        tries = self._tries[run.path] = self._tries.get(run.path, 0) + 1
        if is_user_error or tries >= self._attempts:
            log = self._root / _log(run)
            last = attempts_at(self._root, run.path)[-1:]
            if last and last[0].outcome != "failed":
                # Nobody tries again: for whoever reads the markers it is a failure, too.
                end_attempt(self._root, last[0], "failed", error, last[0].ended)
            self._failures[run.path] = FailedRun(run, error["message"], is_user_error, log, tries)
            message = f"not started, for {run.name} failed"
            for later in self._waiting.give_up_after(run):
                self._failures[later.path] = FailedRun(later, message, is_user_error, None)
        else:
            self._waiting.put_back([run])

    def _has_appeared(self, run: PlannedRun) -> bool:
        """Returns whether the DONE marker is there; network file systems show it a little later."""
        end = time.monotonic() + SECONDS_TO_APPEAR
        while not run.done(self._root):
            if self._engine.is_local or time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True

    def _close_open_attempts(self) -> None:
        """Closes the open attempts of this launch, whose workers have ended."""
        running = (run for bundle, _ in self._jobs.values() for run in bundle.runs)
        left = (run.path for run in running if not run.done(self._root))
        close_open_attempts(self._root, left, "preempted")


def carry_out_plan(
    plan: Sequence[PlannedRun],
    root: str,
    engine: Engine,
    workers_per_accelerator: int = 1,
    attempts: int = 3,
    budget: float | None = None,
    silent_seconds: float = 90.0,
    dashboard: bool = False,
) -> list[FailedRun]:
    """Carries out what of a plan is not done, as the only launcher of its root.

    Args:
      plan: every run after its parents.
      workers_per_accelerator: how many workers share a GPU.
      attempts: how often a run is tried that fails through no fault of its input.
      budget: dollars that the runs that are left may be estimated to cost; None: any.
      silent_seconds: a worker without a heartbeat for so long is ended.
      dashboard: whether Dask's live pages are served at 127.0.0.1.

    Returns:
      The runs that failed.
    """
    lease = Lease(root)
    place = WorkerPlace(root, engine.name, lease.owner, workers_per_accelerator)
    one_pass = OnePass(plan, engine, place, attempts, budget, silent_seconds, dashboard)
    try:
        with lease:
            end_processes(root, read_lease(root))
            end_slurm_jobs(root)
            failures = one_pass.carry_out(lease)
            _point_at_newest_report(plan, Path(root))
        page = Path(root, PAGE)
        if one_pass.had_work or not page.exists():
            write_status_page(collect_status(root), page)
    except KeyboardInterrupt:
        progress("stopped; the same command resumes from here")
        # Exit handlers of libraries take longer than people wait.
        os._exit(130)
    return failures


def _point_at_newest_report(plan: Sequence[PlannedRun], root: Path) -> None:
    """Points the links `report`, `scores` and `paper` to this plan's directories, named with hashes."""
    for run in plan:
        if run.stage in ("report", "score", "paper") and run.done(root):
            link = root / run.path.rsplit("-", 1)[0]
            if link.is_symlink() and os.readlink(link) == run.path:
                continue
            if link.exists() and not link.is_symlink():
                raise UserError(
                    f"{link} is not a link, expected one to {run.path}; move it away and give the same "
                    "command, which has nothing else left to do"
                )
            fresh = link.with_name(link.name + ".unfinished")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(run.path)
            os.replace(fresh, link)


def _log(run: PlannedRun) -> str:
    return f"logs/{run.path.replace('/', '-')}.log"
