"""Pre-trains the seeds of a plan on Cloud TPU: looks after queued resources until every seed is done.

Each look is complete in itself. `once` makes a single one, so a line in cron is enough, on any machine
that has the experiment's root; a launcher that stays only repeats it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from multiberts.launch.estimate.estimate import estimate_plan, refuse_above
from multiberts.launch.estimate.prices import load_prices
from multiberts.launch.markers.attempts import attempts_of
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.lease import Lease
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import run_plan
from multiberts.launch.tpu.client import PASSING, RIGHTS, Provisioner, TpuError, needs_person
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.reconcile import Action, GiveUp
from multiberts.launch.tpu.reconciler import ENGINE, Reconciler
from multiberts.launch.tpu.settings import PROJECT, TpuSettings
from multiberts.launch.tpu.startup import pack
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.console import report, warn
from multiberts.runs.errors import UserError, counted
from multiberts.runs.preemption import PreemptedError, preemption_notice

STAGE = "pretrain"
_MAX_SHOWN = 12


def run_on_tpu(
    *,
    plan: list[PlannedRun],
    root: str,
    settings: TpuSettings,
    once: bool = False,
    provisioner: Provisioner | None = None,
) -> list[FailedRun]:
    """Carries out the pre-training of a plan on Cloud TPU, and before it here what that needs.

    The same call resumes after any interruption. Runs that pre-training needs (texts, corpora) are
    carried out on this machine; those that need pre-training are left to the local or another engine.
    Where the launcher is stopped, nodes train on: call again, or `run --reap=everything`.

    Args:
      plan: every run after its parents.
      root: directory of the experiment here: markers, and in the end what was trained.
      settings: what to ask for, and how long to wait for it.
      once: look once, do what is due, and return.
      provisioner: None: the project's.

    Returns:
      The runs that were given up.

    Raises:
      PreemptedError: SIGTERM came; nodes train on.
    """
    settings.check()
    pretraining = [run for run in plan if run.stage == STAGE]
    provisioner = Provisioner(settings.project) if provisioner is None else provisioner
    preflight(provisioner, settings)
    if settings.dollars_per_hour is None:
        price = _listed_price(settings)
        settings = dataclasses.replace(settings, dollars_per_hour=price)
        if price is not None:
            estimate = estimate_plan(
                plan=pretraining,
                root=root,
                device=settings.accelerator_type,
                spot=settings.spot,
            )
            refuse_above(estimate, settings.budget)
    failures = carry_out_before(plan, root)
    if failures:
        return failures
    with contextlib.ExitStack() as stack:
        lease = stack.enter_context(Lease(root))
        should_stop = stack.enter_context(preemption_notice())
        write_plan(root, plan)
        source = Places(settings.bucket).put_source(pack(PROJECT))
        reconciler = Reconciler(settings, provisioner, Path(root), source)

        def report_nodes(kind: type[BaseException] | None, *_: object) -> None:
            if kind is KeyboardInterrupt:
                report(f"stopped; {reconciler.nodes_that_continue()}")

        stack.push(report_nodes)
        given_up = _look(reconciler, pretraining, root)
        while True:
            open_runs = [run for run in pretraining if not run.done(root)]
            if once or all(run.path in given_up for run in open_runs):
                break
            _pause(settings.poll_seconds, lambda: should_stop() or lease.lost.is_set())
            if lease.lost.is_set():
                raise UserError(f"another launcher took over {root}; let it continue, or stop it")
            if should_stop():
                raise PreemptedError(
                    f"asked to stop: {len(pretraining) - len(open_runs)} of {len(pretraining)} seeds of "
                    f"{root} are done; {reconciler.nodes_that_continue()}; the same command looks "
                    "after them again"
                )
            try:
                given_up = _look(reconciler, pretraining, root)
            except UserError as error:
                # The first look succeeded, so this passes; nodes need no launcher meanwhile.
                report(f"{error} (tried again in {settings.poll_seconds:.0f} s)")
    _report_the_end(plan, pretraining, root)
    return [_failure(run, given_up[run.path], root) for run in open_runs if run.path in given_up]


def preflight(provisioner: Provisioner, settings: TpuSettings) -> None:
    """Refuses a request that could never be met; creates nothing.

    Software that a zone does not list is a warning: the service's list is known to be incomplete.

    Args:
      settings: zones, accelerator, software and bucket.
    """
    place = Bucket(settings.bucket)
    place.check_conditional()
    place.check_writable()
    try:
        known = provisioner.zones()
        for zone in settings.zones:
            _refuse_unless_in(zone, known, "zones", f"the zones of project {provisioner.project}")
            offered = provisioner.accelerator_types(zone)
            _refuse_unless_in(
                settings.accelerator_type, offered, "accelerator_type", f"what {zone} offers"
            )
            listed = provisioner.runtime_versions(zone)
            if settings.software not in listed:
                warn(
                    f"{zone} does not list runtime_version {settings.software!r} (it lists "
                    f"{_shown(listed)}); its list may be incomplete, so it is asked for all the same"
                )
    except TpuError as error:
        raise UserError(
            f"Cloud TPU does not answer ({error}); try again later"
            if error.kind in PASSING
            else f"Cloud TPU refuses project {provisioner.project!r} ({error}); "
            + (needs_person(str(error)) or RIGHTS)
        ) from error


def _refuse_unless_in(wanted: str, offered: Sequence[str], name: str, whose: str) -> None:
    if wanted not in offered:
        raise UserError(
            f"{name} names {wanted!r}, which is not among {whose} ({_shown(offered)}); correct it"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + ", ..." * (len(names) > _MAX_SHOWN) or "none"


def _look(
    reconciler: Reconciler, pretraining: Sequence[PlannedRun], root: str
) -> dict[str, GiveUp]:
    """Takes one step; returns the runs that are given up, and those that build on them."""
    ready = [
        run
        for run in pretraining
        if not run.done(root) and all(parent.done(root) for parent in run.parents)
    ]
    actions: Mapping[str, Action] = reconciler.step(ready, pretraining)
    given_up = {path: action for path, action in actions.items() if isinstance(action, GiveUp)}
    for run in pretraining:
        lost = [parent for parent in run.parents if parent.path in given_up]
        if lost:
            message = f"not started, for {lost[0].name} failed"
            given_up[run.path] = GiveUp(message, given_up[lost[0].path].is_user_error)
    return given_up


def carry_out_before(plan: Sequence[PlannedRun], root: str) -> list[FailedRun]:
    """Carries out on this machine what pre-training needs."""
    needed: set[str] = set()
    for run in reversed(plan):
        if run.path in needed or (run.stage == STAGE and not run.done(root)):
            needed |= {parent.path for parent in run.parents if parent.stage != STAGE}
    before = [run for run in plan if run.path in needed]
    if all(run.done(root) for run in before):
        return []
    return run_plan(plan=before, root=root)


def _listed_price(settings: TpuSettings) -> float | None:
    """Returns dollars per hour from the price file; None where it has none and no budget needs it."""
    try:
        return load_prices().device(settings.accelerator_type).dollars_per_hour(settings.spot)
    except UserError:
        if settings.budget is None:
            return None
        raise


def _pause(seconds: float, is_over: Callable[[], bool]) -> None:
    """Waits, but not past a request to stop."""
    end = time.monotonic() + seconds
    while not is_over() and time.monotonic() < end:
        time.sleep(min(0.5, max(0.0, end - time.monotonic())))


def _report_the_end(
    plan: Sequence[PlannedRun], pretraining: Sequence[PlannedRun], root: str
) -> None:
    done = sum(run.done(root) for run in pretraining)
    left = sum(run.stage != STAGE and not run.done(root) for run in plan)
    report(f"{done} of {len(pretraining)} pre-training runs of {root} are done")
    if left and done == len(pretraining):
        report(
            f"{counted(left, 'run')} to make after them: run.engine = 'local' carries them out here"
        )


def _failure(run: PlannedRun, end: GiveUp, root: str) -> FailedRun:
    attempts = [one for one in attempts_of(root).get(run.path, ()) if one.engine == ENGINE]
    log = attempts[-1].log if attempts else None
    path = Path(root) / log if log is not None and (Path(root) / log).is_file() else None
    return FailedRun(run, end.message, end.is_user_error, path, len(attempts))
