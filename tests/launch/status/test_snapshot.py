"""Status from markers: every state, speeds and costs, the sweep, failures, orphans, many runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.markers.attempts import begin_attempt
from multiberts.launch.markers.lease import LOCK
from multiberts.launch.status.command import show_status
from multiberts.launch.status.progress import SECONDS_OF_SPEED, speed_of
from multiberts.launch.status.snapshot import STATES, Status, collect_status
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import mark_done
from multiberts.tests.launch.made_up import (
    FAILED_SEED,
    IN_CLOUD,
    NUM_STEPS,
    ON_SLURM,
    ORPHANED_SEED,
    PREEMPTED_SEED,
    SILENT_SEED,
    STEPS_PER_SECOND,
    TASKS,
    MadeUp,
    make_sweep,
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Status:
    now = time.time()
    root = tmp_path_factory.mktemp("status") / "multiberts"
    make_sweep(root, now)
    return collect_status(root, now)


@pytest.fixture
def made(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "experiment", time.time())


def state_of(made: MadeUp) -> str:
    made.write_plan()
    (row,) = collect_status(made.root, made.now).pretraining
    return row.state


@pytest.mark.parametrize("is_launched", [False, True])
@pytest.mark.parametrize(
    ("attempts", "expected", "expected_with_launcher"),
    [
        ([], "waiting", "waiting"),
        ([{"silent": 20}], "running", "running"),
        ([{"silent": 100}], "lost", "retrying"),
        ([{"outcome": "lost"}], "lost", "retrying"),
        ([{"outcome": "preempted"}], "waiting", "retrying"),
        ([{"outcome": "failed"}], "failed", "failed"),
        ([{"outcome": "failed"}, {"silent": 20}], "running", "running"),
        # Said to be done, but its outputs are not there; or there, which counts alone.
        ([{"outcome": "done"}], "lost", "retrying"),
        ([{"outcome": "failed"}, "DONE"], "done", "done"),
    ],
)
def test_the_last_attempt_tells_the_state(
    made: MadeUp,
    attempts: list[Any],
    expected: str,
    expected_with_launcher: str,
    is_launched: bool,
) -> None:
    seed = made.add_seed(0)
    for attempt in attempts:
        if attempt == "DONE":
            made.finish(seed)
        else:
            made.attempt(seed, 1, **attempt, **ON_SLURM)
    if is_launched:
        made.lead(os.getpid(), since=7200)
    assert state_of(made) == (expected_with_launcher if is_launched else expected)


def test_a_process_of_this_machine_that_has_ended_is_lost_at_once(made: MadeUp) -> None:
    seed = made.add_seed(0)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    made.write_plan()
    begin_attempt(made.root, seed.path, engine="local", pid=process.pid)
    assert state_of(made) == "running"
    process.communicate(b"\n")
    assert state_of(made) == "lost"


def test_a_clock_that_differs_from_the_file_server_s_makes_no_run_silent(
    made: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made.add_seed(0)
    made.write_plan()
    (made.root / LOCK).touch()
    begin_attempt(made.root, run.path, engine="slurm", host="node07", pid=1)
    ahead = time.time() + 120
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert collect_status(made.root).pretraining[0].state == "running"


def test_a_job_of_a_cloud_needs_no_launcher_and_fewer_signs_of_life(made: MadeUp) -> None:
    seed = made.add_seed(0)
    made.attempt(seed, 5, silent=600, **IN_CLOUD)
    made.write_plan()
    status = collect_status(made.root, made.now)
    assert status.pretraining[0].state == "running" and not status.orphans
    assert status.hours == pytest.approx(5)  # it trains on between two looks
    made.attempt(seed, 1, outcome="preempted", **IN_CLOUD)
    assert state_of(made) == "waiting"
    made.attempt(seed, 1, outcome="failed", error={"kind": "JobFailed", "message": ""}, **IN_CLOUD)
    assert state_of(made) == "failed"


def test_the_counts_of_a_made_up_experiment(sweep: Status) -> None:
    counts = {stage.stage: stage.counts for stage in sweep.stages}
    assert list(counts) == ["prepare", "pretrain", "finetune", "score", "report"]
    assert counts["pretrain"] == {
        "done": 9, "running": 9, "retrying": 1, "waiting": 4, "blocked": 0, "lost": 1, "failed": 1
    }  # fmt: skip
    assert counts["finetune"]["done"] == 8 * len(TASKS) * 20 - 2 + 5
    # What waits for the seed that failed, and what waits for all runs.
    assert counts["finetune"]["blocked"] == len(TASKS) * 20
    assert (counts["score"]["blocked"], counts["report"]["blocked"]) == (1, 1)
    assert sweep.total == 1 + 25 + 25 * len(TASKS) * 20 + 2
    assert sum(sweep.counts.values()) == sweep.total and set(sweep.counts) == set(STATES)
    hours = {stage.stage: stage.hours for stage in sweep.stages}
    assert hours["prepare"] == 0 and hours["finetune"] > 1
    assert hours["pretrain"] == pytest.approx(sum(row.hours for row in sweep.pretraining))
    assert sweep.hours == pytest.approx(sum(hours.values()))


def test_pretraining_rows_tell_step_speed_and_time_left(sweep: Status) -> None:
    rows = sweep.pretraining
    first = rows[9]
    assert (first.step, first.num_steps, first.attempts) == (1_980_000, NUM_STEPS, 2)
    assert first.steps_per_second == pytest.approx(STEPS_PER_SECOND, rel=1e-3)
    assert first.seconds_left == pytest.approx(20_000 / STEPS_PER_SECOND, rel=1e-3)
    # 4 hours until it was preempted, and 65 since it began again.
    assert first.hours == pytest.approx(4 + 65, abs=0.01)
    assert first.where == "skypilot · tpu-v4-8 · mb-0a1b2c3d-seed"
    assert rows[0].step == NUM_STEPS
    assert rows[PREEMPTED_SEED].seconds_left is None
    assert rows[24].state == "waiting"
    # One that fell silent counts until its last sign of life.
    assert rows[SILENT_SEED].hours == pytest.approx(28 - 4000 / 3600, abs=0.01)


def test_speed_counts_the_last_minutes_and_only_this_attempt(made: MadeUp) -> None:
    lines = [{"step": 10 * n, "time": 10.0 * n} for n in range(100)]
    faster = [{"step": 990 + 20 * n, "time": 990 + 10.0 * n} for n in range(1, 200)]
    assert speed_of(lines) == 1.0
    assert SECONDS_OF_SPEED < 1990 and speed_of(lines + faster) == 2.0
    # Lines further apart than that: the last two.
    assert speed_of([{"step": 0, "time": 0.0}, {"step": 5000, "time": 10_000.0}]) == 0.5
    assert speed_of([{"step": 7, "time": 1.0, "steps_per_second": 3.5}]) == 3.5
    assert speed_of([]) is None

    seed = made.add_seed(0)
    made.log(seed, 50_000, age=600)
    made.attempt(seed, 0.05, **ON_SLURM)
    made.write_plan()
    (row,) = collect_status(made.root, made.now).pretraining
    assert row.step == 50_000 and row.steps_per_second is None


def test_failures_come_with_the_last_lines_of_their_log(sweep: Status) -> None:
    assert [failure.state for failure in sweep.failures] == ["lost", *["failed"] * 3]
    assert [failure.attempts for failure in sweep.failures] == [1, 1, 3, 3]
    lost, diverged = sweep.failures[:2]
    assert lost.name == f"pretrain base seed {SILENT_SEED}" and "no sign of life" in lost.message
    assert diverged.name == f"pretrain base seed {FAILED_SEED}"
    assert diverged.message == "the loss of step 118,400 is not finite (nan)"
    # Of the progress bar, what was drawn last.
    assert diverged.log_lines[1:] == ("pre-training:   7%", f"error: {diverged.message}")
    assert sweep.failures[2].log_lines[-1].startswith("ResourceExhaustedError")


def test_a_log_that_is_a_link_out_of_the_root_is_not_shown(tmp_path: Path, made: MadeUp) -> None:
    (tmp_path / "secret").write_text("a private key\n")
    seed = made.add_seed(0)
    failed = {"outcome": "failed", "error": {"kind": "x", "message": "y"}}
    made.attempt(seed, 1, engine="local", log="logs/a.log", **failed)
    made.write_plan()
    (made.root / "logs").mkdir()
    log = made.root / "logs" / "a.log"
    assert collect_status(made.root).failures[0].log_lines == ()  # there is none
    log.write_text("ours\n")
    assert collect_status(made.root).failures[0].log_lines == ("ours",)
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    assert collect_status(made.root).failures[0].log_lines == ()


def test_orphans_are_attempts_of_an_earlier_launcher_or_of_no_plan(
    sweep: Status, made: MadeUp
) -> None:
    (orphan,) = sweep.orphans
    assert orphan.path == sweep.pretraining[ORPHANED_SEED].path and orphan.job == "4711"
    planned, forgotten = made.add_seed(0), made.add_seed(1)
    for seed in (planned, forgotten):
        made.attempt(seed, 1, **ON_SLURM)
    made.plan.remove(forgotten)
    made.write_plan()
    # Whatever the clocks say: the workers' are two hours behind the launcher's.
    made.lead(os.getpid(), since=-3600)
    led = collect_status(made.root, made.now)
    assert [attempt.path for attempt in led.orphans] == [forgotten.path]
    # Another launcher did not start them; one that is gone leads them no more.
    made.lead(os.getpid(), owner="another")
    assert len(collect_status(made.root, made.now).orphans) == 2
    gone = subprocess.Popen(["true"])
    gone.wait()
    made.lead(gone.pid)
    status = collect_status(made.root, made.now)
    assert status.launcher is None and len(status.orphans) == 2


# Looks as the command would, in a process of its own, and reports what it imported.
LOOK = """
import json, sys
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.status.page import render_status_page
status = collect_status(sys.argv[1])
render_status_page(status)
heavy = [name for name in ("tensorflow", "keras", "pandas", "distributed") if name in sys.modules]
print(json.dumps([status.counts["done"], status.total, heavy]))
"""


@pytest.mark.seconds
def test_a_thousand_runs_are_counted_without_heavy_imports(made: MadeUp) -> None:
    """How long it takes with ten times as many: `make bench-launch`."""
    seeds = [made.add_seed(number) for number in range(25)]
    trials = [
        made.add_trial(seed, task, rate, number)
        for seed in seeds
        for task in TASKS
        for rate in (1e-5, 2e-5, 3e-5, 4e-5)
        for number in range(2)
    ]
    made.write_plan()
    mark_done(made.root, *trials[1::2])
    for trial in trials:
        begin_attempt(made.root, trial.path, **ON_SLURM)
    printed = subprocess.run(
        [sys.executable, "-c", LOOK, str(made.root)], capture_output=True, check=True, text=True
    )
    done, total, heavy = json.loads(printed.stdout)
    assert (done, total) == (500, 1025)
    assert heavy == []


def test_the_status_as_json(sweep: Status, capsys: pytest.CaptureFixture[str]) -> None:
    show_status(root=sweep.root, json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"] == sweep.counts and shown["root"] == sweep.root
    assert len(shown["pretraining"]) == len(sweep.pretraining)
    with pytest.raises(UserError, match="--json"):
        show_status(root=sweep.root, json=True, watch=True)
