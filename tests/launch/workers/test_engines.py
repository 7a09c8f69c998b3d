"""Engines from options, workers on GPUs, and processes that leave with their launcher."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from distributed import Security

from multiberts.launch.estimate.accelerators import gpu_of_worker, visible_gpus
from multiberts.launch.workers.engines import SlurmOptions, make_engine
from multiberts.launch.workers.pool import environment_of_workers
from multiberts.launch.workers.slurm import script_of_jobs
from multiberts.runs.environment import ENGINE, PRECISION


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


@pytest.fixture
def slurm_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: f"/bin/{command}")


@pytest.mark.usefixtures("slurm_is_there")
def test_scripts_of_slurm_s_jobs_say_what_was_asked_for(tmp_path: Path) -> None:
    options = {
        "partition": "p", "qos": "q", "gpus": 2, "cores": 8, "memory_gb": 7, "walltime": "01:00:00",
        "scheduler_options": "#SBATCH --mail-type=END\n--nice=5", "exclusive": True,
        "worker_init": 'echo "$OMP_NUM_THREADS|$ODD|$PYTHONPATH"; exit 3',
    }  # fmt: skip
    engine = make_engine("slurm", options, None, 1)
    assert isinstance(engine.options, SlurmOptions)
    assert (engine.workers_per_node, engine.threads) == (2, 4)
    environment = {**environment_of_workers(3), "ODD": 'it\'s "this" $HOME'}
    script = script_of_jobs(
        engine.options, "tls://10.0.0.1:2", name="name", workers=2, environment=environment,
        folder=str(tmp_path),
        security=Security(tls_ca_file="ca", tls_worker_cert="cert", tls_worker_key="key"),
    )  # fmt: skip
    asked = {line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line}
    assert asked == {
        *("--partition=p", "--ntasks=1", "--cpus-per-task=8", "--mem=7G", "--time=01:00:00"),
        *("--qos=q", "--gpus-per-node=2", "--mail-type=END", "--nice=5", "--exclusive"),
        f"--output={tmp_path}/name-%j.out",
        f"--error={tmp_path}/name-%j.err",
    }
    assert "tls://10.0.0.1:2 --name $SLURM_JOB_ID --nworkers 2 --nthreads 1" in script
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": "/more"}
    said = subprocess.run(["bash", "-c", script], env=given, capture_output=True, text=True)
    assert (said.stdout, said.returncode) == ('3|it\'s "this" $HOME|/more\n', 3)


@pytest.mark.usefixtures("slurm_is_there")
def test_workers_compute_with_the_library_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins over the launcher's environment, which jobs elsewhere do not inherit."""
    monkeypatch.delenv(ENGINE, raising=False)
    assert ENGINE not in environment_of_workers(1)
    monkeypatch.setenv(ENGINE, "jax")
    assert environment_of_workers(1)[ENGINE] == "jax"
    monkeypatch.setenv(PRECISION, "highest")
    assert environment_of_workers(1)[PRECISION] == "highest"
    chosen = make_engine("slurm", {"compute": "tensorflow"}, None, 1)
    assert environment_of_workers(1, chosen.options.compute)[ENGINE] == "tensorflow"
    assert make_engine("local", {"compute": "tensorflow"}, 1, 1).options.compute == "tensorflow"
