"""Markers of the plan, of attempts and of the lease: what one process writes another reads."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multiberts.launch.markers import lease as lease_module
from multiberts.launch.markers.attempts import (
    SECONDS_OF_SILENCE,
    attempts_of,
    begin_attempt,
    end_attempt,
)
from multiberts.launch.markers.lease import SECONDS_UNTIL_STALE, Lease, read_lease
from multiberts.launch.markers.planned import done_paths, facts_of, read_plan, write_plan
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import wait_until

PRETRAINING = PlannedRun(
    "pretrain",
    "pretrain base seed 3",
    {"procedure": "base", "pretrain_seed": 3, "num_steps": 20, "checkpoint_steps": (0, 10)},
    (),
    "a" * 64,
    "pretrain/base/seed_3-aaaaaaaa",
)
FINETUNING = PlannedRun(
    "finetune",
    "RTE base-seed_3-step_10",
    {
        "task": "RTE",
        "checkpoint": Output(PRETRAINING, "checkpoints/step_10"),
        "learning_rate": 1e-5,
        "finetune_seed": 1,
    },
    (PRETRAINING,),
    "b" * 64,
    "finetune/RTE/base-seed_3-step_10/lr_1e-05-ft_seed_1-bbbbbbbb",
)
PLAN = [PRETRAINING, FINETUNING]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    estimate = {"device": "cpu", "seconds": 12.5, "dollars": 0.01}
    write_plan(tmp_path, PLAN, {PRETRAINING.path: estimate})
    first, second = read_plan(tmp_path)
    assert (first.path, first.name, first.identity) == (
        PRETRAINING.path,
        PRETRAINING.name,
        PRETRAINING.identity,
    )
    assert first.facts["checkpoint_steps"] == [0, 10, 20]
    assert first.estimate == estimate and second.estimate is None
    assert second.parents == (PRETRAINING.path,)
    assert second.facts == {
        "task": "RTE",
        "learning_rate": 1e-5,
        "finetune_seed": 1,
        "checkpoint_run": PRETRAINING.path,
        "checkpoint_step": 10,
        "procedure": "base",
        "pretrain_seed": 3,
    }
    assert facts_of(FINETUNING) == second.facts

    marker = tmp_path / "launch" / "plan.json"
    before = marker.stat().st_mtime_ns
    write_plan(tmp_path, PLAN)  # says nothing new: estimates stay
    assert marker.stat().st_mtime_ns == before
    write_plan(tmp_path, PLAN[:1])
    assert [run.estimate for run in read_plan(tmp_path)] == [estimate]


@pytest.mark.parametrize("content", ["", "[]", '{"version": 0, "runs": []}', '{"version": 2}'])
def test_a_damaged_plan_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match="nothing was launched"):
        read_plan(tmp_path)
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "plan.json").write_text(content)
    with pytest.raises(UserError, match="damaged or of another version"):
        read_plan(tmp_path)
    write_plan(tmp_path, PLAN)
    assert len(read_plan(tmp_path)) == 2


def test_attempts_are_numbered_and_read_with_their_heartbeats(tmp_path: Path) -> None:
    path = FINETUNING.path
    first = begin_attempt(
        tmp_path, path, engine="slurm", job="17", device="gpu 0", log="logs/a.log"
    )
    assert (first.attempt, first.pid, first.host) == (1, os.getpid(), socket.gethostname())
    end_attempt(tmp_path, first, "failed", {"kind": "ValueError", "message": "bad"})
    second = begin_attempt(tmp_path, path, engine="local")
    folder = tmp_path / "launch" / "attempts" / path.replace("/", "---")
    (folder / "2.json.77.unfinished").write_text("{")
    (folder / "3.json").write_text("half of")
    ((found_first, found_second),) = attempts_of(tmp_path).values()
    assert (found_first.outcome, found_first.job, found_first.log) == ("failed", "17", "logs/a.log")
    assert found_first.error == {"kind": "ValueError", "message": "bad"}
    assert found_second.attempt == 2 and found_second.ended is None
    assert abs(found_second.heartbeat - second.started) < 2
    now = found_second.heartbeat
    assert not found_second.is_silent(now + SECONDS_OF_SILENCE - 1)
    assert found_second.is_silent(now + SECONDS_OF_SILENCE + 1)
    assert not found_first.is_silent(now + 10 * SECONDS_OF_SILENCE)
    assert begin_attempt(tmp_path, path, engine="local").attempt == 3
    assert attempts_of(tmp_path / "elsewhere") == {}
    with pytest.raises(ValueError):
        end_attempt(tmp_path, second, "lucky")


def test_what_is_done_is_found(tmp_path: Path) -> None:
    for path in ("scores-1", "finetune/RTE/a", "finetune/RTE/b"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("scores-1", "finetune/RTE/b"):
        (tmp_path / path / "DONE").write_text("{}")
    paths = ["scores-1", "scores-2", "finetune/RTE/a", "finetune/RTE/b", "finetune/CoLA/a"]
    assert done_paths(tmp_path, paths) == {"scores-1", "finetune/RTE/b"}


def test_the_lease_is_held_by_one(tmp_path: Path) -> None:
    assert Lease.held(tmp_path) is None
    with Lease(tmp_path) as lease:
        holder = Lease.held(tmp_path)
        assert holder is not None
        assert (holder.owner, holder.pid) == (lease.owner, os.getpid())
        with pytest.raises(UserError, match=f"launched by process {os.getpid()} on"):
            Lease(tmp_path).__enter__()
    assert Lease.held(tmp_path) is None and read_lease(tmp_path) is None
    with Lease(tmp_path):
        pass


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom multiberts.launch.markers.lease import Lease\n"
        "with Lease(sys.argv[1]):\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[3])
    left = read_lease(tmp_path)
    assert left is not None and Lease.held(tmp_path) is None
    with Lease(tmp_path) as lease:
        assert lease.owner != left.owner


@pytest.mark.parametrize(("age", "is_free"), [(0, False), (SECONDS_UNTIL_STALE + 1, True)])
def test_the_lease_of_another_machine_is_free_when_it_is_stale(
    tmp_path: Path, age: float, is_free: bool
) -> None:
    now = time.time()
    other = {"owner": "x", "host": "elsewhere", "pid": 1, "started": now - 99, "renewed": now - age}
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "lease.json").write_text(json.dumps(other))
    assert (Lease.held(tmp_path) is None) == is_free
    if is_free:
        with Lease(tmp_path) as lease:
            assert Lease.held(tmp_path) is not None
            assert not lease.lost.is_set()
    else:
        with pytest.raises(UserError, match="process 1 on elsewhere since"):
            Lease(tmp_path).__enter__()


def test_the_lease_is_renewed_and_its_loss_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "SECONDS_BETWEEN_RENEWALS", 0.05)
    with Lease(tmp_path) as lease:
        first = read_lease(tmp_path)
        assert first is not None
        assert wait_until(lambda: (now := read_lease(tmp_path)) and now.renewed > first.renewed, 60)
        second = read_lease(tmp_path)
        assert second is not None
        assert second.renewed > first.renewed and second.started == first.started
        marker = tmp_path / "launch" / "lease.json"
        marker.write_text(json.dumps({**vars(second), "owner": "another"}))
        assert lease.lost.wait(60)
    # What the other wrote stays.
    left = read_lease(tmp_path)
    assert left is not None and left.owner == "another"


def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "launch").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        Lease(tmp_path).__enter__()


def test_a_root_of_the_first_version_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Its directories have other names, so everything would be made again."""
    marker = tmp_path / "launch" / "plan.json"
    marker.parent.mkdir()
    marker.write_text('{"version": 1, "runs": []}')
    for look in (lambda: write_plan(tmp_path, []), lambda: read_plan(tmp_path)):
        with pytest.raises(
            UserError, match=r"plan\.json has version 1, expected 2: .* choose another"
        ):
            look()
    assert marker.read_text() == '{"version": 1, "runs": []}'
