"""Reaping really ends what a dead launcher left, and spares everything else."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multiberts.launch.markers.attempts import (
    attempts_of,
    begin_attempt,
    end_attempt,
    write_attempt,
)
from multiberts.launch.markers.lease import launcher_at_a_glance, launching
from multiberts.launch.running import reap_experiment, run_plan
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.workers import leftovers
from multiberts.launch.workers.leftovers import (
    FOLDER,
    KEYS,
    VARIABLE,
    close_attempts,
    end_processes,
    left_processes,
    mark_of_this_process,
)
from multiberts.launch.workers.slurm import name_of_jobs
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import Launcher, marked_process, quick_run, wait_until
from multiberts.tests.launch.made_up import MadeUp
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.slurm_cluster import SlurmCluster

# Says when it is ready; ends at SIGTERM at once, or not at all.
OBEDIENT = "print(flush=True); import time; time.sleep(300)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEDIENT}"

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes with the mark of a launch of a root, and sees them off in the end.

    Their launcher is gone (its number now is another process's), or this process.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(
        root: Path | None, owner: str = "gone", script: str = OBEDIENT, launcher: int | None = None
    ):
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        if root is not None:
            mark = mark_of_this_process(str(root), owner)
            if launcher is None:
                mark = dataclasses.replace(mark, created=mark.created - 3600)
            environment[VARIABLE] = mark.to_string()
        process = subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def runs(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def test_processes_of_a_dead_launcher_are_ended_and_no_others(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    root, other = tmp_path / "root", tmp_path / "root2"
    root.mkdir()
    # The same root by another name is the same root.
    (tmp_path / "link").symlink_to(root)
    ours = [start(root), start(tmp_path / "link")]
    spared = [start(other), start(None), start(root / "within")]
    reap_experiment(root)
    assert not any(map(runs, ours)) and all(map(runs, spared))
    said = capsys.readouterr().out
    assert all(f"process {process.pid} (" in said for process in ours)
    assert not any(f"process {process.pid} (" in said for process in spared)
    reap_experiment(root)
    assert "nothing to end" in capsys.readouterr().out


def test_processes_of_a_root_that_cannot_be_written_are_ended(tmp_path: Path, start: Start) -> None:
    (tmp_path / "launch" / ".lock").mkdir(parents=True)
    process = start(tmp_path)
    reap_experiment(tmp_path)
    assert not runs(process)


def test_a_process_that_does_not_leave_is_killed(
    tmp_path: Path,
    start: Start,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leftovers, "SECONDS_TO_SAVE", 0.5)
    process = start(tmp_path, script=STUBBORN)
    assert end_processes(tmp_path, None) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"process {process.pid} (") and said.endswith(", killed\n")
    assert process.wait(PATIENCE) == -signal.SIGKILL


def test_the_folder_of_a_launcher_that_is_gone_is_removed_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "root" / "launch" / "dask"
    for place in (mine, folder):
        place.mkdir(parents=True)
        (place / "file").write_text("kept")
    (folder / "link").symlink_to(mine)
    (tmp_path / "other" / "launch").mkdir(parents=True)
    (tmp_path / "other" / "launch" / "dask").symlink_to(mine)
    with launching(tmp_path / "root"):
        reap_experiment(tmp_path / "root")
    assert folder.is_dir()
    for name in ("root", "other"):
        reap_experiment(tmp_path / name)
    assert (mine / "file").read_text() == "kept"
    assert not folder.exists()


def test_a_running_launcher_keeps_its_processes_but_not_those_of_one_before(
    tmp_path: Path, start: Start
) -> None:
    with launching(tmp_path) as lease:
        own = start(tmp_path, lease.owner)
        # Of a launch before, by a process that lives.
        helper = start(tmp_path, "before", launcher=os.getpid())
        earlier = start(tmp_path, "earlier")
        assert [
            left.process.pid for left in left_processes(tmp_path, launcher_at_a_glance(tmp_path))
        ] == [earlier.pid]
        reap_experiment(tmp_path)
        assert runs(own) and runs(helper) and not runs(earlier)
    # Where nobody has the lease, the process of the launcher decides.
    assert [left.process.pid for left in left_processes(tmp_path, None)] == [own.pid]


def test_whoever_reaps_spares_itself_and_those_that_it_descends_from(
    tmp_path: Path, start: Start
) -> None:
    # A shell with the mark, in which someone calls reap.
    call = f"from multiberts.launch.running import reap_experiment as reap; reap({str(tmp_path)!r})"
    script = (
        "import subprocess, sys; print(flush=True)\n"
        f"sys.exit(subprocess.run([sys.executable, '-c', {call!r}]).returncode)"
    )
    assert start(tmp_path, script=script).wait(PATIENCE) == 0


def test_attempts_whose_process_is_gone_are_noted_as_lost(tmp_path: Path, start: Start) -> None:
    made = MadeUp(tmp_path, time.time())
    seeds = [made.add_seed(number) for number in range(4)]
    made.write_plan()
    mine = start(tmp_path)
    begin_attempt(tmp_path, seeds[0].path, engine="local", pid=mine.pid)
    begin_attempt(tmp_path, seeds[1].path, engine="slurm", host="node07", pid=mine.pid)
    end_attempt(tmp_path, begin_attempt(tmp_path, seeds[2].path, engine="local"), "done")
    begin_attempt(tmp_path, seeds[3].path, engine="local", pid=os.getpid())
    reap_experiment(tmp_path)
    outcomes = {path: found[-1].outcome for path, found in attempts_of(tmp_path).items()}
    ends = ("lost", None, "done", None)
    assert outcomes == {seed.path: end for seed, end in zip(seeds, ends, strict=True)}
    assert collect_status(tmp_path).pretraining[0].state == "lost"


def test_attempts_are_closed_although_slurm_has_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("squeue", "scancel"):
        (programs / name).write_text("#!/bin/sh\necho 'no controller answers' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    root = tmp_path / "root"
    keys = root / FOLDER / KEYS
    keys.parent.mkdir(parents=True)
    keys.touch()
    gone = subprocess.Popen(["true"])
    begin_attempt(root, "pretrain/a", engine="local", pid=gone.pid)
    gone.wait()
    with pytest.raises(UserError, match="Slurm .*: no controller answers; .* remove .*/dask"):
        reap_experiment(root)
    assert [one.outcome for one in attempts_of(root)["pretrain/a"]] == ["lost"]
    out = capsys.readouterr().out
    assert "1 attempt " in out and " lost" in out


def test_an_attempt_of_another_process_with_the_same_number_is_closed(tmp_path: Path) -> None:
    attempt = begin_attempt(tmp_path, "pretrain/a", engine="local")
    assert attempt.created is not None and close_attempts(tmp_path) == 0
    write_attempt(tmp_path, dataclasses.replace(attempt, created=attempt.created - 5))
    assert close_attempts(tmp_path) == 1


@pytest.mark.parametrize("is_renewed", [True, False])
def test_a_launcher_elsewhere_is_watched_before_its_processes_are_ended(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, is_renewed: bool
) -> None:
    """Its clock is a day behind; only whether it renews its lease counts."""
    process = start(tmp_path, "elsewhere")
    ended = threading.Event()

    def renew() -> None:
        for number in itertools.count():
            times = {"started": 1.0, "renewed": time.time() - 86400 + number}
            known = {
                "machine": "m",
                "created": None,
                "seconds_until_stale": 60.0 if is_renewed else 1.0,
            }
            holder = {"owner": "elsewhere", "host": "elsewhere", "pid": 1, **times, **known}
            (tmp_path / "fresh").write_text(json.dumps(holder))
            (tmp_path / "launch").mkdir(exist_ok=True)
            os.replace(tmp_path / "fresh", tmp_path / "launch" / "lease.json")
            if not is_renewed or ended.wait(0.2):
                return

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        assert wait_until((tmp_path / "launch" / "lease.json").is_file)
        reap_experiment(tmp_path)
    finally:
        ended.set()
        thread.join()
    assert runs(process) == is_renewed


@pytest.mark.usefixtures("quick_stages")
def test_a_stopped_worker_of_a_killed_launcher_leaves_no_process_and_its_attempt_is_closed(
    start_launcher: Callable[..., Launcher],
) -> None:
    waits = quick_run("wait", "wait", release="never")
    launcher = start_launcher([waits], workers=1)
    launcher.wait_for(waits)
    assert left_processes(launcher.root, launcher_at_a_glance(launcher.root)) == []
    # The kernel hangs up a group whose leader's parent is gone if some of its processes are stopped.
    launcher.worker_of(waits).suspend()
    launcher.process.kill()
    launcher.process.wait()
    assert wait_until(lambda: not launcher.processes())
    reap_experiment(launcher.root)
    status = collect_status(launcher.root)
    assert status.launcher is None and status.orphans == ()
    # The kernel's hang-up also asks the run to save, which it does where its worker does not end first.
    [attempt] = attempts_of(launcher.root)["wait"]
    assert attempt.outcome in ("lost", "preempted")
    assert attempt.outcome == "lost" or (launcher.root / "wait" / "saved").exists()


@pytest.mark.usefixtures("quick_stages")
def test_a_launch_first_ends_what_one_before_has_left(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two real launches: what is left is ended before the first run, helpers of this process are not."""
    root = tmp_path / "root"
    left, spared = start(root), start(tmp_path / "other")
    run = quick_run("note", "run", value=1)
    with launching(root):
        with pytest.raises(UserError, match="is being launched by"):
            run_plan(plan=[run], root=str(root), workers=1)
        assert runs(left)
    assert run_plan(plan=[run], root=str(root), workers=1) == []
    assert not runs(left) and runs(spared)
    said = capsys.readouterr().out
    assert 0 <= said.index(f"process {left.pid} (") < said.index("[1/1] run")
    # Helpers of that launch stay with this process.
    later = quick_run("note", "later", value=1)
    assert run_plan(plan=[later], root=str(root), workers=1) == []
    assert "process " not in capsys.readouterr().out


def test_a_launch_starts_nothing_while_jobs_of_one_before_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "root" / FOLDER / KEYS
    keys.parent.mkdir(parents=True)
    keys.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    run = quick_run("note", "run", value=1)
    with pytest.raises(UserError, match="squeue and scancel are not found; .* remove .*/dask"):
        run_plan(plan=[run], root=str(tmp_path / "root"), workers=1)
    assert keys.exists() and not run.done(tmp_path / "root")


def test_slurm_jobs_of_the_root_are_cancelled_and_no_others(
    slurm: SlurmCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = {}
    for name in ("root", "other"):
        (tmp_path / name).mkdir()
        output = tmp_path / name / "output"
        options = (f"--output={output}", f"--job-name={name_of_jobs(tmp_path / name, 'gone')}")
        jobs[name] = slurm.command("sbatch", "--parsable", *options, "--wrap=sleep 300")
        keys = tmp_path / name / FOLDER / KEYS
        keys.parent.mkdir(parents=True)
        keys.touch()  # by which one knows that the launch was one on Slurm
    root = tmp_path / "root"

    def left() -> set[str]:
        return set(slurm.command("squeue", "--noheader", "--format=%i").split())

    assert left() == set(jobs.values())
    with launching(root):
        reap_experiment(root)
    assert left() == set(jobs.values())
    reap_experiment(root)
    assert f"Slurm job {jobs['root']} " in capsys.readouterr().out
    assert wait_until(lambda: left() == {jobs["other"]})


def test_marks_of_other_versions_are_no_trouble(tmp_path: Path) -> None:
    for value in ("", "1", "[]", json.dumps({"root": str(tmp_path)})):
        process = marked_process(value)
        try:
            assert left_processes(tmp_path, None) == []
        finally:
            process.kill()
            process.wait()
