"""The task files for SkyPilot: machines as it resolves them, and blocks in bash as it runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import Client, Security

import multiberts
from multiberts.launch.workers.pool import make_keys
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.launch.launchers import TINY, gin_lines, wait_until
from multiberts.tests.launch.test_headers import CONFIGS, command_of, make_inputs
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.sky_program import make_executable, run_blocks

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "configs/launch/skypilot"
# Of https://cloud.google.com/tpu/docs/runtimes, for JAX.
RUNTIMES = {
    "v4": "tpu-ubuntu2204-base", "v5litepod": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}  # fmt: skip


def task(name: str) -> dict[str, Any]:
    fields: dict[str, Any] = yaml.safe_load((TASKS / name).read_text())
    return fields


def machines() -> list[dict[str, Any]]:
    return list(task("pretrain.yaml")["resources"]["ordered"])


def device_of(machine: dict[str, Any]) -> str:
    return str(machine["accelerators"]).removeprefix("tpu-").removesuffix(":1")


def test_machines_are_tried_in_the_order_of_what_a_seed_costs_there(tmp_path: Path) -> None:
    command = command_of(CONFIGS["tpu.gin"])
    make_inputs(tmp_path, command)
    header = (TASKS / "pretrain.yaml").read_text().partition("# Command:")[0]
    dollars = []
    for machine in machines():
        device = ["--workers=1", f"--device={device_of(machine)}"]
        shown = warm.run(["launch", "plan", *command, *device], tmp_path).stdout
        [price] = re.findall(r"device-hours, ([\d,.]+) dollars", shown)
        dollars.append(float(price.replace(",", "")) / 25)
        assert f"${dollars[-1]:.0f}" in header
    assert [round(price) for price in dollars] == sorted(round(price) for price in dollars)


def test_every_machine_is_one_with_the_software_of_its_generation() -> None:
    for machine in machines():
        generation, _, size = device_of(machine).partition("-")
        assert machine["infra"] == "gcp" and int(size or 1) <= 8
        given = machine.get("accelerator_args", {})
        assert given == ({"runtime_version": RUNTIMES[generation]} if size else {})


@pytest.fixture
def skypilot_python() -> str:
    """SkyPilot's own interpreter: `SKYPILOT_PYTHON`, or that of the program `sky`."""
    program = shutil.which("sky")
    named = os.environ.get("SKYPILOT_PYTHON") or (
        Path(program).read_text().partition("\n")[0].removeprefix("#!") if program else None
    )
    if named is None:
        pytest.skip("needs SkyPilot: set SKYPILOT_PYTHON to an interpreter that has it")
    return named


def chosen(python: str, home: Path, *words: str) -> list[dict[str, Any]]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    command = [python, str(ROOT / "tests/tools/skypilot_choice.py"), *words]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr
    rows: list[dict[str, Any]] = json.loads(ended.stdout[ended.stdout.index("\n[\n") :])
    return rows


@pytest.mark.slow
def test_skypilot_tries_the_machines_in_this_order(skypilot_python: str, tmp_path: Path) -> None:
    rows = chosen(skypilot_python, tmp_path, str(TASKS / "pretrain.yaml"), "BUCKET=gs://b")
    given = task("pretrain.yaml")["resources"]["job_recovery"]
    assert given["recover_on_exit_codes"] == [EXIT_PREEMPTED]
    for machine, row in zip(machines(), rows, strict=True):
        (name,) = row["accelerators"]
        assert name == str(machine["accelerators"]).removesuffix(":1")
        version = machine.get("accelerator_args", {}).get("runtime_version")
        assert (row["runtime_version"], row["use_spot"], row["nodes"]) == (version, True, 1)
        assert row["job_recovery"] == given
    (row,) = chosen(skypilot_python, tmp_path, str(TASKS / "sweep.yaml"), "ROOT=/shared")
    assert (row["accelerators"], row["use_spot"], row["nodes"]) == ({"H100": 1}, True, 4)


class Node:
    """A node whose trainer is a script: it writes its arguments, and ends as the test says."""

    def __init__(self, folder: Path, trainer: str):
        self.folder, self.programs = folder / "node", folder / "programs"
        self.programs.mkdir()
        self.python = make_executable(self.programs / "python", f"#!/bin/bash\n{trainer}\n")
        make_executable(self.programs / "sleep", "#!/bin/bash\necho slept $1 >>slept\n")

    def run(self, setup: str | None = None, **envs: str) -> int:
        """Carries out the blocks, or another setup; `environment/bin/python`, which it makes, is another."""
        environment = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.folder)}
        fields = task("pretrain.yaml")
        given = {"BUCKET": "gs://b", "PYTHON": str(self.python), "JAX_PLATFORMS": "cpu", **envs}
        fields["envs"] |= given
        fields["setup"] = fields["setup"] if setup is None else setup
        return run_blocks(fields, self.folder, environment)

    def lines(self, name: str) -> list[str]:
        file = self.folder / "sky_workdir" / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    ("statuses", "expected", "num_sleeps"),
    [
        ([0], 0, 0),
        ([2], 2, 0),  # refused input
        ([75, 0], 0, 1),
        ([75, 75, 75], 75, 2),
        # A device that hangs counts as a failure, as too little memory does.
        ([137, 137, 137], 137, 2),
        ([137, 1, 1], 1, 2),
        ([1, 137, 75], 75, 2),
    ],
)
def test_a_trainer_that_ends_is_started_again_on_the_same_machine_a_few_times(
    tmp_path: Path, statuses: list[int], expected: int, num_sleeps: int
) -> None:
    node = Node(tmp_path, 'echo x >>tries; exit $(sed -n "$(wc -l <tries)p" "$HOME/statuses")')
    node.folder.mkdir()
    (node.folder / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    assert node.run() == expected
    assert len(node.lines("tries")) == len(statuses)
    assert node.lines("slept") == ["slept 20"] * num_sleeps


@pytest.mark.parametrize("status", [75, 143])
def test_a_node_that_is_asked_to_stop_waits_for_its_trainer_and_starts_none(
    tmp_path: Path, status: int
) -> None:
    # The signal comes to every process of the job; the trainer needs a while to save.
    saves = "until [ $((i+=1)) = 50000 ]; do :; done; echo saved >>saved"
    trainer = f"echo x >>tries; trap '{saves}; exit {status}' TERM; kill -TERM $PPID $$; exit 1"
    node = Node(tmp_path, trainer)
    assert node.run() == EXIT_PREEMPTED
    assert (node.lines("tries"), node.lines("saved"), node.lines("slept")) == (["x"], ["saved"], [])


def test_flags_reach_the_trainer_as_they_are(tmp_path: Path) -> None:
    node = Node(tmp_path, 'printf "%s\\0" "$@" "$JAX_PLATFORMS" "$RUNS_MIRROR" >arguments')
    flags = [
        f"--gin_param=pretrain.x = {text!r}" for text in ("it's", 'a "b" $HOME `id`', ["*", "é\n"])
    ]
    flags += ["two\nlines", "a" * 3000, "", "\\"]
    assert node.run(FLAGS=shlex.join(flags)) == 0
    begin = ["-P", "-m", "multiberts", "pretrain"]
    written = node.folder / "sky_workdir/arguments"
    end = ["cpu", f"/var/tmp/multiberts-{os.getuid()}", ""]
    assert written.read_text().split("\0") == [*begin, *flags, *end]
    assert node.run(SEED="3", RUNS_MIRROR="/m", JAX_PLATFORMS="tpu") == 0
    by_hand = [
        "--gin_file=configs/pretrain/multiberts.gin", "--gin_param=RUN_DIR = 'gs://b/seed_3'",
        "--gin_param=CORPUS = 'gs://b/corpora/base'", "--gin_param=PRETRAIN_SEED = 3",
        "--max_seconds_without_step=3600",
    ]  # fmt: skip
    assert written.read_text().split("\0") == [*begin, *by_hand, "tpu", "/m", ""]


@pytest.mark.parametrize(
    ("has_gpu", "named", "platform", "extra"),
    [
        (True, "", "cuda", "jax-cuda12"),
        (True, "cpu", "cpu", "jax"),
        (False, "tpu", "tpu", "jax-tpu"),
    ],
)
def test_setup_installs_the_engine_of_the_device_that_is_there(
    tmp_path: Path, has_gpu: bool, named: str, platform: str, extra: str
) -> None:
    node = Node(tmp_path, "exit 0")
    make_executable(node.programs / "nvidia-smi", f"#!/bin/bash\nexit {int(not has_gpu)}\n")
    make_executable(
        node.programs / "uv",
        '#!/bin/bash\necho "$@" >>uv\nmkdir -p environment/bin\n'
        "printf '#!/bin/bash\\necho $JAX_PLATFORMS >jax\\n' >environment/bin/python\n"
        "chmod +x environment/bin/python\n",
    )
    assert node.run(PYTHON="", JAX_PLATFORMS=named) == 0
    assert node.lines("uv") == [
        "venv --allow-existing --python 3.11 environment",
        f"pip install --python environment/bin/python -c constraints.txt -e .[{extra},cloud]",
    ]
    assert node.lines("jax") == [platform]


@pytest.mark.skipif(
    Path("/dev/accel0").exists() or Path("/dev/vfio").exists(), reason="a machine without a TPU"
)
def test_a_machine_without_a_device_is_refused_in_setup(tmp_path: Path) -> None:
    node = Node(tmp_path, "exit 0")
    make_executable(node.programs / "nvidia-smi", "#!/bin/bash\nexit 1\n")
    assert node.run(JAX_PLATFORMS="") == 2
    assert "--env JAX_PLATFORMS=cpu" in (node.folder / "setup.log").read_text()


def test_a_node_that_lost_what_setup_found_trains_on_no_device_of_jax_s_choice(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, "touch trained")
    assert node.run(setup="true") == 2
    assert not (node.folder / "sky_workdir/trained").exists()


EXPERIMENT = {"corpora": ["base"], "procedures": ["base"], "tasks": [], "pretrain_seeds": [0, 1, 2]}
GIN = gin_lines(launch=EXPERIMENT, **TINY)


def workers_seen(address: str, keys: Security | None) -> int | None:
    """Returns how many workers a scheduler has; None: it refuses."""
    try:
        with Client(address, security=keys, set_as_default=False, timeout="3s") as client:
            return len(client.scheduler_info(n_workers=-1)["workers"])
    except OSError:
        return None


def security(keys: dict[str, str]) -> Security:
    pair = {f"tls_client_{kind}": keys[f"tls_worker_{kind}"] for kind in ("cert", "key")}
    return Security(tls_ca_file=keys["tls_ca_file"], **pair)


@pytest.mark.slow
def test_a_sweep_on_two_nodes_is_carried_out_among_those_who_have_its_keys(tmp_path: Path) -> None:
    (tmp_path / "tiny.gin").write_text(GIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fields, go = task("sweep.yaml"), tmp_path / "go"
    fields["envs"] |= {"ROOT": str(tmp_path / "root"), "CONFIG": str(tmp_path / "tiny.gin")}
    # The launch waits until the test has seen the cluster.
    flags = f"--attempts=2 $(until [ -e {go} ]; do sleep 0.1; done)"
    fields["envs"] |= {"FLAGS": flags, "PORT": str(port), "PYTHON": sys.executable}
    make_executable(tmp_path / "nvidia-smi", "#!/bin/sh\nexit 1\n")
    node = {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2", "JAX_PLATFORMS": "cpu"}
    node |= {"PYTHONPATH": str(Path(multiberts.__file__).parents[1])}
    node |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SKYPILOT_TASK_ID": "sky-2026_sweep_1-0"}
    statuses: dict[int, int] = {}

    def run(rank: int) -> None:
        own = {**node, "SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": "2"}
        statuses[rank] = run_blocks(fields, tmp_path / f"node-{rank}", own)

    # What a task left that was killed: on another first machine, and half made on this one.
    keys = tmp_path / "root/launch/keys-sky-2026_sweep_1-0-127.0.0.1.pem"
    keys.parent.mkdir(parents=True)
    left = [keys.with_name("keys-sky-2026_sweep_1-0-127.0.0.9.pem"), Path(f"{keys}.part")]
    for path in left:
        path.touch()
    threads = [threading.Thread(target=run, args=[rank]) for rank in (1, 0)]
    for thread in threads:
        thread.start()
    address = f"127.0.0.1:{port}"

    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert wait_until(is_listening) and keys.exists()
        names = ("tls_ca_file", "tls_worker_cert", "tls_worker_key")
        own = security(dict.fromkeys(names, str(keys)))
        assert wait_until(lambda: workers_seen(f"tls://{address}", own) == 2)
        assert stat.filemode(keys.stat().st_mode) == "-rw-------"
        assert list(keys.parent.glob("keys-*")) == [keys]
        assert workers_seen(f"tcp://{address}", None) is None
        assert workers_seen(f"tls://{address}", security(make_keys())) is None
        assert wait_until(lambda: workers_seen(f"tls://{address}", own) == 2)
    finally:
        go.touch()
        for thread in threads:
            thread.join(PATIENCE)
    logs = [(tmp_path / f"node-{rank}/run.log").read_text() for rank in (0, 1)]
    assert statuses == {0: 0, 1: 0}, logs
    done = sorted(path.parent.name for path in tmp_path.glob("root/pretrain/base/*/DONE"))
    assert len(done) == 3, logs
    assert list(keys.parent.glob("keys-*")) == []
