"""A pipe, a device, a folder or a loop of links in place of a marker holds no command up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from multiberts.runs.plan_marker import is_done
from multiberts.tests.launch.markers.test_damaged import ATTEMPT, FACTS, PLANNED
from multiberts.tests.tools import warm

ENDED = {"ended": 2.0, "outcome": "failed"}
KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": os.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "places",
    [
        ("launch/plan.json",),
        ("launch/attempts/pretrain---a/2.json", "logs/a.log"),
        ("launch/lease.json",),
        ("pretrain/a/metrics.jsonl", "launch/dask", "pretrain/a/DONE"),
    ],
)
def test_status_and_reap_end_in_seconds(tmp_path: Path, kind: str, places: tuple[str, ...]) -> None:
    markers = {
        "launch/plan.json": json.dumps({"version": 1, "runs": [{**PLANNED, "facts": FACTS}]}),
        "launch/attempts/pretrain---a/1.json": json.dumps({**ATTEMPT, **ENDED}) + "\n",
    }
    for name in places:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](tmp_path / name)
    for name in markers.keys() - set(places):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(markers[name])
    status = ("launch", "status", f"--root={tmp_path}", f"--html={tmp_path / 'page.html'}")
    for command in (status, ("launch", "run", "--reap", f"--root={tmp_path}")):
        said = warm.run(command, timeout=60)
        assert said.returncode in (0, 2) and "Traceback" not in said.stderr, said
        strange = [name for name in places if name.startswith("launch/") and "dask" not in name]
        if command is status:
            assert all(name in said.stderr for name in strange)
    assert not is_done(tmp_path / "pretrain/a")
