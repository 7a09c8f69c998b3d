"""The order of runs: after their parents, together where they share, the longest first."""

from __future__ import annotations

from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.launch.workers.chunks import RunChunk, WaitingRuns


def pretraining(procedure: str, seed: int, steps: int = 10) -> PlannedRun:
    parameters = {"procedure": procedure, "pretrain_seed": seed, "num_steps": steps}
    name = f"pretrain {procedure} seed {seed}"
    return PlannedRun("pretrain", name, parameters, (), name, f"pretrain/{procedure}/{seed}")


def finetuning(parent: PlannedRun, task: str, step: int, seed: int) -> PlannedRun:
    checkpoint = Output(parent, f"checkpoints/step_{step}")
    parameters = {"task": task, "checkpoint": checkpoint, "finetune_seed": seed}
    path = f"finetune/{task}/{parent.path}/{step}-{seed}"
    facts = {name: parent.parameters[name] for name in ("procedure", "pretrain_seed")}
    return PlannedRun("finetune", path, parameters, (parent,), path, path, facts)


def take_all(waiting: WaitingRuns, workers: int = 1) -> list[RunChunk]:
    chunks = []
    while (chunk := waiting.take(workers)) is not None:
        chunks.append(chunk)
    return chunks


def test_runs_start_after_their_parents_and_those_of_a_seed_and_task_together() -> None:
    parents = [pretraining("base", seed) for seed in (0, 1)]
    trials = [
        finetuning(parent, task, step, seed)
        for parent in parents
        for step in (0, 10)
        for task in ("RTE", "CoLA")
        for seed in (0, 1, 2)
    ]
    scores = PlannedRun("score", "scores", {}, tuple(trials), "scores", "scores")
    waiting = WaitingRuns([*parents, *trials, scores], done=[])
    assert [chunk.name for chunk in take_all(waiting)] == [
        "pretrain base seed 0",
        "pretrain base seed 1",
    ]
    waiting.note_done(parents[0])
    chunks = take_all(waiting)
    assert [chunk.name for chunk in chunks] == [
        "finetune RTE base seed 0 (6 runs)",
        "finetune CoLA base seed 0 (6 runs)",
    ]
    # In the order of the plan: each checkpoint is read once.
    assert chunks[0].runs == tuple(
        run for run in trials if run.parents == (parents[0],) and run.parameters["task"] == "RTE"
    )
    waiting.note_done(parents[1])
    assert sum(len(chunk.runs) for chunk in take_all(waiting)) == 12
    for run in trials[:-1]:
        waiting.note_done(run)
    assert waiting.take(1) is None
    waiting.note_done(trials[-1])
    assert take_all(waiting) == [RunChunk("scores", (scores,))]


def test_early_stages_come_first_and_then_the_longest() -> None:
    done = pretraining("done", 0)
    short, long = pretraining("short", 0, steps=10), pretraining("long", 0, steps=99)
    trial = finetuning(done, "RTE", 0, 0)
    other = finetuning(done, "CoLA", 0, 0)
    plan = [done, trial, other, short, long]
    waiting = WaitingRuns(plan, done=[done.path])
    assert [chunk.runs[0] for chunk in take_all(waiting)] == [long, short, trial, other]
    expected = {short.path: 100.0, long.path: 99.0, other.path: 2.0}
    waiting = WaitingRuns(plan, done=[done.path], seconds=expected)
    assert [chunk.runs[0] for chunk in take_all(waiting)] == [short, long, other, trial]


def test_chunks_shrink_towards_the_end_so_that_all_workers_have_their_share() -> None:
    parent = pretraining("base", 0)
    trials = [finetuning(parent, "RTE", 0, seed) for seed in range(20)]
    waiting = WaitingRuns([parent, *trials], done=[parent.path])
    sizes = [len(chunk.runs) for chunk in take_all(waiting, workers=4)]
    assert sizes[0] == 5 and sizes[-1] == 1 and sum(sizes) == 20
    assert sizes == sorted(sizes, reverse=True)
    # A fraction is rounded up: fewer chunks than workers would be too few.
    waiting = WaitingRuns([parent, *trials[:10]], done=[parent.path])
    assert [len(chunk.runs) for chunk in take_all(waiting, workers=4)] == [3, 2, 2, 1, 1, 1]


def test_what_builds_on_a_failed_run_is_given_up_once() -> None:
    first, second = pretraining("base", 0), pretraining("base", 1)
    trials = [finetuning(first, "RTE", 0, 0), finetuning(second, "RTE", 0, 0)]
    scores = PlannedRun("score", "scores", {}, tuple(trials), "scores", "scores")
    waiting = WaitingRuns([first, second, *trials, scores], done=[])
    take_all(waiting)
    assert waiting.give_up_after(first) == [trials[0], scores]
    waiting.note_done(second)
    assert [chunk.runs for chunk in take_all(waiting)] == [(trials[1],)]
    waiting.note_done(trials[1])
    assert waiting.take(1) is None
    assert waiting.give_up_after(trials[1]) == []


def test_what_is_put_back_comes_again() -> None:
    run = pretraining("base", 0)
    waiting = WaitingRuns([run], done=[])
    (chunk,) = take_all(waiting)
    assert waiting.take(1) is None
    waiting.add(chunk.runs)
    assert take_all(waiting) == [chunk]
