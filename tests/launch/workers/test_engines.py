"""Engines from options, workers on GPUs, and processes that leave with their launcher."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.estimate.accelerators import gpu_of_worker, visible_gpus
from multiberts.launch.markers.attempts import attempts_of
from multiberts.launch.markers.lease import Lease
from multiberts.launch.workers.engines import make_engine
from multiberts.launch.workers.guardian import VARIABLE, Watch, watch_this_process
from multiberts.launch.workers.node import POOL_VARIABLE, PoolAddress
from multiberts.launch.workers.worker import environment_of_workers
from multiberts.runs.environment import ENGINE
from multiberts.runs.errors import UserError
from multiberts.runs.processes import creation_time
from multiberts.tests.launch.launchers import HERE, ROOT, wait_until
from multiberts.tests.patience import PATIENCE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"partion": "a"},
            "'partion', which engine 'slurm' does not know; did you mean partition",
        ),
        ({"max_blocks": 1.5}, "'max_blocks'. is 1.5, expected int"),
        ({"gpus": "2"}, "'gpus'. is '2', expected int"),
        ({"max_blocks": 0}, "'max_blocks'. is 0, expected int at least 1"),
        ({"walltime": "a day"}, "expected hours:minutes:seconds"),
    ],
)
def test_options_of_slurm_are_checked(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: f"/bin/{command}")
    with pytest.raises(UserError, match=message):
        make_engine("slurm", options, None, 1)


def test_slurm_is_refused_where_its_commands_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="sbatch is not found"):
        make_engine("slurm", {}, None, 1)


def test_kubernetes_needs_an_image() -> None:
    with pytest.raises(UserError, match="lacks 'image'"):
        make_engine("kubernetes", {}, None, 1)
    engine = make_engine("kubernetes", {"image": "a", "gpus": 2, "cores": 8}, None, 2)
    assert (engine.workers_per_node, engine.threads) == (4, 2)


def test_workers_are_counted_by_gpus_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible_gpus() == ["3", "5"]
    assert make_engine("local", {}, None, 1).workers == 2
    assert make_engine("local", {}, None, 3).workers == 6
    assert make_engine("local", {}, 1, 3).workers == 1
    assert [gpu_of_worker(rank, ["3", "5"], 2) for rank in range(4)] == ["3", "3", "5", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,-1,4")
    assert visible_gpus() == ["2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cores = len(os.sched_getaffinity(0))
    engine = make_engine("local", {}, None, 1)
    assert (engine.workers, engine.threads) == (cores, 1)
    assert gpu_of_worker(0, [], 1) is None


def test_nvidia_smi_is_asked_where_the_environment_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert visible_gpus() == ["0", "1"]
    program.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert visible_gpus() == []


def test_shells_of_pools_have_the_environment_whatever_is_in_it() -> None:
    engine = make_engine("local", {}, 1, 1)
    environment = {**environment_of_workers(3), "ODD": 'it\'s "this" $HOME'}
    script = engine.shell_lines(environment) + '\necho "$OMP_NUM_THREADS|$ODD|$PYTHONPATH"'
    said = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": "/more"},
        capture_output=True,
        text=True,
    )
    assert said.stdout == '3|it\'s "this" $HOME|/more\n'


def test_workers_compute_with_the_library_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins over the launcher's environment, which blocks elsewhere do not inherit."""
    monkeypatch.delenv(ENGINE, raising=False)
    assert ENGINE not in environment_of_workers(1)
    monkeypatch.setenv(ENGINE, "jax")
    assert environment_of_workers(1)[ENGINE] == "jax"
    chosen = make_engine("kubernetes", {"image": "a", "compute": "tensorflow"}, None, 1)
    assert environment_of_workers(1, chosen.options.compute)[ENGINE] == "tensorflow"
    assert make_engine("local", {"compute": "tensorflow"}, 1, 1).options.compute == "tensorflow"
    with pytest.raises(UserError, match="'compute'. is 'torch', expected 'tensorflow' or 'jax'"):
        make_engine("local", {"compute": "torch"}, 1, 1)


def start_node(watch: Watch) -> subprocess.Popen[bytes]:
    """A node without workers, which waits for its launcher to leave."""
    address = PoolAddress(["127.0.0.1"], 1, "token", 0, 90.0)
    return subprocess.Popen(
        [sys.executable, "-m", "multiberts.launch.workers.node", "0"],
        env={
            **os.environ,
            VARIABLE: watch.spelled(),
            POOL_VARIABLE: json.dumps(dataclasses.asdict(address)),
        },
    )


def test_guarded_processes_end_with_their_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    launcher = subprocess.Popen(["sleep", "600"])
    own = watch_this_process(str(tmp_path), "me")
    born = creation_time(launcher.pid)
    assert born is not None
    watch = Watch(own.root, "me", own.place, launcher.pid, born, folder=str(folder))
    guarded = start_node(watch)
    time.sleep(1.5)
    assert guarded.poll() is None
    launcher.kill()
    assert wait_until(lambda: guarded.poll() is not None)
    launcher.wait()
    assert not folder.exists()


def test_elsewhere_processes_end_when_the_lease_is_stale_or_another_s(tmp_path: Path) -> None:
    with Lease(tmp_path) as lease:
        own = watch_this_process(str(tmp_path), lease.owner)
        watch = Watch(own.root, lease.owner, "elsewhere", 1, 0.0, seconds_until_stale=2.0)
        stale = start_node(watch)  # as the lease is renewed every 15 s only
        patient = start_node(Watch(own.root, lease.owner, "elsewhere", 1, 0.0, 20.0))
        assert wait_until(lambda: stale.poll() is not None)
        assert patient.poll() is None
        marker = tmp_path / "launch" / "lease.json"
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "owner": "another"}))
        assert wait_until(lambda: patient.poll() is not None)


WORKER = """
import sys
from multiberts.launch.workers.guardian import leave_with_launcher, watch_from_environment
from multiberts.launch.workers.worker import Call, Place, carry_out_calls, save_and_leave
leave_with_launcher(watch_from_environment(), save_and_leave)
root = sys.argv[1]
waits = {name: {"run_dir": f"{root}/{name}", "release": "never"} for name in ("first", "second")}
calls = [Call(name, "quick_stages:wait", waits[name], f"logs/{name}.log") for name in waits]
print(carry_out_calls(calls, Place(root, "slurm", "owner"))[0])
"""


def test_a_worker_elsewhere_saves_before_it_leaves(tmp_path: Path) -> None:
    with Lease(tmp_path) as lease:
        watch = Watch(str(tmp_path), lease.owner, "elsewhere", 1, 0.0, seconds_until_stale=2.0)
        more = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]), "CUDA_VISIBLE_DEVICES": ""}
        worker = subprocess.run(
            [sys.executable, "-c", WORKER, str(tmp_path)],
            env={**os.environ, **more, VARIABLE: watch.spelled(), "SLURM_JOB_ID": "17"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert worker.returncode == 0, worker.stderr
    assert worker.stdout.count("preempted") == 1, "the rest are not started"
    assert int((tmp_path / "first" / "saved").read_text()) > 0
    ((attempt,),) = attempts_of(tmp_path).values()
    assert (attempt.outcome, attempt.job, attempt.device) == ("preempted", "17", "cpu")
