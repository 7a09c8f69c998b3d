"""The start-up script of a node, from a bare machine to `multiberts pretrain`, and the program it unpacks."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import LABEL, OUR_LABEL
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.settings import PROJECT, TpuSettings
from multiberts.runs.bucket.mirror import PUSH_VARIABLE
from multiberts.runs.environment import ENGINE, JAX

TEMPLATE = "startup.sh.j2"
UV_VERSION = "0.13.9"
# One on all nodes, as later Pythons have a later JAX: all attempts of a run compute alike. The compile
# table is of this one's.
PYTHON_VERSION = "3.11"

# From these the node installs the extra `jax-tpu`.
REQUIREMENTS = ("pyproject.toml", "constraints.txt")

# Rooms that pre-training imports, and the launcher's part on the node.
_PACKAGES = ("runs", "bert", "pretrain", "launch")
_SUFFIXES = {".py", ".j2", ".toml"}


def startup_script(
    settings: TpuSettings,
    places: Places,
    run: PlannedRun,
    attempt: int,
    *,
    zone: str,
    source: tuple[str, str],
    arguments: Mapping[str, Any],
) -> str:
    """Returns the start-up script of an attempt's node, in bash.

    Args:
      source: URL and SHA-256 of the packed program.
      arguments: of `pretrain`, with URLs.
    """
    import jinja2

    log_url = f"{places.url}/{places.log(run, attempt)}"
    node = {
        "bucket": places.url,
        "run_url": places.run(run),
        "beat": places.beat(run, attempt),
        "log": places.log(run, attempt),
        "device_kind": settings.device_kind,
        "heartbeat": settings.node_heartbeat_seconds,
        "silent_seconds": settings.silent_seconds,
        "forgotten_seconds": settings.forgotten_minutes * 60,
        "project": settings.project,
        "resource": {"name": places.name(run), "zone": zone, "labels": {LABEL: OUR_LABEL}},
        "flags": pretrain_flags({**arguments, "run_dir": places.run(run)}),
    }
    environment = {PUSH_VARIABLE: f"{settings.push_seconds:g}", ENGINE: JAX}
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    quoted = {
        "bucket": places.url,
        "boot_log": log_url,
        "source_url": source[0],
        "source_sha256": source[1],
    }
    return templates.get_template(TEMPLATE).render(
        run=run.path.replace("\n", " "),
        attempt=attempt,
        python=shlex.quote(settings.python) if settings.python else "",
        uv_version=UV_VERSION,
        python_version=PYTHON_VERSION,
        requirements={name: (PROJECT / name).read_text().strip() for name in REQUIREMENTS},
        environment={name: shlex.quote(value) for name, value in environment.items()},
        settings=json.dumps(node, indent=1),
        **{name: shlex.quote(value) for name, value in quoted.items()},
    )


def pretrain_flags(arguments: Mapping[str, Any]) -> list[str]:
    """Returns the flags of `multiberts pretrain` that give it these arguments."""
    return [f"--gin_param=pretrain.{name} = {value!r}" for name, value in arguments.items()]


def pack(project: Path) -> bytes:
    """Returns the program as a gzipped tar file; the same files give the same bytes."""
    files = [project / "__init__.py", *(project / name for name in REQUIREMENTS)]
    for package in _PACKAGES:
        files += [
            file
            for file in sorted((project / package).rglob("*"))
            if file.suffix in _SUFFIXES and "__pycache__" not in file.parts
        ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in files:
            data = file.read_bytes()
            # Without times and owners, which change no program.
            entry = tarfile.TarInfo(str("multiberts" / file.relative_to(project)))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)
