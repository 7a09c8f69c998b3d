"""The trial of a GPU, at toy size on a processor: it shows what is right, and says what is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from multiberts.benchmarks import gpu_check
from multiberts.benchmarks.gpu_check import NO_TIME, OURS, PAIRS, Bench, Way
from multiberts.bert.checkpoint.checkpoint import write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.tests.tools.patience import PATIENCE

GOOD = {"first": 1.0, "memory": 2**30, "device": "NVIDIA H200", "weights": "a"}


def toy(out: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", gpu_check.__name__, "--toy", f"--out={out}", f"--limit={PATIENCE}"],
        # Optimising programs that run a few steps costs more than it saves.
        env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_everything_is_shown_on_a_processor(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX: the extra jax")
    pytest.importorskip("torch")
    process = toy(tmp_path)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert (tmp_path / "summary.txt").read_text() == output
    facts = [json.loads(line) for line in (tmp_path / "numbers.jsonl").read_text().splitlines()]
    shown = {fact["text"].partition(": ")[0]: fact["is_good"] for fact in facts}
    assert {name: shown[name] for name in PAIRS} == {
        name: None if goals == {} else True for name, (*_, goals) in PAIRS.items()
    }
    assert [is_good for text, is_good in shown.items() if text.startswith(f"{OURS}, and")] == [True]
    rows = [fact for fact in facts if "shape" in fact]
    assert {row["name"].split(",")[0] for row in rows} == {OURS, "PyTorch"} and len(rows) == 14
    for row in rows:
        assert row["device"] == "CPU" and row["seconds"] > 0 and row["memory"] > 0
    table = [line for line in output.splitlines() if line.startswith("| 32 |")]
    assert len(table) == 14 and {line.count("|") for line in table} == {8}


@pytest.mark.slow
def test_a_signal_leaves_no_process(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX: the extra jax")
    mark = f"GPU_CHECK_TEST={uuid.uuid4()}"
    process = toy(tmp_path, **dict([mark.split("=")]))
    assert process.stdout.readline().startswith("Python ")
    while len(marked(mark)) < 2:  # the commands have begun
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and "stopped by a signal" in output
    assert marked(mark) == []


def marked(mark: str) -> list[str]:
    """Returns the processes with a variable in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in content.split(b"\0"):
            found.append(path.parent.name)
    return found


@pytest.mark.slow
def test_a_library_that_is_absent_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    bench = Bench(tmp_path, tmp_path, PATIENCE, "toy")
    way = Way("PyTorch, one batch", "toy-128", 1)
    monkeypatch.setattr(gpu_check, "ways", lambda *_: [way, way])
    bench.speeds("CPU")
    reason = "failed: ImportError: there is no torch"
    assert bench.faults[:2] == [f"PyTorch, one batch: {reason}"] * 2
    assert f"| 32 | PyTorch, one batch | {reason} |" in (tmp_path / "summary.txt").read_text()
    assert "ImportError" in (tmp_path / "logs" / "way-0.log").read_text()


def test_nothing_starts_without_time(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=NO_TIME):
        Bench(tmp_path, tmp_path, 1.0, "toy").own_process("versions", None)


def checkpointed(run: Path, seed: int, change: float = 0.0, loss: float = 8.0) -> Path:
    run.mkdir()
    (run / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    vocabulary = Vocabulary.open(run / "vocab.txt")
    config = BertConfig(len(vocabulary.pieces), **gpu_check._TOY)
    weights = initial_parameters(config, seed)
    for name, values in weights.items():
        values += 1.0  # biases begin as zeros
        values[(0,) * values.ndim] += change * (100 if name.endswith("key/bias") else 1)
    write_checkpoint(run / "checkpoints" / "step_24", weights, config, vocabulary, {})
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": loss}) + "\n")
    return run


def test_runs_that_differ_are_said_to(tmp_path: Path) -> None:
    one = checkpointed(tmp_path / "one", 0)
    goals = PAIRS["24 updates, GPU against processor"][2]
    same = checkpointed(tmp_path / "same", 0)
    assert gpu_check.compared(one, same, None) == ("the same bytes", True)
    near = checkpointed(tmp_path / "near", 0, 5e-5)
    assert gpu_check.compared(one, near, None) == ("OTHER BYTES", False)
    assert gpu_check.compared(one, near, goals)[1] is True
    far = checkpointed(tmp_path / "far", 0, 3e-4)
    text, is_good = gpu_check.compared(one, far, goals)
    assert is_good is False and text.startswith(
        "weights 3.0e-04 (at most 1e-04), first loss 0.0e+00"
    )
    assert gpu_check.compared(one, far, {})[1] is None
    other = checkpointed(tmp_path / "other", 0, loss=8.001)
    assert gpu_check.compared(one, other, goals)[1] is False


def rows(ours: float, torch: float, again: str = "a", kept: str = "a") -> list[tuple[Way, Any]]:
    """Returns rows with milliseconds per update, and weights of another process."""
    return [
        (Way(OURS, "base-512"), {**GOOD, "seconds": ours / 1e3}),
        (Way("PyTorch, four passes", "base-512", 4), {**GOOD, "seconds": torch / 1e3}),
        (Way(gpu_check.AGAIN, "base-512"), {**GOOD, "seconds": 1.0, "weights": again}),
        (Way(gpu_check.TUNED, "base-512"), {**GOOD, "seconds": 1.0}),
        (Way(gpu_check.KEPT, "base-512"), {**GOOD, "seconds": 1.0, "weights": kept}),
    ]


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        ((200.0, 250.0), [True, True]),
        ((400.0, 500.0), [False, True]),
        ((200.0, 190.0), [True, False]),
    ],
)
def test_targets_on_a_device_whose_peak_is_known(
    milliseconds: tuple[float, float], expected: list[bool]
) -> None:
    """On an H200 the 77.2 TFLOP of a step are 25 % of the peak in 312 ms."""
    assert list(gpu_check.verdict(rows(*milliseconds)).values()) == [*expected, True, None]


def test_other_bytes_are_a_fault_only_where_the_engine_promises_the_same() -> None:
    said = gpu_check.verdict(rows(200.0, 250.0, again="b", kept="b"))
    assert list(said.values()) == [True, True, False, None]
    assert [text for text in said if text.endswith("OTHER BYTES")] == list(said)[2:]


def test_a_row_without_a_measurement() -> None:
    found = rows(200.0, 250.0)
    found[1] = (found[1][0], {"reason": "failed: OutOfMemoryError: CUDA out of memory"})
    assert gpu_check.table_row(*found[1]).split(" | ")[2] == found[1][1]["reason"]
    assert next(iter(gpu_check.verdict(found).values())) is False
    assert (
        gpu_check.table_row(*found[0])
        == "| 512 | JAX engine | 1,280 | 200.0 | 39.0 % | 1.0 GiB | 1 s |"
    )


def test_the_reason_is_the_line_of_the_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "a warning\nValueError: first\n  at\njax.errors.JaxRuntimeError: no memory\n---\n\n"
    )
    assert gpu_check.reason(log) == "jax.errors.JaxRuntimeError: no memory"
    log.write_text("killed\n\n")
    assert gpu_check.reason(log) == "killed"
    log.write_text("")
    assert gpu_check.reason(log) == "it printed nothing"
