"""Markers of the plan, of attempts and of the lease: what one process writes another reads."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.markers import lease as lease_module
from multiberts.launch.markers.attempts import (
    SECONDS_OF_SILENCE,
    attempts_of,
    begin_attempt,
    end_attempt,
    file_of_journal,
    make_journal,
    read_journal,
)
from multiberts.launch.markers.lease import (
    SECONDS_UNTIL_STALE,
    launcher_at_a_glance,
    launching,
    read_lease,
)
from multiberts.launch.markers.planned import facts_of, write_plan
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import done_paths, read_plan
from multiberts.tests.launch.launchers import wait_until

PRETRAINING = PlannedRun(
    "pretrain", "pretrain base seed 3",
    {"procedure": "base", "pretrain_seed": 3, "num_steps": 20, "checkpoint_steps": (0, 10)},
    (), "a" * 64, "pretrain/base/seed_3-aaaaaaaa",
)  # fmt: skip
TRIAL = {"task": "RTE", "learning_rate": 1e-5, "finetune_seed": 1}
START = {"procedure": "base", "pretrain_seed": 3, "checkpoint_step": 10}
FINETUNING = PlannedRun(
    "finetune", "RTE base-seed_3-step_10",
    {**TRIAL, "checkpoint": Output(PRETRAINING, "checkpoints/step_10")},
    (PRETRAINING,), "b" * 64, "finetune/RTE/base-seed_3-step_10/lr_1e-05-bbbbbbbb", START,
)  # fmt: skip
PLAN = [PRETRAINING, FINETUNING]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_plan(tmp_path, PLAN)
    first, second = read_plan(tmp_path)
    for name in ("path", "name", "identity"):
        assert getattr(first, name) == getattr(PRETRAINING, name)
    assert first.facts["checkpoint_steps"] == [0, 10, 20]
    assert second.parents == (PRETRAINING.path,)
    assert second.facts == {**TRIAL, **START, "checkpoint_run": PRETRAINING.path}
    assert facts_of(FINETUNING) == second.facts

    marker = tmp_path / "launch" / "plan.json"
    before = marker.stat().st_mtime_ns
    write_plan(tmp_path, PLAN)  # says nothing new
    assert marker.stat().st_mtime_ns == before
    write_plan(tmp_path, PLAN[:1])
    assert [run.path for run in read_plan(tmp_path)] == [PRETRAINING.path]
    marker.write_text("[]")  # damaged
    write_plan(tmp_path, PLAN)
    assert len(read_plan(tmp_path)) == 2


def test_attempts_are_numbered_and_read_with_their_heartbeats(tmp_path: Path) -> None:
    path = FINETUNING.path
    where = {"engine": "slurm", "job": "17", "device": "gpu 0", "log": "logs/a.log"}
    first = begin_attempt(tmp_path, path, **where, journal=make_journal(tmp_path, "a.jsonl"))
    assert (first.attempt, first.pid, first.host) == (1, os.getpid(), socket.gethostname())
    end_attempt(tmp_path, first, "failed", {"kind": "ValueError", "message": "bad"})
    second = begin_attempt(tmp_path, path, engine="local", attempt=2, journal="b.jsonl")
    ((found_first, found_second),) = attempts_of(tmp_path).values()
    assert read_journal(file_of_journal(tmp_path, "b.jsonl")) == [found_second]
    assert read_journal(file_of_journal(tmp_path, "c.jsonl")) == []
    assert (found_first.outcome, found_first.job, found_first.log) == ("failed", "17", "logs/a.log")
    assert found_first.error == {"kind": "ValueError", "message": "bad"}
    assert found_second.attempt == 2 and found_second.ended is None
    assert abs(found_second.heartbeat - second.started) < 2
    now = found_second.heartbeat
    assert not found_second.is_silent(now + SECONDS_OF_SILENCE - 1)
    assert found_second.is_silent(now + SECONDS_OF_SILENCE + 1)
    assert not found_first.is_silent(now + 10 * SECONDS_OF_SILENCE)
    assert attempts_of(tmp_path / "elsewhere") == {}
    with pytest.raises(ValueError):
        end_attempt(tmp_path, second, "lucky")


def test_an_attempt_that_finds_no_room_leaves_its_journal_as_it_was(tmp_path: Path) -> None:
    attempt = begin_attempt(tmp_path, "a", engine="local")
    file = file_of_journal(tmp_path, attempt.journal)
    before = file.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            end_attempt(tmp_path, attempt, "done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == before


def test_what_is_done_is_found(tmp_path: Path) -> None:
    for path in ("scores-1", "finetune/RTE/a", "finetune/RTE/b"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("scores-1", "finetune/RTE/b"):
        (tmp_path / path / "DONE").write_text("{}")
    # Cut off by a full disk: what it stands for was not written.
    (tmp_path / "finetune/RTE/a/DONE").touch()
    paths = ["scores-1", "scores-2", "finetune/RTE/a", "finetune/RTE/b", "finetune/CoLA/a"]
    assert done_paths(tmp_path, paths) == {"scores-1", "finetune/RTE/b"}


@pytest.mark.parametrize("code", [None, errno.ENOLCK])
def test_the_lease_is_held_by_one(
    code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no locks, too."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(code, "No locks available")

    if code is not None:
        monkeypatch.setattr(fcntl, "flock", flock)
    assert launcher_at_a_glance(tmp_path) is None
    with launching(tmp_path) as lease:
        holder = launcher_at_a_glance(tmp_path)
        assert holder is not None
        assert (holder.owner, holder.pid) == (lease.owner, os.getpid())
        with pytest.raises(UserError, match=f"process {os.getpid()} on"):
            launching(tmp_path).__enter__()
    assert launcher_at_a_glance(tmp_path) is None and read_lease(tmp_path) is None
    with launching(tmp_path):
        pass


def put(root: Path, fields: dict[str, Any]) -> None:
    """Writes the marker of a lease, whole, whoever else writes it at the moment."""
    (root / "launch").mkdir(exist_ok=True)
    (root / "put").write_text(json.dumps(fields))
    os.replace(root / "put", root / "launch" / "lease.json")


def test_a_lease_at_a_glance_goes_by_the_time_of_its_file(tmp_path: Path) -> None:
    elsewhere = {"owner": "x", "host": "elsewhere", "machine": "m", "pid": 1, "created": None}
    times = {
        "started": 1.0,
        "renewed": 2.0,
        "seconds_until_stale": 90.0,
    }  # by a clock that is wrong
    put(tmp_path, elsewhere | times)
    assert launcher_at_a_glance(tmp_path) is not None
    old = time.time() - SECONDS_UNTIL_STALE - 10
    os.utime(tmp_path / "launch" / "lease.json", (old, old))
    assert launcher_at_a_glance(tmp_path) is None


def test_another_process_with_the_launcher_s_number_is_not_the_launcher(tmp_path: Path) -> None:
    with launching(tmp_path):
        holder = read_lease(tmp_path)
    assert holder is not None and holder.created is not None and holder.pid == os.getpid()
    put(tmp_path, vars(holder))
    assert launcher_at_a_glance(tmp_path) == holder
    put(tmp_path, {**vars(holder), "created": holder.created - 5})
    assert launcher_at_a_glance(tmp_path) is None


def test_the_lease_is_renewed_and_its_loss_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "SECONDS_UNTIL_STALE", 0.2)
    with launching(tmp_path) as lease:
        first = read_lease(tmp_path)
        assert first is not None
        assert wait_until(lambda: read_lease(tmp_path) != first)
        second = read_lease(tmp_path)
        assert second is not None
        assert second != first and second.started == first.started

        def take_over() -> bool:
            # A renewal that had begun before may replace what is written here.
            put(tmp_path, {**vars(second), "owner": "another"})
            return lease.lost.wait(0.2)

        assert wait_until(take_over)
        put(tmp_path, {**vars(second), "owner": "another"})
    # What the other wrote stays.
    left = read_lease(tmp_path)
    assert left is not None and left.owner == "another"


def test_a_marker_that_is_removed_or_damaged_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "SECONDS_UNTIL_STALE", 0.2)
    marker = tmp_path / "launch" / "lease.json"

    def is_renewed() -> bool:
        with contextlib.suppress(UserError):
            return read_lease(tmp_path) is not None
        return False

    with launching(tmp_path) as lease:
        for harm in (marker.unlink, lambda: marker.write_text('{"owner"')):
            harm()
            assert wait_until(is_renewed)
        assert not lease.lost.is_set()


def test_a_marker_that_vanishes_in_the_middle_of_its_renewal_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "SECONDS_UNTIL_STALE", 0.2)
    marker, write_if = tmp_path / "launch" / "lease.json", Bucket.write_if
    written = []

    def write_after_a_removal(bucket: Bucket, name: str, data: bytes, version: str | None) -> Any:
        if not written:
            marker.unlink()
        written.append(write_if(bucket, name, data, version))
        return written[-1]

    with launching(tmp_path) as lease:
        monkeypatch.setattr(Bucket, "write_if", write_after_a_removal)
        assert wait_until(lambda: len(written) >= 2 or lease.lost.is_set())
        assert written[0] is None and written[1] is not None and marker.exists()
        assert not lease.lost.is_set()


def test_a_copy_of_a_root_that_is_being_launched_is_launched_at_once(tmp_path: Path) -> None:
    with launching(tmp_path / "root"):
        shutil.copytree(tmp_path / "root", tmp_path / "copy")
        before = time.monotonic()
        with launching(tmp_path / "copy"):
            assert time.monotonic() - before < SECONDS_UNTIL_STALE / 2


def test_the_lease_of_a_root_with_a_strange_name_lies_in_it(tmp_path: Path) -> None:
    # fsspec takes `::` for a chain of file systems, `~` for a home and `#` or `?` for parts of a URL.
    root = tmp_path / "~a::b #c?d%20e"
    with launching(root):
        assert read_lease(root) is not None
    assert list(tmp_path.iterdir()) == [root]
