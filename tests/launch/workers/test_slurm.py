"""Sweeps on a real Slurm: jobs end in every way, its controller falls silent, and every run finishes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Security

from multiberts.launch.markers.attempts import Attempt, attempts_of
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import run_plan
from multiberts.launch.workers import slurm as slurm_jobs
from multiberts.launch.workers.engines import SlurmOptions
from multiberts.launch.workers.slurm import SlurmJobs, script_of_jobs
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import Launcher, quick_run, wait_until
from multiberts.tests.tools.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow

OPTIONS = {"partition": "test", "gpus": 2, "cores": 2, "walltime": "00:10:00", "poll_seconds": 1}


def jobs_of(slurm: SlurmCluster) -> list[str]:
    return slurm.command("squeue", "--noheader", "--format=%i").split()


def attempts_at_waits(root: Path) -> list[Attempt]:
    found = attempts_of(root)
    return [attempt for path in sorted(found) if "wait" in path for attempt in found[path]]


def carry_out(
    tmp_path: Path, *plan: PlannedRun, silent_seconds: float = 90, **options: Any
) -> None:
    engine = {"engine": "slurm", "engine_options": {**OPTIONS, **options}}
    root = str(tmp_path / "root")
    assert run_plan(plan=[*plan], root=root, silent_seconds=silent_seconds, **engine) == []


@pytest.mark.usefixtures("quick_stages")
def test_a_cancelled_block_is_replaced_and_every_run_finishes(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    release = tmp_path / "release"
    waits = [quick_run("wait", f"wait_{number}", release=str(release)) for number in range(6)]
    notes = [
        quick_run("note", f"note_{number}", waits[number], value=number) for number in range(6)
    ]
    cancelled: list[str] = []

    def cancel_the_first_block() -> None:
        wait_until(lambda: len(list(root.glob("wait_*/config.gin"))) >= 2)
        jobs = {attempt.job for attempt in attempts_at_waits(root)}
        cancelled.extend(job for job in jobs if job is not None)
        slurm.command("scancel", *cancelled)
        # Those of the next block.
        wait_until(lambda: len(attempts_at_waits(root)) >= 4)
        release.touch()

    canceller = threading.Thread(target=cancel_the_first_block)
    canceller.start()
    carry_out(tmp_path, *waits, *notes)
    canceller.join()

    assert all(run.done(root) for run in (*waits, *notes))
    attempts = attempts_at_waits(root)
    assert len(cancelled) == 1
    outcomes = [attempt.outcome for attempt in attempts if attempt.job == cancelled[0]]
    assert outcomes == ["preempted"] * 2, "Slurm asks before it kills: the runs have saved"
    assert len({attempt.job for attempt in attempts}) == 2
    # The node's two GPUs, one for each worker.
    assert {attempt.device for attempt in attempts} == {"gpu 0", "gpu 1"}
    assert wait_until(lambda: jobs_of(slurm) == [])


@pytest.mark.usefixtures("quick_stages")
def test_a_block_that_nobody_needs_is_given_back(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "SECONDS_OF_IDLENESS", 1.0)
    releases = [tmp_path / "first", tmp_path / "second"]
    first = [quick_run("wait", f"wait_{number}", release=str(releases[0])) for number in range(2)]
    last = quick_run("wait", "wait_last", *first, release=str(releases[1]))
    seen: list[int] = []

    def release_one_after_the_other() -> None:
        wait_until(lambda: len(attempts_at_waits(tmp_path / "root")) == 2)
        seen.append(len(jobs_of(slurm)))
        releases[0].touch()
        wait_until(lambda: len(jobs_of(slurm)) == 1)
        seen.append(len(jobs_of(slurm)))
        releases[1].touch()

    releaser = threading.Thread(target=release_one_after_the_other)
    releaser.start()
    carry_out(tmp_path, *first, last, gpus=1, cores=1, max_blocks=2)
    releaser.join()
    assert seen == [2, 1]
    devices = {attempt.device for attempt in attempts_at_waits(tmp_path / "root")}
    assert devices == {"gpu 0", "gpu 1"}


def test_blocks_leave_with_a_killed_launcher(
    slurm: SlurmCluster, start_launcher: Callable[..., Launcher]
) -> None:
    waits = quick_run("wait", "wait", release="never")
    launcher = start_launcher([waits], workers=None, engine="slurm", engine_options=OPTIONS)
    launcher.wait_for(waits)
    assert len(jobs_of(slurm)) == 1
    launcher.process.kill()
    assert wait_until(lambda: jobs_of(slurm) == [])


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGHUP, 75)]
)
def test_the_same_signal_twice_leaves_no_job(
    slurm: SlurmCluster,
    start_launcher: Callable[..., Launcher],
    number: signal.Signals,
    status: int,
) -> None:
    plan = [
        quick_run("wait", name, release="never", seconds_to_leave=10) for name in ("wait", "more")
    ]
    options = {**OPTIONS, "cores": 3, "gpus": 0, "max_blocks": 2}  # the node has 4
    launcher = start_launcher(plan, workers=1, engine="slurm", engine_options=options)
    assert wait_until(
        lambda: len(jobs_of(slurm)) == 2 and len(attempts_at_waits(launcher.root)) == 1
    )
    os.killpg(launcher.process.pid, number)
    # It waits for this run now, which takes its time.
    assert wait_until(lambda: list(launcher.root.glob("*/saved")) != [])
    os.killpg(launcher.process.pid, number)
    assert launcher.end()[0] == status
    assert slurm.command("squeue", "--noheader", "--states=pending") == ""
    assert wait_until(lambda: jobs_of(slurm) == [])


@pytest.mark.usefixtures("quick_stages", "slurm")
def test_a_stopped_worker_of_a_block_is_ended_and_its_run_is_tried_again(tmp_path: Path) -> None:
    root, release = tmp_path / "root", tmp_path / "release"
    waits = quick_run("wait", "wait", release=str(release))

    def stop_the_worker() -> None:
        assert wait_until(lambda: len(attempts_at_waits(root)) == 1)
        os.kill(attempts_at_waits(root)[0].pid, signal.SIGSTOP)
        assert wait_until(lambda: len(attempts_at_waits(root)) == 2)
        release.touch()

    stopper = threading.Thread(target=stop_the_worker)
    stopper.start()
    carry_out(tmp_path, waits, silent_seconds=2)
    stopper.join()
    assert [attempt.outcome for attempt in attempts_at_waits(root)] == ["lost", "done"]


@pytest.mark.usefixtures("quick_stages", "slurm")
def test_blocks_that_cannot_work_are_told_in_one_line(tmp_path: Path) -> None:
    for option, message in (
        ({"partition": "nowhere"}, "refuses to start workers.*invalid partition"),
        ({"address": "192.0.2.1"}, r"whether run.engine_options\['address'\], '192.0.2.1'"),
        ({"worker_init": "exit 3"}, "ended its workers"),
    ):
        with pytest.raises(UserError, match=message):
            carry_out(tmp_path, quick_run("note", "note"), **option)


def wait_for_line(launcher: Launcher, part: str) -> None:
    stream = launcher.process.stderr
    assert stream is not None
    said: list[str] = []

    def has_said() -> bool:
        said.append(stream.read())
        return part in "".join(said)

    assert wait_until(has_said), said


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_controller_that_is_silent_is_waited_for(
    slurm: SlurmCluster, tmp_path: Path, start_launcher: Callable[..., Launcher], how: str
) -> None:
    """Meanwhile runs go on; a job that ended unseen is replaced as soon as the controller answers."""
    root, releases = tmp_path / "root", [tmp_path / "first", tmp_path / "last"]
    waits = [quick_run("wait", f"wait_{n}", release=str(releases[n])) for n in range(2)]
    launcher = start_launcher(waits, workers=None, engine="slurm", engine_options=OPTIONS)
    launcher.wait_for(*waits)
    (job,) = jobs_of(slurm)
    if how == "stopped":
        slurm.controller.send_signal(signal.SIGSTOP)
    else:
        slurm.kill_controller()
    wait_for_line(launcher, "Slurm does not answer")
    releases[0].touch()
    assert wait_until(lambda: waits[0].done(root))
    nanny = psutil.Process(attempts_of(root)["wait_1"][0].pid).parent()
    assert nanny is not None
    nanny.kill()
    if how == "stopped":
        slurm.controller.send_signal(signal.SIGCONT)
    else:
        slurm.start_controller()
    wait_for_line(launcher, "Slurm answers again")
    assert wait_until(lambda: len(attempts_of(root)["wait_1"]) == 2)
    releases[1].touch()
    assert launcher.end() == (0, "\n")
    first, last = attempts_of(root)["wait_1"]
    assert first.job == job != last.job and (first.outcome, last.outcome) == ("lost", "done")
    assert [attempt.outcome for attempt in attempts_of(root)["wait_0"]] == ["done"]


@pytest.mark.usefixtures("quick_stages")
def test_a_controller_that_stays_silent_is_given_up(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "SECONDS_OF_PATIENCE", 5.0)
    slurm.kill_controller()
    with pytest.raises(UserError, match="Slurm has not answered for 5 s"):
        carry_out(tmp_path, quick_run("note", "note"))
    slurm.start_controller()


def test_a_drained_node_is_waited_for(
    slurm: SlurmCluster, tmp_path: Path, start_launcher: Callable[..., Launcher]
) -> None:
    root, release = tmp_path / "root", tmp_path / "release"
    waits = quick_run("wait", "wait", release=str(release))
    launcher = start_launcher([waits], workers=None, engine="slurm", engine_options=OPTIONS)
    launcher.wait_for(waits)
    (job,) = jobs_of(slurm)
    slurm.set_node("state=drain", "reason=test")
    slurm.command("scancel", job)
    assert wait_until(lambda: attempts_of(root)["wait"][0].outcome == "preempted")
    # Another job comes, and waits for the node. On a busy machine the run may begin once more in the first,
    # whose worker saves it before its nanny has told it to take no other, or dies with it.
    assert wait_until(lambda: jobs_of(slurm) not in ([], [job]))
    assert {attempt.job for attempt in attempts_of(root)["wait"]} == {job}
    slurm.set_node("state=resume")
    assert wait_until(lambda: attempts_of(root)["wait"][-1].job != job)
    release.touch()
    assert launcher.end() == (0, "\n")
    saved, *more, done = [attempt.outcome for attempt in attempts_of(root)["wait"]]
    assert (saved, done) == ("preempted", "done") and {*more} <= {"preempted", "lost"}


def test_the_end_of_a_walltime_is_followed_by_another_job(
    slurm: SlurmCluster, tmp_path: Path, start_launcher: Callable[..., Launcher]
) -> None:
    """Suspended jobs count as little, whose workers may be stopped for hours."""
    root, release = tmp_path / "root", tmp_path / "release"
    waits = quick_run("wait", "wait", release=str(release))
    options = {**OPTIONS, "walltime": "00:01:00"}
    launcher = start_launcher(
        [waits], workers=None, engine="slurm", engine_options=options, silent_seconds=2
    )
    launcher.wait_for(waits)
    launcher.wait_for(waits)
    slurm.command("scontrol", "suspend", *jobs_of(slurm))
    launcher.wait_for(waits)
    release.touch()
    assert launcher.end() == (0, "\n")
    attempts = attempts_of(root)["wait"]
    assert [attempt.outcome for attempt in attempts] == ["preempted", "lost", "done"]
    assert len({attempt.job for attempt in attempts}) == 3


def test_variables_of_the_user_hide_no_job(
    slurm: SlurmCluster, start_launcher: Callable[..., Launcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`su` and `sudo -E` leave LOGNAME as it was; the others are defaults of Slurm's commands."""
    waits = quick_run("wait", "wait", release="never")
    with monkeypatch.context() as patched:
        patched.setenv("LOGNAME", "nobody")
        patched.setenv("SQUEUE_PARTITION", "cpu")
        patched.setenv("SCANCEL_STATE", "PENDING")
        patched.setenv("SBATCH_JOB_NAME", "mine")
        launcher = start_launcher([waits], workers=None, engine="slurm", engine_options=OPTIONS)
    launcher.wait_for(waits)
    (job,) = jobs_of(slurm)
    # Looks at its jobs twice and more.
    assert not wait_until(lambda: jobs_of(slurm) != [job], seconds=4)
    os.kill(launcher.process.pid, signal.SIGINT)
    assert launcher.end() == (130, "stopped; the same command resumes from here\n")
    assert wait_until(lambda: jobs_of(slurm) == [])


@pytest.mark.usefixtures("quick_stages")
def test_what_jobs_wait_for_is_known_and_a_held_one_is_replaced_once(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    name, environment = "multiberts-held-owner", {"keys": "none"}
    security = Security(tls_ca_file="ca", tls_worker_cert="cert", tls_worker_key="key")
    workers: dict[str, bool] = {}

    def start(**options: Any) -> SlurmJobs:
        chosen = SlurmOptions(**OPTIONS | {"gpus": 0, "poll_seconds": 0.2} | options)
        script = script_of_jobs(
            chosen, "tls://127.0.0.1:1", name=name, workers=1, environment=environment,
            folder=str(tmp_path), security=security,
        )  # fmt: skip
        return SlurmJobs(chosen, script, name, tmp_path, lambda: workers)

    def waits_for(part: str) -> bool:
        jobs.look_after(1)
        return part in jobs.waiting_for()

    jobs = start(scheduler_options="--hold")
    assert wait_until(lambda: waits_for("held, JobHeldUser, as was the job before it"))
    [second] = jobs_of(slurm)
    assert f"scontrol release {second}" in jobs.waiting_for()
    # Held no more, as the line says.
    slurm.set_node("state=drain", "reason=test")
    slurm.command("scontrol", "release", second)
    assert wait_until(lambda: waits_for("DRAINED"))
    assert jobs_of(slurm) == [second]
    jobs.stop_looking()
    jobs.cancel()
    assert jobs_of(slurm) == []
    jobs = start(cores=100)
    assert wait_until(lambda: waits_for("PartitionConfig; wait, or stop this launch"))
    # Cancelled in the end, though its number is not known.
    jobs._jobs.clear()
    jobs._not_ended.clear()
    jobs.stop_looking()
    jobs.cancel()
    assert jobs_of(slurm) == []
