"""Does an interval of arms with one seed cover, where their spread of seeds is borrowed, right or wrong?

    python -m multiberts.benchmarks.one_seed_calibration

Makes up studies of two arms that are truly equal: one seed against one, and one against five. The spread is
that of other seeds on a set of their own, as it is, half of it, or twice. Prints how often the interval holds
0, and its mean width over that of the standard normal interval with the true standard error.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from multiberts.benchmarks.made_up_arms import METRIC, World, compared, generators, report_shares
from multiberts.runs.command_line.command import run_command
from multiberts.stats import SeedSpread
from multiberts.stats.compare.question import kind_of
from multiberts.stats.recommended import interval_of_difference
from multiberts.stats.settings import ComparisonSettings

WORLDS = (
    World("accuracy .80, seeds alike", 0.80, 0.0),
    World("accuracy .80, seeds vary", 0.80, 0.1),
    World("accuracy .80, seeds vary much", 0.80, 0.3),
    World("accuracy .98", 0.98, 0.1),
)
FACTORS = {"true": 1.0, "half": 0.5, "twice": 2.0}


def spread_of(table: NDArray, factor: float) -> SeedSpread:
    """Returns `factor` times the spread of answers [seeds, examples], in points."""
    own = max(table.mean(axis=1).std(ddof=1), 1e-6)
    return SeedSpread(100 * factor * own, len(table) - 1, "")


def intervals(
    world: World, source: int, factor: float, num_seeds: int, trials: int, simulation_seed: int
) -> NDArray:
    """Returns the differences and the intervals' ends [trials, 3]; the spread is that of `source` seeds."""
    found = []
    # The words that named the data of the table in docs/statistics.md.
    named = f"Source(num_seeds={source}, noise=False)"
    for random in generators(simulation_seed, trials, world.name, named, num_seeds):
        base, experiment = world.arms("unpaired", num_seeds, 0.0, random)
        other = world.arms("unpaired", source, 0.0, random)[0]
        settings = ComparisonSettings(design="unpaired", seed_sd=spread_of(other, factor))
        spec, sides = compared((base[:1], experiment), settings)
        ends, _ = interval_of_difference(
            sides, spec.crossing, spec.pairs, kind_of(METRIC), "both", 0.95
        )
        found.append((sides[1].estimate - sides[0].estimate, *ends))
    return np.array(found)


def one_seed_calibration(*, trials: int = 1000, simulation_seed: int = 0) -> None:
    """Prints the table.

    Args:
      trials: studies per condition.
      simulation_seed: names the data, with the condition and the trial.
    """
    records = []
    for world in WORLDS:
        for num_seeds in (1, 5):
            for source in (5, 25):
                row: dict = {
                    "world": world.name,
                    "seeds": f"1 against {num_seeds}",
                    "source": f"{source} seeds",
                }
                for name, factor in FACTORS.items():
                    table = intervals(world, source, factor, num_seeds, trials, simulation_seed)
                    row[name] = ((table[:, 1] <= 0) & (table[:, 2] >= 0)).mean()
                    if name == "true":
                        ideal = 2 * float(ndtri(0.975)) * table[:, 0].std()
                        width = (table[:, 2] - table[:, 1]).mean() / ideal
                row["width"] = width
                records.append(row)
    report_shares(records, 3, width=".2f")


if __name__ == "__main__":
    run_command(one_seed_calibration)
