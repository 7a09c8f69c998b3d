"""The start-up script: sound bash, whatever the values, and really run."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import LABEL, OUR_LABEL, Provisioner, Resource, request_id
from multiberts.launch.tpu.node import (
    METADATA_VARIABLE,
    delete_forgotten,
    metadata,
    wait_until_forgotten,
)
from multiberts.launch.tpu.places import LOOK, Places
from multiberts.launch.tpu.settings import PROJECT, TpuSettings
from multiberts.launch.tpu.startup import (
    PYTHON_VERSION,
    UV_VERSION,
    pack,
    pretrain_flags,
    startup_script,
)
from multiberts.launch.workers.engines import options_of
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import wait_until
from multiberts.tests.lint.pins import pinned
from multiberts.tests.patience import PATIENCE

pytest.importorskip("google.cloud.tpu_v2", reason="needs the extra cloud")

NASTY = 'it\'s $HOME `id` "x" \\ ü'


RUN = PlannedRun("pretrain", "pretrain base seed 0", {}, (), "0" * 64, "pretrain/base/seed_0")


def settings(bucket: Path, **changes: Any) -> TpuSettings:
    return TpuSettings("p", ["z"], "v4-8", f"file://{bucket}", **changes)


def script(
    bucket: Path, source: bytes = b"", arguments: dict[str, Any] | None = None, **changes: Any
) -> str:
    wanted, places = settings(bucket, **changes), Places(f"file://{bucket}")
    placed = places.put_source(source)
    return startup_script(
        wanted, places, RUN, 1, zone="z", source=placed, arguments=arguments or {}
    )


@pytest.mark.parametrize("python", [None, "/opt/a b/python"])
def test_bash_finds_no_mistake(tmp_path: Path, python: str | None) -> None:
    text = script(tmp_path / "a b", arguments={"procedure": NASTY}, python=python)
    result = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert "{{" not in text and "{%" not in text
    # What metadata of a machine may hold.
    assert len(text.encode()) < 256 * 1024


def test_values_reach_the_node_as_they_are(tmp_path: Path) -> None:
    """The interpreter is one that prints what it is called with."""
    witness = tmp_path / "wit ness"
    witness.write_text(
        "#!/bin/bash\n"
        'if [ "$1" = fetch.py ]; then cp "${2#file://}" "$3"; exit; fi\n'
        'printf "%s\\n" "$@" "$RUNS_MIRROR" "$RUNS_PUSH_SECONDS" "$MULTIBERTS_ENGINE"; '
        'cat "$3"\n'
    )
    witness.chmod(0o755)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz"):
        pass
    arguments = {"procedure": NASTY}
    text = script(tmp_path / "buck et", buffer.getvalue(), arguments, python=str(witness))
    from multiberts.tests.launch.tpu.rehearsal.service import start_node

    folder = tmp_path / "no de"
    process = start_node(folder, text)
    assert process.wait(PATIENCE) == 0
    lines = (folder / "log").read_text().splitlines()
    assert lines[1:8] == [
        "-m",
        "multiberts.launch.tpu.node",
        "../node.json",
        f"{folder}/log",
        f"{folder}/mirror",
        "60",
        "jax",
    ]
    told = json.loads("\n".join(lines[8:]))
    assert told["resource"]["zone"] == "z" and told["forgotten_seconds"] == 3600
    assert told["flags"] == [
        f"--gin_param=pretrain.procedure = {NASTY!r}",
        f"--gin_param=pretrain.run_dir = 'file://{tmp_path}/buck et/{RUN.path}'",
    ]
    assert (folder / "console").read_text() == ""


# Like Ubuntu 24.04's: pip installs into no folder but one that is named.
STUB = """#!{python} -IS
import os, pathlib, sys
arguments = sys.argv[1:]
if arguments[:3] == ["-m", "pip", "install"] and "--target" not in arguments:
    sys.exit("error: externally-managed-environment")
if arguments[:2] == ["-m", "uv"] and not os.environ.get("PYTHONPATH", "").endswith("/uv"):
    sys.exit("No module named uv")
with open(os.environ["CALLS"], "a") as calls:
    print(*arguments, file=calls)
if arguments[:2] == ["-m", "pip"] and not os.path.exists("failed once"):
    pathlib.Path("failed once").touch()
    sys.exit(1)
if arguments[:3] == ["-m", "uv", "venv"]:
    place = pathlib.Path(arguments[-1]) / "bin"
    place.mkdir(parents=True)
    (place / "python").write_text(f'#!/bin/sh\\nexec {{sys.executable}} "$@"\\n')
    (place / "python").chmod(0o755)
if arguments[:4] == ["-m", "uv", "pip", "install"]:
    for name in arguments[7], arguments[11]:
        print(name, len(open(name).read().splitlines()))
"""


def test_pinned_requirements_are_installed_once(tmp_path: Path) -> None:
    """With a `python3` that notes what it is asked to install; the network fails at first."""
    folder, calls = tmp_path / "node", tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "python3"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    # Programs of the image.
    for name in ("bash", "date", "mkdir", "cat", "touch", "rm", "tar"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    sleep = tmp_path / "bin" / "sleep"
    sleep.write_text("#!/bin/bash\n")
    sleep.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin",
        "CALLS": str(calls),
    }
    text = script(tmp_path / "bucket", b"source")
    # Not what was packed: the boot ends there.
    [archive] = (tmp_path / "bucket" / "launch").glob("source-*.tar.gz")
    archive.write_bytes(b"another")
    from multiberts.tests.launch.tpu.rehearsal.service import start_node

    for _ in range(2):
        assert start_node(folder, text, environment).wait(PATIENCE) == 1
    log = (folder / "log").read_text()
    assert f"{archive.name} is not what" in log
    assert log.endswith("error: no source\n")
    assert calls.read_text().splitlines() == [
        f"-m pip install --quiet --upgrade --target {folder}/uv uv=={UV_VERSION}",
        f"-m pip install --quiet --upgrade --target {folder}/uv uv=={UV_VERSION}",
        f"-m uv venv --clear --python {PYTHON_VERSION} environment",
        f"-m uv pip install --python {folder}/environment/bin/python "
        "-r pyproject.toml --extra jax-tpu -c constraints.txt",
    ]
    for name in ("pyproject.toml", "constraints.txt"):
        assert (folder / name).read_text() == (PROJECT / name).read_text()


def test_nodes_compute_with_what_the_compile_table_was_made_with() -> None:
    """Its figures, from which plans are priced, are of one JAX and one libtpu."""
    rows = map(json.loads, (PROJECT / "docs" / "compile_table.jsonl").read_text().splitlines())
    compiled = {(row["versions"]["jax"], row["versions"].get("libtpu")) for row in rows}
    versions = pinned((PROJECT / "constraints.txt").read_text(), PYTHON_VERSION, "linux")
    assert (versions["jax"], versions["libtpu"]) in compiled


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zone": "z"}, "'zone', .*did you mean zones"),
        ({"patience_minutes": "2"}, "'patience_minutes'. is '2',"),
        ({"zones": "us-central2-b"}, "'zones'. is 'us-central2-b',"),
        ({"project": None}, "'project'. is None,"),
    ],
)
def test_options_are_checked(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {
        "project": "p",
        "zones": ["z"],
        "accelerator_type": "v4-8",
        "bucket": "gs://b/e",
    }
    assert options_of(TpuSettings, "tpu", options).zones == ["z"]
    with pytest.raises(UserError, match=message):
        options_of(TpuSettings, "tpu", {**options, **changes})
    del options["bucket"], options["project"]
    with pytest.raises(UserError, match="lacks bucket, project"):
        options_of(TpuSettings, "tpu", options)


def test_the_archive_is_the_program(tmp_path: Path) -> None:
    packed = pack(PROJECT)
    assert packed == pack(PROJECT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path)
    assert {
        "pyproject.toml",
        "constraints.txt",
        "launch/tpu/google.toml",
        "launch/tpu/startup.sh.j2",
    } <= {name.removeprefix("multiberts/") for name in names}
    assert not any(
        name.startswith(("multiberts/tests", "multiberts/stats", "multiberts/.")) for name in names
    )
    code = (
        "import multiberts.launch.tpu.node, multiberts.pretrain.training.pretraining, sys; "
        "print('tensorflow' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_ending_a_node_ends_all_its_processes(tmp_path: Path) -> None:
    text = "trap 'echo told >told' TERM\nsleep 100 & echo $! >child\nwait; sleep 100\n"
    from multiberts.tests.launch.tpu.rehearsal.service import end_node, start_node

    process = start_node(tmp_path, f"cd {tmp_path}\n{text}")
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        pass
    end_node(process, 1.0)
    assert (tmp_path / "told").read_text() == "told\n"
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"


@pytest.mark.processes
def test_a_node_that_is_done_and_forgotten_deletes_itself(
    make_service: Callable[..., Any], tmp_path: Path
) -> None:
    """As long as a launcher looks it stays; then it deletes its own queued resource, and no other."""
    bucket = Bucket(f"file://{tmp_path}/bucket")
    stop = threading.Event()

    def look() -> None:
        number = 0
        while not stop.wait(0.1):
            number += 1
            bucket.write(LOOK, str(number).encode())

    launcher = threading.Thread(target=look)
    launcher.start()
    forgotten = threading.Thread(target=wait_until_forgotten, args=(bucket, 1.0))
    forgotten.start()
    forgotten.join(2.0)
    assert forgotten.is_alive()
    stop.set()
    launcher.join()
    forgotten.join(20.0)
    assert not forgotten.is_alive()

    service = make_service()
    cloud = Provisioner("p", service.client())
    for name in ("mb-own", "mb-other"):
        cloud.create(
            settings(tmp_path), zone="zone-a", name=name, request=request_id("s", name, 1),
            startup_script="sleep 60", labels={},
        )  # fmt: skip
    for _ in range(5):
        cloud.resources("zone-a")  # made look by look
    delete_forgotten(cloud, Resource("mb-own", "zone-a", "", 0.0, {LABEL: OUR_LABEL}))
    assert wait_until(lambda: [one.name for one in cloud.resources("zone-a")] == ["mb-other"])


def test_the_metadata_server_is_asked_as_google_documents_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from multiberts.tests.launch.tpu.rehearsal.service import Metadata

    server = Metadata()
    monkeypatch.setenv(METADATA_VARIABLE, server.open())
    assert metadata("instance/preempted") == "FALSE"
    assert metadata("instance/maintenance-event") == "NONE"
    assert metadata("instance/unknown") is None
    server.maintenance = "TERMINATE_ON_HOST_MAINTENANCE"
    assert metadata("instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE"
    server.close()


NUM_STEPS = 4000


@pytest.mark.slow
def test_a_stopped_trainer_is_ended_and_started_again(tmp_path: Path) -> None:
    """SIGSTOP leaves the process there: only its silence tells."""
    from multiberts.tests.pretrain.training.stress_resume import ARGUMENTS, make_corpora

    bucket, log = tmp_path / "bucket", tmp_path / "log"
    arguments = {**ARGUMENTS, **make_corpora(tmp_path), "run_dir": f"file://{bucket}/run"}
    arguments |= {"num_steps": NUM_STEPS, "checkpoint_steps": [NUM_STEPS]}
    told = {
        "bucket": f"file://{bucket}",
        "run_url": f"file://{bucket}/run",
        "beat": "beat.json",
        "log": "log.txt",
        "device_kind": "CPU",
        "heartbeat": 0.5,
        "silent_seconds": 20.0,
        "forgotten_seconds": 3600.0,
        "flags": pretrain_flags(arguments),
    }
    (tmp_path / "node.json").write_text(json.dumps(told))
    with open(log, "wb") as stream:
        node = psutil.Popen(
            [
                sys.executable,
                "-m",
                "multiberts.launch.tpu.node",
                str(tmp_path / "node.json"),
                str(log),
            ],
            env={**os.environ, "RUNS_MIRROR": str(tmp_path / "mirror"), "RUNS_PUSH_SECONDS": "1"},
            stdout=stream,
            stderr=stream,
        )

    def beat() -> dict[str, Any]:
        file = bucket / "beat.json"
        return json.loads(file.read_text()) if file.exists() else {}

    try:
        assert wait_until(lambda: (beat().get("step") or 0) > 50), log.read_text()
        (trainer,) = (
            child for child in node.children() if "heartbeats" in " ".join(child.cmdline())
        )
        trainer.suspend()
        assert wait_until(lambda: beat().get("restarts", 0) > 0), log.read_text()
        assert not trainer.is_running()
        reached = beat().get("step") or 0  # none until the new trainer has logged one
        assert wait_until(lambda: (beat().get("step") or 0) > reached), log.read_text()
        assert "silent for 20 s" in log.read_text()
    finally:
        for process in [*node.children(recursive=True), node]:
            process.kill()
        node.wait()
