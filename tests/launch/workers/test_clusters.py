"""Runs on a cluster of Dask that others have started: `dask scheduler` and two `dask worker`, with TLS."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, LocalCluster

from multiberts.launch.markers.attempts import Attempt, attempts_of, begin_attempt, make_journal
from multiberts.launch.running import reap_experiment, run_plan
from multiberts.launch.workers import pool
from multiberts.launch.workers.in_dask import LaunchWorker, carry_out
from multiberts.launch.workers.worker import Call, LaunchContext
from multiberts.runs import console, dask_cluster
from multiberts.runs.dask_cluster import LostWorkerError
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import HERE, Launcher, outcomes, quick_run, wait_until
from multiberts.tests.tools.dask_cluster import DaskCluster, keys_in_place
from multiberts.tests.tools.faults import cluster as faults
from multiberts.tests.tools.patience import PATIENCE


def is_whole(cluster: DaskCluster) -> bool:
    return all(process.poll() is None for process in cluster.processes)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], DaskCluster]]:
    """Returns the cluster of these tests, or another where one of them has ended a part of it."""
    path = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(HERE)])
    started: list[DaskCluster] = []
    with contextlib.ExitStack() as stack:

        def whole() -> DaskCluster:
            if not started or not is_whole(started[-1]):
                cluster = DaskCluster(tmp_path_factory.mktemp("cluster"), PYTHONPATH=path)
                started.append(stack.enter_context(cluster))
            return started[-1]

        yield whole


@pytest.fixture
def cluster(clusters: Callable[[], DaskCluster]) -> Iterator[DaskCluster]:
    """A cluster with both its workers, which other tests have used, too."""
    cluster = clusters()
    with keys_in_place(cluster):
        yield cluster
        # One that is just starting again would not hear that it is to end.
        if is_whole(cluster):
            wait_for_workers(cluster)


def wait_for_workers(cluster: DaskCluster) -> None:
    with Client(cluster.address) as client:
        client.wait_for_workers(len(cluster.workers), timeout=PATIENCE)


def on(cluster: DaskCluster) -> dict[str, Any]:
    return {"engine": "dask", "engine_options": {"scheduler": cluster.address}}


def attempts_at(root: Path, path: str) -> list[Attempt]:
    return attempts_of(root).get(path, [])


def in_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


@pytest.mark.usefixtures("quick_stages")
def test_its_workers_carry_a_plan_out_and_stay(
    cluster: DaskCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its scheduler passes a task on three times by itself; the launcher counts all the same."""
    root = tmp_path / "root"
    first = quick_run("note", "first", value=1)
    plan = [
        first,
        quick_run("note", "second", first, value=2),
        quick_run("stumble", "killed", times=9, how="killed"),
        quick_run("stumble", "raises", times=9, how="raises"),
    ]
    failures = run_plan(plan=plan, root=str(root), attempts=2, **on(cluster))
    assert {failure.run.path for failure in failures} == {"killed", "raises"}
    assert (root / "second" / "total").read_text() == "3"
    assert outcomes(root, "killed") == ["lost", "failed"]
    assert outcomes(root, "raises") == ["failed"] * 2
    said = capsys.readouterr().err
    assert re.search(r"300 to 600 s .*worker-ttl; run\.silent_seconds is 90", said)
    assert said.count("tls://") == 1
    assert is_whole(cluster)


def test_a_killed_launcher_s_runs_stop_the_cluster_stays_and_reap_spares_it(
    cluster: DaskCluster, tmp_path: Path, start_launcher: Callable[..., Launcher]
) -> None:
    root, release = tmp_path / "root", tmp_path / "release"
    waits = quick_run("wait", "wait", release=str(release))
    holds = quick_run("hold", "hold", seconds=600)
    launcher = start_launcher([waits, holds], workers=None, **on(cluster))
    launcher.wait_for(waits, holds)
    launcher.process.kill()
    # One saves, and the other, which cannot, ends with its worker, which comes again.
    for path in ("wait", "hold"):
        assert wait_until(lambda path=path: outcomes(root, path) == ["preempted"]), path
    assert int((root / "wait" / "saved").read_text()) > 0
    reap_experiment(root, "dask")
    assert is_whole(cluster)
    wait_for_workers(cluster)
    release.touch()
    again = start_launcher([waits], workers=None, **on(cluster))
    assert again.end()[0] == 0
    assert outcomes(root, "wait") == ["preempted", "done"]


def test_a_chunk_that_dask_calls_again_is_not_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a worker that died before the launcher had fetched its result."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    place = LaunchContext(str(tmp_path), "dask", owner="owner")
    stumbles = {"times": 9, "how": "raises"}
    calls = [
        Call(path, stage, {"run_dir": str(tmp_path / path), **more}, f"{path}.log")
        for path, stage, more in (
            ("note", "quick_stages:note", {}),
            ("raises", "quick_stages:stumble", stumbles),
        )
    ]
    journal = make_journal(tmp_path, "a.jsonl")
    with LocalCluster(1, processes=False, dashboard_address=None) as one, Client(one) as client:
        client.register_plugin(LaunchWorker(1, is_local=False))

        def call() -> Any:
            named = {"key": f"call-{next(numbers)}", "pure": False}
            return client.submit(carry_out, "launch", calls, journal, place, **named).result()

        numbers = itertools.count()
        first, _ = call()
        assert [(path, end[0]) for path, end in first.items()] == [
            ("note", "done"),
            ("raises", "failed"),
        ]
        assert call() == (first, 0.0)
        assert outcomes(tmp_path, "note") == ["done"] and outcomes(tmp_path, "raises") == ["failed"]
        # Another worker has begun one that has no end.
        begin_attempt(tmp_path, "more", engine="dask", journal=journal)
        with pytest.raises(LostWorkerError, match="attempt 1 at more has no end"):
            call()


def answer(port: int, over_tls: bool) -> bytes:
    """What someone without a certificate hears."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as stranger:
        if over_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            stranger = context.wrap_socket(stranger)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return stranger.recv(100)
    return b""


@pytest.mark.usefixtures("quick_stages")
def test_strangers_are_refused_and_workers_are_served_all_the_same(
    start_launcher: Callable[..., Launcher], tmp_path: Path
) -> None:
    """A launch has keys of its own; no port of it is open to other machines."""
    release = tmp_path / "release"
    waits = quick_run("wait", "wait", release=str(release))
    launcher = start_launcher([waits], workers=1)
    launcher.wait_for(waits)
    addresses = [
        connection.laddr
        for process in launcher.processes()
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.ip for address in addresses} == {"127.0.0.1"}
    for address in addresses:
        said = answer(address.port, over_tls=False)
        # The pages of Dask's HTTP servers alone are open, to this machine.
        if not said.startswith(b"HTTP/1.1 "):
            assert said == b""
            assert answer(address.port, over_tls=True) == b""
    release.touch()
    assert launcher.end() == (0, "\n")


@pytest.mark.usefixtures("quick_stages")
def test_where_other_clients_keep_all_workers_busy_it_is_said(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    release = tmp_path / "release"

    def hear(line: str) -> None:
        said.append(line)
        release.touch()

    monkeypatch.setattr(dask_cluster, "SECONDS_OF_SILENCE", 1.0)
    monkeypatch.setattr(dask_cluster, "progress", hear)
    hold = (
        "import os, time\nend = time.monotonic() + 20\n"
        f"while time.monotonic() < end and not os.path.exists({str(release)!r}): time.sleep(0.05)"
    )
    with Client(cluster.address) as other:
        workers = other.scheduler_info(n_workers=-1)["workers"]
        tasks = [other.submit(exec, hold, {}, workers=[at], pure=False) for at in workers]

        def executing() -> list[int]:
            found = other.sync(other.scheduler.identity, n_workers=-1)["workers"].values()
            return [worker["metrics"]["task_counts"].get("executing", 0) for worker in found]

        assert wait_until(lambda: executing() == [1] * len(tasks))
        root = str(tmp_path / "root")
        assert run_plan(plan=[quick_run("note", "note")], root=root, **on(cluster)) == []
        other.gather(tasks)
    assert "can work; waiting for tasks of other clients" in said[0], said


# The next two end a part of the cluster: each that follows would need another.
@pytest.mark.usefixtures("quick_stages")
def test_a_worker_that_is_asked_to_leave_saves_and_a_scheduler_that_ends_is_said_in_one_line(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only test of a cluster of others that loses parts; their end costs the cluster's seconds."""
    # Before it gives up, the client tries to connect for a minute.
    monkeypatch.setitem(pool._SETTINGS, "distributed.comm.timeouts.connect", "2s")
    root = tmp_path / "root"
    waits = quick_run("wait", "wait", release="never")

    def has_begun(times: int) -> bool:
        log = root / "logs" / "wait.log"
        return log.exists() and log.read_text().count("begun") == times

    def end_a_worker_and_the_scheduler() -> None:
        try:
            assert wait_until(lambda: has_begun(1))
            nanny = psutil.Process(attempts_at(root, "wait")[0].pid).parent()
            assert nanny is not None
            nanny.terminate()
            assert wait_until(lambda: has_begun(2))
        finally:  # or the launch would wait for ever
            cluster.processes[0].kill()

    ending = in_thread(end_a_worker_and_the_scheduler)
    with pytest.raises(UserError, match="scheduler of the cluster at tls://.* is gone"):
        run_plan(plan=[waits], root=str(root), **on(cluster))
    ending.join()
    assert outcomes(root, "wait") == ["preempted"] * 2
    # The launcher and the worker, which saves, both tell of the second attempt: one of them is first.
    first = attempts_at(root, "wait")[0].error
    assert first is not None and first["message"].startswith("asked to stop: saved")
    log = root / "logs" / "wait.log"
    assert wait_until(lambda: log.read_text().count("asked to stop: saved") == 2)


@pytest.mark.slow
def test_asked_to_stop_runs_save_and_the_workers_serve_the_next_launcher(
    cluster: DaskCluster, tmp_path: Path, start_launcher: Callable[..., Launcher]
) -> None:
    root, release = tmp_path / "root", tmp_path / "release"
    waits = [quick_run("wait", f"wait_{number}", release=str(release)) for number in range(2)]
    launcher = start_launcher(waits, workers=None, **on(cluster))
    launcher.wait_for(*waits)
    # A worker that is asked to leave has its run's time to save.
    cluster.workers[0].terminate()
    assert wait_until(lambda: cluster.workers[0].poll() is not None)
    assert wait_until(
        lambda: (
            sorted(outcomes(root, "wait_0") + outcomes(root, "wait_1"), key=str)
            == [None, "preempted"]
        )
    )
    launcher.process.send_signal(signal.SIGTERM)
    status, errors = launcher.end()
    assert status == 75 and "asked to stop: 0 of 2 runs" in errors, errors
    assert None not in outcomes(root, "wait_0") + outcomes(root, "wait_1")
    release.touch()
    again = start_launcher(waits, workers=None, **on(cluster))
    assert again.end()[0] == 0


@pytest.mark.slow
def test_workers_without_the_project_get_no_work_and_one_that_has_it_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dask_cluster, "SECONDS_OF_SILENCE", 1.0)
    # A project that cannot be imported lies before the installed one, also of the scheduler.
    broken = tmp_path / "before" / "multiberts"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('not here')")
    folder = tmp_path / "cluster"
    folder.mkdir()
    plan = [quick_run("note", name) for name in ("first", "second")]
    path = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(HERE)])
    with (
        DaskCluster(folder, 1, are_forks=False, PYTHONPATH=str(broken.parent)) as cluster,
        keys_in_place(cluster),
    ):
        refused = "no worker of the cluster at tls.* can work .*ImportError: not here.* anew"
        with pytest.raises(UserError, match=refused):
            run_plan(plan=plan, root=str(tmp_path / "root"), **on(cluster))
        # Workers without the project start all the same, after a launch, too.
        cluster.add_worker()
        cluster.add_worker(PYTHONPATH=path)
        console.note_once.cache_clear()
        capsys.readouterr()
        assert run_plan(plan=plan, root=str(tmp_path / "root"), **on(cluster)) == []
        said = capsys.readouterr().err
    for worker in ("worker-0", "worker-1"):
        assert said.count(worker) <= 1
    assert "worker-2" not in said
    assert [outcomes(tmp_path / "root", run.path) for run in plan] == [["done"]] * 2


@pytest.mark.slow
def test_workers_keep_the_code_that_they_were_started_with_and_get_no_work_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "SECONDS_OF_SILENCE", 1.0)
    here = Path(dask_cluster.__file__).parents[1]
    copy = tmp_path / "copy" / "multiberts"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "docs", "benchmarks", "shared", "tests")
    shutil.copytree(here, copy, ignore=ignored)
    changed = copy / "runs" / "figure_style.py"
    now, folder = changed.read_text(), tmp_path / "cluster"
    folder.mkdir()
    names = iter(range(9))

    def launch() -> None:
        plan = [quick_run("note", f"run-{next(names)}")]
        assert run_plan(plan=plan, root=str(tmp_path / "root"), **on(cluster)) == []

    path = os.pathsep.join([str(copy.parent), str(HERE)])
    with (
        DaskCluster(folder, 1, are_forks=False, PYTHONPATH=path) as cluster,
        keys_in_place(cluster),
    ):
        launch()
        second = int(time.monotonic())
        changed.write_text(now + "# other code\n")
        # Files are read once a second.
        assert wait_until(lambda: int(time.monotonic()) > second)
        with pytest.raises(UserError, match="its machine has other code"):
            launch()
        # A worker process that has begun meanwhile has the other code, whatever its files are later.
        begin_anew(cluster)
        with pytest.raises(UserError, match="its machine has other code"):
            launch()
        changed.write_text(now)
        with pytest.raises(UserError, match="was started with other code .* started anew"):
            launch()
        begin_anew(cluster)
        launch()


def begin_anew(cluster: DaskCluster) -> None:
    """Ends a cluster's only worker process, which its nanny starts again."""
    times = cluster.said().count("Registered to")
    for child in psutil.Process(cluster.workers[0].pid).children(recursive=True):
        child.kill()
    assert wait_until(lambda: cluster.said().count("Registered to") == times + 1)


@pytest.mark.slow
def test_a_launch_ends_where_the_code_changes_and_the_same_command_resumes(tmp_path: Path) -> None:
    seen = faults.code_that_changes_while_this_machine_launches(tmp_path)
    assert seen.startswith("status 2") and "the same command resumes with the code" in seen
    assert "2" not in seen.rpartition("by code of version: ")[2]
    again = faults._launch(tmp_path, tmp_path / "code", ["run0", "run5"], {"workers": 1})
    assert "status 0" in again and "2 of 2 runs are done, by code of version: 1, 2" in again


@pytest.mark.slow
def test_a_launch_goes_on_where_the_scheduler_is_started_anew(tmp_path: Path) -> None:
    seen = faults.a_scheduler_started_anew_while_a_launch_runs(tmp_path)
    assert seen.startswith("status 0") and "3 of 3 runs are done" in seen
