"""Seeds of one procedure that a worker trains together: one job, which resumes after a kill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.benchmarks.stress_resume import differing_files, last_logged_step
from multiberts.launch.markers.attempts import attempts_of
from multiberts.launch.plan.graph import Graph
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import run_plan
from multiberts.tests.launch.launchers import Launcher, wait_until

SEEDS = (3, 4, 5)
SCHEDULE = {"num_steps": 60, "checkpoint_steps": [0, 20], "save_state_every_steps": 10}
COMPUTE = {"compute": "jax"}

Arguments = Callable[..., dict[str, Any]]


@pytest.fixture
def plan(arguments: Arguments) -> list[PlannedRun]:
    """Seeds of one procedure."""
    graph = Graph()
    for seed in SEEDS:
        given = arguments(Path(), **SCHEDULE, log_every_steps=1, pretrain_seed=seed)
        del given["run_dir"]
        graph.add("pretrain", f"pretrain base seed {seed}", f"seed_{seed}", given)
    return graph.runs


@pytest.mark.slow
def test_a_worker_trains_all_seeds_and_after_its_death_another_one_does(
    start_launcher: Callable[..., Launcher], plan: list[PlannedRun], tmp_path: Path
) -> None:
    pytest.importorskip("jax", reason="needs JAX: pip install -r requirements-jax.txt")
    launcher = start_launcher(plan, engine_options={**COMPUTE, "seeds_together": 3}, workers=1)
    together = [launcher.root / run.path for run in plan]
    assert wait_until(lambda: min(map(last_logged_step, together)) >= 15)
    launcher.worker_of(plan[0]).kill()
    status, errors = launcher.end()
    assert status == 0, errors

    attempts = attempts_of(launcher.root)
    first, second = ([attempts[run.path][n] for run in plan] for n in (0, 1))
    assert {attempt.outcome for attempt in first} == {"lost"}
    assert {attempt.outcome for attempt in second} == {"done"}
    for of_all in (first, second):
        assert len({(attempt.pid, attempt.log) for attempt in of_all}) == 1
        assert (launcher.root / str(of_all[0].log)).is_file()

    # By default each seed of a processor is a job by itself.
    alone = tmp_path / "alone"
    assert run_plan(plan=plan, root=str(alone), engine_options=COMPUTE, workers=1) == []
    logs = {attempts[0].log for attempts in attempts_of(alone).values()}
    assert len(logs) == len(SEEDS)
    for run in plan:
        assert differing_files(alone / run.path, launcher.root / run.path) == []
