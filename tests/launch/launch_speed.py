"""How much time does the launcher itself take, at the size of a study?

    python -m multiberts.tests.launch.launch_speed

Plans 10,000 runs, shows their status from markers; carries out 4,000 runs that do nothing but write their
output and DONE, through two workers; then looks at them again, as the same command does when all
is done. Each in a temporary folder.

Targets: planning and status 5 s each, the 4,000 runs 2 minutes, the second look 2 s.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multiberts.launch.markers.attempts import begin_attempt, end_attempt
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import run_plan
from multiberts.launch.status.command import show_status
from multiberts.launch.status.page import render_status_page
from multiberts.launch.status.plan_report import show_plan
from multiberts.launch.status.snapshot import collect_status
from multiberts.runs.console import report
from multiberts.runs.directory import RunDirectory
from multiberts.runs.files import write_atomically

SECONDS_TO_PLAN = 5.0
SECONDS_TO_SHOW = 5.0
SECONDS_TO_RUN = 120.0
SECONDS_TO_LOOK = 2.0

MODEL = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 1,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


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
        plan, seconds = _timed(_plan_and_show, Path(scratch), given.planned)
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
    report(f"{'':34}{'seconds':>9}{'target':>9}")
    for what, seconds, target in rows:
        report(f"{what:34}{seconds:9.2f}{target:9.0f}{'' if seconds <= target else '  missed'}")
    sys.exit(any(seconds > target for _, seconds, target in rows))


def _timed(function: Any, *arguments: Any, **named: Any) -> tuple[Any, float]:
    started = time.monotonic()
    return function(*arguments, **named), time.monotonic() - started


def _quietly(function: Any, **named: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return function(**named)


def _plan_and_show(folder: Path, size: int) -> list[PlannedRun]:
    """Plans an experiment of about so many runs, and prints it."""
    text = folder / "text.txt"
    text.write_text("One sentence.\nAnother one.\n")
    data = folder / "RTE"
    data.mkdir()
    for split in ("train", "dev"):
        (data / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n")
    pretrain_seeds, steps, rates = 25, [0, 10, 20, 30], [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]
    finetune_seeds = max(1, round(size / (pretrain_seeds * len(steps) * len(rates))))
    plan = make_plan(
        Experiment(
            corpora={"base": {"sources": [str(text)], "source_format": "sentences"}},
            procedures={
                "base": {"model": MODEL, "num_steps": steps[-1], "checkpoint_steps": steps[:-1]}
            },
            pretrain_seeds=range(pretrain_seeds),
            tasks={"RTE": {"data_dir": str(data)}},
            learning_rates=rates,
            finetune_seeds=range(finetune_seeds),
        )
    )
    _quietly(show_plan, plan=plan, root=folder / "root")
    return plan


def _mark(plan: list[PlannedRun], root: Path) -> None:
    """Leaves the markers of an experiment of which half is done, and every tenth run has failed."""
    write_plan(root, plan)
    for number, run in enumerate(_finetuned_last(plan)):
        attempt = begin_attempt(root, run.path, engine="local", device="cpu", log="logs/one.log")
        if number % 10 == 9:
            error = {"kind": "ValueError", "message": "ValueError: not a number"}
            end_attempt(root, attempt, "failed", error)
        elif number < len(plan) / 2:
            (root / run.path).mkdir(parents=True)
            (root / run.path / "DONE").write_text("{}")
            end_attempt(root, attempt, "done")


def _finetuned_last(plan: list[PlannedRun]) -> Iterator[PlannedRun]:
    yield from (run for run in plan if run.stage != "finetune")
    yield from (run for run in plan if run.stage == "finetune")


def _no_ops(count: int) -> list[PlannedRun]:
    stage = f"{_module()}:no_op"
    return [
        PlannedRun(stage, f"no_op {number}", {"number": number}, (), str(number), f"no_op/{number}")
        for number in range(count)
    ]


def _module() -> str:
    """This module as the workers import it, for whom it is not the main one."""
    return "multiberts.tests.launch.launch_speed"


if __name__ == "__main__":
    main()
