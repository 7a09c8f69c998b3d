"""The same training, to the last bit, on one, two, four and eight devices, and in two processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from multiberts.bert.training.devices import Devices, open_devices
from multiberts.runs.environment import ENGINE, ENGINES, JAX, TENSORFLOW
from multiberts.runs.errors import UserError
from multiberts.tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent.parent
WORKER = Path(__file__).with_name("train_on_devices.py")


def _start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _lines(processes: list[subprocess.Popen[str]]) -> list[list[list[str]]]:
    """What each process printed, in words; none outlives the test."""
    found = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors[-3000:]
            # Of the library by which JAX's processes talk.
            lines = [line for line in output.splitlines() if not line.startswith("[Gloo]")]
            found.append([line.split() for line in lines])
    finally:
        for process in processes:
            process.kill()
    return found


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine that is installed."""
    if request.param == JAX:
        pytest.importorskip("jax", reason="needs JAX: pip install -r requirements-jax.txt")
    return str(request.param)


def _digests(engine: str, way: str, *devices: str) -> list[str]:
    """Digests of weights and moments after 20 steps on each number of devices, in one process."""
    (lines,) = _lines([_start(way, *devices, **{ENGINE: engine})])
    assert [line[:3] for line in lines] == [[count, "True", "True"] for count in devices]
    return [line[4] for line in lines]


@pytest.mark.parametrize(
    "engine", [pytest.param(TENSORFLOW, marks=pytest.mark.slow), JAX], indirect=True
)
def test_two_devices_train_to_the_bytes_of_one(engine: str) -> None:
    """BERT, compiled by XLA, as in use."""
    two, one = _digests(engine, "compiled", "2", "1")
    assert two == one


@pytest.mark.slow
def test_up_to_eight_devices_train_to_the_bytes_of_one(engine: str) -> None:
    """Another model, as each device compiles its own step; a shard on each of eight devices."""
    eight, one = _digests(engine, "perceptron", "8", "1")
    others = [_digests(engine, "perceptron", count)[0] for count in ("4", "2")]
    assert [eight, *others] == [one] * 3


@pytest.mark.slow
def test_four_devices_and_two_processes_train_to_the_bytes_of_one_uncompiled(engine: str) -> None:
    """TensorFlow rewrites the graph of a step that XLA does not compile, in the same way for all; JAX
    compiles it all the same."""
    four, one = _digests(engine, "plain", "4", "1")
    with socket.socket() as first, socket.socket() as second:
        for listener in (first, second):
            listener.bind(("127.0.0.1", 0))
        ports = [listener.getsockname()[1] for listener in (first, second)]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    processes = []
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        processes.append(_start("plain", "auto", TF_CONFIG=json.dumps(task), **{ENGINE: engine}))
    (chief,), (other,) = _lines(processes)
    assert chief[:3] == ["auto", "True", "True"]
    assert other[:3] == ["auto", "False", "True"]
    assert chief[3] == other[3], "the processes report different losses"
    assert chief[4] == other[4] == four == one


def test_the_program_for_accelerators_trains_alike_on_parts_of_a_processor() -> None:
    """JAX's: sums over shards on each device, then over devices; its last bits may differ."""
    pytest.importorskip("jax", reason="needs JAX: pip install -r requirements-jax.txt")
    (lines,) = _lines([_start("accelerators", "4", "1", **{ENGINE: JAX})])
    ((_, _, same, loss, _), (_, _, _, expected, _)) = lines
    assert same == "True"
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_several_steps_at_once_train_to_the_bytes_of_single_ones() -> None:
    """JAX's program for accelerators, on a part of a processor; blocks of 8 leave a shorter one."""
    pytest.importorskip("jax", reason="needs JAX: pip install -r requirements-jax.txt")
    (lines,) = _lines([_start("accelerators", "1", "1x8", **{ENGINE: JAX})])
    one, eight = (line[2:] for line in lines)
    assert one == eight


def test_shards_must_be_dealt_evenly() -> None:
    devices = Devices(strategy=None, count=4, kind="CPU")
    devices.check_shards(32)
    with pytest.raises(UserError, match="gradient_shards 6 is not a multiple of the 4 devices"):
        devices.check_shards(6)


@pytest.mark.parametrize("count", [0, -1, "all", 1.5])
def test_a_number_of_devices_that_cannot_be(count: object) -> None:
    with pytest.raises(UserError, match="give 'auto' or a number from 1"):
        open_devices(count)  # type: ignore[arg-type]


def test_peak_of_all_devices() -> None:
    pair = Devices(strategy=None, count=2, kind="NVIDIA A100-SXM4-40GB")
    assert pair.peak_flops_per_second("bfloat16") == 2 * 312e12
    assert open_devices(1).peak_flops_per_second() is None or open_devices(1).kind != "CPU"


CLUSTER = {"worker": ["one:1", "two:2"]}


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ("{worker: one}", "TF_CONFIG is not JSON of TensorFlow's form"),
        ("[1, 2]", "TF_CONFIG is not JSON of TensorFlow's form"),
        (json.dumps({"cluster": CLUSTER}), "the task None -1, which its cluster does not name"),
        (
            json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}),
            "the task 'worker' 2, which its cluster does not name",
        ),
        (
            json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}),
            "the task 'chief' 0, which its cluster does not name",
        ),
    ],
)
def test_a_damaged_cluster_description_is_refused(
    monkeypatch: pytest.MonkeyPatch, described: str, message: str
) -> None:
    """Before anything is waited for."""
    monkeypatch.setenv("TF_CONFIG", described)
    monkeypatch.setattr("multiberts.bert.training.devices._opened", {})
    with pytest.raises(UserError, match=message):
        open_devices("auto")
