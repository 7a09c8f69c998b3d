"""Calls on the workers of a cluster of Dask, with a real scheduler and real workers."""

from __future__ import annotations

import math
import socket
import time
from pathlib import Path

import pytest

from multiberts.runs import dask_cluster
from multiberts.runs.dask_cluster import Workers, connect
from multiberts.runs.errors import UserError
from multiberts.tests import warm
from multiberts.tests.dask_cluster import DaskCluster, keys_in_place
from multiberts.tests.launch.launchers import wait_until


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


@pytest.mark.slow
def test_calls_go_first_to_a_worker_that_no_other_client_keeps_busy(tmp_path: Path) -> None:
    with DaskCluster(tmp_path, num_workers=2) as cluster, keys_in_place(cluster):
        with connect(cluster.address, "scheduler") as client:

            def num_busy() -> int:
                infos = client.scheduler_info()["workers"].values()
                return sum(info["metrics"]["task_counts"].get("executing", 0) for info in infos)

            others = client.submit(time.sleep, 600)
            assert wait_until(lambda: num_busy() == 1)
            for number in range(6):  # by chance one in 64
                future = Workers(client, "the cluster", f"test-{number}").submit(math.factorial, 5)
                assert future.result(timeout=60) == 120
            others.cancel()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:1", "unknown address scheme 'http'"),
        ("tls://127.0.0.1:1", "TLS expects"),
    ],
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


@pytest.mark.slow
def test_one_who_listens_and_says_nothing_is_no_scheduler() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(UserError, match="does not answer"):
            connect(f"tcp://127.0.0.1:{silent.getsockname()[1]}", "scheduler")
        # Dask itself waits for half a minute, or for ever.
        assert time.monotonic() - started < 2 * dask_cluster.SECONDS_TO_ANSWER
