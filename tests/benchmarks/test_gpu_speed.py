"""The comparison on GPUs, at toy size on a processor: that it trains in both ways and reports what fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from multiberts.benchmarks import gpu_speed
from multiberts.tests.patience import PATIENCE


@pytest.mark.slow
def test_both_ways_train_on_a_processor() -> None:
    pytest.importorskip("jax", reason="needs JAX: the extra jax")
    pytest.importorskip("torch")
    arguments = ["--shapes", "toy", "--dropout", "on", "--steps", "2", "--repeats", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "multiberts.benchmarks.gpu_speed", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith("  CPU")]
    assert [row[0] for row in rows] == ["ours", "torch"]
    for _, rate, milliseconds, mfu, memory, _, _ in rows:
        assert float(rate) == pytest.approx(4e3 / float(milliseconds), rel=0.05)
        assert mfu == "-" and float(memory) > 0


def test_a_way_that_fails_is_a_row_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a device has too little memory."""
    row = {"failed": "OutOfMemoryError: CUDA out of memory"}
    monkeypatch.setattr(gpu_speed, "run_apart", lambda *_: row)
    assert not gpu_speed.compare("toy", "on", ["ours", "torch"], [])
    output = capsys.readouterr().out
    assert output.count("failed: OutOfMemoryError: CUDA out of memory") == 2


@pytest.mark.parametrize(
    ("milliseconds", "is_good", "told"),
    [
        ((200.0, 250.0), True, "met"),
        ((400.0, 500.0), False, "MISSED"),
        ((200.0, 190.0), False, "met"),
    ],
)
def test_targets_on_a_device_whose_peak_is_known(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    milliseconds: tuple[float, float],
    is_good: bool,
    told: str,
) -> None:
    """On an H200 the 77.2 TFLOP of a step are 25 % of the peak in 312 ms."""
    rows = {
        way: {"seconds": value / 1e3, "first": 1.0, "memory": 2**30, "device": "NVIDIA H200"}
        for way, value in zip(("ours", "torch"), milliseconds, strict=True)
    }
    monkeypatch.setattr(gpu_speed, "run_apart", lambda way, *_: rows[way])
    assert gpu_speed.compare("base-512", "on", ["ours", "torch"], []) is is_good
    assert f"ours: at least 25%: {told}" in capsys.readouterr().out
