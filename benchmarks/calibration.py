"""Do 95 % intervals cover 95 %, and do tests err as often as they say?

    make calibrate DATA=folder

Simulates the conditions of `benchmarks.crossed_model` with 2 to 25 seeds, and counts for every
interval and test of `stats.compare`, and for the intervals of other programs, how often it is right.
Finished blocks of trials are kept, so that a run that was killed resumes where it was; results do not
depend on the number of processes. Written to `results/calibration/`: `calibration.jsonl` (all counts),
and `calibration.md` with its appendix and figures, which are made from it (`benchmarks.calibration_page`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small, processes many

import json
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from multiberts.benchmarks.calibration_page import CLOSE, Outcomes, appendix, figures, held, page
from multiberts.benchmarks.calibration_trials import Outcome, joined, simulate
from multiberts.benchmarks.crossed_model import Condition, RealAnswers, all_conditions
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import save_figure
from multiberts.runs.files import write_atomically

BLOCK = 100
# Predictions of ten fine-tuning seeds of BERT (Zhou et al. 2020), in the folder of published data.
REAL_ANSWERS = "multiseed/instability_bert_base_10seeds.npz"

Job = tuple[Condition, range, int]  # with the number of replicates


def calibrate(
    *,
    run_dir: str = "results/calibration",
    simulation_seed: int = 2023,
    num_trials: int = 400,
    num_ordinary_trials: int = 4000,
    num_close_trials: int = 1200,
    num_open_trials: int = 10_000,
    num_bootstrap_trials: int = 100,
    n_resamples: int = 500,
    num_processes: int = 1,
    data: str = "",
) -> None:
    """Simulates every block of trials that is not there yet, then writes counts, page and figures.

    Args:
      run_dir: where to write.
      simulation_seed: names data and draws, with the condition and the trial.
      num_trials: trials per condition.
      num_ordinary_trials: trials of an ordinary condition.
      num_close_trials: trials of a condition where the recommended interval covers less than .95,
        which separates misses by chance from real ones.
      num_open_trials: trials of a condition where that is still open: below what is wanted, but by
        less than two Monte Carlo errors. Among hundreds of conditions some are so by chance.
      num_bootstrap_trials: of these, trials with bootstrap intervals and all tests; the others count
        what needs no bootstrap and takes little time.
      n_resamples: replicates per trial.
      num_processes: blocks in hand at a time; changes no number.
      data: the folder of published data, of which `REAL_ANSWERS` is read; without it the conditions
        of real answers are left out.

    Raises:
      UserError: a number is too small, the file of real answers is missing or lacks a table, or
        `run_dir` holds another study.
    """
    from tqdm import tqdm

    for name, value in (
        ("num_trials", num_trials),
        ("num_ordinary_trials", num_ordinary_trials),
        ("num_close_trials", num_close_trials),
        ("num_open_trials", num_open_trials),
        ("num_bootstrap_trials", num_bootstrap_trials),
        ("n_resamples", n_resamples),
    ):
        if value < 2:
            raise UserError(f"found {name} {value}, expected at least 2; correct the parameter")
    if num_processes < 1 or simulation_seed < 0:
        raise UserError(
            f"found num_processes {num_processes} and simulation_seed {simulation_seed}, expected "
            "at least 1 and at least 0; correct the parameters"
        )
    if data:
        real_answers(data)
    run = RunDirectory(
        run_dir,
        stage="calibrate",
        parameters={
            "simulation_seed": simulation_seed,
            "num_trials": num_trials,
            "num_ordinary_trials": num_ordinary_trials,
            "num_close_trials": num_close_trials,
            "num_open_trials": num_open_trials,
            "num_bootstrap_trials": num_bootstrap_trials,
            "n_resamples": n_resamples,
            "data": data,
        },
    )
    if run.done:
        console.report(f"{run_dir} is finished")
        return
    conditions = all_conditions(bool(data))
    job = partial(simulate_and_keep, run.path, simulation_seed, data)
    with run:
        # Every condition's first block, then every second one: what is there is always balanced.
        jobs = [
            (c, block, n_resamples if block[0] < num_bootstrap_trials else 0)
            for block in _blocks(0, num_bootstrap_trials)
            + _blocks(num_bootstrap_trials, num_trials)
            for c in conditions
        ]
        jobs += [
            (c, block, 0)
            for block in _blocks(num_trials, num_ordinary_trials)
            for c in conditions
            if c.ordinary
        ]
        with tqdm(total=len(jobs), unit="block", disable=None) as bar:
            for _ in _in_processes(job, jobs, num_processes):
                bar.update()
            for first, last, needed in (
                (num_trials, num_close_trials, lambda found: found.share() < CLOSE),
                (num_close_trials, num_open_trials, lambda found: held(found) == "no?"),
                (num_ordinary_trials, num_open_trials, lambda found: held(found) == "no?"),
            ):
                # Only these trials: a run that was killed may have left more.
                found = gathered(run.path, conditions, first)
                more = [
                    c for c, counts in found.items() if counts.trials == first and needed(counts)
                ]
                jobs = [(c, block, 0) for block in _blocks(first, last) for c in more]
                bar.total += len(jobs)
                for _ in _in_processes(job, jobs, num_processes):
                    bar.update()
        outcomes = gathered(run.path, conditions)
        write_atomically(run.path / "calibration.jsonl", as_lines(outcomes))
        written = write_page(outcomes, run.path)
        kept = [str(path.relative_to(run.path)) for path in (run.path / "blocks").glob("*.json")]
        run.finish(["calibration.jsonl", *written, *sorted(kept)])
    console.report(f"See {run.path / 'calibration.md'}")


def _blocks(first: int, last: int) -> list[range]:
    """Cuts trials into blocks."""
    return [range(start, min(start + BLOCK, last)) for start in range(first, last, BLOCK)]


def _in_processes(job: partial[None], jobs: Sequence[Job], number: int) -> Iterator:
    if number == 1 or not jobs:
        yield from map(job, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(number) as pool:
        yield from pool.imap_unordered(job, jobs)


def simulate_and_keep(directory: Path, simulation_seed: int, data: str, task: Job) -> None:
    """Simulates a block of trials, unless it is there, and writes it whole or not at all."""
    condition, trials, n_resamples = task
    file = directory / "blocks" / f"{condition.name}-{trials[0]}.json"
    if not file.exists():
        real = real_answers(data) if data else None
        outcome = simulate(condition, simulation_seed, trials, n_resamples, real)
        write_atomically(file, json.dumps(asdict(outcome), indent=1) + "\n")


@lru_cache(maxsize=1)
def real_answers(data: str) -> RealAnswers:
    """Reads which real answers are right, by name: bool [seeds, examples].

    Of HANS only the examples of lexical overlap whose answer is not entailment.

    Args:
      data: the folder of published data.

    Raises:
      UserError: the file or a table is missing.
    """
    file = Path(data) / REAL_ANSWERS
    try:
        with np.load(file) as found:
            entailment = found["label_names"].tolist().index("entailment")
            kinds = found["hans_subcase_names"][found["hans_subcase_id"]]
            overlap = np.char.startswith(kinds, "ln_")
            return {
                "mnli": found["preds_mnli"] == found["gold_mnli"],
                "hans": found["preds_hans"][:, overlap] != entailment,
            }
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{file}: {error}; give the folder of published data, or none to leave real answers out"
        ) from error


def gathered(directory: Path, conditions: Sequence[Condition], most: float = math.inf) -> Outcomes:
    """Reads and adds the blocks of conditions, of the first `most` trials; one without any is left out."""
    found = {}
    for condition in conditions:
        start, blocks = 0, []
        while (
            start < most
            and (file := directory / "blocks" / f"{condition.name}-{start}.json").exists()
        ):
            blocks.append(Outcome(**json.loads(file.read_text())))
            start += blocks[-1].trials
        if blocks:
            found[condition] = joined(blocks)
    return found


def as_lines(outcomes: Outcomes) -> str:
    """Writes one condition and its counts per line, as JSON."""
    lines = []
    for condition, found in outcomes.items():
        content = asdict(found)
        content["length"] = {name: float(f"{x:.4g}") for name, x in found.length.items()}
        content["terms"] = [float(f"{x:.4g}") for x in found.terms]
        content |= asdict(condition)
        lines.append(json.dumps(content, sort_keys=True) + "\n")
    return "".join(lines)


def read_lines(file: Path) -> Outcomes:
    """Reads what `as_lines` wrote."""
    fields = ("metric", "design", "data", "num_seeds")
    found = {}
    for line in file.read_text().splitlines():
        content = json.loads(line)
        condition = Condition(**{name: content.pop(name) for name in fields})
        found[condition] = Outcome(**content)
    return found


def write_page(outcomes: Outcomes, folder: Path) -> list[str]:
    """Writes the page, its appendix and its figures, and returns the names of the files."""
    write_atomically(folder / "calibration.md", page(outcomes))
    write_atomically(folder / "calibration_appendix.md", appendix(outcomes))
    files = [
        file
        for name, figure in figures(outcomes).items()
        for file in save_figure(figure, folder / name)
    ]
    return ["calibration.md", "calibration_appendix.md", *(file.name for file in files)]


if __name__ == "__main__":
    run_command(calibrate)
