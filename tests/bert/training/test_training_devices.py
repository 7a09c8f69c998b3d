"""The same training on one, two and four devices, and in two processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.training.devices import Devices, open_devices
from multiberts.runs.errors import UserError
from multiberts.tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent.parent
WORKER = Path(__file__).with_name("train_on_devices.py")


def _start(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(directory), *arguments],
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
            found.append([line.split() for line in output.strip().splitlines()])
    finally:
        for process in processes:
            process.kill()
    return found


def _weights(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as content:
        return {name: content[name] for name in content.files}


def _assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Each variable to 1e-5 of its size. A key's bias has no effect and no gradient but rounding
    (it moves all scores of a query alike), so it is held against the size of the query's."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        size = np.linalg.norm(expected[name.replace("|key|bias", "|query|bias")])
        assert np.linalg.norm(found[name] - values) <= 1e-5 * size, name


def test_two_devices_train_to_the_weights_of_one(tmp_path: Path) -> None:
    """Compiled by XLA, as in use."""
    (lines,) = _lines([_start(tmp_path, "compiled", "2", "1")])
    assert [line[:3] for line in lines] == [["2", "True", "True"], ["1", "True", "True"]]
    one, two = (_weights(tmp_path / f"compiled_{count}.npz") for count in (1, 2))
    _assert_close(two, one)
    assert any(not np.array_equal(two[name], one[name]) for name in one), "nothing was shared"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the weights after 20 steps on one and on four devices, uncompiled for speed."""
    folder = tmp_path_factory.mktemp("devices")
    (lines,) = _lines([_start(folder, "plain", "4", "1")])
    assert [line[:3] for line in lines] == [["4", "True", "True"], ["1", "True", "True"]]
    return folder


def test_four_devices_train_to_the_weights_of_one(folder: Path) -> None:
    one, four = (_weights(folder / f"plain_{count}.npz") for count in (1, 4))
    _assert_close(four, one)
    assert any(not np.array_equal(four[name], one[name]) for name in one), "nothing was shared"


def test_two_processes_train_to_the_weights_of_one(folder: Path, tmp_path: Path) -> None:
    with socket.socket() as first, socket.socket() as second:
        for listener in (first, second):
            listener.bind(("127.0.0.1", 0))
        ports = [listener.getsockname()[1] for listener in (first, second)]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    directories = [tmp_path / "chief", tmp_path / "other"]
    processes = []
    for index, directory in enumerate(directories):
        directory.mkdir()
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        processes.append(_start(directory, "plain", "auto", TF_CONFIG=json.dumps(task)))
    (chief,), (other,) = _lines(processes)
    assert chief[:3] == ["auto", "True", "True"]
    assert other[:3] == ["auto", "False", "True"]
    assert chief[3] == other[3], "the processes report different losses"
    weights = [_weights(directory / "plain_auto.npz") for directory in directories]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    _assert_close(weights[0], _weights(folder / "plain_1.npz"))


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
