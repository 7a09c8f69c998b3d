"""Carrying out a plan: what is done stays, failures are tried again then told, nobody is left."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tqdm import tqdm

from multiberts.launch.markers.attempts import attempts_of, begin_attempt, end_attempt, make_journal
from multiberts.launch.markers.failures import describe
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import run_plan
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.workers import pool
from multiberts.launch.workers.chunks import RunChunk
from multiberts.launch.workers.launcher import Outcomes, show_progress
from multiberts.launch.workers.worker import Call, LaunchContext, carry_out_calls
from multiberts.runs.dask_cluster import BlamelessLossError, LostWorkerError
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import (
    Launcher,
    files_with_times,
    mark_done,
    outcomes,
    quick_run,
    wait_until,
)
from multiberts.tests.runs.conftest import own_disk
from multiberts.tests.tools.counted_calls import counted_calls

StartLauncher = Callable[..., Launcher]


LONG = [f"{'a' * 200}/{'b' * 100}", f"{'a' * 199}c/{'b' * 100}"]


@pytest.mark.usefixtures("quick_stages")
def test_each_way_to_go_wrong_has_its_attempts_its_page_and_its_log(tmp_path: Path) -> None:
    """One launch of runs that go wrong, each in its way, by two workers."""
    plan = [
        quick_run("stumble", "killed", times=9, how="killed first"),
        quick_run("stumble", "stalls", times=1, how="makes no step"),
        quick_run("stumble", "memory", times=9, how="fills the memory"),
        quick_run("stumble", "cut", times=1, how="cut off"),
        *(quick_run("note", f"{folder}/done", value=1) for folder in LONG),
        *(quick_run("stumble", f"{folder}/raises", times=9, how="raises") for folder in LONG),
    ]
    failures = {
        failure.run.path: failure
        for failure in run_plan(plan=plan, root=str(tmp_path), workers=2, attempts=2)
    }
    assert set(failures) == {"killed", "memory", *(f"{name}/raises" for name in LONG)}
    # The page has the last attempt, not the one whose worker was lost.
    assert outcomes(tmp_path, "killed") == ["lost", "failed"]
    page = (tmp_path / "status.html").read_text()
    assert "two and two made five" in page and "its worker was lost" not in page
    # A run that makes no step loses its worker, which gives heartbeats meanwhile, and is tried again.
    assert outcomes(tmp_path, "stalls") == ["lost", "done"]
    log = (tmp_path / "logs" / "stalls.log").read_text()
    assert "error: no step for 0.5 s (the_parameter)" in log
    # One that needs more memory than there is gets a line and no second try.
    assert failures["memory"].is_user_error and outcomes(tmp_path, "memory") == ["failed"]
    assert re.fullmatch(
        r"error: memory: this command needs more memory than there is \(.* bytes\); .*more memory.*",
        describe([failures["memory"]]),
    )
    # The launcher and the worker, which still writes, both see that it is cut off: one of them is first.
    assert outcomes(tmp_path, "cut") in (["preempted", "done"], ["lost", "done"])
    # Runs of long paths have logs and markers.
    found = collect_status(tmp_path)
    assert found.counts["done"] == 2 + len(LONG)
    rows = [row for row in found.failures if row.path.endswith("/raises")]
    assert len({row.log for row in rows}) == len(LONG)
    for row in rows:
        assert row.log is not None and "about to stumble" in row.log_lines


@pytest.mark.usefixtures("quick_stages")
def test_failed_runs_are_tried_again_then_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real workers that raise, refuse and die: what the report, the logs and a second launch say."""
    root, scratch = tmp_path / "a root", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    first = quick_run("note", "first", value=1)
    second = quick_run("note", "folder/second", first, value=2)
    raised_once = quick_run("stumble", "raised_once", times=1, how="raises")
    after = quick_run("note", "after", second, raised_once, value=4)
    raises = quick_run("stumble", "raises", times=9, how="raises")
    refused = quick_run("stumble", "refused", times=9, how="refused")
    killed = quick_run("stumble", "killed", times=9, how="killed")
    child = quick_run("note", "child", raises, first)
    grandchild = quick_run("note", "grandchild", child, refused)
    plan = [first, second, raised_once, after, raises, refused, killed, child, grandchild]

    in_this_process = time.process_time()
    failures = run_plan(plan=plan, root=str(root), workers=1, attempts=2)
    in_this_process = time.process_time() - in_this_process

    assert (root / "after" / "total").read_text() == "7"
    assert {failure.run for failure in failures} == {raises, refused, killed, child, grandchild}
    assert (outcomes(root, "first"), outcomes(root, "raised_once")) == (
        ["done"],
        ["failed", "done"],
    )
    assert outcomes(root, "raises") == ["failed"] * 2
    assert outcomes(root, "killed") == ["lost", "failed"]
    (in_status,) = [row for row in collect_status(root).failures if row.path == "killed"]
    assert in_status.attempts == 2 and "its worker was lost" in in_status.message
    assert in_status.log == "logs/killed.log" and "about to stumble" in in_status.log_lines
    assert outcomes(root, "refused") == ["failed"]  # trying again would not mend the input
    assert outcomes(root, "child") == []
    told = describe(failures)
    assert re.search(r"error: raises: ArithmeticError: two and .* \(tried 2 times\)\n", told)
    assert "    or more\n" in told and f"(log: {root / 'logs' / 'raises.log'})" in told
    assert "error: refused: the input is bad" in told
    assert re.search(r"error: killed: its worker .* \(tried 2 times\)", told)
    assert "error: child: not started, for raises" in told
    assert told.count("error: grandchild: ") == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("[") for line in lines) >= 4 and "[4/9]" in lines[-1]
    assert re.fullmatch(r"4 runs in .+, .+ of CPU time", last)
    taken = json.loads((root / "launch" / "time.json").read_text())
    assert taken["runs"] == 4 and taken["wall_seconds"] > 0
    # Importing Dask alone takes a worker longer.
    assert taken["cpu_seconds"] > in_this_process + 0.2

    # Again: what is done is not touched, what failed is tried again.
    before = files_with_times(root / "after")
    (mended,) = run_plan(plan=[*plan[:4], refused], root=str(root), workers=1)
    assert mended.run is refused and outcomes(root, "refused") == ["failed"] * 2
    assert files_with_times(root / "after") == before
    everything = files_with_times(root)
    monkeypatch.setattr(pool.Pool, "__init__", None)  # no worker is started: calling it fails
    assert run_plan(plan=plan[:4], root=str(root)) == []
    assert "all 4 runs" in capsys.readouterr().out
    changed = {
        path for path, time_ns in files_with_times(root).items() if everything[path] != time_ns
    }
    assert changed == {str(root / "launch" / "plan.json")}
    everything = files_with_times(root)
    assert run_plan(plan=plan[:4], root=str(root)) == []
    assert files_with_times(root) == everything
    assert list(scratch.iterdir()) == []


def test_a_folder_in_the_place_of_a_link_is_refused(tmp_path: Path) -> None:
    """As after a copy of the root that follows links."""
    run = PlannedRun("score", "scores", {"predictions": []}, (), "a" * 64, "scores-1a2b")
    mark_done(tmp_path, run)
    (tmp_path / "scores").mkdir()
    with pytest.raises(UserError, match="scores is not a link, .*scores-1a2b"):
        run_plan(plan=[run], root=str(tmp_path))
    (tmp_path / "scores").rmdir()
    assert run_plan(plan=[run], root=str(tmp_path)) == []
    assert os.readlink(tmp_path / "scores") == run.path


def test_a_killed_launcher_leaves_nothing_the_next_goes_on_and_ctrl_c_stops_all(
    start_launcher: StartLauncher, tmp_path: Path
) -> None:
    """Real processes: only the kernel shows what a SIGKILL leaves behind."""
    root = tmp_path / "root"
    holds = quick_run("hold", "hold", seconds=600)
    waits = quick_run("wait", "wait", release="never")
    launcher = start_launcher([holds, waits])
    launcher.wait_for(holds, waits)
    launcher.process.kill()
    assert wait_until(lambda: not launcher.processes())
    assert not list(root.glob("*/DONE")) and not list(root.rglob("*.unfinished"))
    assert outcomes(root, "hold") == [None]
    assert wait_until(lambda: not list(launcher.scratch.iterdir()))

    # The next one has the lease at once, and closes what was left open.
    note = quick_run("note", "note")
    again = start_launcher([note, holds], workers=1)
    again.wait_for(note)
    assert wait_until(lambda: outcomes(root, "hold") == ["lost", None])
    # The terminal sends the signal to the whole group.
    os.killpg(again.process.pid, signal.SIGINT)
    status, errors = again.end()
    assert status == 130
    assert errors.startswith("stopped; ") and errors.count("\n") == 1
    assert wait_until(lambda: not again.processes())
    assert not (root / "launch" / "lease.json").exists()
    assert None not in outcomes(root, "hold")
    assert not list(tmp_path.rglob("*.unfinished"))


def test_a_worker_that_is_stopped_beside_the_launcher_is_replaced(
    start_launcher: StartLauncher, tmp_path: Path
) -> None:
    """The only test of a worker that stops without dying, which real heartbeats alone reveal."""
    root, release = tmp_path / "root", str(tmp_path / "release")
    waits = quick_run("wait", "wait", release=release)
    plan = [waits, quick_run("note", "note", waits)]
    launcher = start_launcher(plan, workers=1, silent_seconds=2)
    launcher.wait_for(waits)
    stopped = launcher.worker_of(waits)
    stopped.suspend()
    launcher.wait_for(waits)
    assert not stopped.is_running()
    Path(release).touch()
    assert launcher.end() == (0, "\n")
    assert (root / "note" / "DONE").is_file()
    assert outcomes(root, "wait") == ["lost", "done"]


@pytest.mark.usefixtures("quick_stages")
def test_workers_that_all_end_as_they_start_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a script do that launches wherever it is imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif any('spawn_main' in word for word in sys.orig_argv):\n    os._exit(1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(pool, "_MAX_FAILED_STARTS", 4)
    monkeypatch.setattr(pool, "_SECONDS_TO_START", 0.5)
    with pytest.raises(UserError, match="4 workers ended as they started"):
        run_plan(plan=[quick_run("note", "note")], root=str(tmp_path / "root"), workers=2)


def test_a_run_whose_workers_die_before_they_begin_fails(tmp_path: Path) -> None:
    runs = (quick_run("note", "first"), quick_run("note", "second"))
    known = Outcomes(runs, tmp_path, 3, is_local=True)
    lost = LostWorkerError("its worker was lost")
    for number in range(5):
        known.take_lost(RunChunk("both", runs), f"{number}.jsonl", lost)
        # A scheduler that is lost, or a worker that leaves, does not count.
        blameless = BlamelessLossError("lost, too")
        known.take_lost(RunChunk("both", runs), f"{number}.jsonl", blameless)
        assert not known.failures
    known.take_lost(RunChunk("both", runs), "5.jsonl", lost)
    (failure,) = known.failures.values()
    assert failure.run is runs[0] and failure.attempts == 3
    assert "its worker was lost" in failure.message


def test_of_a_chunk_whose_worker_is_lost_each_run_goes_on_from_where_it_was(tmp_path: Path) -> None:
    """The worker was killed after one run, within the next, and before the last."""
    done, begun, left = runs = tuple(quick_run("note", name) for name in ("done", "begun", "left"))
    known = Outcomes(runs, tmp_path, 3, is_local=True)
    journal = make_journal(tmp_path, "a.jsonl")
    first = begin_attempt(tmp_path, "done", engine="local", journal=journal)
    end_attempt(tmp_path, first, "done")
    mark_done(tmp_path, done)
    begin_attempt(tmp_path, "begun", engine="local", journal=journal)
    known.take_lost(RunChunk("all", runs), journal, LostWorkerError("it was lost"))
    assert known.done == {"done"} and not known.failures
    assert outcomes(tmp_path, "begun") == ["lost"] and outcomes(tmp_path, "left") == []
    assert [len(known.attempts.get(run.path, ())) for run in (done, begun, left)] == [1, 1, 0]
    assert {known.waiting.take(9).runs for _ in range(2)} >= {(begun,), (left,)}
    # It was only silent, and went on until it was ended.
    begin_attempt(tmp_path, "left", engine="local", journal=journal)
    known.close_open_attempts("lost")
    assert outcomes(tmp_path, "begun") == outcomes(tmp_path, "left") == ["lost"]


def test_a_drawing_of_the_bar_takes_two_calls_per_chunk_however_many_runs_it_has(
    tmp_path: Path,
) -> None:
    runs = [quick_run("note", f"note_{number}") for number in range(1000)]
    known = Outcomes(runs, tmp_path, 3, is_local=True)
    jobs = []
    for number in range(10):
        journal = make_journal(tmp_path, f"{number}.jsonl")
        chunk = RunChunk("some", tuple(runs[100 * number : 100 * number + 100]))
        jobs.append((chunk, journal))
        attempt = begin_attempt(tmp_path, chunk.runs[0].path, engine="local", journal=journal)
    with tqdm(total=len(runs), file=io.StringIO()) as bar:
        show_progress(bar, known, jobs, 10)
        assert bar.n == 0
        end_attempt(tmp_path, attempt, "done")
        show_progress(bar, known, jobs, 10)
        assert bar.n == 1
        with counted_calls() as calls:
            show_progress(bar, known, jobs, 10)
    assert 0 < sum(calls.values()) <= 20, calls


@pytest.mark.parametrize(
    "kind", ["limit of a file's size", pytest.param("disk", marks=pytest.mark.slow)]
)
def test_a_full_disk_is_one_line_and_the_same_command_resumes(
    start_launcher: StartLauncher, tmp_path: Path, kind: str
) -> None:
    """The only test of a launch whose workers and launcher find no room."""
    with contextlib.ExitStack() as stack:
        limit: dict[str, Any] = {"max_bytes_of_file": 2**19}
        root = tmp_path / "root"
        if kind == "disk":
            limit = {}
            disk = stack.enter_context(contextlib.contextmanager(own_disk)(tmp_path, "1m"))
            root.symlink_to(disk)
        waits = quick_run("wait", "wait", release=str(tmp_path / "release"))
        fills = quick_run("fill", "fill", size=2**21)
        # Of one worker the run that fills it is the first.
        workers = 2 if kind == "disk" else 1
        launcher = start_launcher([fills, waits], workers=workers, **limit)
        status, errors = launcher.end()
        assert status == 2, errors
        # On a full disk the next to write is told: another run, or the launcher itself.
        whose = "(fill: |wait: )?" if kind == "disk" else "fill: "
        assert re.fullmatch(rf"error: {whose}cannot write [^\n]+\n", errors)
        assert wait_until(lambda: not launcher.processes())
        assert not list(root.rglob("*.unfinished"))
        for marker in root.glob("launch/**/*.json*"):
            for line in marker.read_text().splitlines():
                json.loads(line or "{}")
        # What fills the disk is gone, or the limit is.
        if kind == "disk":
            subprocess.run(["mount", "-o", "remount,size=8m", str(root.resolve())], check=True)
        (tmp_path / "release").touch()
        again = start_launcher([waits, fills], workers=1)
        assert again.end() == (0, "\n")
        assert (root / "fill" / "DONE").is_file() and (root / "wait" / "DONE").is_file()


def test_a_disk_without_room_for_the_plan_is_one_line(
    start_launcher: StartLauncher, tmp_path: Path
) -> None:
    """The launcher itself is the first to write."""
    plan = [quick_run("note", f"note_{number}") for number in range(20)]
    launcher = start_launcher(plan, max_bytes_of_file=2**10)
    status, errors = launcher.end()
    assert status == 2
    assert re.fullmatch(r"error: cannot write [^\n]+\n", errors)
    assert not list((tmp_path / "root").rglob("*.unfinished"))
    assert not (tmp_path / "root" / "launch" / "lease.json").exists()


def test_asked_to_stop_workers_save_and_the_same_command_goes_on_but_not_a_second_beside_it(
    start_launcher: StartLauncher, tmp_path: Path
) -> None:
    """Real signals to launcher, worker and terminal: every way of asking lets the run save."""
    root = tmp_path / "root"
    waits = quick_run("wait", "wait", release="never", seconds_to_leave=0.5)
    note = quick_run("note", "note")
    said = f"asked to stop: 1 of 2 runs of {root} "
    launcher = start_launcher([note, waits], workers=1)

    def kill_worker() -> bool:
        for process in launcher.processes():
            with contextlib.suppress(psutil.Error):
                if "spawn_main" in " ".join(process.cmdline()):
                    process.kill()
                    return True
        return False

    # While it starts, it is not Dask that replaces it.
    assert wait_until(kill_worker)
    launcher.wait_for(waits)
    assert outcomes(root, "note") == ["done"]
    # Another launcher leaves them alone.
    with pytest.raises(UserError, match=f"process {launcher.process.pid} on"):
        run_plan(plan=[waits], root=str(root))
    status, errors = start_launcher([waits]).end()
    assert status == 2 and errors.count("\n") == 1 and errors.startswith("error: ")
    # A worker that alone is asked to stop has not failed: its run is started again.
    launcher.worker_of(waits).terminate()
    launcher.wait_for(waits)
    launcher.process.send_signal(signal.SIGTERM)
    status, errors = launcher.end()
    assert status == 75 and errors.startswith(said) and errors.count("\n") == 1
    # A process of Python's that waits for its parent may take a moment.
    assert wait_until(lambda: not launcher.processes())

    again = start_launcher([note, waits], workers=1)
    again.wait_for(waits)
    # ssh's end hangs up every process of the session that has not left its group.
    os.killpg(again.process.pid, signal.SIGHUP)
    status, errors = again.end()
    assert status == 75 and errors.startswith(said) and errors.count("\n") == 1
    assert wait_until(lambda: not again.processes())
    assert outcomes(root, "wait") == ["preempted"] * 3
    errors_of = [attempt.error or {} for attempt in attempts_of(root)["wait"]]
    assert all(error["message"].startswith("asked to stop: saved") for error in errors_of)
    log = (root / "logs" / "wait.log").read_text().splitlines()
    starts = [int(line.split()[2]) for line in log if line.startswith("begun at")]
    assert starts[0] == 0 and starts == sorted(starts) and starts[-1] > 0


@pytest.mark.slow
def test_the_dashboard_is_served_to_this_machine_alone(
    start_launcher: StartLauncher, tmp_path: Path
) -> None:
    pytest.importorskip("bokeh", reason="needs bokeh, the extra `dashboard`")
    release = tmp_path / "release"
    waits = quick_run("wait", "wait", release=str(release))
    launcher = start_launcher([waits], workers=1, dashboard=True)
    launcher.wait_for(waits)
    shown = launcher.process.stderr
    assert shown is not None
    said = "Dask's dashboard: "
    # The port's number is another where the usual one is taken, which Dask says first.
    line = next(line for line in shown if line.startswith(said))
    address = line.removeprefix(said).strip()
    assert address.startswith("http://127.0.0.1:"), line
    with urllib.request.urlopen(address) as page:
        assert b"bokeh" in page.read().lower()
    release.touch()
    assert launcher.end()[0] == 0


def test_a_folder_of_logs_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worker is this process, to which no GPU is to be given.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "logs").write_text("in the way")
    call = Call(
        "first", "quick_stages:note", {"run_dir": str(tmp_path / "first")}, "logs/first.log"
    )
    outcomes_of, _ = carry_out_calls(
        [call], LaunchContext(str(tmp_path), "local", "owner"), 0, make_journal(tmp_path, "a.jsonl")
    )
    outcome, error = outcomes_of["first"]
    assert outcome == "failed" and error is not None and error["kind"] == "FileExistsError"
    assert outcomes(tmp_path, "first") == ["failed"]


# A launcher whose clock is set back once a file is there.
SET_BACK = """
import pathlib, sys, time
now, is_set_back = time.time, pathlib.Path(sys.argv[1]).exists
time.time = lambda: now() - 600 * is_set_back()
from multiberts.tests.launch.launchers import launch
launch(sys.argv[2])
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_after_the_clock_was_set_back_is_replaced(tmp_path: Path) -> None:
    """Dask's timers then stand still; until they go on, nothing moves a chunk from a busy worker."""
    root, release, set_back = (tmp_path / name for name in ("root", "release", "set_back"))
    runs = [("quick_stages:wait", f"wait_{n}", {"release": str(release)}, []) for n in range(2)]
    content = json.dumps({"runs": runs, "root": str(root), "workers": 2})
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    launcher = subprocess.Popen(
        [sys.executable, "-c", SET_BACK, str(set_back), content],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    try:
        assert wait_until(lambda: [outcomes(root, run[1]) for run in runs] == [[None], [None]])
        wait_until(lambda: False, 1)  # it counts its workers twice a second
        set_back.touch()
        os.kill(attempts_of(root)["wait_0"][0].pid, signal.SIGKILL)
        assert wait_until(lambda: len(outcomes(root, "wait_0")) == 2, 60)
        release.touch()
        assert launcher.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
