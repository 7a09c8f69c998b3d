"""Tasks come back in order, from this process, from workers or from Beam; the first error is told."""

import functools
import importlib.util
import math
import os
import signal

import pytest

from pretrain.runners import BeamRunner, LocalRunner
from runs.errors import UserError

HAS_BEAM = importlib.util.find_spec("apache_beam") is not None


# Workers import functions by name, so these are of libraries.
def test_results_come_in_order_from_processes_of_their_own():
    runner = LocalRunner(num_workers=2)
    assert runner.run(math.factorial, list(range(12)), "numbers") == [
        math.factorial(number) for number in range(12)
    ]
    power = functools.partial(pow, 2)
    assert LocalRunner(num_workers=1).run(power, [3, 1], "numbers") == [8, 2]
    assert os.getpid() not in runner.run(os.path.getsize, ["/", "/"], "sizes")
    assert runner.run(math.factorial, [5, 3], "numbers", small=True) == [120, 6]


def test_the_first_error_in_order_is_raised():
    with pytest.raises(ValueError, match="factorial"):
        LocalRunner(num_workers=2).run(math.factorial, [3, -1, 4], "numbers")


def test_a_worker_that_dies_is_told():
    kill = functools.partial(signal.raise_signal)
    with pytest.raises(UserError, match="a worker process died while making shards"):
        LocalRunner(num_workers=2).run(kill, [signal.SIGKILL, signal.SIGKILL], "shards")


@pytest.mark.skipif(HAS_BEAM, reason="Apache Beam is installed")
def test_without_beam_the_way_out_is_told(tmp_path):
    with pytest.raises(UserError, match=r"install requirements-beam.txt into an environment"):
        BeamRunner(["--runner=DirectRunner"], tmp_path)


@pytest.mark.skipif(not HAS_BEAM, reason="needs Apache Beam (requirements-beam.txt)")
def test_beam_gives_the_same(tmp_path):
    runner = BeamRunner(["--runner=DirectRunner"], tmp_path)
    assert runner.run(math.factorial, list(range(12)), "numbers") == [
        math.factorial(number) for number in range(12)
    ]
    assert list(tmp_path.iterdir()) == []
