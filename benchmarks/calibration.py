"""Do 95 % intervals cover 95 %, and do tests err as often as they say?

    make calibrate

Simulates the conditions of `benchmarks.crossed_model` with 3, 5, 10 and 25 seeds and 100 examples,
and counts for every interval and test of `stats.compare` how often it is right. Finished conditions
are kept, so that a run that was killed resumes where it was; results do not depend on the number of
processes. Written to `results/calibration/`: `calibration.csv` (everything in full),
`calibration.md` (tables and verdict) and a figure.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small, processes many

import json
import math
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.benchmarks.calibration_trials import (
    INTERVALS,
    LEVELS,
    TESTS,
    Outcome,
    monte_carlo_error,
    simulate,
)
from multiberts.benchmarks.crossed_model import (
    CORRELATIONS,
    NUM_EXAMPLES,
    NUMBERS_OF_SEEDS,
    Condition,
    Dominant,
    MetricName,
    all_conditions,
)
from multiberts.runs import console
from multiberts.runs.command import run_command
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas, save_figure
from multiberts.runs.files import write_atomically
from multiberts.stats.presentation.table_writer import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Outcomes = Mapping[Condition, Outcome]

# What the recommended interval is held to, and from how many seeds on to the whole of it.
TARGET = (0.93, 0.97)
TARGET_SEEDS = 5
# When seeds dominate, by R: coverage of the percentile interval and type I error of the published
# one-sided p at .05 and at .01, as they are known, of about this many trials.
KNOWN = {
    3: (0.749, 0.172, 0.113),
    5: (0.846, 0.123, 0.077),
    10: (0.904, 0.086, 0.033),
    25: (0.933, 0.048, 0.017),
}
KNOWN_TRIALS = 1000
_KNOWN_CONDITIONS = {number: Condition("mean", "paired", "seeds", number) for number in KNOWN}
_LABELS = {
    "t": "t",
    "percentile": "percentile",
    "basic": "basic",
    "bca": "BCa",
    "studentised": "studentised",
}
_TEST_LABELS = {
    "t": "t",
    "percentile": "(k+1)/(B+1)",
    "published": "k/B",
    "sign_flip": "sign flip",
    "permutation": "permutation",
}
_METRICS: dict[MetricName, str] = {"mean": "Mean", "pearson": "Pearson"}
_DOMINANT: dict[Dominant, str] = {
    "seeds": "seeds dominate",
    "examples": "examples dominate",
    "residual": "residual dominates",
}
_SEED_TESTS = (
    "Sign flips and permutations ask about new seeds on these very examples. Where examples "
    "dominate they find a difference there that new examples would not have, and with few seeds "
    "the smallest p they can give lies above the level.",
)


def calibrate(
    *,
    run_dir: str = "results/calibration",
    simulation_seed: int = 2023,
    num_trials: int = 2000,
    num_known_trials: int = 10_000,
    num_bootstrap: int = 1000,
    num_processes: int = 1,
) -> None:
    """Simulates every condition that is not there yet, then writes tables and figure.

    Args:
      run_dir: where to write.
      simulation_seed: names data and draws, with the condition and the trial.
      num_trials: trials a condition.
      num_known_trials: trials of the conditions with known figures (see `KNOWN`).
      num_bootstrap: replicates a trial.
      num_processes: conditions in hand at a time; changes no number.

    Raises:
      UserError: a number is not positive, or the folder holds another study.
    """
    from tqdm import tqdm

    for name, value in (
        ("num_trials", num_trials),
        ("num_known_trials", num_known_trials),
        ("num_bootstrap", num_bootstrap),
    ):
        if value < 2:
            raise UserError(f"found {name} {value}, expected at least 2; correct the parameter")
    if num_processes < 1 or simulation_seed < 0:
        raise UserError(
            f"found num_processes {num_processes} and simulation_seed {simulation_seed}, expected "
            "at least 1 and at least 0; correct the parameters"
        )
    run = RunDirectory(
        run_dir,
        stage="calibrate",
        parameters={
            "simulation_seed": simulation_seed,
            "num_trials": num_trials,
            "num_known_trials": num_known_trials,
            "num_bootstrap": num_bootstrap,
        },
    )
    if run.done:
        console.report(f"{run_dir} is finished")
        return
    conditions = all_conditions()
    with run:
        missing = [c for c in conditions if not _file_of(run.path, c).exists()]
        jobs = [
            (c, num_known_trials if c in _KNOWN_CONDITIONS.values() else num_trials)
            for c in missing
        ]
        job = partial(simulate_and_keep, run.path, simulation_seed, num_bootstrap)
        bar = tqdm(
            total=len(conditions), initial=len(conditions) - len(missing), unit="condition",
            disable=None,
        )  # fmt: skip
        for _ in _in_processes(job, jobs, num_processes):
            bar.update()
        bar.close()
        outcomes = {c: read_outcome(_file_of(run.path, c)) for c in conditions}
        text = report(outcomes, num_bootstrap)
        write_atomically(run.path / "calibration.md", text)
        write_atomically(run.path / "calibration.csv", full_table(outcomes).csv())
        figures = save_figure(coverage_figure(outcomes), run.path / "calibration")
        kept = [str(_file_of(run.path, c).relative_to(run.path)) for c in conditions]
        run.finish(["calibration.md", "calibration.csv", *(f.name for f in figures), *kept])
    console.report(f"See {run.path / 'calibration.md'}")


def _in_processes(
    job: partial[None], jobs: Sequence[tuple[Condition, int]], number: int
) -> Iterator:
    if number == 1 or not jobs:
        yield from map(job, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(number) as pool:
        yield from pool.imap_unordered(job, jobs)


def _file_of(directory: Path, condition: Condition) -> Path:
    return directory / "conditions" / f"{condition.name}.json"


def simulate_and_keep(
    directory: Path, simulation_seed: int, num_bootstrap: int, task: tuple[Condition, int]
) -> None:
    """Simulates a condition for a number of trials and writes its outcome, whole or not at all."""
    condition, num_trials = task
    outcome = simulate(condition, simulation_seed, num_trials, num_bootstrap)
    write_atomically(_file_of(directory, condition), json.dumps(asdict(outcome), indent=1) + "\n")


def read_outcome(path: Path) -> Outcome:
    """Reads the counts of a condition."""
    content = json.loads(path.read_text())
    return Outcome(**{**content, "shares": tuple(content["shares"])})


# --- What is written ----------------------------------------------------------------------------


def full_table(outcomes: Outcomes) -> Table:
    """One row a condition and interval, or condition, test, sides and level."""
    columns = (
        "metric", "design", "dominant", "seeds", "share of seeds", "share of examples",
        "share of residual", "trials", "what", "method", "sides", "nominal", "share", "error",
        "median length",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for condition, found in outcomes.items():
        head: list[Cell] = [
            condition.metric, condition.design, condition.dominant, condition.num_seeds,
            *found.shares, found.trials,
        ]  # fmt: skip
        for name, count in found.covered.items():
            error = monte_carlo_error(count, found.trials)
            share, length = count / found.trials, found.median_length[name]
            rows.append([*head, "coverage", name, "two-sided", 0.95, share, error, length])
        for test, counts in found.rejected.items():
            for key, count in counts.items():
                sides, level = key.split()
                error = monte_carlo_error(count, found.trials)
                share = count / found.trials
                rows.append([*head, "type I error", test, sides, float(level), share, error, None])
    return Table(columns, rows)


def _with_error(count: int, trials: int) -> str:
    return f"{count / trials:.3f} ± {monte_carlo_error(count, trials):.3f}"


def coverage_table(outcomes: Outcomes, metric: str) -> Table:
    """Coverage of the intervals of a metric, a row each condition."""
    columns = (
        "design", "dominates", "seeds", "shares (%)", *(_LABELS[name] for name in INTERVALS),
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [
            condition.design,
            condition.words,
            str(condition.num_seeds),
            " / ".join(f"{100 * share:.1f}" for share in found.shares),
            *(_with_error(found.covered[name], found.trials) for name in INTERVALS),
        ]
        for condition, found in outcomes.items()
        if condition.metric == metric
    ]
    return Table(columns, rows)


def error_table(outcomes: Outcomes, metric: str, sides: str) -> Table:
    """Type I error of the tests of a metric, a row each condition."""
    columns = [f"{_TEST_LABELS[test]} at {level}" for test in TESTS for level in LEVELS]
    rows: list[list[Cell]] = []
    for condition, found in outcomes.items():
        if condition.metric != metric or not found.rejected:
            continue
        cells: list[Cell] = []
        for test in TESTS:
            for level in LEVELS:
                counts = found.rejected.get(test)
                cell = None if counts is None else counts[f"{sides} {level}"]
                cells.append(None if cell is None else _with_error(cell, found.trials))
        rows.append(
            [
                condition.design,
                condition.words,
                str(condition.num_seeds),
                *cells,
            ]
        )
    return Table(["design", "dominates", "seeds", *columns], rows)


def outside_target(outcomes: Outcomes) -> list[tuple[Condition, float, float]]:
    """Conditions where the t interval's coverage misses the target, with coverage and its error.

    Never below the lower end; below the upper end too from 5 seeds on, unless the residual
    dominates, where the interval is known to be wide.
    """
    found = []
    for condition, outcome in outcomes.items():
        share = outcome.covered["t"] / outcome.trials
        both = condition.num_seeds >= TARGET_SEEDS and condition.dominant != "residual"
        if share < TARGET[0] or (both and share > TARGET[1]):
            error = monte_carlo_error(outcome.covered["t"], outcome.trials)
            found.append((condition, share, error))
    return found


def above_level(outcomes: Outcomes) -> list[tuple[Condition, str, float, float]]:
    """Where the t test's type I error is above its level by more than three Monte Carlo errors."""
    found = []
    for condition, outcome in outcomes.items():
        for key, count in outcome.rejected.get("t", {}).items():
            level = float(key.split()[1])
            share, error = count / outcome.trials, math.sqrt(level * (1 - level) / outcome.trials)
            if share > level + 3 * error:
                found.append((condition, key, share, error))
    return found


def known_table(outcomes: Outcomes) -> Table:
    """What is known of few seeds that dominate, beside what was found; z is their distance in
    standard errors of both.
    """
    columns = ("seeds", "what", "known", "found", "z")
    rows: list[list[Cell]] = []
    for number, condition in _KNOWN_CONDITIONS.items():
        found = outcomes[condition]
        counts = (
            ("coverage, percentile", found.covered["percentile"]),
            *((f"k/B, one-sided at {level}", found.rejected["published"][f"one-sided {level}"])
              for level in LEVELS),
        )  # fmt: skip
        for (what, count), known in zip(counts, KNOWN[number], strict=True):
            error = math.sqrt(known * (1 - known) * (1 / found.trials + 1 / KNOWN_TRIALS))
            distance = (count / found.trials - known) / error
            rows.append(
                [str(number), what, known, _with_error(count, found.trials), f"{distance:+.1f}"]
            )
    return Table(columns, rows, {"known": ".3f"})


def report(outcomes: Outcomes, num_bootstrap: int) -> str:
    """The Markdown page."""
    trials = [found.trials for found in outcomes.values()]
    low, high = TARGET
    misses = [
        f"- {condition.metric}, {condition.design}, {condition.words}, {condition.num_seeds} seeds"
        f": {share:.3f} ± {error:.3f}"
        for condition, share, error in outside_target(outcomes)
    ] or ["None."]
    excesses = [
        f"- {condition.metric}, {condition.design}, {condition.words}, {condition.num_seeds} seeds"
        f", {key}: {share:.4f} ± {error:.4f}"
        for condition, key, share, error in above_level(outcomes)
    ] or ["None."]
    lines = [
        "# Calibration of intervals and tests",
        "",
        "Made by `make calibrate`; the conditions are defined in `benchmarks/crossed_model.py`.",
        f"Every condition is {min(trials)} trials ({max(trials)} of paired means where seeds dominate, "
        f"whose figures are known) of {NUM_EXAMPLES} examples and {num_bootstrap} bootstrap "
        "replicates. After ± stands the Monte Carlo error (one standard error).",
        "`mean` is the linear metric, on normal seeds, examples and residuals; `pearson` is "
        "Pearson's correlation. Paired and unpaired comparisons have no difference in truth; a "
        "`single` one is the correlation of one side. Shares are those of seeds / examples / "
        "residual in the variance of the estimate.",
        "",
        "![Coverage against the number of seeds](calibration.png)",
        "",
        "## The recommended interval and test (Satterthwaite's t)",
        "",
        f"Its coverage is to be within [{low:.2f}, {high:.2f}] from {TARGET_SEEDS} seeds on where "
        f"the residual does not dominate, and nowhere below {low:.2f}. Misses:",
        "",
        *misses,
        "",
        "Type I error of its p above the level by more than three Monte Carlo errors:",
        "",
        *excesses,
        "",
        "## What is known of few seeds that dominate",
        "",
        f"z is the distance in standard errors, the known figures taken as {KNOWN_TRIALS} trials.",
        "",
        known_table(outcomes).markdown(),
    ]
    for metric in _METRICS:
        lines += [f"## Coverage of 95 % intervals: {metric}", ""]
        lines += [coverage_table(outcomes, metric).markdown()]
    for metric in _METRICS:
        for sides in ("one-sided", "two-sided"):
            lines += [f"## Type I error, {sides}: {metric}", "", *_SEED_TESTS, ""]
            lines += [error_table(outcomes, metric, sides).markdown()]
    return "\n".join(lines)


def coverage_figure(outcomes: Outcomes) -> Figure:
    """Coverage against R by interval, of paired comparisons; a column for what dominates, a row for
    each metric.
    """
    options = {"sharex": True, "sharey": True}
    with canvas(8.0, 4.9, len(CORRELATIONS), len(_METRICS), **options) as (figure, panels):
        for row, (metric, metric_label) in zip(panels, _METRICS.items(), strict=True):
            for axes, dominant in zip(row, CORRELATIONS, strict=True):
                found = [
                    outcomes[Condition(metric, "paired", dominant, number)]
                    for number in NUMBERS_OF_SEEDS
                ]
                _draw_coverage(axes, found)
                axes.set_title(f"{metric_label}: {_DOMINANT[dominant]}")
            row[0].set_ylabel("coverage of 95 % intervals")
        for axes in panels[-1]:
            axes.set_xticks(range(len(NUMBERS_OF_SEEDS)), [str(n) for n in NUMBERS_OF_SEEDS])
            axes.set_xlabel("seeds")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=len(INTERVALS) + 1)
    return figure


def _draw_coverage(axes: Axes, found: Sequence[Outcome]) -> None:
    """One panel, with bars of two Monte Carlo errors."""
    axes.axhspan(*TARGET, color=GREY, alpha=0.15, linewidth=0, label="target")
    axes.axhline(0.95, color=GREY, linewidth=0.8)
    for index, name in enumerate(INTERVALS):
        places = [place + 0.08 * (index - 2) for place in range(len(found))]
        shares = [outcome.covered[name] / outcome.trials for outcome in found]
        errors = [monte_carlo_error(o.covered[name], o.trials) for o in found]
        axes.errorbar(
            places, shares, yerr=[2 * error for error in errors], capsize=2,
            color=COLOURS[index], marker=MARKERS[index], linestyle=LINES[index],
            linewidth=1.4, markersize=5, label=_LABELS[name],
        )  # fmt: skip


if __name__ == "__main__":
    run_command(calibrate)
