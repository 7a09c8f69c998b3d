"""Does a margin keep its level, and find arms that are equal as often as its plan says?

    python -m multiberts.benchmarks.margin_calibration

Makes up studies of two arms whose true difference is known: minus the margin, where the claim "not worse by
the margin" is just false, and 0, where it is true. Prints how often either claim is made, and at 0 the
power that the plan of such a study promises (its median over studies).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import math
from dataclasses import replace

import numpy as np

from multiberts.benchmarks.made_up_arms import METRIC, World, compared, generators, report_shares
from multiberts.runs.command_line.command import run_command
from multiberts.stats.compare.conclude import sameness
from multiberts.stats.compare.question import kind_of
from multiberts.stats.settings import ComparisonSettings, Design
from multiberts.stats.variance.plan import estimated_plan, too_few_to_plan

PLANNED = 100  # studies of each condition that are planned, too
COLUMNS = (
    "world", "margin", "design", "seeds", "worse by the margin: not worse", "worse by the margin: same",
    "equal: not worse", "as planned", "equal: same",
)  # fmt: skip


WORLDS = (
    World("accuracy .80, seeds alike", 0.80, 0.0, 3.0),
    World("accuracy .80, seeds vary", 0.80, 0.1, 5.0),
    World("accuracy .98", 0.98, 0.1, 1.0),
    World("seeds with a tail to bad scores", 0.80, 0.4, 5.0, skewed=True),
    World("one seed in ten fails", 0.85, 0.1, 5.0, failing=0.1),
)


def claims(
    world: World, design: Design, num_seeds: int, difference: float, trials: int, seed: int
) -> tuple[float, float, float]:
    """Returns the shares of studies that claim "not worse" and "same", and the planned power of the first."""
    settings = ComparisonSettings(design=design, margin=world.margin)
    not_worse = same = 0
    planned = []
    randoms = generators(seed, trials, world.name, design, num_seeds, difference)
    for trial, random in enumerate(randoms):
        spec, sides = compared(world.arms(design, num_seeds, difference, random), settings)
        found = sameness(sides, spec.crossing, spec.pairs, kind_of(METRIC), settings)
        not_worse, same = not_worse + found.not_worse, same + found.same
        parts = spec.crossing.variance_parts()
        if difference == 0 and trial < PLANNED and not too_few_to_plan(parts):
            plan = estimated_plan(parts, num_seeds, world.num_examples, "paired", 0.05, 0.0)
            planned.append(replace(plan, design=design, sides=1).power(found.margin))
    return not_worse / trials, same / trials, float(np.median(planned)) if planned else math.nan


def margin_calibration(*, trials: int = 1000, simulation_seed: int = 0) -> None:
    """Prints the table.

    Args:
      trials: studies per condition.
      simulation_seed: names the data, with the condition and the trial.
    """
    records = []
    for world in WORLDS:
        for design in ("paired", "unpaired"):
            for num_seeds in (3, 5, 10):
                false, both_false, _ = claims(
                    world, design, num_seeds, -world.margin / 100, trials, simulation_seed
                )
                power, both, planned = claims(
                    world, design, num_seeds, 0.0, trials, simulation_seed
                )
                shares = (false, both_false, power, planned, both)
                condition = (world.name, f"{world.margin:g}", design, num_seeds)
                records.append(dict(zip(COLUMNS, (*condition, *shares), strict=True)))
    report_shares(records, 4)


if __name__ == "__main__":
    run_command(margin_calibration)
