"""Fisher's exact test of every example by itself: is the larger size worse, or better, on it?

The comparison in Zhong et al. (2021) to the bound of `stats.instances.instance_level`, which pools examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.instances.ensembles import refuse_fractions
from multiberts.stats.instances.instance_level import Direction
from multiberts.stats.instances.nested_runs import Runs, aligned

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FisherTests:
    """One-sided Fisher exact tests, one an example.

    Attributes:
      p_values: [examples].
      adjusted: after Benjamini and Hochberg [examples].
      level: the false discovery rate that was asked for.
      direction: decay or improvement.
    """

    p_values: Array
    adjusted: Array
    level: float
    direction: Direction

    @property
    def discovered(self) -> NDArray[np.bool_]:
        return self.adjusted <= self.level

    @property
    def num_discoveries(self) -> int:
        return int(self.discovered.sum())

    @property
    def share(self) -> float:
        """Discovered share of the examples, less the share of false ones that the level allows."""
        return self.num_discoveries * (1 - self.level) / len(self.p_values)


def fisher_tests(
    small: Runs, large: Runs, direction: Direction = "decay", level: float = 0.05
) -> FisherTests:
    """Fisher's exact test of every example by itself, with Benjamini and Hochberg's correction.

    The comparison in the paper: with 10 seeds a side few examples can pass it, where the bound
    pools all of them. The tables of right and wrong seeds are few, so each is tested once.

    Args:
      small, large: one 0/1 run a pre-training seed; `ensemble` further runs first.
      direction: decay tests whether the larger size is worse; improvement, whether it is better.
      level: the false discovery rate.

    Raises:
      DataError: several runs a seed, or scores other than 0 and 1.
    """
    from scipy.stats import hypergeom

    from multiberts.stats.bootstrap.corrections import adjusted_p_values

    sides = aligned(small, large)
    for runs in sides:
        refuse_fractions(runs.scores)
        if len(runs.seeds) != len(runs.keys):
            raise DataError(
                f"found {len(runs.keys)} runs of {len(runs.seeds)} pre-training seeds, which are "
                "not independent; give stats.instances.ensembles.ensemble of them"
            )
    right = [runs.scores.sum(axis=0, dtype=np.int64) for runs in sides]  # [examples] each
    few, many = (len(runs.keys) for runs in sides)
    # Given all right answers, those of the side that is better by hypothesis.
    better, size = (right[0], few) if direction == "decay" else (right[1], many)
    tables, place = np.unique(np.stack([right[0] + right[1], better]), axis=1, return_inverse=True)
    tails = hypergeom.sf(tables[1] - 1, few + many, tables[0], size)
    p_values = np.minimum(tails, 1.0)[place.ravel()]
    adjusted = np.asarray(adjusted_p_values(p_values, "bh"), dtype=np.float64)
    return FisherTests(p_values, adjusted, level, direction)
