"""The plan as people see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from multiberts.launch.status.plan_report import folders_text, show_plan, size
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import mark_done, small_plan

pytestmark = pytest.mark.seconds


def test_runs_are_listed_by_folder_and_those_of_several_are_one_line(tmp_path: Path) -> None:
    plan = small_plan(finetune_seeds=range(1000))
    tuned = [run.path for run in plan if run.stage == "finetune"]
    lines = folders_text(plan, tmp_path, {plan[0].path, *tuned[:3]}).splitlines()
    assert lines[0] == f"{tmp_path}: {len(plan)} runs, 4 done" and len(lines) < 12
    assert f"  {plan[0].path}  (done)" in lines and f"  {plan[-1].path}" in lines
    assert "  finetune/facts/: 2000 runs, 3 done" in lines


def test_the_plan_begins_with_an_estimate_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(plan=small_plan(), root=tmp_path / "root", device="v4-8", budget=1000)
    shown = capsys.readouterr().out
    assert "on 1 x v4-8 (TPU v4) at 12.88 dollars per hour" in shown
    for stage, runs in (("prepare", 1), ("pretrain", 2), ("finetune", 6), ("evaluate", 1)):
        row = next(line.split() for line in shown.splitlines() if line.split()[:1] == [stage])
        assert row[1:3] == [str(runs), "0"] and row[-1] == "assumed"
    assert "assumed: 12.88 dollars per hour; " in shown
    assert "32.9% of the peak" in shown
    lines = shown.splitlines()
    assert "of disk" in lines[1] and lines[2].startswith("  at least ")
    assert f"{tmp_path / 'root'}: {len(small_plan())} runs, 0 done" in lines
    assert not (tmp_path / "root").exists()


def test_measured_times_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = small_plan()
    mark_done(tmp_path, plan[0])
    run = next(run for run in plan if run.stage == "pretrain")
    (tmp_path / run.path).mkdir(parents=True)
    (tmp_path / run.path / "metrics.jsonl").write_text('{"step": 1, "steps_per_second": 1.0}\n')
    show_plan(plan=plan, root=tmp_path)
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["pretrain"].endswith("measured") and rows["finetune"].endswith("assumed")
    assert rows["world"].split() == ["world", "1", "1", "0.000", "0.00", "done"]
    # Two seeds, of which one step is done, at a step a second.
    assert float(rows["pretrain"].split()[3]) == pytest.approx(1999 / 3600, abs=1e-3)


def test_a_finished_plan_has_nothing_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = small_plan()
    mark_done(tmp_path, *plan)
    show_plan(plan=plan, root=tmp_path, budget=0)
    assert capsys.readouterr().out.startswith("nothing is left to do\n")


def test_a_budget_is_kept_after_the_plan_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"budget of 0\.00 dollars"):
        show_plan(plan=small_plan(), root=tmp_path, device="v4-8", budget=0.001)
    assert "estimate of what is left" in capsys.readouterr().out


def test_a_disk_that_is_too_small_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = {"hidden_size": 2**14, "num_attention_heads": 128, "intermediate_size": 2**16}
    procedures = {"base": {"model": model, "num_steps": 10**8, "checkpoint_steps": range(10**4)}}
    show_plan(plan=small_plan(procedures=procedures, tasks={}), root=tmp_path, device="v4-8")
    # Ten thousand checkpoints of 159 GB, twice.
    assert "3.18e+03 TB of disk, MORE" in capsys.readouterr().out


def test_sizes_in_words() -> None:
    assert [size(n) for n in (12, 440.4e6, 72.7e9, 5e15)] == [
        "12 bytes", "440 MB", "72.7 GB", "5e+03 TB",
    ]  # fmt: skip
