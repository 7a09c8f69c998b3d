"""The start-up script of a node: from a bare machine to `multiberts pretrain` against a bucket."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.runs.bucket.mirror import PUSH_VARIABLE
from multiberts.runs.errors import UserError

TEMPLATE = "startup.sh.j2"
# What the node's own Python installs, and what that then installs.
UV_VERSION = "0.13.9"
PYTHON_VERSION = "3.11"

# On every node, and by the library that computes.
_REQUIREMENTS = ("requirements-core.txt", "requirements-cloud.txt")
REQUIREMENTS = {"tensorflow": "requirements-tpu.txt", "jax": "requirements-tpu-jax.txt"}

PROJECT = Path(__file__).resolve().parent.parent.parent


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a node is and has, besides the run.

    Attributes:
      compute: `tensorflow` or `jax`: whose requirements are installed.
      accelerator: what must answer before training: `TPU`, or `CPU` or `GPU` for a rehearsal.
      work: the node's folder for all it writes.
      python: an interpreter that has all requirements; None: the pinned ones are installed.
      environment: further environment variables.
      heartbeat: seconds between words of the node.
      push: seconds between pushes of the run to the bucket.
    """

    compute: str = "tensorflow"
    accelerator: str = "TPU"
    work: str = "/var/lib/multiberts"
    python: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heartbeat: float = 30.0
    push: float = 60.0

    def check(self) -> None:
        """Refuses a library that the project has no requirements for.

        Raises:
          UserError: naming those it has.
        """
        known = [name for name, file in REQUIREMENTS.items() if (PROJECT / file).is_file()]
        if self.compute not in known:
            raise UserError(
                f"compute is {self.compute!r}, expected one of {', '.join(known)}, for which there are "
                "requirements; name one of them"
            )


def startup_script(
    *,
    machine: Machine,
    run: str,
    run_url: str,
    attempt: int,
    bucket: str,
    beat_url: str,
    log_url: str,
    source_url: str,
    source_sha256: str,
    arguments: Mapping[str, Any],
) -> str:
    """Returns the script, in bash.

    Args:
      machine: what the node is.
      run: the run's path, for people.
      run_url: the run's directory in the bucket.
      attempt: its number.
      bucket: URL of the experiment.
      beat_url: where the node reports its state.
      log_url: where it puts what was printed.
      source_url: the packed program.
      source_sha256: checksum of it, in hexadecimal.
      arguments: of `pretrain`, with URLs.
    """
    import jinja2

    settings = {
        "run_url": run_url,
        "beat_url": beat_url,
        "log_url": log_url,
        "accelerator": machine.accelerator,
        "heartbeat": machine.heartbeat,
        "flags": [f"--gin_param=pretrain.{name} = {value!r}" for name, value in arguments.items()],
    }
    environment = {PUSH_VARIABLE: f"{machine.push:g}", **machine.environment}
    if machine.accelerator == "TPU":
        environment["TPU_NAME"] = "local"
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    quoted = {
        "work": machine.work,
        "bucket": bucket,
        "boot_log": log_url,
        "source_url": source_url,
        "source_sha256": source_sha256,
    }
    return templates.get_template(TEMPLATE).render(
        run=run.replace("\n", " "),
        attempt=attempt,
        python=shlex.quote(machine.python) if machine.python else "",
        uv_version=UV_VERSION,
        python_version=PYTHON_VERSION,
        requirements={
            name: (PROJECT / name).read_text().strip()
            for name in (*_REQUIREMENTS, REQUIREMENTS[machine.compute])
        },
        environment={name: shlex.quote(value) for name, value in environment.items()},
        settings=json.dumps(settings, indent=1),
        **{name: shlex.quote(value) for name, value in quoted.items()},
    )
