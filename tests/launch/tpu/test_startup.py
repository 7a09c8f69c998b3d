"""The start-up script: sound bash, whatever the values, and really run."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.tpu.rehearsal.local_node import end_node, start_node
from multiberts.launch.tpu.source_archive import pack
from multiberts.launch.tpu.startup import PROJECT, UV_VERSION, Machine, startup_script
from multiberts.runs.errors import UserError

NASTY = 'it\'s $HOME `id` "x" \\ ü'


def script(bucket: Path, machine: Machine, source: bytes = b"", **arguments: Any) -> str:
    import hashlib

    bucket.mkdir(parents=True, exist_ok=True)
    (bucket / "source.tar.gz").write_bytes(source)
    return startup_script(
        machine=machine,
        run="pretrain/base/seed_0",
        run_url=f"file://{bucket}/run",
        attempt=1,
        bucket=f"file://{bucket}",
        beat_url=f"file://{bucket}/beat.json",
        log_url=f"file://{bucket}/log.txt",
        source_url=f"file://{bucket}/source.tar.gz",
        source_sha256=hashlib.sha256(source).hexdigest(),
        arguments={"run_dir": f"file://{bucket}/run", **arguments},
    )


@pytest.mark.parametrize("python", [None, "/opt/a b/python"])
def test_bash_finds_no_mistake(tmp_path: Path, python: str | None) -> None:
    machine = Machine(python=python, work="/a b/c", environment={"NAME": NASTY})
    text = script(tmp_path / "a b", machine, procedure=NASTY)
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
        'printf "%s\\n" "$@" "$NAME" "$RUNS_MIRROR" "$TPU_NAME" "$RUNS_PUSH_SECONDS"; cat "$3"\n'
    )
    witness.chmod(0o755)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz"):
        pass
    machine = Machine(python=str(witness), environment={"NAME": NASTY}, push=7.5)
    text = script(tmp_path / "buck et", machine, buffer.getvalue(), procedure=NASTY)
    folder = tmp_path / "no de"
    process = start_node(folder, text)
    assert process.wait(20) == 0
    lines = (folder / "log").read_text().splitlines()
    assert lines[1:8] == [
        "-m",
        "multiberts.launch.tpu.node",
        "../node.json",
        f"{folder}/log",
        NASTY,
        f"{folder}/mirror",
        "local",
    ]
    assert lines[8] == "7.5"
    settings = json.loads("\n".join(lines[9:]))
    assert settings["flags"] == [
        f"--gin_param=pretrain.run_dir = 'file://{tmp_path}/buck et/run'",
        f"--gin_param=pretrain.procedure = {NASTY!r}",
    ]
    assert (folder / "console").read_text() == ""


STUB = """#!{python}
import os, pathlib, sys
arguments = sys.argv[1:]
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
    for name in arguments[7::2]:
        print(name, len(open(name).read().splitlines()))
"""


def test_pinned_requirements_are_installed_once(tmp_path: Path) -> None:
    """With a `python3` that notes what it is asked to install; the network fails at first."""
    folder, calls = tmp_path / "node", tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "python3"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    sleep = tmp_path / "bin" / "sleep"
    sleep.write_text("#!/bin/bash\n")
    sleep.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "CALLS": str(calls),
    }
    text = script(tmp_path / "bucket", Machine(), b"source")
    # Not what was packed: the boot ends there.
    (tmp_path / "bucket" / "source.tar.gz").write_bytes(b"another")
    for _ in range(2):
        assert start_node(folder, text, environment).wait(60) == 1
    log = (folder / "log").read_text()
    assert "source.tar.gz is not what the launcher packed" in log
    assert log.endswith("error: no source\n")
    names = ["requirements-core.txt", "requirements-cloud.txt", "requirements-tpu.txt"]
    listed = " ".join(f"-r {name}" for name in names)
    assert calls.read_text().splitlines() == [
        f"-m pip install --quiet uv=={UV_VERSION}",
        f"-m pip install --quiet uv=={UV_VERSION}",
        "-m uv venv --clear --python 3.11 environment",
        f"-m uv pip install --python {folder}/environment/bin/python {listed}",
    ]
    for name in names:
        assert (folder / name).read_text() == (PROJECT / name).read_text()


def test_compute_without_requirements_is_refused() -> None:
    Machine().check()
    with pytest.raises(UserError, match=r"compute is 'torch', expected one of tensorflow"):
        Machine(compute="torch").check()


def test_the_archive_is_the_program(tmp_path: Path) -> None:
    packed, digest = pack(PROJECT)
    assert (packed, digest) == pack(PROJECT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert {"requirements-tpu.txt", "launch/tpu/node.py", "launch/tpu/startup.sh.j2"} <= {
        name.removeprefix("multiberts/") for name in names
    }
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
    process = start_node(tmp_path, f"cd {tmp_path}\n{text}")
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        pass
    end_node(process, 1.0)
    assert (tmp_path / "told").read_text() == "told\n"
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"
