"""The doctor's lines: packages that clash, libraries that hang or crash, full disks, another rounding."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from multiberts.launch import checkup
from multiberts.launch.checkup import (
    OK,
    PROBLEM,
    WARNING,
    CheckResult,
    check_devices,
    check_disk,
    check_packages,
    check_training,
    doctor,
    judge,
    start_probe,
    take_answer,
)
from multiberts.pretrain.training.reference_digest import REFERENCE_DIGEST
from multiberts.tests.tools.patience import PATIENCE


@pytest.fixture(scope="module")
def checked_packages(tmp_path_factory: pytest.TempPathFactory) -> CheckResult:
    """Of pip's own check of all that is installed, which takes seconds, and another package."""
    folder = tmp_path_factory.mktemp("packages")
    metadata = folder / "made_up-99.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        "Metadata-Version: 2.1\nName: made-up\nVersion: 99.0\n"
        "Requires-Dist: numpy>=1\nRequires-Dist: absl-py<1; python_version >= '3'\n"
        "Requires-Dist: no-such-package\nRequires-Dist: neither; extra == 'more'\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        return check_packages()


def test_packages_that_do_not_agree_are_named(checked_packages: CheckResult) -> None:
    result = checked_packages
    assert result.level == WARNING and "'.[tensorflow]'" in result.cure
    assert "made-up 99.0 requires no-such-package, which is not installed" in result.finding
    assert "made-up 99.0 has requirement absl-py<1" in result.finding
    assert "neither" not in result.finding and "numpy" not in result.finding


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import time; time.sleep(10**6)", {"error": "no answer within 1 s"}),
        ("import os; os.abort()", {"error": "importing it ends the process (SIGABRT)"}),
        ("import no_such", {"error": "ModuleNotFoundError: No module named 'no_such'"}),
        ("print('noise'); print('devices: {\"kinds\": {\"CPU\": 1}}')", {"kinds": {"CPU": 1}}),
    ],
)
def test_a_library_that_hangs_or_crashes_takes_nothing_with_it(
    script: str, expected: dict[str, object]
) -> None:
    process = start_probe(script)
    # The limit is for the one that hangs; the others may have a slow machine.
    assert take_answer(process, 1 if "sleep" in script else PATIENCE) == expected
    assert process.poll() is not None


@pytest.mark.slow
def test_this_machine_trains_in_portable_mode() -> None:
    """Whether it gives the reference digest depends on the machine; that it says so does not."""
    result = check_training()
    assert "20 steps in portable mode give" in result.finding
    assert (result.level == OK) == ("give the reference" in result.finding)


def test_a_digest_is_compared_with_the_reference_and_takes_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkup, "SECONDS_TO_TRAIN", 0.01)
        result = check_training()
        assert result.level == WARNING and "took more than 0.01 s" in result.finding
    for digest, level in ((REFERENCE_DIGEST, OK), ("0123456789abcdef", WARNING)):
        monkeypatch.setattr(checkup, "measure_digest", lambda seconds, digest=digest: digest)
        result = check_training()
        assert result.level == level
        assert digest in result.finding and REFERENCE_DIGEST in result.finding


@pytest.mark.parametrize(
    ("answer", "expected", "level"),
    [
        ({"version": "2.21.0", "kinds": {"CPU": 1}}, "CPU", OK),
        ({"version": "2.21.0", "kinds": {"CPU": 1}}, "GPU", PROBLEM),
        ({"version": "2.21.0", "kinds": {"CPU": 1, "GPU": 8}, "cuda": "12.5.1"}, "GPU", OK),
        ({"version": "0.10", "kinds": {"CUDA": 2}}, "GPU", OK),
        ({"version": "2.20.0", "kinds": {"CPU": 1}}, "TPU", PROBLEM),
        ({"error": "no answer within 120 s"}, "TPU", PROBLEM),
    ],
)
def test_a_library_must_see_what_is_there(
    answer: dict[str, object], expected: str, level: str
) -> None:
    result = judge("TensorFlow", answer, expected)
    assert result.level == level
    if level == PROBLEM:
        extra = {"GPU": "gpu", "TPU": "jax-tpu"}[expected]
        assert f"'.[{extra}]'" in result.cure


def test_the_driver_is_asked_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By programs in place of nvidia-smi: one that lists two, one that fails."""
    monkeypatch.setattr(checkup, "LIBRARIES", {"json": ("json", _PROBE)})
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program = tmp_path / "nvidia-smi"
    for script, level, finding in (
        ("echo 'NVIDIA A100, MIG 1g, 570.86'; echo 'NVIDIA A100, MIG 1g, 570.86'", OK,
         "2 x NVIDIA A100, MIG 1g, driver 570.86"),
        ("echo 'Failed to initialize NVML'; exit 9", PROBLEM,
         "nvidia-smi fails: Failed to initialize NVML"),
    ):  # fmt: skip
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        gpu, _ = check_devices()
        assert (gpu.level, gpu.finding) == (level, finding)


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(checkup, "BYTES_FREE_AT_LEAST", free / 2)
    result = check_disk(tmp_path / "not" / "yet")
    assert result.level == OK and result.finding.endswith(f" free at {tmp_path}")
    monkeypatch.setattr(checkup, "BYTES_FREE_AT_LEAST", 2 * free + 1)
    assert check_disk(tmp_path).level == WARNING


def test_the_command_prints_one_screen_and_its_status_tells_of_problems(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    checked_packages: CheckResult,
) -> None:
    """With what pip's own check has found. Importing the real libraries would take seconds."""
    monkeypatch.setattr(checkup, "LIBRARIES", {"json": ("json", _PROBE)})
    monkeypatch.setattr(checkup, "measure_digest", lambda seconds: "0123456789abcdef")
    with monkeypatch.context() as patch:
        patch.setattr(checkup, "check_packages", lambda: checked_packages)
        assert doctor(root=tmp_path) == 0
    said = capsys.readouterr().out
    for subject in ("machine", "packages", "json", "disk", "training"):
        assert f"  {subject} " in said, subject
    assert re.search(f"^{WARNING} +packages +.*made-up 99.0 requires", said, flags=re.MULTILINE)
    assert "0 problems to solve, " in said
    # A library is missing, and pip, in whose place uv checks.
    monkeypatch.setattr(checkup, "LIBRARIES", {"JAX": ("no_such_module", "")})
    monkeypatch.setitem(sys.modules, "pip", None)
    assert doctor(root=tmp_path, training=False) == 1
    said = capsys.readouterr().out
    assert re.search(f"^{PROBLEM} +libraries ", said, flags=re.MULTILINE)
    assert "1 problem to solve, " in said and "  training " not in said
    assert re.search(f"^{WARNING} +packages .* no pip", said, flags=re.MULTILINE)
    assert f"-> uv pip check --python {sys.executable}\n" in said


_ANSWER = {"version": "1", "kinds": {"CPU": 1, "GPU": 1, "TPU": 1}}
_PROBE = f"print('devices: ' + {json.dumps(_ANSWER)!r})"
