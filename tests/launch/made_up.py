"""A made-up experiment for the tests of status: 25 seeds of two million steps, 5 tasks, a sweep, trouble."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import socket
from pathlib import Path
from typing import Any

from multiberts.launch.markers.attempts import (
    begin_attempt,
    end_attempt,
    file_of_journal,
    make_journal,
    write_attempt,
)
from multiberts.launch.markers.lease import FILE as LEASE
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.runs.lease_holder import Holder, boot_id

NUM_STEPS = 2_000_000
TASKS = ("MNLI", "QNLI", "SST-2", "CoLA", "STS-B")
LEARNING_RATES = (5e-5, 4e-5, 3e-5, 2e-5)
FINETUNE_SEEDS = range(5)
# Of the 25 pre-training seeds: these are done, these run, and one each ...
DONE_SEEDS = range(9)
RUNNING_SEEDS = range(9, 17)
PREEMPTED_SEED, SILENT_SEED, FAILED_SEED, ORPHANED_SEED = 17, 18, 19, 20
STEPS_PER_SECOND = 8.0

IN_CLOUD = {"engine": "skypilot", "device": "tpu-v4-8", "host": "mb-0a1b2c3d-seed"}
ON_SLURM = {"engine": "slurm", "device": "gpu 0", "host": "node07", "job": "4711"}


class MadeUp:
    """Lays out runs in any state, with the functions that real launches use."""

    def __init__(self, root: Path, now: float):
        self.root = root
        self.now = now
        self.plan: list[PlannedRun] = []
        self._attempts: dict[str, int] = {}

    def add(
        self,
        stage: str,
        path: str,
        name: str,
        parents: tuple[PlannedRun, ...] = (),
        **parameters: Any,
    ) -> PlannedRun:
        identity = hashlib.sha256(path.encode()).hexdigest()
        run = PlannedRun(stage, name, parameters, parents, identity, f"{path}-{identity[:8]}")
        self.plan.append(run)
        return run

    def add_seed(self, seed: int, num_steps: int = NUM_STEPS) -> PlannedRun:
        known = {"procedure": "base", "pretrain_seed": seed}
        steps = {"num_steps": num_steps, "checkpoint_steps": [num_steps]}
        path, name = f"pretrain/base/seed_{seed}", f"pretrain base seed {seed}"
        return self.add("pretrain", path, name, **known, **steps)

    def add_trial(
        self, parent: PlannedRun, task: str, learning_rate: float, finetune_seed: int
    ) -> PlannedRun:
        """Plans a fine-tuning of a seed's last checkpoint."""
        seed, step = parent.parameters["pretrain_seed"], parent.parameters["num_steps"]
        folder = f"finetune/{task}/base-seed_{seed}-step_{step}"
        return self.add(
            "finetune",
            f"{folder}/lr_{learning_rate:g}-ft_seed_{finetune_seed}",
            f"{task} base seed {seed} learning rate {learning_rate:g} seed {finetune_seed}",
            (parent,),
            task=task,
            learning_rate=learning_rate,
            finetune_seed=finetune_seed,
            checkpoint=Output(parent, f"checkpoints/step_{step}"),
        )

    def finish(self, run: PlannedRun) -> None:
        (self.root / run.path).mkdir(parents=True, exist_ok=True)
        (self.root / run.path / "DONE").write_text('{"stage": "made up", "outputs": {}}\n')

    def attempt(
        self,
        run: PlannedRun,
        hours: float,
        *,
        silent: float = 0.0,
        outcome: str | None = None,
        error: dict[str, str] | None = None,
        **where: Any,
    ) -> None:
        """An attempt that began so many hours ago and moved last, or ended, so many seconds ago."""
        number = self._attempts[run.path] = self._attempts.get(run.path, 0) + 1
        # Each has a journal of its own, whose time is its heartbeat.
        journal = make_journal(self.root, f"{len(self._attempts)}-{number}.jsonl")
        named = {"attempt": number, "journal": journal, "owner": "made-up"}
        attempt = begin_attempt(self.root, run.path, **{**named, **where})
        attempt = dataclasses.replace(attempt, started=self.now - 3600 * hours)
        write_attempt(self.root, attempt)
        if outcome is not None:
            end_attempt(self.root, attempt, outcome, error, self.now - silent)
        file = file_of_journal(self.root, journal)
        os.utime(file, (self.now - silent, self.now - silent))

    def log(self, run: PlannedRun, step: int, age: float = 0.0) -> None:
        """Metrics up to a step, the last written so many seconds ago."""
        directory = self.root / run.path
        directory.mkdir(parents=True, exist_ok=True)
        last = range(max(1000, step - 20_000), step + 1, 1000)
        steps = [*range(20_000, step - 20_000, 20_000), *last]
        lines: list[dict[str, float]] = []
        for at in steps:
            time = self.now - age - (step - at) / STEPS_PER_SECOND
            loss = 1.5 + 8 * 20_000 / at
            lines.append({"step": at, "loss": loss, "steps_per_second": 9.0, "time": time})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (directory / "metrics.jsonl").write_text(text)

    def lead(
        self, process: int, host: str | None = None, since: float = 86400.0, owner: str = "made-up"
    ) -> None:
        """The lease of a launcher that started so many seconds ago."""
        times = {"started": self.now - since, "renewed": self.now, "seconds_until_stale": 90.0}
        where = {"host": host or socket.gethostname(), "machine": boot_id()}
        holder = Holder(owner=owner, pid=process, created=None, **where, **times)
        (self.root / "launch").mkdir(parents=True, exist_ok=True)
        (self.root / LEASE).write_text(holder.to_json())

    def write_plan(self) -> None:
        write_plan(self.root, self.plan)


def make_sweep(root: Path, now: float) -> MadeUp:
    """Lays out the experiment of this file's first line."""
    made = MadeUp(root, now)
    made.finish(made.add("prepare", "corpora/wikipedia_and_books", "prepare wikipedia_and_books"))
    seeds = [made.add_seed(seed) for seed in range(25)]
    trials = [
        made.add_trial(*facts)
        for facts in itertools.product(seeds, TASKS, LEARNING_RATES, FINETUNE_SEEDS)
    ]
    made.add("score", "scores", "scores", tuple(trials))
    made.add("report", "report", "report", tuple(trials))
    made.write_plan()
    (root / "logs").mkdir()
    _pretrain(made, seeds)
    _finetune(made, trials)
    made.lead(1, host="coordinator")
    return made


def _pretrain(made: MadeUp, seeds: list[PlannedRun]) -> None:
    where = IN_CLOUD
    for seed in DONE_SEEDS:
        made.attempt(seeds[seed], 90, outcome="done", silent=3600 * (20 - seed), **where)
        made.finish(seeds[seed])
    for seed in RUNNING_SEEDS:
        if seed % 3 == 0:
            made.attempt(seeds[seed], 70, outcome="preempted", silent=3600 * 66, **where)
        made.attempt(seeds[seed], 65 - 4 * (seed - 9), silent=seed % 7, **where)
        made.log(seeds[seed], 1_980_000 - 150_000 * (seed - 9), age=30 + seed)
    made.attempt(seeds[PREEMPTED_SEED], 30, outcome="preempted", silent=600, **ON_SLURM)
    made.log(seeds[PREEMPTED_SEED], 402_000, age=700)
    made.attempt(seeds[SILENT_SEED], 28 + 86000 / 3600, silent=90000, **where)
    made.log(seeds[SILENT_SEED], 399_000, age=90000)
    message = "the loss of step 118,400 is not finite (nan)"
    (made.root / "logs" / "seed_19.log").write_text(
        f"--- pretrain seed_19\npre-training:   6%\rpre-training:   7%\nerror: {message}\n"
    )
    error = {"kind": "UserError", "message": message}
    failed = {"outcome": "failed", "silent": 7000, "error": error, "log": "logs/seed_19.log"}
    made.attempt(seeds[FAILED_SEED], 12, **failed, **where)
    made.log(seeds[FAILED_SEED], 118_000, age=7000)
    # Begun under a launcher before the one that is there now.
    made.attempt(seeds[ORPHANED_SEED], 50, owner="an earlier launcher", **ON_SLURM)
    made.log(seeds[ORPHANED_SEED], 700_000, age=20)


def _finetune(made: MadeUp, trials: list[PlannedRun]) -> None:
    for number, trial in enumerate(trials):
        seed, _ = divmod(number, len(trials) // 25)
        if number in (57, 381):
            log = f"logs/trial_{number}.log"
            lines = [f"epoch 1 step {step}: loss 0.4" for step in range(30)]
            message = "ResourceExhaustedError: OOM when allocating <tensor>"
            (made.root / log).write_text("\n".join([*lines, message]))
            error = {"kind": "ResourceExhaustedError", "message": message}
            failed = {"outcome": "failed", "silent": 500, "error": error, "log": log}
            for _ in range(3):
                made.attempt(trial, 0.3, **failed, **ON_SLURM)
        elif seed < 8:
            made.finish(trial)
        elif seed == 8 and trial.parameters["task"] == "MNLI":
            if number % 2:
                made.attempt(trial, 0.1, **ON_SLURM)
            elif number % 4:
                made.finish(trial)
