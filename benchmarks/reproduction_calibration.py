"""Calibration of `stats.reproduce`: is a number that did come from such runs in its interval?

    python -m multiberts.benchmarks.reproduction_calibration

Makes up runs, and published numbers of five more runs of the same law on the same examples: their mean,
best and median. With one run the spread is borrowed, as it is, half of it, or twice.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: tables are small

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.benchmarks.made_up_arms import World, generators, report_shares
from multiberts.benchmarks.one_seed_calibration import FACTORS
from multiberts.benchmarks.one_seed_calibration import WORLDS as ORDINARY
from multiberts.runs.command_line.command import run_command
from multiberts.stats import reproduce

WORLDS = (
    *ORDINARY,
    World("seeds with a tail to bad scores", 0.80, 0.4, skewed=True),
    World("one seed in ten fails", 0.85, 0.1, failing=0.1),
)
KINDS: dict[str, Callable[[NDArray], Any]] = {"mean": np.mean, "best": np.max, "median": np.median}
PUBLISHED = 5


def held(
    world: World, num_seeds: int, source: int, factor: float, trials: int, simulation_seed: int
) -> dict[str, float]:
    """Returns, by what is published, the share of intervals that hold it.

    Args:
      world: of the answers.
      num_seeds: runs.
      source: other seeds whose spread is borrowed; 0 for none.
      factor: of that spread.
      trials: how many.
      simulation_seed: names the data.
    """
    counts = dict.fromkeys(KINDS, 0)
    for random in generators(simulation_seed, trials, world.name, num_seeds, source):
        arms = world.arms("unpaired", num_seeds + PUBLISHED + source, 0.0, random)
        table = arms[world.skewed or world.failing > 0]
        runs, published, others = np.split(table, [num_seeds, num_seeds + PUBLISHED])
        borrowed = None
        if source:
            spread = max(others.mean(axis=1).std(ddof=1), 1e-6)
            borrowed = f"{factor * spread:.9f}/{source - 1}"
        elif np.ptp(runs.mean(axis=1)) == 0:
            runs[0, 0] = 1 - runs[0, 0]  # reproduce refuses seeds with equal scores
        for kind, function in KINDS.items():
            number = float(function(published.mean(axis=1)))
            found = reproduce(runs, published=number, of=f"{kind}:{PUBLISHED}", seed_sd=borrowed)
            counts[kind] += found.ci.low <= number <= found.ci.high
    return {kind: count / trials for kind, count in counts.items()}


def reproduction_calibration(*, trials: int = 1000, simulation_seed: int = 0) -> None:
    """Prints the table.

    Args:
      trials: studies per condition.
      simulation_seed: names the data, with the condition and the trial.
    """
    records: list[dict] = []
    for world in WORLDS:
        cases = [(number, 0, "own") for number in (3, 5, 10)]
        if world == ORDINARY[1]:
            cases += [(1, source, name) for source in (5, 25) for name in FACTORS]
        for number, source, name in cases:
            shares = held(world, number, source, FACTORS.get(name, 1.0), trials, simulation_seed)
            spread = f"{name}, of {source} seeds" if source else name
            records.append({"world": world.name, "runs": number, "spread": spread} | shares)
    report_shares(records, 3)


if __name__ == "__main__":
    run_command(reproduction_calibration)
