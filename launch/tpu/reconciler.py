"""Takes one step for every run: looks at markers, bucket and service, and does what is next."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from multiberts.launch.markers.attempts import (
    Attempt,
    attempts_at,
    beat,
    begin_attempt,
    end_attempt,
    write_attempt,
)
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import (
    ACTIVE,
    DELETING,
    EXPERIMENT,
    Node,
    Provisioner,
    Resource,
    TpuError,
    request_id,
)
from multiberts.launch.tpu.node import METRICS, last_step
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.reconcile import (
    Action,
    Beat,
    Create,
    Delete,
    End,
    Finish,
    GiveUp,
    Seen,
    Show,
    Wait,
    decide,
    reason_to_hold,
)
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.launch.tpu.startup import startup_script
from multiberts.launch.workers.bundles import WaitingRuns, name_of
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
        print_line: Callable[[str], None] = report,
    ):
        """Opens no connection.

        Args:
          settings: what to ask for, and how long to wait for it.
          provisioner: of the project.
          root: of the experiment on this machine, with the markers.
          source: URL and SHA-256 of the packed program.
          print_line: gets a line for people.
        """
        self._settings = settings
        self._provisioner = provisioner
        self._places = Places(settings.bucket)
        self._root = root
        self._source = source
        self._print_line = print_line
        self._printed: dict[str, str] = {}
        self._in_use: dict[str, Resource] = {}
        self._deleted: set[str] = set()  # in this step

    def step(self, runs: Sequence[PlannedRun], planned: Sequence[PlannedRun]) -> dict[str, Action]:
        """Does the next thing for each run, and deletes resources of runs that need none.

        Args:
          runs: those that are not done and whose parents are.
          planned: all pre-training runs of the plan.

        Returns:
          What was done, by a run's path.
        """
        found, unseen = self._look()
        tried = {run.path: self._attempts_at(run) for run in planned}
        left = [run for run in planned if not run.done(self._root)]
        # The resource of each run that has one now; seeds that are trained together share one.
        held = {
            run.path: one.host for run in left for one in tried[run.path][-1:] if one.ended is None
        }
        known = {held.get(run.path, self._places.name(run)) for run in left}
        for resource in found:
            if (name := resource.name) not in known and resource.state != DELETING:
                self._say(name, f"{name}: belongs to no run that is left; deleted")
                self._delete(resource)
        is_proven = any(
            run.done(self._root) or last_step(self._root / run.path / METRICS) is not None
            for run in planned
        )
        self._in_use = {one.name: one for one in found if one.state != DELETING}
        self._deleted = set()
        failed: GiveUp | None = None
        actions: dict[str, Action] = {}
        creations: list[tuple[PlannedRun, Create]] = []
        seen = self._seen(runs, found, unseen, tried, held)
        for run in runs:
            action = actions[run.path] = decide(seen[run.path], self._settings)
            if isinstance(action, GiveUp) and failed is None:
                failed = GiveUp(f"{run.name} was given up: {action.message}", action.is_user_error)
            if isinstance(action, Create):
                creations.append((run, action))
            else:
                self._carry_out(run, action, tried[run.path])
        for name, zone, together in self._bundles(creations, held):
            instead: Action | None = None
            if name in self._in_use:  # the seed left a node that trains others
                instead = Wait(f"{name} still trains other seeds")
            elif failed is not None and not is_proven:
                instead = GiveUp(f"not started, as {failed.message}", failed.is_user_error)
            elif hold := reason_to_hold(len(self._in_use), is_proven, self._settings):
                instead = Wait(hold)
            if instead is None:
                self._create(name, zone, together, tried)
                continue
            for run in together:
                actions[run.path] = instead
                self._carry_out(run, instead, tried[run.path])
        return actions

    def _bundles(
        self, creations: Sequence[tuple[PlannedRun, Create]], held: Mapping[str, str]
    ) -> Iterator[tuple[str, str, Sequence[PlannedRun]]]:
        """Yields name, zone and runs of the nodes to ask for: first those whose request may be lost."""
        again: dict[tuple[str, str], list[PlannedRun]] = {}
        new: dict[str, list[PlannedRun]] = {}
        for run, action in creations:
            if run.path in held:
                again.setdefault((held[run.path], action.zone), []).append(run)
            else:
                new.setdefault(action.zone, []).append(run)
        for (name, zone), runs in again.items():
            yield name, zone, runs
        for zone, runs in new.items():
            parents = {parent.path for run in runs for parent in run.parents}
            waiting = WaitingRuns(runs, parents, most_together=self._settings.most_together)
            while (bundle := waiting.take(self._settings.max_nodes or 1)) is not None:
                yield self._places.name(bundle.runs[0]), zone, bundle.runs

    def nodes_that_continue(self) -> str:
        """Returns for people which resources were in use at the last look, and what nodes cost."""
        names = [f"{one.name} in {one.zone}" for one in self._in_use.values()]
        if not names:
            return "no node was asked for"
        price = self._settings.dollars_per_hour
        cost = "" if price is None else f", ${price:.2f} per hour each"
        return f"these train on{cost}: {', '.join(names)}; `multiberts launch reap` deletes them"

    def _attempts_at(self, run: PlannedRun) -> list[Attempt]:
        return [one for one in attempts_at(self._root, run.path) if one.engine == ENGINE]

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
        self,
        runs: Sequence[PlannedRun],
        found: Sequence[Resource],
        unseen: tuple[str, ...],
        tried: Mapping[str, list[Attempt]],
        held: Mapping[str, str],
    ) -> dict[str, Seen]:
        """Returns what is known of each run, by path; notes in `tried` since when nodes cost money."""
        every = [one for attempts in tried.values() for one in attempts]
        seeds, spent = Counter(one.log for one in every), _dollars(every)
        nodes: dict[str, Node | None] = {}
        seen: dict[str, Seen] = {}
        for run in runs:
            attempts = tried[run.path]
            last = attempts[-1] if attempts else None
            names = {self._places.name(run), last.host if last else ""} - set(held.values())
            names = {held[run.path]} if run.path in held else names
            mine = tuple(resource for resource in found if resource.name in names)
            word = None if last is None else self._places.read_beat(run, last.attempt)
            node = None
            for active in [one for one in mine if one.state == ACTIVE][:1]:
                if active.name not in nodes:
                    nodes[active.name] = self._node(run, active)
                node = nodes[active.name]
            if last is not None and last.ended is None:
                since = node.created if node is not None else None
                attempts[-1] = self._note_alive(last, since, word, seeds[last.log])
            is_done = Bucket(self._places.run(run)).read(DONE) is not None
            seen[run.path] = Seen(
                time.time(), is_done, mine, unseen, tuple(attempts), node, word, spent
            )
        # Of each node, the seeds that it still trains.
        at_work: dict[str, set[str]] = {}
        for path, one in seen.items():
            if path in held and not one.done and (one.beat is None or one.beat.phase != "failed"):
                at_work.setdefault(held[path], set()).add(path)
        return {
            path: dataclasses.replace(
                one, is_shared=bool(at_work.get(held.get(path, ""), set()) - {path})
            )
            for path, one in seen.items()
        }

    def _node(self, run: PlannedRun, resource: Resource) -> Node | None:
        try:
            return self._provisioner.node(resource)
        except TpuError as error:
            self._say(run.path, f"{run.name}: its node cannot be looked up: {error}")
            return None

    def _note_alive(
        self, attempt: Attempt, since: float | None, word: Beat | None, seeds: int
    ) -> Attempt:
        """Records since when a node costs money, each of its seeds a share, and that the attempt is alive."""
        since = since or (word.booted if word is not None else None)
        if since is not None and attempt.started != since:
            price = self._settings.dollars_per_hour
            price = None if price is None else price / seeds
            attempt = dataclasses.replace(attempt, started=since, dollars_per_hour=price)
            write_attempt(self._root, attempt)
        beat(self._root, attempt)
        return attempt

    def _carry_out(self, run: PlannedRun, action: Action, attempts: Sequence[Attempt]) -> None:
        match action:
            case Delete(resource, outcome, error):
                reason = "" if error is None else f": {error['message']}"
                ended = f"{resource.state} in {resource.zone}{reason}"
                self._say(run.path, f"{run.name}: {ended}; deleted")
                is_deleted = resource.name in self._deleted or self._delete(resource)
                if is_deleted and outcome is not None:
                    self._end(run, attempts, outcome, error)
            case End(outcome, error):
                self._end(run, attempts, outcome, error)
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

    def _create(
        self,
        name: str,
        zone: str,
        runs: Sequence[PlannedRun],
        tried: Mapping[str, Sequence[Attempt]],
    ) -> None:
        """Asks for a node. Its attempts are recorded before, so that a lost answer makes no second node."""
        arguments = [self._places.put_inputs(run, self._root) for run in runs]
        attempts: list[Attempt] = []
        for run in runs:
            last = tried[run.path][-1:]
            if last and last[0].ended is None:
                attempts.append(last[0])
                continue
            number = last[0].attempt + 1 if last else 1
            log = f"logs/{run.path.replace('/', '-')}-{number}.log"
            attempts.append(
                begin_attempt(
                    self._root,
                    run.path,
                    engine=ENGINE,
                    host=name,
                    pid=0,
                    device=self._settings.accelerator_type,
                    zone=zone,
                    log=attempts[0].log if attempts else log,
                )
            )
        title, number = name_of(runs), attempts[0].attempt
        try:
            self._provisioner.create(
                self._settings,
                zone=zone,
                name=name,
                request=request_id(self._places.salt(), name, number),
                startup_script=startup_script(
                    self._settings,
                    self._places,
                    list(zip(runs, attempts, arguments, strict=True)),
                    source=self._source,
                ),
                labels=self._places.labels(runs[0], number),
            )
        except TpuError as error:
            self._say(runs[0].path, f"{title}: {zone}: {error.kind.lower()}: {error}")
            if error.kind != "Unreachable":
                message = {"kind": error.kind, "message": str(error)}
                for attempt in attempts:
                    end_attempt(self._root, attempt, "failed", message)
            return
        self._in_use[name] = Resource(name, zone, "ACCEPTED", time.time())
        job = f"projects/{self._provisioner.project}/locations/{zone}/queuedResources/{name}"
        for attempt in attempts:
            write_attempt(self._root, dataclasses.replace(attempt, job=job))
        self._say(runs[0].path, f"{title}: attempt {number} asked for in {zone}")

    def _delete(self, resource: Resource) -> bool:
        """Returns whether the service accepted it; if not, the next step tries again."""
        try:
            self._provisioner.delete(resource)
            self._deleted.add(resource.name)
        except TpuError as error:
            self._say(resource.name, f"{resource.name} cannot be deleted now: {error}")
            return False
        return True

    def _end(
        self,
        run: PlannedRun,
        attempts: Sequence[Attempt],
        outcome: str,
        error: dict[str, str] | None,
    ) -> None:
        """Records how the last attempt ended, and keeps what its node printed."""
        if not attempts or attempts[-1].ended is not None:
            return
        attempt = attempts[-1]
        self._fetch_progress(run)
        printed = self._places.bucket.read(self._places.log(attempt))
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
            self._print_line(line)


def _dollars(attempts: Iterable[Attempt]) -> float:
    """Returns what nodes have cost so far; those of one node, which have one log, each bear a share."""
    now = time.time()
    nodes: dict[tuple[str, str | None], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.dollars_per_hour is not None:
            nodes.setdefault((attempt.host, attempt.log), []).append(attempt)
    return sum(
        (max(one.ended or now for one in seeds) - min(one.started for one in seeds))
        / 3600
        * sum(one.dollars_per_hour or 0.0 for one in seeds)
        for seeds in nodes.values()
    )
