"""Rehearses pre-training on Cloud TPU against a service in this process, with mishaps by script.

    python -m multiberts.tests.launch.tpu.rehearsal.rehearsal folder      # or: make rehearse

Plan, client, start-up script, reconcile step and trainer are those of a real run. Nodes are processes
of this machine that use this interpreter, so nothing is installed, and a folder stands for the bucket.
One tiny seed goes through every stock-out that users report, a zone without machines, a service that fails,
maintenance, and three preemptions: with notice by a signal, with notice by the metadata server, and without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import filecmp
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from multiberts.launch.markers.attempts import attempts_of
from multiberts.launch.markers.failures import describe
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import Provisioner
from multiberts.launch.tpu.node import last_step
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.running import STAGE, carry_out_before, run_on_tpu
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.launch.tpu.startup import pretrain_flags
from multiberts.runs.bucket.mirror import read_manifest
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.console import report
from multiberts.runs.environment import ENGINE, JAX
from multiberts.tests.launch.tpu.rehearsal.service import (
    INTERNAL,
    NO_QUOTA,
    PRECONDITION,
    STOCK_OUTS,
    Mishaps,
    TpuService,
)

_TYPE = "v4-8"
_NUM_STEPS = 600
EXPERIMENT = Experiment(
    world={"world_seed": 0, "num_documents": 100},
    corpora={
        "sentences": {
            "sources": ["world:corpus.txt"],
            "source_format": "sentences",
            "vocabulary_size": 200,
            "sequence_length": 32,
            "dupe_factor": None,
        }
    },
    procedures={
        "base": {
            "model": {
                "num_hidden_layers": 2,
                "hidden_size": 32,
                "num_attention_heads": 2,
                "intermediate_size": 64,
                "max_position_embeddings": 32,
            },
            "sequence_length": 32,
            "max_predictions_per_sequence": 5,
            "batch_size": 8,
            "gradient_shards": 2,
            "learning_rate": 1e-3,
            "warmup_steps": 30,
            "num_steps": _NUM_STEPS,
            "checkpoint_steps": [0, _NUM_STEPS // 2],
            "save_state_every_steps": 25,
            "log_every_steps": 5,
            # A step of this size needs no compiler.
            "compile_step": False,
            "tensorboard": False,
        }
    },
    pretrain_seeds=[0],
    tasks={},
)
_STATE = re.compile(r"state/step_(\d+)\.npz")
_SECONDS_BETWEEN_LOOKS = 0.02
# A node's line when its metadata server announces maintenance.
ANNOUNCED = "maintenance of this machine is announced"


# Maintenance that is announced, at which the trainer saves and goes on; then preemptions, with notice by a
# signal or by the metadata server, or without.
Kind = Literal["maintenance", "SIGTERM", "metadata", "SIGKILL"]


class QuickSettings(TpuSettings):
    """A pace at which a rehearsal takes a minute, on processors."""

    poll_seconds = 0.25
    backoff_seconds = 0.5
    node_heartbeat_seconds = 0.5
    push_seconds = 0.5
    device_kind = "CPU"


@dataclasses.dataclass(frozen=True)
class Preemption:
    """A node that was preempted.

    Attributes:
      run: the run's path.
      kind: with or without notice.
      reached: the last step that the node had logged.
      kept: the step that the bucket had then, from which the next node resumes.
      lost: steps that are trained again.
    """

    run: str
    kind: Kind
    reached: int
    kept: int
    lost: int


def rehearse(
    root: Path, preemptions: Sequence[Kind] = get_args(Kind), seconds_of_notice: float = 30.0
) -> None:
    """Carries out the pre-training of a small plan with mishaps, and compares it with a run without.

    Args:
      root: a new folder is made below it.
      preemptions: of each run, one after the other: `maintenance`, which is only announced; `SIGTERM` or
        `metadata` (the metadata server gives notice), each followed by SIGKILL, or `SIGKILL` alone.
      seconds_of_notice: before SIGKILL.

    Raises:
      RuntimeError: a run did not finish, or its checkpoint differs.
    """
    plan = make_plan(EXPERIMENT)
    pretraining = [run for run in plan if run.stage == STAGE]
    started = time.monotonic()
    folder = root.absolute() / time.strftime("rehearsal-%Y%m%d-%H%M%S")
    experiment = folder / "experiment"
    failed = carry_out_before(plan, str(experiment))
    if failed:
        raise RuntimeError(describe(failed))
    zones = {f"rehearsal-{letter}": (_TYPE,) for letter in "abc"}
    # Nodes import what was packed for them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    service = TpuService(
        zones=zones,
        runtime_versions=(),
        unlisted_versions=("tpu-ubuntu2204-base",),
        folder=folder / "nodes",
        environment=environment,
        mishaps=Mishaps(
            unavailable_every=6,
            outage=8,
            answers=(NO_QUOTA, *STOCK_OUTS, INTERNAL, PRECONDITION),
            stockouts=("rehearsal-b",),
            looks_provisioning=2,
            looks_deleting=2,
            addresses=1,
        ),
    )
    settings = QuickSettings(
        project="rehearsal",
        zones=list(zones),
        accelerator_type=_TYPE,
        bucket=f"file://{folder}/bucket",
        patience_minutes=2 / 60,
        dollars_per_hour=1.0,
        python=sys.executable,
    )
    places = Places(settings.bucket)
    with _uninterrupted(pretraining, experiment, folder / "uninterrupted"), service:
        injector = PreemptionInjector(service, places, pretraining, preemptions, seconds_of_notice)
        with injector:
            given_up = run_on_tpu(
                plan=plan,
                root=str(experiment),
                settings=settings,
                provisioner=Provisioner("rehearsal", service.client(), seconds_to_retry=1.0),
            )
        left = service.resources()
    if given_up:
        raise RuntimeError(describe(given_up))
    if left:
        raise RuntimeError(f"left in the cloud: {', '.join(left)}")
    missing = len(pretraining) * len(preemptions) - len(injector.preemptions)
    if missing:
        raise RuntimeError(f"{missing} preemptions came too late; give it more steps")
    compared = _compare(pretraining, experiment, folder / "uninterrupted")
    attempts = [one for run in pretraining for one in attempts_of(experiment)[run.path]]
    for attempt in attempts:
        message = f" ({attempt.error['message']})" if attempt.error else ""
        report(
            f"{attempt.path} attempt {attempt.attempt} in {attempt.zone}: {attempt.outcome}{message}"
        )
    for one in injector.preemptions:
        report(
            f"{one.run}: {one.kind} at step {one.reached}, resumed from {one.kept}: {one.lost} steps lost"
        )
    used = sorted({one.zone or "" for one in attempts})
    lost = sum(preemption.lost for preemption in injector.preemptions)
    report(
        f"{len(attempts)} attempts in {len(used)} zones ({', '.join(used)}), "
        f"{len(injector.preemptions)} preemptions, {lost} steps lost, {len(service.refused)} calls "
        f"unanswered, {time.monotonic() - started:.0f} s"
    )
    report(
        f"the final checkpoint is that of an uninterrupted run, byte for byte ({compared} files)"
    )


@contextlib.contextmanager
def _uninterrupted(
    pretraining: Sequence[PlannedRun], experiment: Path, root: Path
) -> Iterator[None]:
    """Trains the same runs without mishaps below `root` beside the block, and waits for them."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    for run in pretraining:
        for parent in run.parents:
            if parent.path in processes:
                processes[parent.path].wait()
            elif not (root / parent.path).exists():
                (root / parent.path).parent.mkdir(parents=True, exist_ok=True)
                (root / parent.path).symlink_to(experiment / parent.path)
        command = [sys.executable, "-m", "multiberts.pretrain"]
        command += pretrain_flags(run.arguments(root))
        processes[run.path] = subprocess.Popen(command, env={**os.environ, ENGINE: JAX})
    try:
        yield
        for process in processes.values():
            if process.wait():
                raise RuntimeError(f"the uninterrupted run ended with status {process.returncode}")
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


class PreemptionInjector:
    """Preempts nodes while they train, by script.

    Attributes:
      preemptions: what it did.
    """

    def __init__(
        self,
        service: TpuService,
        places: Places,
        runs: Sequence[PlannedRun],
        kinds: Sequence[Kind],
        seconds_of_notice: float,
    ):
        self._service = service
        self._places = places
        self._waiting = {places.name(run): (run, list(kinds)) for run in runs}
        self._count = len(kinds)
        self._notice = seconds_of_notice
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.preemptions: list[Preemption] = []

    def __enter__(self) -> PreemptionInjector:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            for name, folder in self._service.nodes().items():
                run, kinds = self._waiting.get(name.rsplit("/", 1)[1], (None, []))
                if run is not None and kinds:
                    self._preempt_in_time(name, folder, run, kinds)

    def _preempt_in_time(self, name: str, folder: Path, run: PlannedRun, kinds: list[Kind]) -> None:
        """Preempts a node at a step that lies a little further than that of the one before."""
        step = _step_of(folder)
        number = self._count - len(kinds) + 1
        if step is None or step < run.parameters["num_steps"] * number / (self._count + 2):
            return
        if not self._kept(run):
            return  # a node without a saved state would only show a second start
        kind = kinds.pop(0)
        if kind == "maintenance":
            self._service.announce_maintenance(name)
            while ANNOUNCED not in (folder / "log").read_text(errors="replace"):
                if self._ended.wait(_SECONDS_BETWEEN_LOOKS):
                    return
            # It saves, and another trainer resumes there.
            self.preemptions.append(Preemption(run.path, kind, step, step, 0))
            return
        notice = 0.0 if kind == "SIGKILL" else self._notice
        self._service.preempt(name, notice, by_metadata=kind == "metadata")
        reached, kept = _step_of(folder) or step, self._kept(run)
        self.preemptions.append(Preemption(run.path, kind, reached, kept, max(0, reached - kept)))

    def _kept(self, run: PlannedRun) -> int:
        """Returns the step of the newest state in the bucket."""
        names = read_manifest(Bucket(self._places.run(run))) or {}
        steps = [int(match[1]) for match in map(_STATE.fullmatch, names) if match]
        return max(steps, default=0)


def _step_of(folder: Path) -> int | None:
    """Returns the last step that a node has logged."""
    return next(map(last_step, folder.glob("mirror/**/metrics.jsonl")), None)


def _compare(pretraining: Sequence[PlannedRun], experiment: Path, uninterrupted: Path) -> int:
    """Returns how many files the final checkpoints have, which are all the same.

    Raises:
      RuntimeError: one differs.
    """
    compared = 0
    for run in pretraining:
        final = f"{run.path}/checkpoints/step_{run.parameters['num_steps']}"
        names = sorted(file.name for file in (uninterrupted / final).iterdir())
        same, other, missing = filecmp.cmpfiles(
            uninterrupted / final, experiment / final, names, shallow=False
        )
        if other or missing:
            raise RuntimeError(
                f"{experiment / final} differs from an uninterrupted run's in {[*other, *missing]}"
            )
        compared += len(same)
    return compared


if __name__ == "__main__":
    rehearse(Path(sys.argv[1]))
