"""Made-up scores whose true mean is known: seeds, examples and residuals of chosen weight.

The linear metric has the crossed model X[i, j] = a_i + b_j + e_ij, all normal with mean zero. The
weights are shares of the variance of the mean over R seeds and C examples, so that what dominates
does so at every R. A paired comparison is one such table of differences; an unpaired one has two,
on the same examples, whose seeds, residuals and effects of examples are all independent.

Pearson's correlation is that of labels y and predictions rho_i y + sqrt(1 - rho_i^2) w with
w = sqrt(k) u_j + sqrt(1 - k) v_ij and everything standard normal, so that rho_i is the correlation
of seed i over endlessly many examples, exactly. tanh^-1 rho_i is normal about a centre with a
spread; k is the share of the noise that all seeds have in common.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.arms import Arm, make_arm
from multiberts.stats.bootstrap.conclusion import Design

MetricName = Literal["mean", "pearson"]
Dominant = Literal["seeds", "mostly_seeds", "examples", "residual", "none"]

NUMBERS_OF_SEEDS = (3, 5, 10, 25)
NUM_EXAMPLES = 100
_QUADRATURE_NODES = 80

# Shares of seeds, examples and residuals in the variance of the mean.
SHARES: dict[Dominant, tuple[float, float, float]] = {
    "seeds": (0.99, 0.005, 0.005),
    # A little beside the seeds is harder than nothing: where their spread happens to look small,
    # the degrees of freedom look many.
    "mostly_seeds": (0.9, 0.1, 0.0),
    "examples": (0.005, 0.99, 0.005),
    "residual": (0.005, 0.005, 0.99),
    "none": (1 / 3, 1 / 3, 1 / 3),
}


class Correlations(NamedTuple):
    """How the correlations of seeds are spread, and how much of the noise seeds have in common."""

    centre: float
    spread: float
    common: float


# Labels are an effect of examples in themselves, which grows with the correlation: where the
# residual is to dominate, correlations lie near zero.
CORRELATIONS: dict[Dominant, Correlations] = {
    "seeds": Correlations(0.3, 0.5, 0.0),
    "examples": Correlations(1.1, 0.01, 0.98),
    "residual": Correlations(0.05, 0.01, 0.0),
}


@dataclass(frozen=True)
class Condition:
    """One kind of data that is made again and again.

    Attributes:
      metric: `mean`, of X itself, or `pearson`.
      design: `paired` or `unpaired`, both without a difference in truth, or `single`.
      dominant: what the variance is nearly all made of.
      num_seeds: R, of each side.
    """

    metric: MetricName
    design: Design
    dominant: Dominant
    num_seeds: int

    @property
    def name(self) -> str:
        """The name of the condition's file."""
        return f"{self.metric}-{self.design}-{self.dominant}-{self.num_seeds}"

    @property
    def words(self) -> str:
        """What dominates, for readers."""
        return self.dominant.replace("_", " ")

    @cached_property
    def truth(self) -> float:
        """The expected estimate on endlessly many examples.

        Sides of a comparison are made alike, so that it is zero. Of one side's correlation it is
        the mean of tanh of a normal number, by Gauss-Hermite quadrature (exact to 1e-10). Of C
        examples Pearson's r expects a little less, by rho (1 - rho^2) / (2 C): less than 0.002.
        """
        if self.design != "single" or self.metric == "mean":
            return 0.0
        found = CORRELATIONS[self.dominant]
        nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_NODES)
        return float(weights @ np.tanh(found.centre + found.spread * nodes) / weights.sum())

    def arms(self, simulation_seed: int, trial: int) -> list[Arm]:
        """The sides of one trial: base and experiment, or base alone.

        A function of the two numbers and the condition alone. The base of a paired comparison of
        means is zero, which leaves the experiment's as the table of differences.
        """
        # Of this type from the start: as plain integers, numbers this large would become floats.
        words = [simulation_seed, zlib.crc32(self.name.encode()) << 32 | trial]
        key = np.array(words, dtype=np.uint64)
        random = np.random.Generator(np.random.Philox(key=key))
        seeds = range(self.num_seeds)
        if self.metric == "pearson":
            labels = random.standard_normal(NUM_EXAMPLES)
            sides = 1 if self.design == "single" else 2
            tables = [self._predictions(labels, random) for _ in range(sides)]
        else:
            labels = np.zeros(NUM_EXAMPLES)
            sides = 2 if self.design == "unpaired" else 1
            tables = [self._scores(random) for _ in range(sides)]
            if self.design == "paired":
                tables.insert(0, np.zeros_like(tables[0]))
        names = ("base", "experiment")
        return [
            make_arm(name, table, labels, seeds) for name, table in zip(names, tables, strict=False)
        ]

    def _scores(self, random: np.random.Generator) -> NDArray[np.float64]:
        """A table [R, C] whose mean has variance 1."""
        number = self.num_seeds
        sizes = (number, NUM_EXAMPLES, number * NUM_EXAMPLES)
        shapes = ((number, 1), (1, NUM_EXAMPLES), (number, NUM_EXAMPLES))
        table = np.zeros((number, NUM_EXAMPLES))
        for share, size, shape in zip(SHARES[self.dominant], sizes, shapes, strict=True):
            table += np.sqrt(share * size) * random.standard_normal(shape)
        return table

    def _predictions(
        self, labels: NDArray[np.float64], random: np.random.Generator
    ) -> NDArray[np.float64]:
        """Predictions [R, C] for labels [C]."""
        found = CORRELATIONS[self.dominant]
        normal = random.standard_normal((self.num_seeds, 1))
        correlation = np.tanh(found.centre + found.spread * normal)
        noise = np.sqrt(found.common) * random.standard_normal(NUM_EXAMPLES)
        own = random.standard_normal((self.num_seeds, NUM_EXAMPLES))
        noise = noise + np.sqrt(1 - found.common) * own
        return correlation * labels + np.sqrt(1 - correlation**2) * noise


def all_conditions() -> list[Condition]:
    """Every condition of the study, in the order of its tables."""
    kinds: list[tuple[MetricName, Design, tuple[Dominant, ...]]] = [
        ("mean", "paired", tuple(SHARES)),
        ("mean", "unpaired", tuple(SHARES)),
        ("pearson", "single", tuple(CORRELATIONS)),
        ("pearson", "paired", tuple(CORRELATIONS)),
        ("pearson", "unpaired", tuple(CORRELATIONS)),
    ]
    return [
        Condition(metric, design, dominant, number)
        for metric, design, weights in kinds
        for dominant, number in itertools.product(weights, NUMBERS_OF_SEEDS)
    ]
