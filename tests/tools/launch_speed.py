"""How much time does the launcher itself take, at the size of a study?

    python -m multiberts.tests.tools.launch_speed

Plans 10,000 runs, shows their status from markers; carries out 4,000 runs that do nothing but write their
output and DONE, through two workers; then looks at them again, as the same command does when all
is done. Each in a temporary folder.

Then it counts calls of the file system, which are what costs on a network, for 28,000 runs (25 seeds, 28
checkpoints, 8 tasks, 5 learning rates), half of them done, every second of these at the second attempt: of
`launch run` until its first chunk, of one drawing of its bar with 50 workers, and of `launch status`.

Targets: planning and status 5 s each, the 4,000 runs 2 minutes, the second look 2 s; 60,000 calls of a start,
200 of a drawing, 40,000 and 4 s of CPU of the status.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from multiberts.launch.markers.attempts import begin_attempt, end_attempt, make_journal
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import run_plan
from multiberts.launch.status.command import show_status
from multiberts.launch.status.page import render_status_page
from multiberts.launch.status.plan_report import show_plan
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.workers.launcher import Outcomes, show_progress
from multiberts.runs.console import report
from multiberts.runs.directory import RunDirectory
from multiberts.runs.files import write_atomically
from multiberts.runs.preemption import PreemptedError, ask_to_stop, preemption_notice
from multiberts.tests.launch.launchers import MODEL
from multiberts.tests.tools.counted_calls import counted_calls

SECONDS_TO_PLAN = 5.0
SECONDS_TO_SHOW = 5.0
SECONDS_TO_RUN = 120.0
SECONDS_TO_LOOK = 2.0

CALLS_TO_START = 60_000
CALLS_TO_DRAW = 200
CALLS_TO_SHOW = 40_000
CPU_SECONDS_TO_SHOW = 4.0

RATES = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
# Of a chunk, where 28 checkpoints are fine-tuned at 5 rates.
RUNS_OF_A_BUNDLE = 140
WORKERS = 50


def no_op(*, run_dir: str, number: int) -> None:
    """A stage that does nothing but what every stage does around its work."""
    run = RunDirectory(run_dir, stage="no_op", parameters={"number": number})
    if run.done:
        return
    with run:
        write_atomically(run.path / "number", f"{number}\n")
        run.finish(["number"])


def main() -> None:
    """Prints the table; the exit status is 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--planned", type=int, default=10_000)
    parser.add_argument("--carried_out", type=int, default=4_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        # Of 25 seeds, 4 checkpoints, and one task.
        seeds = range(max(1, round(given.planned / (25 * 4 * len(RATES)))))
        plan, seconds = _timed(_plan_and_show, Path(scratch), 4, ("RTE",), seeds)
        rows.append((f"plan of {len(plan)} runs", seconds, SECONDS_TO_PLAN))
        _mark(plan, Path(scratch))
        _, seconds = _timed(_quietly, show_status, root=scratch)
        rows.append((f"status of {len(plan)} runs", seconds, SECONDS_TO_SHOW))
        _, seconds = _timed(lambda: render_status_page(collect_status(scratch)))
        rows.append((f"status page of {len(plan)} runs", seconds, SECONDS_TO_SHOW))
    with tempfile.TemporaryDirectory() as scratch:
        plan = _no_ops(given.carried_out)
        settings: dict[str, Any] = {"plan": plan, "root": scratch, "workers": given.workers}
        failures, seconds = _timed(_quietly, run_plan, **settings)
        assert not failures and all(run.done(scratch) for run in plan)
        rows.append((f"{len(plan)} runs, {given.workers} workers", seconds, SECONDS_TO_RUN))
        _, seconds = _timed(_quietly, run_plan, **settings)
        rows.append(("the same again, all done", seconds, SECONDS_TO_LOOK))
    with tempfile.TemporaryDirectory() as scratch:
        counts, seconds = _count(Path(scratch))
    rows.append(("status of 28,000 runs, CPU", seconds, CPU_SECONDS_TO_SHOW))
    for unit, table, decimals in (("seconds", rows, 2), ("calls", counts, 0)):
        report(f"{'':34}{unit:>9}{'target':>9}")
        for what, number, target in table:
            missed = "" if number <= target else "  missed"
            report(f"{what:34}{number:9,.{decimals}f}{target:9,.0f}{missed}")
    sys.exit(any(number > target for _, number, target in (*rows, *counts)))


def _count(folder: Path) -> tuple[list[tuple[str, float, float]], float]:
    """Returns calls of the file system with targets, and the CPU seconds of status, for 28,000 runs."""
    root = folder / "root"
    tasks = ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
    plan = _plan_and_show(folder, 28, tasks, range(1))
    _mark_half(plan, root)
    rows: list[tuple[str, float, float]] = []
    # The launcher is asked to stop before, and heeds it when all is read.
    with preemption_notice(), counted_calls() as calls, contextlib.suppress(PreemptedError):
        ask_to_stop()
        _quietly(run_plan, plan=plan, root=str(root), workers=WORKERS)
    rows.append((f"start of {len(plan)} runs", calls.total(), CALLS_TO_START))
    known = Outcomes(plan, root, 3, is_local=True)
    jobs = []
    for number in range(2 * WORKERS):
        chunk = known.waiting.take(WORKERS)
        assert chunk is not None
        journal = make_journal(root, f"launch-a-{number}.jsonl")
        jobs.append((chunk, journal))
        if number < WORKERS:
            begin_attempt(root, chunk.runs[0].path, engine="local", journal=journal)
    with tqdm(total=len(plan), file=io.StringIO()) as bar:
        show_progress(bar, known, jobs, WORKERS)
        with counted_calls() as calls:
            show_progress(bar, known, jobs, WORKERS)
    rows.append((f"drawing with {WORKERS} workers", calls.total(), CALLS_TO_DRAW))
    before = time.process_time()
    with counted_calls() as calls:
        _quietly(show_status, root=root)
    seconds = time.process_time() - before
    rows.append((f"status of {len(plan)} runs", calls.total(), CALLS_TO_SHOW))
    return rows, seconds


def _timed(function: Any, *arguments: Any, **named: Any) -> tuple[Any, float]:
    started = time.monotonic()
    return function(*arguments, **named), time.monotonic() - started


def _quietly(function: Any, **named: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return function(**named)


def _plan_and_show(
    folder: Path, checkpoints: int, tasks: Sequence[str], finetune_seeds: Sequence[int]
) -> list[PlannedRun]:
    """Plans an experiment of 25 seeds, and prints it."""
    text = folder / "text.txt"
    text.write_text("One sentence.\nAnother one.\n")
    for task in tasks:
        (folder / task).mkdir()
        for split in ("train", "dev", "dev_matched", "dev_mismatched"):
            table = folder / task / f"{split}.tsv"
            table.write_text("index\tsentence1\tsentence2\tlabel\n")
    steps = range(0, 10 * checkpoints, 10)
    plan = make_plan(
        Experiment(
            corpora={"base": {"sources": [str(text)], "source_format": "sentences"}},
            procedures={
                "base": {"model": MODEL, "num_steps": steps[-1], "checkpoint_steps": steps[:-1]}
            },
            pretrain_seeds=range(25),
            tasks={task: {"data_dir": str(folder / task)} for task in tasks},
            learning_rates=RATES,
            finetune_seeds=finetune_seeds,
        )
    )
    _quietly(show_plan, plan=plan, root=folder / "root")
    return plan


def _mark(plan: list[PlannedRun], root: Path) -> None:
    """Leaves the markers of an experiment of which half is done, and every tenth run has failed."""
    write_plan(root, plan)
    for number, run in enumerate(_finetuned_last(plan)):
        journal = make_journal(root, f"launch-made-up-{number // RUNS_OF_A_BUNDLE}.jsonl")
        where = {"device": "cpu", "log": "logs/one.log", "journal": journal}
        attempt = begin_attempt(root, run.path, engine="local", **where)
        if number % 10 == 9:
            error = {"kind": "ValueError", "message": "ValueError: not a number"}
            end_attempt(root, attempt, "failed", error)
        elif number < len(plan) / 2:
            _finish(run, root)
            end_attempt(root, attempt, "done")


def _mark_half(plan: list[PlannedRun], root: Path) -> None:
    """Leaves the markers of an experiment of which half is done, every second run at its second attempt."""
    write_plan(root, plan)
    for number, run in enumerate(itertools.islice(_finetuned_last(plan), len(plan) // 2)):
        journal = make_journal(root, f"launch-made-up-{number // RUNS_OF_A_BUNDLE}.jsonl")
        outcomes = ("lost", "done") if number % 2 else ("done",)
        for attempt, outcome in enumerate(outcomes, start=1):
            where = {"attempt": attempt, "device": "cpu", "log": "logs/a.log", "journal": journal}
            end_attempt(root, begin_attempt(root, run.path, engine="local", **where), outcome)
        _finish(run, root)


def _finish(run: PlannedRun, root: Path) -> None:
    (root / run.path).mkdir(parents=True)
    (root / run.path / "DONE").write_text("{}")
    (root / run.path / "run.json").write_text('{"evaluation_sets": {"dev": {"examples": 1}}}')


def _finetuned_last(plan: list[PlannedRun]) -> Iterator[PlannedRun]:
    yield from (run for run in plan if run.stage != "finetune")
    yield from (run for run in plan if run.stage == "finetune")


def _no_ops(count: int) -> list[PlannedRun]:
    stage = "launch_speed:no_op"  # as a user's module: code of the project itself is not identified
    return [
        PlannedRun(stage, f"no_op {number}", {"number": number}, (), str(number), f"no_op/{number}")
        for number in range(count)
    ]


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    main()
