"""Runs that vary the seeds of single sources of randomness, crossed or one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

SeedDesign = Literal["crossed", "one_at_a_time"]
PretrainSource = Literal["initialisation_seed", "data_seed", "mask_seed", "dropout_seed"]
FinetuneSource = Literal["head_seed", "order_seed", "dropout_seed"]


def seeds_of_runs(
    sources: Sequence[str], fixed_sources: Sequence[str], seeds: Sequence[int], design: SeedDesign
) -> list[dict[str, int]]:
    """Returns the seeds of each run by source, in the order of the runs.

    Args:
      fixed_sources: sources that have the first seed in every run.
      design: `crossed`: all combinations of seeds. `one_at_a_time`: for each seed a run in which all sources
        have it, and one more run per source in which only that source has a new seed.

    Examples:
      >>> seeds_of_runs(["data_seed", "mask_seed"], ["dropout_seed"], [0, 1], "crossed")[1]
      {'dropout_seed': 0, 'data_seed': 0, 'mask_seed': 1}
      >>> runs = seeds_of_runs(["head_seed", "order_seed"], [], [0, 1], "one_at_a_time")
      >>> [list(run.values()) for run in runs]
      [[0, 0], [2, 0], [0, 2], [1, 1], [3, 1], [1, 3]]
    """
    fixed_seeds = dict.fromkeys([name for name in fixed_sources if name not in sources], seeds[0])
    if design == "crossed":
        rows = itertools.product(seeds, repeat=len(sources))
        return [fixed_seeds | dict(zip(sources, row, strict=True)) for row in rows]
    unused = max(seeds) + 1
    runs = []
    for number, seed in enumerate(seeds):
        same = fixed_seeds | dict.fromkeys(sources, seed)
        runs += [same, *(same | {name: unused + number} for name in sources)]
    return runs
