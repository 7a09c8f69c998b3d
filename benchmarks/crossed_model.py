"""Made-up scores whose true mean is known.

`mean`: the crossed model X[i, j] = a_i + b_j + e_ij with mean zero. The weights are shares of the
variance of the mean over R seeds and C examples, so that what dominates does so at every R. A paired
comparison is one such table of differences; an unpaired one has two, on the same examples, whose
seeds, residuals and effects of examples are all independent.

`accuracy`: an answer is right where c + s_i + b_j + e_ij > 0, all normal. Sides of a paired comparison
have half of the variance of s in common, and all sides four fifths of that of b.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from multiberts.stats.runs_table import Arm, make_arm

Array = NDArray[np.float64]
MetricName = Literal["mean", "accuracy"]
TrialDesign = Literal["single", "paired", "unpaired"]

NUM_EXAMPLES = 100
ACCURACY = 0.8

# Shares of seeds, examples and residuals in the variance of the mean, all normal.
SHARES: dict[str, tuple[float, float, float]] = {
    "seeds": (0.99, 0.005, 0.005),
    "residual": (0.005, 0.005, 0.99),
    "none": (1 / 3, 1 / 3, 1 / 3),
}
# Standard deviations of the seeds, where those of examples and residual are 1.
SPREADS = {"binary": 0.1, "wide_seeds": 0.4}


@dataclass(frozen=True)
class Condition:
    """One kind of data that is made again and again.

    Attributes:
      metric: `mean`, of X itself, or `accuracy`.
      design: `paired` or `unpaired`, without a difference in truth, or `single`.
      data: what the variance is nearly all made of, or how much seeds vary.
      num_seeds: R, of each side.
    """

    metric: MetricName
    design: TrialDesign
    data: str
    num_seeds: int

    @property
    def name(self) -> str:
        """The name of the condition's files."""
        return f"{self.metric}-{self.design}-{self.data}-{self.num_seeds}"

    @property
    def words(self) -> str:
        """The kind of data, for readers."""
        words = {
            "seeds": "normal, seeds dominate",
            "residual": "normal, residual dominates",
            "none": "normal, shares equal",
        }
        return words.get(self.data, self.data.replace("_", " "))

    def truth(self) -> float:
        """Returns the expected estimate; sides of a comparison are made alike."""
        return ACCURACY if (self.metric, self.design) == ("accuracy", "single") else 0.0

    def arms(self, simulation_seed: int, trial: int) -> list[Arm]:
        """Returns the sides of one trial: base and experiment, or base alone.

        The base of a paired comparison of means is zero, which leaves the experiment's as the table
        of differences.

        Args:
          simulation_seed: names the study.
          trial: its number.
        """
        # uint64 from the start: as plain integers, numbers this large would become floats.
        words = [simulation_seed, zlib.crc32(self.name.encode()) << 32 | trial]
        random = np.random.Generator(np.random.Philox(key=np.array(words, dtype=np.uint64)))
        names = ("base",) if self.design == "single" else ("base", "experiment")
        if self.metric == "accuracy":
            return self._answering_arms(names, random)
        tables = [self._scores(random) for _ in range(2 if self.design == "unpaired" else 1)]
        if self.design == "paired":
            tables.insert(0, np.zeros_like(tables[0]))
        labels, seeds = np.zeros(NUM_EXAMPLES), range(self.num_seeds)
        return [
            make_arm(name, table, labels, seeds) for name, table in zip(names, tables, strict=True)
        ]

    def _scores(self, random: np.random.Generator) -> Array:
        """Returns a table [R, C] whose mean has variance 1."""
        number = self.num_seeds
        sizes = (number, NUM_EXAMPLES, number * NUM_EXAMPLES)
        shapes = ((number, 1), (1, NUM_EXAMPLES), (number, NUM_EXAMPLES))
        table = np.zeros((number, NUM_EXAMPLES))
        for share, size, shape in zip(SHARES[self.data], sizes, shapes, strict=True):
            table += np.sqrt(share * size) * random.standard_normal(shape)
        return table

    def _answering_arms(self, names: tuple[str, ...], random: np.random.Generator) -> list[Arm]:
        spread, number, size = SPREADS[self.data], self.num_seeds, NUM_EXAMPLES
        labels = (random.random(size) < 0.5).astype(np.int64)
        of_examples = _two_normals(random, size)
        of_seeds = random.standard_normal(number)
        arms = []
        for name in names:
            seeds = random.standard_normal(number)
            if self.design == "paired":
                seeds = np.sqrt(0.5) * of_seeds + np.sqrt(0.5) * seeds
            examples = np.sqrt(0.8) * of_examples + np.sqrt(0.2) * _two_normals(random, size)
            centre = float(ndtri(ACCURACY) * np.sqrt(2 + spread**2))
            latent = centre + spread * seeds[:, None] + examples
            right = latent + random.standard_normal(latent.shape) > 0
            arms.append(make_arm(name, np.where(right, labels, 1 - labels), labels, range(number)))
        return arms


def _two_normals(random: np.random.Generator, size: int) -> Array:
    """Draws effects as the committed counts of rivals did, which drew as many more for clusters."""
    effects = random.standard_normal(size)
    random.standard_normal(size)
    return effects
