"""The registration of an experiment, `<root>/registration.json`: what was fixed before its runs were made.

`multiberts launch plan --register` writes it, once; reports read it and say what differs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_json_fields, sha256_of_file, write_atomically

FILE = "registration.json"
StoppingRule = Literal["all_seeds", "sequential"]
_VERSION = 1
_KINDS = {
    "version": int,
    "registered": str,
    "done": int,
    "runs": int,
    "plan": str,
    "hypothesis": str,
    "metric": str,
    "stopping_rule": StoppingRule,
    "seeds": Mapping[str, list[int]],
    "analysis": Mapping[str, Any],
}
_OF_THE_MOMENT = ("registered", "done")
# Stages that look at runs: how they do is registered by name, and their folders may be made again.
_LOOKING = ("score", "report", "paper")


def plan_hash(runs: Iterable[Any]) -> str:
    """Returns SHA-256 over the identities of a plan's runs, such as `runs.plan_marker.MarkedRun`."""
    lines = sorted(f"{run.identity} {run.path}" for run in runs if run.stage not in _LOOKING)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def register(root: PathLike, content: Mapping[str, Any], done: int) -> str:
    """Writes a registration, unless there is the same; it is never overwritten.

    Args:
      content: fields of the registration except `version`, `registered` and `done`.
      done: number of finished runs.

    Returns:
      A line that describes the registration.
    """
    path = Path(root) / FILE
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    # Through JSON, so that tuples and lists compare equal.
    written = json.loads(
        json.dumps({"version": _VERSION, "registered": now, "done": done, **content})
    )
    before = read_registration(root)
    if before is not None:
        changed = [
            name for name in written if name not in _OF_THE_MOMENT and written[name] != before[name]
        ]
        if changed:
            raise UserError(
                f"{path} was registered on {before['registered']} with other {', '.join(changed)}; a "
                "registration is never overwritten: keep to it, or start another experiment in another root"
            )
    else:
        write_atomically(path, json.dumps(written, indent=1) + "\n")
    return f"{path}. {described(root)}"


def read_registration(root: PathLike) -> dict[str, Any] | None:
    """Returns the registration of an experiment, or None."""
    path = Path(root) / FILE
    if not path.is_file():
        return None
    return read_json_fields(path, _KINDS, "restore it from where it was published")


def described(root: PathLike) -> str:
    """Returns in a line what was registered, and when; there must be a registration."""
    fields = read_registration(root)
    assert fields is not None
    return (
        f"Registered on {fields['registered']}, when {fields['done']:,} of {fields['runs']:,} runs were done "
        f"(SHA-256 {sha256_of_file(Path(root) / FILE)}): "
        f"{fields['hypothesis'].rstrip(' .')}. The metric is {fields['metric']}."
    )
