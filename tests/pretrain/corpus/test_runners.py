"""Tasks come back in order, from this process, from workers or from a cluster; the first error is raised."""

import functools
import math
import os
import signal

import pytest

from multiberts.pretrain.corpus.runners import DaskRunner, LocalRunner
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_bytes
from multiberts.tests.tools.dask_cluster import DaskCluster, keys_in_place


# Workers import functions by name, so these are of libraries.
def test_results_come_in_order_from_processes_of_their_own():
    runner = LocalRunner(num_workers=2)
    assert runner.run(math.factorial, list(range(12)), "numbers") == [
        math.factorial(number) for number in range(12)
    ]
    power = functools.partial(pow, 2)
    assert LocalRunner(num_workers=1).run(power, [3, 1], "numbers") == [8, 2]
    assert os.getpid() not in runner.run(eval, ["__import__('os').getpid()"] * 2, "processes")


def test_the_first_error_in_order_is_raised():
    with pytest.raises(ValueError, match="factorial"):
        LocalRunner(num_workers=2).run(math.factorial, [3, -1, 4], "numbers")


def test_a_worker_that_dies_is_told():
    with pytest.raises(UserError, match="a worker process died while making shards"):
        LocalRunner(num_workers=2).run(signal.raise_signal, [signal.SIGKILL] * 2, "shards")


@pytest.mark.slow
def test_a_cluster_tells_the_first_refusal_in_order_and_tasks_that_kill_workers(tmp_path):
    files = [str(tmp_path / name) for name in "abc"]
    (tmp_path / "a").write_text("x")
    with DaskCluster(tmp_path, 1) as started, keys_in_place(started):
        runner = DaskRunner(started.address)
        with pytest.raises(UserError, match=r"/b does not exist"):
            runner.run(read_bytes, files, "files")
        with pytest.raises(UserError, match="workers of the cluster died while making shards"):
            runner.run(signal.raise_signal, [signal.SIGKILL], "shards")


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_said():
    with pytest.raises(UserError, match="prepare.scheduler is 'tcp://127.0.0.1:1', which does not"):
        DaskRunner("tcp://127.0.0.1:1")
