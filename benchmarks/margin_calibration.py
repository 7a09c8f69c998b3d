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
import zlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.stats.compare.conclude import Names, sameness
from multiberts.stats.compare.question import ComparisonSpec, PreparedArms, kind_of
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.runs_table import make_arm
from multiberts.stats.settings import ComparisonSettings, Design
from multiberts.stats.variance.plan import estimated_plan, too_few_to_plan

NUM_EXAMPLES = 500
PLANNED = 100  # studies of each condition that are planned, too
COLUMNS = (
    "worse by the margin: not worse", "worse by the margin: same", "equal: not worse", "as planned",
    "equal: same",
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """Studies of two arms: 0/1 answers by a probit of seed, example and noise.

    Attributes:
      name: in the table.
      accuracy: of the base.
      spread: standard deviation of seeds, on the probit's scale, where noise has 1.
      margin: in points.
    """

    name: str
    accuracy: float
    spread: float
    margin: float

    def arms(
        self, design: Design, num_seeds: int, difference: float, random: np.random.Generator
    ) -> list[NDArray]:
        """Returns the answers of both arms [seeds, examples]; paired seeds share half of their variance."""
        examples, noise = random.normal(size=NUM_EXAMPLES), (num_seeds, NUM_EXAMPLES)
        common = random.normal(size=(num_seeds, 1)) if design == "paired" else 0.0
        root = math.sqrt(0.5) if design == "paired" else 1.0
        arms = []
        for accuracy in (self.accuracy, self.accuracy + difference):
            centre = ndtri(accuracy) * math.sqrt(2 + self.spread**2)
            seeds = root * random.normal(size=(num_seeds, 1)) + root * common
            limit = centre + examples + self.spread * seeds
            arms.append((random.normal(size=noise) < limit).astype(float))
        return arms


WORLDS = (
    World("accuracy .80, seeds alike", 0.80, 0.0, 3.0),
    World("accuracy .80, seeds vary", 0.80, 0.1, 5.0),
    World("accuracy .98", 0.98, 0.1, 1.0),
)


def claims(
    world: World, design: Design, num_seeds: int, difference: float, trials: int, seed: int
) -> tuple[float, float, float]:
    """Returns the shares of studies that claim "not worse" and "same", and the planned power of the first."""
    settings = ComparisonSettings(design=design, margin=world.margin)
    metric, labels = METRICS["accuracy"], np.ones(NUM_EXAMPLES)
    not_worse = same = 0
    planned = []
    for trial in range(trials):
        words = [seed, zlib.crc32(f"{world.name}{design}{num_seeds}{difference}".encode()), trial]
        tables = world.arms(design, num_seeds, difference, np.random.default_rng(words))
        arms = [make_arm("", table, labels, list(range(num_seeds))) for table in tables]
        spec = ComparisonSpec(PreparedArms(tuple(arms), metric), settings, "")
        sides = spec.summaries(np.zeros((1, 2)), Names(), settings)
        found = sameness(sides, spec.crossing, kind_of(metric), settings)
        not_worse, same = not_worse + found.not_worse, same + found.same
        parts = spec.crossing.variance_parts()
        if difference == 0 and trial < PLANNED and not too_few_to_plan(parts):
            plan = estimated_plan(parts, num_seeds, NUM_EXAMPLES, "paired", 0.05, 0.0)
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
                records.append(
                    {
                        "world": world.name,
                        "margin": f"{world.margin:g}",
                        "design": design,
                        "seeds": num_seeds,
                    }
                    | dict(zip(COLUMNS, shares, strict=True))
                )
    formats = dict.fromkeys(COLUMNS, ".3f")
    console.report(Table.from_records(records, formats).markdown())


if __name__ == "__main__":
    run_command(margin_calibration)
