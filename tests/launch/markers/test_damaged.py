"""Every marker that launch reads is refused in one line where it is not whole, or not ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.estimate.measured import examples_in
from multiberts.launch.markers.attempts import attempts_of, begin_attempt, end_attempt
from multiberts.launch.markers.lease import launcher_at_a_glance, launching
from multiberts.launch.status.snapshot import collect_status
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import read_plan

LEASE = {
    "owner": "x", "host": "elsewhere", "machine": "m", "pid": 1, "created": None, "started": 1.0,
    "renewed": 1.0, "seconds_until_stale": 90.0,
}  # fmt: skip
# As earlier versions wrote each into a file of its own.
ATTEMPT: dict[str, Any] = {
    "attempt": 1, "path": "pretrain/a", "engine": "local", "host": "elsewhere", "pid": 1, "job": None,
    "device": "cpu", "started": 1.0, "ended": None,
    "outcome": None, "error": None, "log": "logs/a.log", "created": 1.0, "owner": "x",
}  # fmt: skip
RUN = {"stage": "pretrain", "name": "a run", "identity": "a" * 64, "path": "pretrain/a"}
PLANNED = {**RUN, "stage": "pretrain", "parents": [], "facts": {}}
FACTS = {"procedure": "base", "pretrain_seed": 0, "num_steps": 1, "checkpoint_steps": []}
# By marker: its file, what a whole one holds, and who reads it.
MARKERS: dict[str, tuple[str, dict[str, Any], Callable[[Path], object]]] = {
    "plan": ("launch/plan.json", {"version": 1, "runs": [PLANNED]}, read_plan),
    "lease": ("launch/lease.json", LEASE, launcher_at_a_glance),
    "run": (
        "run.json",
        {"evaluation_sets": {"dev": {"examples": 3}}},
        lambda root: examples_in(root / "run.json"),
    ),
}
# A crash of the machine cuts or empties a file.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "of another program": lambda whole: b"[]",
}


def written(root: Path, file: str, content: bytes) -> Path:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("marker", MARKERS)
def test_a_whole_marker_is_read(tmp_path: Path, marker: str) -> None:
    file, fields, read = MARKERS[marker]
    written(tmp_path, "pretrain/a/DONE", b"{}")
    written(tmp_path, file, json.dumps(fields).encode())
    assert read(tmp_path) not in (None, [])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("marker", MARKERS)
def test_a_damaged_marker_is_refused_in_one_line(tmp_path: Path, marker: str, damage: str) -> None:
    file, fields, read = MARKERS[marker]
    path = written(tmp_path, file, DAMAGES[damage](json.dumps(fields).encode()))
    with pytest.raises(UserError) as refusal:
        read(tmp_path)
    line = str(refusal.value)
    assert str(path) in line and "; " in line and "\n" not in line and len(line) < 1000


def test_a_creation_time_is_a_number_and_may_be_missing(tmp_path: Path) -> None:
    file, fields, read = MARKERS["lease"]
    written(tmp_path, file, json.dumps({**fields, "created": "1"}).encode())
    with pytest.raises(UserError, match="created is '1'"):
        read(tmp_path)
    fields = {name: value for name, value in fields.items() if name != "created"}
    written(tmp_path, file, json.dumps(fields).encode())
    assert read(tmp_path) is not None


def test_a_damaged_line_of_a_journal_is_named_once_and_the_others_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "launch/plan.json", json.dumps(MARKERS["plan"][1]).encode())
    line = json.dumps(ATTEMPT).encode()
    without_time = {name: value for name, value in ATTEMPT.items() if name != "created"}
    lines = [
        json.dumps({**without_time, "path": "b"}).encode(),
        line[:90] + b"\0\0" + line[90:],  # as after a crash of the disk's machine
        b"[]",
        json.dumps({**ATTEMPT, "attempt": 2, "created": "1"}).encode(),
        json.dumps({**ATTEMPT, "attempt": 3}).encode(),
        line[:90],  # another process is just writing it
    ]
    journal = written(tmp_path, "launch/attempts/chunk.jsonl", b"\n".join(lines))
    for _ in range(2):
        assert [one.attempt for one in attempts_of(tmp_path)["pretrain/a"]] == [3]
    assert attempts_of(tmp_path)["b"][0].created is None
    assert collect_status(tmp_path).pretraining[0].attempts == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith(f"warning: {journal} line 2 is not whole JSON")
    assert (
        second
        == f"warning: {journal} line 3 holds [], expected fields by name; the line is ignored; delete it"
    )
    assert third.startswith(f"warning: {journal} line 4: created is '1', expected float or None")
    # Somebody else ends the attempt whose line was cut.
    cut = attempts_of(tmp_path)["pretrain/a"][0]
    end_attempt(tmp_path, cut, "lost")
    assert [one.outcome for one in attempts_of(tmp_path)["pretrain/a"]] == ["lost"]
    assert f"{journal} line 6 is not whole JSON" in capsys.readouterr().err


def test_attempts_of_earlier_versions_are_read_and_ended(tmp_path: Path) -> None:
    file = "launch/attempts/pretrain---a/{}.json"
    for number, change in enumerate(({"ended": 2.0, "outcome": "lost"}, {"attempt": 2}), start=1):
        written(tmp_path, file.format(number), json.dumps({**ATTEMPT, **change}).encode() + b"\n")
    written(tmp_path, file.format(2) + ".77.unfinished", b"{")
    begin_attempt(tmp_path, "pretrain/a", engine="local", attempt=3)
    first, second, third = attempts_of(tmp_path)["pretrain/a"]
    assert (first.outcome, second.outcome, third.outcome) == ("lost", None, None)
    end_attempt(tmp_path, second, "preempted")
    outcomes = [one.outcome for one in attempts_of(tmp_path)["pretrain/a"]]
    assert outcomes == ["lost", "preempted", None]


def test_a_lease_that_is_damaged_is_not_taken_over(tmp_path: Path) -> None:
    path = written(tmp_path, "launch/lease.json", b"{")
    with pytest.raises(UserError, match=r"lease\.json is not whole JSON"):
        launching(tmp_path).__enter__()
    assert path.read_bytes() == b"{"
    path.unlink()
    with launching(tmp_path):  # the refusal has let go of the lock
        pass
