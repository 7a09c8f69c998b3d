"""What is left of a plan: from figures at first, from what its runs took as soon as they tell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.estimate.estimate import estimate_plan, refuse_above
from multiberts.launch.estimate.prices import load_prices
from multiberts.launch.markers.attempts import begin_attempt, end_attempt
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import mark_done, small_plan


def release(**changes: Any) -> list[PlannedRun]:
    """One seed of BERT base, as the release was trained but with bfloat16, and nothing else."""
    arguments: dict[str, Any] = {
        "corpora": {"text": {"sources": ["wikipedia"], "source_format": "tfds"}},
        "procedures": {"base": {"model": {}, "num_steps": 2_000_000, "compute_dtype": "bfloat16"}},
        "pretrain_seeds": [0],
        "tasks": {},
    }
    return make_plan(Experiment(**{**arguments, **changes}))


def of_stage(plan: Sequence[PlannedRun], stage: str) -> list[PlannedRun]:
    return [run for run in plan if run.stage == stage]


def log(root: Path, run: PlannedRun, lines: Sequence[Mapping[str, float]]) -> None:
    (root / run.path).mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    # The last line is being written.
    (root / run.path / "metrics.jsonl").write_text(text + '{"step": 99')


@pytest.mark.parametrize(
    ("device", "hours", "dollars"),
    [
        *(("v2-8", 432, 1944), ("v4-8", 118, 1525), ("v5litepod-4", 115, 553)),
        *(("v5litepod-8", 58, 553), ("v6e-8", 31, 664)),
    ],
)
def test_a_seed_of_the_release(tmp_path: Path, device: str, hours: float, dollars: float) -> None:
    estimate = estimate_plan(plan=release(), root=tmp_path, device=device)
    assert estimate.device_hours == pytest.approx(hours, abs=0.6)
    assert estimate.dollars == pytest.approx(dollars, rel=0.01)
    assert estimate.least_seconds == pytest.approx(estimate.device_hours * 3600)


def test_products_of_float32_take_a_gpu_twice_as_long(tmp_path: Path) -> None:
    procedures = {"base": {"model": {}, "num_steps": 2_000_000, "compute_dtype": "float32"}}
    half = estimate_plan(plan=release(), root=tmp_path, device="H200")
    full = estimate_plan(plan=release(procedures=procedures), root=tmp_path, device="H200")
    assert half.device_hours == pytest.approx(108, abs=0.6)
    assert full.device_hours == pytest.approx(2 * half.device_hours, rel=0.01)


def test_seeds_go_on_side_by_side_and_spot_capacity_costs_less(tmp_path: Path) -> None:
    plan = release(pretrain_seeds=range(5))
    one, three, many = (
        estimate_plan(plan=plan, root=tmp_path, device="v4-8", workers=workers)
        for workers in (1, 3, 100)
    )
    seed = estimate_plan(plan=release(), root=tmp_path, device="v4-8").least_seconds
    assert one.least_seconds == pytest.approx(5 * seed, rel=1e-3)
    assert three.least_seconds == pytest.approx(5 / 3 * seed, rel=1e-3)
    assert many.least_seconds == many.longest_chain == pytest.approx(seed, rel=1e-3)
    assert one.device_hours == three.device_hours == many.device_hours
    assert one.dollars == many.dollars
    # Spot capacity costs less, and takes as long.
    spot = estimate_plan(plan=plan, root=tmp_path, device="v4-8", spot=True)
    assert spot.dollars == pytest.approx(load_prices().spot_share.value * one.dollars)
    assert spot.device_hours == one.device_hours


def test_done_runs_cost_nothing_more(tmp_path: Path) -> None:
    plan = small_plan()
    before = estimate_plan(plan=plan, root=tmp_path)
    assert set(before.runs) == {run.path for run in plan}
    mark_done(tmp_path, *plan[:-1])
    after = estimate_plan(plan=plan, root=tmp_path)
    assert set(after.runs) == {plan[-1].path}
    mark_done(tmp_path, plan[-1])
    done = estimate_plan(plan=plan, root=tmp_path)
    assert (done.runs, done.device_hours, done.least_seconds, done.bytes) == ({}, 0, 0, 0)


def test_a_running_seed_tells_how_long_all_seeds_take(tmp_path: Path) -> None:
    plan = small_plan()
    first, second = of_stage(plan, "pretrain")
    rates = [{"step": step, "steps_per_second": 4.0} for step in (200, 300, 400)]
    log(tmp_path, first, [{"step": 100, "steps_per_second": 0.1}, *rates])
    estimate = estimate_plan(plan=plan, root=tmp_path)
    # 600 of 1,000 steps are left of it, and the line that holds the compilation does not count.
    assert estimate.runs[first.path].seconds == pytest.approx(600 / 4)
    assert estimate.runs[second.path].seconds == pytest.approx(1000 / 4)
    assert estimate.runs[first.path].measured and estimate.runs[second.path].measured
    assert not estimate.runs[of_stage(plan, "finetune")[0].path].measured


def test_another_shape_is_not_measured_by_it(tmp_path: Path) -> None:
    plan = small_plan()
    log(tmp_path, of_stage(plan, "pretrain")[0], [{"step": 1, "steps_per_second": 1e-6}])
    procedures = {"base": {**release()[1].parameters, "batch_size": 4, "model": {}}}
    for name in ("corpus", "pretrain_seed", "initial_checkpoint"):
        procedures["base"].pop(name)
    other = small_plan(procedures=procedures)
    estimate = estimate_plan(plan=other, root=tmp_path)
    assert not any(run.measured for run in estimate.runs.values())


def test_times_of_one_device_say_nothing_of_another(tmp_path: Path) -> None:
    plan = small_plan()
    run = of_stage(plan, "pretrain")[0]
    log(tmp_path, run, [{"step": 500, "steps_per_second": 4.0}])
    begin_attempt(tmp_path, run.path, engine="skypilot", device="v4-8")

    def is_measured(device: str | None) -> bool:
        return estimate_plan(plan=plan, root=tmp_path, device=device).runs[run.path].measured

    assert is_measured(None) and is_measured("v4-8")
    assert not is_measured("v6e-8") and not is_measured("cpu")
    # What is left is known all the same.
    half = estimate_plan(plan=plan, root=tmp_path, device="cpu").runs[run.path]
    whole = estimate_plan(plan=plan, root=tmp_path / "empty", device="cpu").runs[run.path]
    start = load_prices().stages["seconds_to_start"].value
    assert half.seconds - start == pytest.approx((whole.seconds - start) / 2)


def test_attempts_and_examples_of_fine_tuning_tell(tmp_path: Path) -> None:
    plan = small_plan()
    runs = of_stage(plan, "finetune")
    attempt = begin_attempt(tmp_path, runs[0].path, engine="local", device="cpu")
    end_attempt(tmp_path, attempt, "done", ended=attempt.started + 42)
    mark_done(tmp_path, runs[0])
    told = {"num_train_examples": 10, "evaluation_sets": {"dev": {"examples": 5}}}
    (tmp_path / runs[0].path / "run.json").write_text(json.dumps(told))
    estimate = estimate_plan(plan=plan, root=tmp_path)
    assert estimate.runs[runs[1].path].seconds == pytest.approx(42)
    # On another device the number of examples still holds: 10 instead of the world's 600.
    on_h100 = estimate_plan(plan=plan, root=tmp_path, device="H100").runs[runs[1].path]
    assert not on_h100.measured and on_h100.bytes == 5 * 120


def test_a_plan_above_its_budget_is_refused(tmp_path: Path) -> None:
    seed = estimate_plan(plan=release(), root=tmp_path, device="v4-8")
    with pytest.raises(UserError, match=r"1,525\.\d\d dollars .*budget of 1,000\.00") as refusal:
        refuse_above(seed, 1000)
    assert "\n" not in str(refusal.value)
    refuse_above(seed, 1530)
    assert sum(run.dollars for run in seed.runs.values()) == pytest.approx(1525, abs=1)
    assert {run.device for run in seed.runs.values()} == {"v4-8", "cpu"}
    # A machine of your own costs nothing more.
    refuse_above(estimate_plan(plan=small_plan(), root=tmp_path, device="cpu"), 0)


def test_what_is_not_known_is_named(tmp_path: Path) -> None:
    estimate = estimate_plan(plan=release(), root=tmp_path, device="v4-8")
    (prepare,) = of_stage(release(), "prepare")
    assert estimate.runs[prepare.path].assumed == ("wikipedia has 2 MB",)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("")
    tasks = {"mine": {"data_dir": str(tmp_path), "labels": ["a", "b"]}}
    plan = small_plan(tasks=tasks)
    estimate = estimate_plan(plan=plan, root=tmp_path)
    assert estimate.runs[of_stage(plan, "finetune")[0].path].assumed == ("mine has 5,000 examples",)


def test_the_least_time_is_that_of_the_longest_chain_or_of_all_workers_together(
    tmp_path: Path,
) -> None:
    def run_of(name: str, *parents: PlannedRun) -> PlannedRun:
        return PlannedRun("somewhere:function", name, {}, parents, name, name)

    def least(plan: Sequence[PlannedRun], workers: int) -> float:
        return estimate_plan(plan=plan, root=tmp_path, device="cpu", workers=workers).least_seconds

    each = load_prices().stages["seconds_to_start"].value
    first = run_of("first")
    between = [run_of(f"between {number}", first) for number in range(4)]
    plan = [first, *between, run_of("last", *between)]
    assert least(plan, 1) == 6 * each
    assert least(plan, 2) == least(plan, 100) == 3 * each
    # What is done takes no time, also in a chain.
    mark_done(tmp_path, first)
    assert (least(plan, 1), least(plan, 2)) == (5 * each, 2.5 * each)
    assert least(plan, 100) == 2 * each
