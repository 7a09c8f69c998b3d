"""Do early looks keep the level? How often two equal arms seem to differ while seeds arrive.

    python -m multiberts.benchmarks.early_look_calibration

Makes up studies of two arms that are truly equal, and looks at the seeds so far: after every seed from two by
`stats.early_look`, or at half and at all of them by `stats.sequential_decision`. Prints how often any look
finds a difference, and how often the plain level would.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import numpy as np

from multiberts.benchmarks.made_up_arms import METRIC, World, compared, generators, report_shares
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.stats import early_look, sequential_decision
from multiberts.stats.compare.question import kind_of
from multiberts.stats.recommended import interval_of_difference
from multiberts.stats.settings import ComparisonSettings, Design

WORLDS = (
    World("accuracy .80, seeds alike", 0.80, 0.0),
    World("accuracy .80, seeds vary", 0.80, 0.1),
    World("accuracy .80, seeds vary much", 0.80, 0.3),
)
COLUMNS = ("world", "design", "planned seeds", "every seed", "two looks", "plain .05 at every seed")


def errors(
    world: World, design: Design, planned: int, trials: int, seed: int
) -> tuple[float, float, float]:
    """Returns the shares of studies of equal arms that find a difference, by way of looking."""
    settings = ComparisonSettings(design=design)
    halves = [planned // 2, planned]
    found = np.zeros(3)
    for random in generators(seed, trials, world.name, design, planned):
        base, experiment = world.arms(design, planned, 0.0, random)
        p = {}
        for seeds in range(2, planned + 1):
            spec, sides = compared((base[:seeds], experiment[:seeds]), settings)
            p[seeds] = interval_of_difference(
                sides, spec.crossing, spec.pairs, kind_of(METRIC), "both", 0.95
            )[1].two_sided
        found += (
            any(early_look(value, seeds, planned).is_enough for seeds, value in p.items()),
            sequential_decision([p[seeds] for seeds in halves], halves, planned).shown,
            min(p.values()) <= 0.05,
        )
    every, two, plain = found / trials
    return every, two, plain


def early_look_calibration(*, trials: int = 1000, simulation_seed: int = 0) -> None:
    """Prints the table.

    Args:
      trials: studies per condition.
      simulation_seed: names the data, with the condition and the trial.
    """
    conditions = [
        (world, design, planned)
        for world in WORLDS
        for design in ("paired", "unpaired")
        for planned in (5, 10)
    ]
    records = []
    for world, design, planned in console.ProgressBar(conditions, desc="conditions"):
        shares = errors(world, design, planned, trials, simulation_seed)
        records.append(dict(zip(COLUMNS, (world.name, design, planned, *shares), strict=True)))
    report_shares(records, 3)


if __name__ == "__main__":
    run_command(early_look_calibration)
