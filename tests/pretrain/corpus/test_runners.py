"""Tasks come back in order, from this process, from workers or from Beam; the first error is told."""

import functools
import math
import os
import signal
import sys

import pytest

from multiberts.pretrain.corpus.runners import BeamRunner, LocalRunner
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


def test_without_beam_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)  # as if it were not there
    with pytest.raises(UserError, match=r"not installed .*; run `pip install -r requirements-beam"):
        BeamRunner(["--runner=DirectRunner"], tmp_path / "scratch")


def test_beam_gives_the_same(tmp_path):
    scratch = tmp_path / "scratch"
    runner = BeamRunner(["--runner=DirectRunner"], scratch)
    scratch.mkdir()
    (scratch / "0").write_text("what a kill left")
    assert runner.run(math.factorial, list(range(12)), "numbers") == [
        math.factorial(number) for number in range(12)
    ]
    assert not scratch.exists()


def test_beam_s_own_workers_give_the_same(tmp_path):
    options = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    runner = BeamRunner(["--runner=DirectRunner", *options], tmp_path / "scratch")
    assert runner.run(math.factorial, [4, 1, 5], "numbers") == [24, 1, 120]


def test_beam_raises_the_first_refusal_in_order(tmp_path):
    runner = BeamRunner(["--runner=DirectRunner"], tmp_path / "scratch")
    files = [str(tmp_path / name) for name in "abc"]
    (tmp_path / "a").write_text("x")
    with pytest.raises(UserError, match=r"/b does not exist"):
        runner.run(read_bytes, files, "files")
    with pytest.raises(UserError, match=r"refuses --runner=NoRunner: Unexpected pipeline runner"):
        BeamRunner(["--runner=NoRunner"], tmp_path / "scratch")
