"""Google's metadata server says that a machine will be taken away, or is due for maintenance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from multiberts.pretrain.training.pretraining import pretrain
from multiberts.runs.bucket.mirror import local_copy, read_manifest
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.pretrain.training.breaking_off import start, wait_for_step
from multiberts.tests.tools.http_server import Answer, serving
from multiberts.tests.tools.stress_resume import differing_files

Arguments = Callable[..., dict[str, Any]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What a metadata server answers, by the last parts of the paths; it is this machine's."""
    values = {"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"}

    def answer(_method: str, path: str, headers: Mapping[str, str], _body: bytes) -> Answer:
        value = values.get(path.removeprefix("/computeMetadata/v1/"))
        if value is None or headers["Metadata-Flavor"] != "Google":
            return 403, {}, b"TRUE"
        return 200, {}, value.encode()

    with serving(answer) as address:
        monkeypatch.setenv("GCE_METADATA_HOST", address.removeprefix("http://"))
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # no proxy reaches the real one
        yield values


@pytest.mark.slow
def test_a_machine_that_will_be_taken_away_saves_and_pushes_at_once(
    arguments: Arguments, answers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only run that hears of its end over HTTP and pushes to a bucket."""
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "mirrors"))
    monkeypatch.setenv("RUNS_PUSH_SECONDS", "1e6")
    bucket = Bucket(f"file://{tmp_path}/bucket/run")
    schedule = {"num_steps": 10**6, "save_state_every_steps": 10**6, "log_every_steps": 1}
    process = start({**arguments(tmp_path, **schedule), "run_dir": bucket.url})
    wait_for_step(process, local_copy(bucket), 5)
    answers["instance/preempted"] = "TRUE"
    _, errors = process.communicate()
    assert process.returncode == EXIT_PREEMPTED, errors
    notice, end = errors.splitlines()[-2:]
    assert notice == "note: the metadata server says that this machine is being preempted"
    [step] = [name for name in read_manifest(bucket) or {} if name.startswith("state/")]
    step = step.removeprefix("state/step_").removesuffix(".npz")
    assert end == f"asked to stop: saved at step {step} of 1000000; the same command resumes there"


@pytest.mark.slow
def test_maintenance_saves_a_state_once_and_training_goes_on(
    arguments: Arguments, answers: dict[str, str], tmp_path: Path
) -> None:
    schedule = {"num_steps": 200, "save_state_every_steps": 10**6, "log_every_steps": 1}
    run, whole = tmp_path / "run", tmp_path / "whole"
    pretrain(**arguments(whole, **schedule))
    answers["instance/maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    process = start(arguments(run, **schedule))
    while process.poll() is None and not list((run / "state").glob("*.npz")):
        time.sleep(0.01)
    [state] = (run / "state").glob("*.npz")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    step = state.stem.removeprefix("step_")
    lines = [line for line in errors.splitlines() if "maintenance" in line]
    assert lines == [f"maintenance of this machine is announced: the state is saved at step {step}"]
    assert differing_files(whole, run) == []
