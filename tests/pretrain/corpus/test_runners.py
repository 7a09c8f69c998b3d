"""Tasks come back in order, from this process, from workers or from a cluster; the first error is raised."""

import functools
import math
import os
import signal
import sys

import pytest

from multiberts.pretrain.corpus.runners import DaskRunner, LocalRunner
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_bytes


# Workers import functions by name, so these are of libraries.
def test_results_come_in_order_from_processes_of_their_own():
    runner = LocalRunner(num_workers=2)
    assert runner.run(math.factorial, list(range(12)), "numbers") == [
        math.factorial(number) for number in range(12)
    ]
    power = functools.partial(pow, 2)
    assert LocalRunner(num_workers=1).run(power, [3, 1], "numbers") == [8, 2]
    assert os.getpid() not in runner.run(os.path.getsize, ["/", "/"], "sizes")


def test_the_first_error_in_order_is_raised():
    with pytest.raises(ValueError, match="factorial"):
        LocalRunner(num_workers=2).run(math.factorial, [3, -1, 4], "numbers")


def test_a_worker_that_dies_is_told():
    kill = functools.partial(signal.raise_signal)
    with pytest.raises(UserError, match="a worker process died while making shards"):
        LocalRunner(num_workers=2).run(kill, [signal.SIGKILL, signal.SIGKILL], "shards")


def test_without_dask_the_way_out_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)  # as if it were not there
    with pytest.raises(
        UserError, match=r"distributed is not installed; install multiberts\[launch\]"
    ):
        DaskRunner("tls://127.0.0.1:1")


@pytest.mark.slow
def test_a_cluster_gives_the_same_and_the_first_refusal_in_order(cluster, tmp_path):
    runner = DaskRunner(cluster)
    assert runner.run(math.factorial, list(range(12)), "numbers") == [
        math.factorial(number) for number in range(12)
    ]
    assert os.getpid() not in runner.run(os.path.getsize, ["/", "/"], "sizes")
    files = [str(tmp_path / name) for name in "abc"]
    (tmp_path / "a").write_text("x")
    with pytest.raises(UserError, match=r"/b does not exist"):
        runner.run(read_bytes, files, "files")


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_said():
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        with pytest.raises(
            UserError, match="prepare.scheduler is 'tcp://127.0.0.1:1', which does not"
        ):
            DaskRunner("tcp://127.0.0.1:1")
