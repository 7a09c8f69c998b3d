"""Pre-training of a plan on Cloud TPU: looks after queued resources until every seed is done.

Each look is complete in itself. `once` makes a single one, so a line in cron is enough, on any machine
that has the experiment's root; a launcher that stays only looks again and again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.launch.estimate.estimate import checked_estimates
from multiberts.launch.markers.attempts import attempts_at
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.lease import Lease
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import Provisioner
from multiberts.launch.tpu.offer_check import preflight
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.reconcile import Action, GiveUp, TpuSettings
from multiberts.launch.tpu.reconciler import ENGINE, Reconciler
from multiberts.launch.tpu.source_archive import pack
from multiberts.launch.tpu.startup import PROJECT, Machine
from multiberts.launch.workers.engines import make_engine
from multiberts.launch.workers.one_pass import carry_out_plan
from multiberts.runs.bucket.objects import is_url
from multiberts.runs.console import report
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError, preemption_notice

STAGE = "pretrain"


def run_on_tpu(
    *,
    plan: list[PlannedRun],
    root: str,
    settings: TpuSettings,
    once: bool = False,
    machine: Machine | None = None,
    provisioner: Provisioner | None = None,
) -> list[FailedRun]:
    """Carries out the pre-training of a plan on Cloud TPU, and before it here what that needs.

    The same call after any interruption resumes where things are. Runs that pre-training needs
    (texts, corpora) are carried out on this machine; those that need pre-training are left to the
    local or another engine. Where the launcher is stopped, nodes train on: call again, or reap.

    Args:
      plan: every run after its parents.
      root: directory of the experiment here: markers, and in the end what was trained.
      settings: what to ask for, and how long to wait for it.
      once: look once, do what is due, and return.
      machine: what else nodes are; None: Cloud TPU's machines.
      provisioner: None: the project's.

    Returns:
      The runs that were given up.

    Raises:
      UserError: something asked for is not on offer, the bucket cannot be written, another launcher
        has the root, or nobody is signed in. Nothing has been created.
      PreemptedError: SIGTERM came; nodes train on.
    """
    machine = Machine(compute=settings.compute) if machine is None else machine
    settings.check()
    machine.check()
    if not is_url(settings.bucket):
        raise UserError(
            f"bucket is {settings.bucket!r}, expected a URL such as gs://bucket/experiment"
        )
    pretraining = [run for run in plan if run.stage == STAGE]
    provisioner = Provisioner(settings.project) if provisioner is None else provisioner
    preflight(provisioner, settings)
    estimates = None
    if settings.dollars_per_hour is None:
        price = _listed_price(settings)
        settings = dataclasses.replace(settings, dollars_per_hour=price)
        if price is not None:
            estimates = checked_estimates(
                plan=pretraining,
                root=root,
                budget=settings.budget,
                device=settings.accelerator_type,
                workers=len(pretraining),
                spot=settings.spot,
            )
    failures = carry_out_before(plan, pretraining, root)
    if failures:
        return failures
    places = Places(settings.bucket)
    with Lease(root) as lease, preemption_notice() as should_stop:
        write_plan(root, plan, estimates)
        packed, digest = pack(PROJECT)
        reconciler = Reconciler(
            provisioner=provisioner,
            places=places,
            root=Path(root),
            policy=settings.policy(),
            settings=settings,
            machine=machine,
            source=(places.put_source(packed, digest), digest),
        )
        given_up = _look(reconciler, pretraining, root)
        while True:
            open_runs = [run for run in pretraining if not run.done(root)]
            if once or all(run.path in given_up for run in open_runs):
                break
            _pause(settings.poll_seconds, lambda: should_stop() or lease.lost.is_set())
            if lease.lost.is_set():
                raise UserError(f"another launcher took over {root}; let it go on, or stop it")
            if should_stop():
                raise PreemptedError(
                    f"asked to stop: {len(pretraining) - len(open_runs)} of {len(pretraining)} seeds of "
                    f"{root} are done, nodes train on; the same command looks after them again"
                )
            try:
                given_up = _look(reconciler, pretraining, root)
            except UserError as error:
                # The first look went well, so this passes; nodes need nobody meanwhile.
                report(f"{error} (looked at again in {settings.poll_seconds:.0f} s)")
    _tell_the_end(plan, pretraining, root)
    return [_failure(run, given_up[run.path], root) for run in open_runs if run.path in given_up]


def _look(
    reconciler: Reconciler, pretraining: Sequence[PlannedRun], root: str
) -> dict[str, GiveUp]:
    """Takes one step; returns the runs that are given up, with those that wait for them."""
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


def carry_out_before(
    plan: Sequence[PlannedRun], pretraining: Sequence[PlannedRun], root: str
) -> list[FailedRun]:
    """Carries out on this machine what pre-training needs."""
    needed: dict[str, PlannedRun] = {}
    waiting = [run for run in pretraining if not run.done(root)]
    while waiting:
        for parent in waiting.pop().parents:
            if parent.stage != STAGE and parent.path not in needed:
                needed[parent.path] = parent
                waiting.append(parent)
    before = [run for run in plan if run.path in needed]
    if all(run.done(root) for run in before):
        return []
    return carry_out_plan(before, root, make_engine("local", {}, None, 1))


def _listed_price(settings: TpuSettings) -> float | None:
    """Returns dollars per hour from the price file; None where it has none and no budget needs it."""
    from multiberts.launch.estimate.prices import load_prices

    try:
        return load_prices().device(settings.accelerator_type).dollars_per_hour(settings.spot)
    except UserError:
        if settings.budget is None:
            return None
        raise


def _pause(seconds: float, is_over: Any) -> None:
    """Waits, but not past a request to stop."""
    end = time.monotonic() + seconds
    while not is_over() and time.monotonic() < end:
        time.sleep(min(0.5, max(0.0, end - time.monotonic())))


def _tell_the_end(plan: Sequence[PlannedRun], pretraining: Sequence[PlannedRun], root: str) -> None:
    done = sum(run.done(root) for run in pretraining)
    left = sum(run.stage != STAGE and not run.done(root) for run in plan)
    report(f"{done} of {len(pretraining)} pre-training runs of {root} are done")
    if left and done == len(pretraining):
        report(f"{left} runs come after them: run.engine = 'local' carries them out here")


def _failure(run: PlannedRun, end: GiveUp, root: str) -> FailedRun:
    attempts = [one for one in attempts_at(root, run.path) if one.engine == ENGINE]
    log = attempts[-1].log if attempts else None
    path = Path(root) / log if log is not None and (Path(root) / log).is_file() else None
    return FailedRun(run, end.message, end.is_user_error, path, len(attempts))
