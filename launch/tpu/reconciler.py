"""Takes one step for every run: looks at markers, bucket and service, and does what is next."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from multiberts.launch.markers.attempts import (
    Attempt,
    attempts_of,
    beat,
    begin_attempt,
    end_attempt,
    write_attempt,
)
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import (
    EXPERIMENT,
    Provisioner,
    Resource,
    TpuError,
    needs_person,
    request_id,
)
from multiberts.launch.tpu.node import METRICS, last_step
from multiberts.launch.tpu.places import LOOK, Places
from multiberts.launch.tpu.reconcile import (
    Action,
    Beat,
    Create,
    Delete,
    End,
    Finish,
    GiveUp,
    Observation,
    Show,
    Wait,
    after_refusal,
    decide,
    reason_to_hold,
)
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.launch.tpu.startup import startup_script
from multiberts.runs.bucket.copies import fetch_run
from multiberts.runs.bucket.mirror import read_manifest
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.console import report
from multiberts.runs.directory import DONE
from multiberts.runs.files import write_atomically

ENGINE = "tpu"


class Reconciler:
    """Looks after the runs of one experiment; keeps nothing that it could not look up again."""

    def __init__(
        self,
        settings: TpuSettings,
        provisioner: Provisioner,
        root: Path,
        source: tuple[str, str],
    ):
        """Opens no connection.

        Args:
          settings: what to ask for, and how long to wait for it.
          root: of the experiment on this machine, with the markers.
          source: URL and SHA-256 of the packed program.
        """
        self._settings = settings
        self._provisioner = provisioner
        self._places = Places(settings.bucket)
        self._root = root
        self._source = source
        self._printed: dict[str, str] = {}
        self._in_use: dict[str, Resource] = {}
        self._attempts: dict[str, list[Attempt]] = {}

    def step(self, runs: Sequence[PlannedRun], planned: Sequence[PlannedRun]) -> dict[str, Action]:
        """Does the next thing for each run, and deletes resources of runs that need none.

        Args:
          runs: those that are not done and whose parents are.
          planned: all pre-training runs of the plan.

        Returns:
          What was done, by a run's path.
        """
        found, unseen = self._look()
        self._attempts = attempts_of(self._root)
        # Nodes that have ended delete themselves when it stops changing.
        self._places.bucket.write(LOOK, f"{time.time():.0f}".encode())
        known = {self._places.name(run) for run in planned if not run.done(self._root)}
        for resource in found:
            name = resource.name
            if name not in known and not resource.is_deleting and self._delete(resource):
                self._say(name, f"{name}: belongs to no run that is left; deleted")
        spent = self._spent(planned)
        is_proven = any(
            run.done(self._root) or last_step(self._root / run.path / METRICS) is not None
            for run in planned
        )
        self._in_use = {one.name: one for one in found if not one.is_deleting}
        failed: GiveUp | None = None
        actions: dict[str, Action] = {}
        for run in runs:
            name = self._places.name(run)
            mine = tuple(resource for resource in found if resource.name == name)
            seen = self._seen(run, mine, unseen, spent)
            action = decide(seen, self._settings)
            if isinstance(action, Create) and name not in self._in_use:
                hold = reason_to_hold(len(self._in_use), is_proven, self._settings)
                if failed is not None and not is_proven:
                    action = GiveUp(f"not started, as {failed.message}", failed.is_user_error)
                elif hold is not None:
                    action = Wait(hold)
            if isinstance(action, GiveUp) and failed is None:
                failed = GiveUp(f"{run.name} was given up: {action.message}", action.is_user_error)
            self._carry_out(run, action, seen)
            actions[run.path] = action
        return actions

    def nodes_that_continue(self) -> str:
        """Returns for people which resources were in use at the last look, and what nodes cost."""
        names = [f"{one.name} in {one.zone}" for one in self._in_use.values()]
        if not names:
            return "no node was asked for"
        price = self._settings.dollars_per_hour
        cost = "" if price is None else f", ${price:.2f} per hour each"
        return (
            f"these train on{cost}: {', '.join(names)}; `multiberts launch run --reap=everything` deletes "
            "them"
        )

    def _spent(self, planned: Sequence[PlannedRun]) -> float:
        """Returns the dollars that nodes have cost so far."""
        now = time.time()
        return sum(
            ((attempt.ended or now) - attempt.started) / 3600 * attempt.dollars_per_hour
            for run in planned
            for attempt in self._attempts.get(run.path, ())
            if attempt.engine == ENGINE and attempt.dollars_per_hour is not None
        )

    def _look(self) -> tuple[list[Resource], tuple[str, ...]]:
        """Returns the resources of this experiment, and the zones that did not answer."""
        found, unseen = [], []
        for zone in self._settings.zones:
            try:
                listed = self._provisioner.resources(zone)
                ours = self._places.experiment
                found += [one for one in listed if one.labels.get(EXPERIMENT) == ours]
            except TpuError as error:
                unseen.append(zone)
                self._say(zone, f"{zone}: {error.kind.lower()}: {error}")
        return found, tuple(unseen)

    def _seen(
        self, run: PlannedRun, mine: tuple[Resource, ...], unseen: tuple[str, ...], spent: float
    ) -> Observation:
        attempts = tuple(a for a in self._attempts.get(run.path, ()) if a.engine == ENGINE)
        last = attempts[-1] if attempts else None
        word = None if last is None else self._places.read_beat(run, last.attempt)
        active = [resource for resource in mine if resource.is_active]
        node = None
        if active:
            try:
                node = self._provisioner.node(active[0])
            except TpuError as error:
                self._say(run.path, f"{run.name}: its node cannot be looked up: {error}")
        if last is not None and last.ended is None:
            since = node.created if node is not None and node.is_ready else None
            attempts = (*attempts[:-1], self._note_alive(last, since, word))
        is_done = Bucket(self._places.run(run)).read(DONE) is not None
        return Observation(time.time(), is_done, mine, unseen, attempts, node, word, spent)

    def _note_alive(self, attempt: Attempt, since: float | None, word: Beat | None) -> Attempt:
        """Records since when a node costs money, and that the attempt is alive."""
        since = since or (word.booted if word is not None else None)
        # Once: a node that boots again after maintenance has cost money all the time.
        is_new = attempt.dollars_per_hour is None and attempt.started != since
        if since is not None and is_new:
            price = self._settings.dollars_per_hour
            attempt = dataclasses.replace(attempt, started=since, dollars_per_hour=price)
            write_attempt(self._root, attempt)
        beat(self._root, attempt)
        return attempt

    def _carry_out(self, run: PlannedRun, action: Action, seen: Observation) -> None:
        match action:
            case Create(attempt, zone):
                self._create(run, attempt, zone, seen)
            case Delete(resource, outcome, error):
                reason = "" if error is None else f": {error['message']}"
                ended = f"{resource.state} in {resource.zone}{reason}"
                if self._delete(resource):
                    self._say(run.path, f"{run.name}: {ended}; deleted")
                    self._call_person(resource.zone, resource.message)
                    if outcome is not None:
                        self._end(run, seen, outcome, error)
            case End(outcome, error):
                self._end(run, seen, outcome, error)
            case Show(word):
                step = "" if word.step is None else f", step {word.step}"
                # Once a phase: status shows the steps.
                self._say(run.path, f"{run.name}: {word.phase}{step}", key=word.phase)
                self._fetch_progress(run)
            case Wait(reason):
                # Without the minutes that go by.
                self._say(run.path, f"{run.name}: {reason}", key=reason.split(" for ")[0])
            case Finish():
                fetch_run(Bucket(self._places.run(run)), self._root / run.path)
                self._say(run.path, f"{run.name}: done")
            case GiveUp(message, _):
                self._say(run.path, f"{run.name}: given up: {message}")

    def _create(self, run: PlannedRun, number: int, zone: str, seen: Observation) -> None:
        """Asks for a node. The attempt is recorded before, so that a lost answer makes no second node."""
        arguments = self._places.put_inputs(run, self._root)
        name = self._places.name(run)
        if seen.attempts and seen.attempts[-1].attempt == number:
            attempt = seen.attempts[-1]
        else:
            attempt = begin_attempt(
                self._root,
                run.path,
                attempt=len(self._attempts.get(run.path, ())) + 1,
                engine=ENGINE,
                host=name,
                pid=0,
                device=self._settings.accelerator_type,
                zone=zone,
                log=f"logs/{run.path.replace('/', '-')}-{number}.log",
            )
        number = attempt.attempt
        try:
            self._provisioner.create(
                self._settings,
                zone=zone,
                name=name,
                request=request_id(self._places.salt(), name, number),
                startup_script=startup_script(
                    self._settings,
                    self._places,
                    run,
                    number,
                    zone=zone,
                    source=self._source,
                    arguments=arguments,
                ),
                labels=self._places.labels(run, number),
            )
        except TpuError as error:
            self._say(run.path, f"{run.name}: {zone}: {error.kind.lower()}: {error}")
            self._call_person(zone, str(error))
            self._note_refusal(attempt, error)
            return
        self._in_use[name] = Resource(name, zone, "asked for", time.time())
        job = f"projects/{self._provisioner.project}/locations/{zone}/queuedResources/{name}"
        write_attempt(self._root, dataclasses.replace(attempt, job=job, error=None))
        self._say(run.path, f"{run.name}: attempt {number} asked for in {zone}")

    def _note_refusal(self, attempt: Attempt, error: TpuError) -> None:
        """Records what the service answered; the attempt stays open while the same request may succeed."""
        noted, has_ended = after_refusal(attempt, error.kind, str(error))
        if has_ended:
            end_attempt(self._root, attempt, "failed", noted)
        else:
            write_attempt(self._root, dataclasses.replace(attempt, error=noted))

    def _call_person(self, zone: str, message: str) -> None:
        """Says once what no waiting cures."""
        cure = needs_person(message)
        if cure is not None:
            self._say(cure + zone, f"{zone}: {cure} ({message})")

    def _delete(self, resource: Resource) -> bool:
        """Returns whether the service accepted it; if not, the next step tries again."""
        try:
            self._provisioner.delete(resource)
        except TpuError as error:
            self._say(resource.name, f"{resource.name} cannot be deleted now: {error}")
            return False
        return True

    def _end(
        self, run: PlannedRun, seen: Observation, outcome: str, error: dict[str, str] | None
    ) -> None:
        """Records how the last attempt ended, and keeps what its node printed."""
        if not seen.attempts or seen.attempts[-1].ended is not None:
            return
        attempt = seen.attempts[-1]
        self._fetch_progress(run)
        printed = self._places.bucket.read(self._places.log(run, attempt.attempt))
        if printed is not None and attempt.log is not None:
            log = self._root / attempt.log
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(printed)
        end_attempt(self._root, attempt, outcome, error)

    def _fetch_progress(self, run: PlannedRun) -> None:
        """Copies the log of training to the run's directory here, where status looks for it."""
        bucket = Bucket(self._places.run(run))
        entries = read_manifest(bucket) or {}
        # With its configuration, so that the folder counts as a run.
        for name in ("config.gin", METRICS):
            data = bucket.read(entries[name]["object"]) if name in entries else None
            if data is not None:
                write_atomically(self._root / run.path / name, data)

    def _say(self, about: str, line: str, key: str | None = None) -> None:
        """Prints a line, unless it (or its key) is what was printed last about the same thing."""
        if self._printed.get(about) != (key or line):
            self._printed[about] = key or line
            report(line)
