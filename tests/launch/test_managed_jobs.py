"""Seeds as managed jobs of SkyPilot: submitted once, shown while they train, fetched when they are done."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.launch import managed_jobs
from multiberts.launch.markers.attempts import attempts_of
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.launch.running import reap_experiment, run_plan
from multiberts.launch.status.snapshot import collect_status
from multiberts.runs.bucket.copies import fetch, push_finished
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError
from multiberts.tests import good_files
from multiberts.tests.launch.launchers import TINY, quick_run
from multiberts.tests.tools.sky_program import Sky, make_executable

LINK = str(Path(managed_jobs.__file__).parents[2])
PLAN = Experiment(
    world=TINY["make_world"],
    corpora={"it's": TINY["prepare"]},
    procedures={'the "first"': {**TINY["pretrain"], "corpus": "it's", "checkpoint_steps": [0, 5]}},
    pretrain_seeds=[0],
    tasks={},
)


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sky:
    program = Sky(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(program.folder), prepend=os.pathsep)
    return program


def seed(number: int, *parents: PlannedRun, **parameters: Any) -> PlannedRun:
    path = f"pretrain/base/seed_{number}-{number:08x}"
    parameters = {"pretrain_seed": number, "num_steps": 200, **parameters}
    return PlannedRun("pretrain", f"pretrain base seed {number}", parameters, parents, path, path)


def look(tmp_path: Path, plan: list[PlannedRun], attempts: int = 3) -> list[FailedRun]:
    engine = {"engine": "skypilot", "engine_options": {"bucket": f"file://{tmp_path}/bucket"}}
    return run_plan(plan=plan, root=str(tmp_path / "root"), attempts=attempts, **engine)


def look_while_they_train(
    tmp_path: Path, plan: list[PlannedRun], said: str = " under way", attempts: int = 3
) -> None:
    with pytest.raises(PreemptedError, match=said):
        look(tmp_path, plan, attempts)


def finish(run_dir: Path) -> Path:
    run = RunDirectory(str(run_dir), stage="pretrain", parameters={}, inputs={})
    with run:
        (run.path / "weights").write_text("1 2 3")
        run.finish(["weights"])
    return run_dir


def finish_in_bucket(tmp_path: Path, run: PlannedRun) -> None:
    push_finished(finish(tmp_path / "elsewhere" / run.path), f"file://{tmp_path}/bucket/{run.path}")


def states(tmp_path: Path) -> list[str]:
    return [row.state for row in collect_status(tmp_path / "root").pretraining]


def test_a_look_submits_each_seed_once_and_later_ones_fetch_what_is_done(
    tmp_path: Path, sky: Sky, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = [seed(0), seed(1)]
    look_while_they_train(tmp_path, plan, "0 of 2 .* 2 jobs .* under way; the same command")
    assert [row["job_name"] for row in sky.queue] == [
        f"mb-{sky.queue[0]['job_name'][3:11]}-pretrain-base-seed_{number}-{number:08x}"
        for number in (1, 0)
    ]
    assert sky.commands.count("launch --dryrun") == 1
    assert states(tmp_path) == ["running", "running"]

    machine = "1x[spot](gpus=tpu-v6e-8:1, TPU-VM, ...)"
    sky.set(1, status="RUNNING", cluster_resources=machine, infra="GCP (us-east1-d)")
    sky.set(2, status="RECOVERING", recovery_count=7, details="In backoff, waiting for resources")
    look_while_they_train(tmp_path, plan)
    assert "\njob 2: In backoff, waiting for resources\n" in capsys.readouterr().out
    finish_in_bucket(tmp_path, plan[1])
    look_while_they_train(tmp_path, plan, "1 of 2 .* 1 job ")
    shown = capsys.readouterr().out.splitlines()
    where = rf"{re.escape(machine)} +GCP \(us-east1-d\)"
    assert re.fullmatch(rf"pretrain base seed 0 +1 +RUNNING +0 +{where} +-", shown[1])
    assert (tmp_path / "root" / plan[1].path / "weights").read_text() == "1 2 3"
    assert states(tmp_path) == ["running", "done"]
    # By this name its times count in estimates.
    devices = [of_run[-1].device for of_run in attempts_of(tmp_path / "root").values()]
    assert devices == ["v6e-8", None]

    finish_in_bucket(tmp_path, plan[0])
    assert look(tmp_path, [*plan, quick_run("note", "after")]) == []
    said = "1 run left: --engine=local --engine_options={} carries them out here"
    assert said in capsys.readouterr().out
    assert states(tmp_path) == ["done", "done"]
    assert len(sky.queue) == 2
    num_commands = len(sky.commands)
    assert look(tmp_path, plan) == []
    assert len(sky.commands) == num_commands  # nothing is left to ask about


def test_a_failed_job_is_followed_by_others_and_a_cancelled_one_does_not_count(
    tmp_path: Path, sky: Sky, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [
        {"status": "FAILED_PRECHECKS", "failure_reason": "No cloud. Run: \x1b[1msky check\x1b[0m"},
        {"status": "CANCELLED"},
        {"status": "SUCCEEDED"},
        {"status": "FAILED", "failure_reason": "Job exited with exit code 1 (user program failure)."},
    ]  # fmt: skip
    for number, end in enumerate(ends, start=1):
        with pytest.raises(PreemptedError):
            look(tmp_path, [seed(0)])
        sky.set(number, **end)
    said = capsys.readouterr().err
    assert "job 1 is FAILED_PRECHECKS: No cloud. Run: sky check" in said
    assert "job 3 is SUCCEEDED: but the bucket has no DONE of this run" in said
    (failed,) = look(tmp_path, [seed(0)])
    assert (failed.attempts, failed.is_user_error) == (3, False)
    assert "job 4 is FAILED: Job exited with exit code 1" in failed.message
    assert "`sky jobs logs 4`" in failed.message and "--attempts=4 submits" in failed.message
    assert [attempt.outcome for attempt in attempts_of(tmp_path / "root")[seed(0).path]] == [
        "failed", "preempted", "failed", "failed",
    ]  # fmt: skip
    assert states(tmp_path) == ["failed"]
    assert len(sky.queue) == 4
    look_while_they_train(tmp_path, [seed(0), seed(1)], "0 of 2 .* 1 job ")
    assert f"warning: {seed(0).name}: {failed.message}" in capsys.readouterr().err
    sky.set(5, status="CANCELLED")
    look_while_they_train(tmp_path, [seed(0)], attempts=4)  # the cure
    assert len(sky.queue) == 6


def test_another_controller_counts_its_jobs_from_1_again(tmp_path: Path, sky: Sky) -> None:
    for _ in range(2):
        sky.save([])
        with pytest.raises(PreemptedError):
            look(tmp_path, [seed(0)])
        sky.set(1, status="CANCELLED")
        reap_experiment(tmp_path / "root", "skypilot", {"bucket": f"file://{tmp_path}/bucket"})
    attempts = attempts_of(tmp_path / "root")[seed(0).path]
    assert [(each.job, each.outcome) for each in attempts] == [("1", "preempted")] * 2


def test_a_seed_waits_for_the_one_that_it_builds_on_and_fails_with_it(
    tmp_path: Path, sky: Sky
) -> None:
    first = seed(0)
    second = seed(1, first, initial_checkpoint=Output(first, "checkpoints/step_200"))
    look_while_they_train(tmp_path, [first, second], "0 of 2 .* 1 job ")
    sky.set(1, status="FAILED")
    failed = look(tmp_path, [first, second], attempts=1)
    assert [each.run for each in failed] == [first, second]
    finish_in_bucket(tmp_path, first)
    look_while_they_train(tmp_path, [first, second], "1 of 2 .* 1 job ")
    flags = json.loads((sky.folder / "2.json").read_text())["envs"]["FLAGS"]
    checkpoint = f"file://{tmp_path}/bucket/{first.path}/checkpoints/step_200"
    assert f"initial_checkpoint = '\"'\"'{checkpoint}'\"'\"'" in flags


@pytest.mark.usefixtures("quick_stages")
def test_inputs_are_made_here_and_put_into_the_bucket(tmp_path: Path, sky: Sky) -> None:
    """A launch here, then a job there: the only test of both in one look."""
    corpus, held_out = quick_run("note", "corpora/text"), finish(tmp_path / "held_out")
    run = seed(0, corpus, corpus=Output(corpus), evaluation_corpus=str(held_out))
    look_while_they_train(tmp_path, [corpus, run])
    bucket = tmp_path / "bucket"
    assert (bucket / "corpora/text/total").read_text() == "0"
    (copied,) = (bucket / "inputs").iterdir()
    assert (copied / "weights").read_text() == "1 2 3"


def test_a_checkpoint_by_itself_is_put_into_the_bucket_and_a_name_is_passed_on(
    tmp_path: Path, sky: Sky
) -> None:
    checkpoint = tmp_path / "multiberts-seed_0"
    good_files.checkpoint(checkpoint)
    look_while_they_train(tmp_path, [seed(0, initial_checkpoint=str(checkpoint))])
    (copied,) = (tmp_path / "bucket" / "inputs").iterdir()
    assert Checkpoint.open(fetch(f"file://{copied}")) == Checkpoint.open(checkpoint)
    look_while_they_train(tmp_path, [seed(1, initial_checkpoint="hub:google/multiberts-seed_0")])
    flags = json.loads((sky.folder / "2.json").read_text())["envs"]["FLAGS"]
    assert "hub:google/multiberts-seed_0" in flags


def test_reaping_cancels_the_jobs_of_this_experiment_alone(
    tmp_path: Path, sky: Sky, capsys: pytest.CaptureFixture[str]
) -> None:
    look_while_they_train(tmp_path, [seed(0), seed(1)])
    sky.save([{**sky.queue[0], "job_id": 3, "job_name": "mb-00000000-pretrain"}, *sky.queue])
    sky.set(2, status="FAILED")
    reap_experiment(tmp_path / "root", "skypilot", {"bucket": f"file://{tmp_path}/bucket"})
    cancelled = r"^job 1, mb-.*seed_0\S+ \(PENDING\): cancelled$"
    assert re.search(cancelled, capsys.readouterr().out, re.M)
    assert {row["job_id"]: row["status"] for row in sky.queue} == {
        1: "CANCELLED", 2: "FAILED", 3: "PENDING",
    }  # fmt: skip
    assert states(tmp_path) == ["waiting", "waiting"]


@pytest.mark.parametrize(
    ("command", "line", "expected"),
    [
        ("launch --dryrun", "Some\nNoCloudAccessError: Run: \x1b[1msky check\x1b[0m\n\n",
         "`sky launch --dryrun` failed: NoCloudAccessError: Run: sky check "),
        ("jobs launch", "ValueError: no", "`sky jobs launch` failed: ValueError: no "),
        ("jobs queue", "RuntimeError: no server", "`sky jobs queue` failed: RuntimeError: no server "),
    ],
)  # fmt: skip
def test_an_error_of_sky_is_passed_on(
    tmp_path: Path, sky: Sky, command: str, line: str, expected: str
) -> None:
    sky.refuse(command, line)
    with pytest.raises(UserError, match=re.escape(expected)):
        look(tmp_path, [seed(0)])
    assert sky.queue == []


def test_before_the_first_job_there_is_no_controller_to_ask(tmp_path: Path, sky: Sky) -> None:
    sky.refuse("jobs queue", "sky.exceptions.ClusterNotUpError: No in-progress managed jobs.")
    look_while_they_train(tmp_path, [seed(0)])
    assert len(sky.queue) == 1


def test_jobs_of_others_may_have_any_facts_and_what_is_no_list_of_jobs_is_refused(
    tmp_path: Path, sky: Sky
) -> None:
    sky.save([{"job_id": None, "job_name": None, "status": 7, "recovery_count": "-"}])
    look_while_they_train(tmp_path, [seed(0)], "1 job ")
    make_executable(sky.folder / "sky", "#!/bin/sh\necho '{\"jobs\": 3}'\n")
    with pytest.raises(UserError, match=r"printed '\{\"jobs\": 3\}', expected a list of jobs"):
        look(tmp_path, [seed(0)])


def test_without_sky_the_way_to_install_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    corpus = quick_run("note", "corpora/text")
    with pytest.raises(UserError, match="sky is not found; install it: uv tool install"):
        look(tmp_path, [corpus, seed(0, corpus)])
    assert not (tmp_path / "root").exists()  # nothing is prepared that could take hours


@pytest.mark.slow
def test_the_shipped_task_trains_a_planned_seed(
    tmp_path: Path, sky: Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", LINK, prepend=os.pathsep)
    plan = make_plan(PLAN)
    look_while_they_train(tmp_path, plan)
    node = {"PYTHON": sys.executable, "JAX_PLATFORMS": "cpu", "RUNS_MIRROR": f"{tmp_path}/mirror"}
    assert sky.carry_out(1, **node) == 0, (sky.folder / "node-1/run.log").read_text()
    assert look(tmp_path, plan) == []
    (run,) = [run for run in plan if run.stage == "pretrain"]
    assert (tmp_path / "root" / run.path / "checkpoints").is_dir()


def test_jobs_that_cost_money_for_nothing_are_named_with_the_command_that_cancels_them(
    tmp_path: Path, sky: Sky, capsys: pytest.CaptureFixture[str]
) -> None:
    look_while_they_train(tmp_path, [seed(0), seed(1)])
    # The second seed's job is of a plan that changed, and the first seed's was submitted twice.
    sky.save([{**sky.queue[1], "job_id": 3}, *sky.queue])
    assert "cancels them" not in capsys.readouterr().err
    look_while_they_train(tmp_path, [seed(0)])
    assert re.search(
        r"2 jobs .* does not need .*: 2 \(mb-\S+-00000001, PENDING\), 3 \(mb-\S+, PENDING\); "
        r"`sky jobs cancel -y 2 3` cancels them",
        capsys.readouterr().err,
    )
    sky.set(2, status="CANCELLED")
    sky.set(3, status="CANCELLING")
    look_while_they_train(tmp_path, [seed(0)])
    assert "cancels them" not in capsys.readouterr().err
    outcomes = [attempts[-1].outcome for attempts in attempts_of(tmp_path / "root").values()]
    assert outcomes == [None, "preempted"]
    # Done by other means than its job: nothing is left to fetch, but the job trains on.
    finish(tmp_path / "root" / seed(0).path)
    assert look(tmp_path, [seed(0)]) == []
    assert "`sky jobs cancel -y 1` cancels them" in capsys.readouterr().err


def test_another_engine_does_not_train_what_a_job_trains(tmp_path: Path, sky: Sky) -> None:
    look_while_they_train(tmp_path, [seed(0)])
    with pytest.raises(UserError, match="seed 0 is under way as job 1 of engine skypilot"):
        run_plan(plan=[seed(0)], root=str(tmp_path / "root"))
    assert not (tmp_path / "root" / seed(0).path).exists()
    assert states(tmp_path) == ["running"]
