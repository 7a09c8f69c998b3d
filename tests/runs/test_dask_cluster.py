"""Calls on the workers of a cluster of Dask, with a real scheduler and real workers."""

from __future__ import annotations

import logging
import math
import socket
import time
from pathlib import Path

import dask
import psutil
import pytest
from distributed import LocalCluster, Security

from multiberts.runs import dask_cluster
from multiberts.runs.dask_cluster import Workers, connect
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import wait_until
from multiberts.tests.tools import warm
from multiberts.tests.tools.dask_cluster import DaskCluster, keys_in_place


def test_what_is_waited_for_is_said_and_when_a_worker_can_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dask_cluster, "SECONDS_OF_SILENCE", 0.2)
    with DaskCluster(tmp_path, num_workers=0) as cluster, keys_in_place(cluster):
        with connect(cluster.address, "scheduler") as client:
            workers = Workers(client, "the cluster", "test", waiting_for=lambda: "a worker to come")
            future = workers.submit(math.factorial, 5)
            said = ""

            def is_said(text: str) -> bool:
                nonlocal said
                workers.look_after()
                said += capsys.readouterr().err
                return text in said

            assert wait_until(lambda: is_said("no worker of the cluster can work; waiting for a"))
            cluster.add_worker()
            assert wait_until(lambda: is_said("1 worker of the cluster can work; going on"))
            assert wait_until(future.done) and future.result() == 120
            assert said.count("\n") == 2


def test_a_scheduler_that_is_gone_is_told_of_where_the_client_has_missed_it_and_a_stopped_one_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        DaskCluster(tmp_path, num_workers=0) as cluster,
        keys_in_place(cluster),
        connect(cluster.address, "scheduler") as client,
        dask.config.set({"distributed.comm.timeouts.connect": "0.5s"}),
    ):
        workers = Workers(client, "the cluster", "test")
        client.loop.add_callback(client._handle_report_task.cancel)
        monkeypatch.setattr(dask_cluster, "SECONDS_TO_ANSWER", 0.3)

        def look_after_until_it_is_gone() -> None:
            with pytest.raises(UserError, match="the scheduler of the cluster is gone"):
                wait_until(lambda: workers.look_after() is not None)

        psutil.Process(cluster.processes[0].pid).suspend()
        end = time.monotonic() + 2
        while time.monotonic() < end:
            workers.look_after()
            time.sleep(0.05)
        client.status = "connecting"
        look_after_until_it_is_gone()
        client.status = "running"
        workers.look_after()
        cluster.processes[0].kill()
        look_after_until_it_is_gone()


@pytest.mark.slow
def test_calls_go_first_to_a_worker_that_no_other_client_keeps_busy(tmp_path: Path) -> None:
    with DaskCluster(tmp_path, num_workers=2) as cluster, keys_in_place(cluster):
        with connect(cluster.address, "scheduler") as client:

            def num_busy() -> int:
                infos = client.scheduler_info()["workers"].values()
                return sum(info["metrics"]["task_counts"].get("executing", 0) for info in infos)

            others = client.submit(time.sleep, 600)
            for number in range(6):  # by chance one in 64
                assert wait_until(lambda: num_busy() == 1)  # and the last call is forgotten
                future = Workers(client, "the cluster", f"test-{number}").submit(math.factorial, 5)
                assert future.result(timeout=60) == 120
            others.cancel()


@pytest.mark.parametrize(
    ("address", "reason"),
    [("http://127.0.0.1:1", "unknown address scheme 'http'"), ("tls://127.0.0.1:1", "TLS expects")],
)
def test_a_command_with_the_address_of_no_scheduler_ends_at_once(
    address: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("One sentence.\n")
    flags = [
        *(f"--run_dir={tmp_path}/corpus", f"--sources=['{tmp_path}/text.txt']"),
        *("--source_format=sentences", "--vocabulary_size=40", "--sequence_length=32"),
    ]
    done = warm.run(["prepare", *flags, f"--scheduler={address}"], tmp_path)
    assert done.returncode == 2
    assert f"prepare.scheduler is '{address}', which does not answer ({reason}" in done.stderr


def own_address() -> str:
    """Returns an address of this machine that others reach."""
    for interface in psutil.net_if_addrs().values():
        for family, address, *_ in interface:
            if family == socket.AF_INET and not address.startswith("127."):
                return address
    pytest.skip("needs a network interface")


@pytest.mark.parametrize(
    ("protocol", "host", "is_told"),
    [
        *(("tcp://", "", True), ("", "", True), ("ws://", "", True), ("tls://", "", False)),
        *(("tcp://", "127.0.0.1", False), ("ws://", "localhost", False), ("", "localhost", False)),
    ],
)
def test_a_scheduler_without_tls_on_the_network_is_told_of_once(
    protocol: str, host: str, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    host = host or own_address()
    keys = Security.temporary() if protocol == "tls://" else Security()
    settings = {
        "distributed.comm.tls.ca-file": keys.tls_ca_file,
        "distributed.comm.tls.client.cert": keys.tls_client_cert,
        "distributed.comm.tls.client.key": keys.tls_client_key,
    }
    local = {"n_workers": 0, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    named = {"host": host, "protocol": protocol or "tcp://", "security": keys}
    with dask.config.set(settings), LocalCluster(**local, **named) as cluster:
        address = f"{protocol}{host}:{cluster.scheduler_address.rpartition(':')[2]}"
        for _ in range(2):
            connect(address, "prepare.scheduler").close()
    line = f"warning: prepare.scheduler is '{address}', which has no TLS: anyone who can reach it can run"
    assert capsys.readouterr().err.count(line) == is_told


@pytest.mark.slow
def test_one_who_listens_and_says_nothing_is_no_scheduler() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(UserError, match="does not answer"):
            connect(f"tcp://127.0.0.1:{silent.getsockname()[1]}", "scheduler")
        # Dask itself waits for half a minute, or for ever.
        assert time.monotonic() - started < 2 * dask_cluster.SECONDS_TO_ANSWER
