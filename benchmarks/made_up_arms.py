"""Made-up studies of two arms whose true difference is known, and a simulation's table."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs import console
from multiberts.stats.compare.conclude import Names
from multiberts.stats.compare.question import ArmSummary, ComparisonSpec, PreparedArms
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.runs_table import Arm, make_arm
from multiberts.stats.settings import ComparisonSettings, Design

METRIC = METRICS["accuracy"]


@dataclass(frozen=True)
class World:
    """Studies of two arms: 0/1 answers by a probit of seed, example and noise.

    Attributes:
      name: in the table.
      accuracy: of the base.
      spread: standard deviation of seeds, on the probit's scale, where noise has 1.
      margin: in points; NaN where none is asked for.
      num_examples: in both arms.
      skewed: whether the experiment's own seed effects are exponential, with a tail to bad scores.
      failing: probability that a seed of the experiment answers at chance.
    """

    name: str
    accuracy: float
    spread: float
    margin: float = math.nan
    num_examples: int = 500
    skewed: bool = False
    failing: float = 0.0

    def arms(
        self, design: Design, num_seeds: int, difference: float, random: np.random.Generator
    ) -> list[NDArray]:
        """Returns the answers of both arms [seeds, examples]; paired seeds share half of their variance.

        Accuracies are those to be expected of all seeds, failed ones included.
        """
        examples, noise = random.normal(size=self.num_examples), (num_seeds, self.num_examples)
        common = random.normal(size=(num_seeds, 1)) if design == "paired" else 0.0
        root = math.sqrt(0.5) if design == "paired" else 1.0
        arms = []
        for is_experiment, accuracy in enumerate((self.accuracy, self.accuracy + difference)):
            centre = ndtri(accuracy) * math.sqrt(2 + self.spread**2)
            own = random.normal(size=(num_seeds, 1))
            if is_experiment and self.failing:
                trained = (accuracy - self.failing / 2) / (1 - self.failing)
                centre = ndtri(trained) * math.sqrt(2 + self.spread**2)
            if is_experiment and self.skewed:
                own = 1 - random.standard_exponential((num_seeds, 1))
                centre = self._skewed_centre(accuracy, root)
            limit = centre + examples + self.spread * (root * own + root * common)
            right = random.normal(size=noise) < limit
            if is_experiment and self.failing:
                failed = random.random(num_seeds) < self.failing
                right[failed] = random.random((int(failed.sum()), self.num_examples)) < 0.5
            arms.append(right.astype(float))
        return arms

    def _skewed_centre(self, accuracy: float, root: float) -> float:
        """Returns the centre at which seeds of an exponential law have an accuracy, by quadrature."""
        nodes, weights = np.polynomial.laguerre.laggauss(60)
        rest = math.sqrt(2 + self.spread**2 * (1 - root**2))
        return float(
            brentq(
                lambda centre: (
                    weights @ ndtr((centre + self.spread * root * (1 - nodes)) / rest) - accuracy
                ),
                -10,
                20,
            )
        )


def generators(
    simulation_seed: int, trials: int, *condition: object
) -> Iterator[np.random.Generator]:
    """Yields a generator for each trial, named by the condition."""
    key = zlib.crc32("".join(map(str, condition)).encode())
    for trial in range(trials):
        yield np.random.default_rng([simulation_seed, key, trial])


def arms_of(tables: Sequence[NDArray]) -> list[Arm]:
    """Makes an arm of each table of right answers [seeds, examples], of two equally frequent classes."""
    found = []
    for table in tables:
        labels = np.arange(table.shape[1]) % 2
        predictions = np.where(table == 1, labels, 1 - labels)
        found.append(make_arm("", predictions, labels, list(range(len(table)))))
    return found


def compared(
    tables: Sequence[NDArray], settings: ComparisonSettings
) -> tuple[ComparisonSpec, list[ArmSummary]]:
    """Returns the comparison of two tables of right answers, and each arm's summary."""
    spec = ComparisonSpec(PreparedArms(tuple(arms_of(tables)), METRIC), settings, "")
    return spec, spec.summaries(np.zeros((1, 2)), Names(), settings)


def report_shares(records: list[dict[str, Any]], num_conditions: int, **formats: str) -> None:
    """Prints a row per condition.

    Args:
      records: cells by column.
      num_conditions: columns that say which condition it is; the others have shares.
      formats: of columns without shares.
    """
    shares = dict.fromkeys([*records[0]][num_conditions:], ".3f")
    console.report(Table.from_records(records, shares | formats).markdown())
