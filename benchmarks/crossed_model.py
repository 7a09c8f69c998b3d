"""Made-up scores whose true mean is known, and real answers drawn again from what seeds gave.

`mean`: the crossed model X[i, j] = a_i + b_j + e_ij with mean zero. The weights are shares of the
variance of the mean over R seeds and C examples, so that what dominates does so at every R. A paired
comparison is one such table of differences; an unpaired one has two, on the same examples, whose
seeds, residuals and effects of examples are all independent.

`pearson`: the correlation of labels y and predictions rho_i y + sqrt(1 - rho_i^2) w with
w = sqrt(k) u_j + sqrt(1 - k) v_ij and everything standard normal, so that rho_i is the correlation
of seed i over endlessly many examples, exactly. tanh^-1 rho_i is normal about a centre with a
spread; k is the share of the noise that all seeds have in common.

`accuracy`, `recall` and `f1`: an answer is right where c + s_i + b_j + e_ij > 0, all normal. Sides of a
paired comparison have half of the variance of s in common (unless said otherwise), and all sides four
fifths of that of b. *unlabelled* are the zeros and ones themselves, as scores without labels.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.runs_table import Arm, clustered, make_arm

Array = NDArray[np.float64]
RealAnswers = Mapping[str, NDArray[np.bool_]]
MetricName = Literal["mean", "pearson", "accuracy", "recall", "f1"]
TrialDesign = Literal["single", "paired", "unpaired", "family"]

NUMBERS_OF_SEEDS = (2, 3, 5, 10, 25)
NUM_EXAMPLES = 100
NUM_TASKS = 5
_QUADRATURE_NODES = 80

# Shares of seeds, examples and residuals in the variance of the mean, all normal.
SHARES: dict[str, tuple[float, float, float]] = {
    "seeds": (0.99, 0.005, 0.005),
    # A little beside the seeds is harder than nothing: where their spread happens to look small,
    # the degrees of freedom look many.
    "mostly_seeds": (0.9, 0.1, 0.0),
    "examples": (0.005, 0.99, 0.005),
    "residual": (0.005, 0.005, 0.99),
    "none": (1 / 3, 1 / 3, 1 / 3),
}
# The same where effects are not normal, and of the tasks of a family.
_MIXED = (0.6, 0.3, 0.1)
_SHAPES = ("skewed", "heavy_tailed", "bimodal", "purely_skewed")


class Correlations(NamedTuple):
    """Spread of the seeds' correlations, and the share of noise that seeds have in common."""

    centre: float
    spread: float
    common: float


# Labels are an effect of examples in themselves, which grows with the correlation: where the
# residual is to dominate, correlations lie near zero.
CORRELATIONS: dict[str, Correlations] = {
    "seeds": Correlations(0.3, 0.5, 0.0),
    "examples": Correlations(1.1, 0.01, 0.98),
    "residual": Correlations(0.05, 0.01, 0.0),
}


class Answers(NamedTuple):
    """Answers that are right or wrong.

    Attributes:
      accuracy: the share that is right in truth, of seeds that do not fail; of positives only where
        that of negatives is given.
      spread: standard deviation of the seeds, where those of examples and residual are 1.
      num_examples: examples.
      positives: the share of examples whose label is 1.
      cluster_share: share of the examples' variance that their cluster has; 0 for no clusters.
      failing: probability that training fails; the seed then always answers 1.
      runs: numbers of runs of the seeds, in turn, with a run's own effect as large as a seed's.
      lead: by how much the base is more accurate.
      common: the share of the seeds' variance that paired sides have in common.
      of_negatives: the share of right answers to examples with label 0. The number of positives is then
        fixed, too.
    """

    accuracy: float
    spread: float = 0.1
    num_examples: int = NUM_EXAMPLES
    positives: float = 0.5
    cluster_share: float = 0.0
    failing: float = 0.0
    runs: tuple[int, ...] = (1,)
    lead: float = 0.0
    common: float = 0.5
    of_negatives: float | None = None


CLUSTER_SIZE = 4
ANSWERS: dict[str, Answers] = {
    "binary": Answers(0.8),
    "rare_class": Answers(0.8, num_examples=200, positives=0.2),
    "unbalanced": Answers(0.8, runs=(1, 5, 2, 4, 3)),
    "clustered": Answers(0.8, cluster_share=0.7),
    "wide_seeds": Answers(0.8, spread=0.4),
    "common_seeds": Answers(0.78, spread=1.0, num_examples=400, common=10 / 11),
    "5,000_examples": Answers(0.8, num_examples=5000),
    "unlabelled": Answers(0.95, num_examples=200),
    **{
        f"{number}_positives": Answers(
            0.9, 0.2, num_examples=200, positives=number / 200, of_negatives=0.99
        )
        for number in (6, 10, 20)
    },
    "saturated": Answers(0.993, spread=0.3, num_examples=50),
    "asymmetric": Answers(0.95, spread=0.3, lead=0.049),
    "failed": Answers(0.85, num_examples=200, failing=0.1),
    "failed_one_side": Answers(0.85, num_examples=200, failing=0.1),
}
POSITIVES = tuple(kind for kind in ANSWERS if kind.endswith("_positives"))
# The difference between the sides of a comparison; a single side is not simulated.
BETWEEN_SIDES = ("failed_one_side", "asymmetric")
_OF_OTHER_METRICS = ("rare_class", "common_seeds", "unlabelled", *POSITIVES, *BETWEEN_SIDES)
REAL = ("mnli", "hans")
NUM_REAL_EXAMPLES = 200
ORDINARY = (
    *SHARES,
    "binary",
    "rare_class",
    "unbalanced",
    "clustered",
    "common_seeds",
    "5,000_examples",
    "unlabelled",
    *POSITIVES,
    "mnli",
)


@dataclass(frozen=True)
class Condition:
    """One kind of data that is made again and again.

    Attributes:
      metric: `mean`, of X itself, `pearson`, `accuracy` or `f1`.
      design: `paired` or `unpaired`, without a difference in truth (but for `BETWEEN_SIDES`),
        `single`, or `family`: the paired comparison of five tasks with seeds in common.
      data: what the variance is nearly all made of, or what is hard about the data.
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
    def ordinary(self) -> bool:
        """Returns whether the data have nothing that is hard about them.

        On HANS some seeds are near chance.
        """
        return self.data in ORDINARY

    @property
    def warned_falsely(self) -> bool:
        """Returns whether a warning would be a false alarm.

        Not of correlations that vary mostly between seeds: some of these seeds count as failed.
        """
        return self.ordinary and (self.metric, self.data) != ("pearson", "seeds")

    @property
    def words(self) -> str:
        """The kind of data, for readers."""
        words = self.data.replace("_", " ")
        if self.data in SHARES:
            return f"normal, {words} dominate{'s' * (self.data == 'residual')}".replace(
                "none dominate", "shares equal"
            )
        return words

    def truth(self, real: RealAnswers | None = None) -> float:
        """Computes the expected estimate on endlessly many examples.

        Sides of a comparison are made alike, so that it is zero, unless one side's seeds alone fail
        or the base leads.
        For one side's correlation or F1 it is a mean over normal seeds, by Gauss-Hermite quadrature
        (exact to 1e-10). Of C examples Pearson's r expects a little less, by rho (1 - rho^2) / (2 C):
        less than 0.002.
        """
        if self.data == "failed_one_side":
            return _expected_accuracy(ANSWERS[self.data]) - ANSWERS[self.data].accuracy
        if self.design != "single":
            return -ANSWERS[self.data].lead if self.data in ANSWERS else 0.0
        if self.data == "unlabelled":
            return ANSWERS[self.data].accuracy
        if self.metric == "mean":
            return 0.0
        if self.data in REAL:
            assert real is not None
            return float(real[self.data].mean())
        if self.metric in ("accuracy", "recall"):
            return _expected_accuracy(ANSWERS[self.data])
        nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_NODES)
        if self.metric == "pearson":
            centre, spread, _ = CORRELATIONS[self.data]
            values = np.tanh(centre + spread * nodes)
        else:
            from scipy.special import ndtr

            found = ANSWERS[self.data]
            right, of_negatives = (
                ndtr((_centre(side) + found.spread * nodes) / np.sqrt(2))
                for side in (found, found._replace(accuracy=found.of_negatives or found.accuracy))
            )
            true = found.positives * right
            false = (1 - found.positives) * (1 - of_negatives)
            values = 2 * true / (true + false + found.positives)
        return float(weights @ values / weights.sum())

    @property
    def truth_of_trained(self) -> float | None:
        """Returns the same of the seeds that do not fail; None where none can."""
        if self.data not in ANSWERS or not ANSWERS[self.data].failing:
            return None
        return ANSWERS[self.data].accuracy if self.design == "single" else 0.0

    def random(self, simulation_seed: int, trial: int) -> np.random.Generator:
        """Returns the generator of a trial: a function of the two numbers and the condition alone."""
        # uint64 from the start: as plain integers, numbers this large would become floats.
        words = [simulation_seed, zlib.crc32(self.name.encode()) << 32 | trial]
        return np.random.Generator(np.random.Philox(key=np.array(words, dtype=np.uint64)))

    def arms(self, simulation_seed: int, trial: int, real: RealAnswers | None = None) -> list[Arm]:
        """Returns the sides of one trial: base and experiment, or base alone.

        The base of a paired comparison of means is zero, which leaves the experiment's as the table
        of differences.

        Args:
          simulation_seed: names the study.
          trial: its number.
          real: by name, answers [seeds, examples] that are right, for conditions of real data.
        """
        random = self.random(simulation_seed, trial)
        names = ("base",) if self.design == "single" else ("base", "experiment")
        if self.data in REAL:
            assert real is not None
            return self._real_arms(real[self.data], names, random)
        if self.data in ANSWERS:
            return self._answering_arms(names, random)
        labels = np.zeros(NUM_EXAMPLES)
        if self.metric == "pearson":
            labels = random.standard_normal(NUM_EXAMPLES)
            tables = [self._predictions(labels, random) for _ in names]
        else:
            tables = [self._scores(random) for _ in range(2 if self.design == "unpaired" else 1)]
            if self.design == "paired":
                tables.insert(0, np.zeros_like(tables[0]))
        seeds = range(self.num_seeds)
        return [
            make_arm(name, table, labels, seeds) for name, table in zip(names, tables, strict=True)
        ]

    def _scores(self, random: np.random.Generator) -> Array:
        """Returns a table [R, C] whose mean has variance 1."""
        number = self.num_seeds
        sizes = (number, NUM_EXAMPLES, number * NUM_EXAMPLES)
        shapes = ((number, 1), (1, NUM_EXAMPLES), (number, NUM_EXAMPLES))
        table = np.zeros((number, NUM_EXAMPLES))
        shares = SHARES.get(self.data, _MIXED)
        if self.data == "purely_skewed":
            shares = SHARES["seeds"]
        for position, (share, size, shape) in enumerate(zip(shares, sizes, shapes, strict=True)):
            kind = "skewed" if self.data == "purely_skewed" else self.data
            if position == 2 or (kind == "bimodal" and position == 1):
                kind = "normal"
            table += np.sqrt(share * size) * _effects(kind, random, shape)
        return table

    def tasks(self, simulation_seed: int, trial: int) -> list[Array]:
        """Returns the tables of differences [R, C] of a family's tasks, whose seeds are correlated."""
        random = self.random(simulation_seed, trial)
        common = random.standard_normal((self.num_seeds, 1))
        seeds, examples, _ = np.sqrt(_MIXED)
        tables = []
        for _ in range(NUM_TASKS):
            own = random.standard_normal((self.num_seeds, 1))
            effects = random.standard_normal((1, NUM_EXAMPLES))
            table = seeds * np.sqrt(self.num_seeds / 2) * (common + own)
            tables.append(table + examples * np.sqrt(NUM_EXAMPLES) * effects)
        return tables

    def _predictions(self, labels: Array, random: np.random.Generator) -> Array:
        """Returns predictions [R, C] for labels [C]."""
        found = CORRELATIONS[self.data]
        normal = random.standard_normal((self.num_seeds, 1))
        correlation = np.tanh(found.centre + found.spread * normal)
        noise = np.sqrt(found.common) * random.standard_normal(NUM_EXAMPLES)
        own = random.standard_normal((self.num_seeds, NUM_EXAMPLES))
        noise = noise + np.sqrt(1 - found.common) * own
        return correlation * labels + np.sqrt(1 - correlation**2) * noise

    def _answering_arms(self, names: tuple[str, ...], random: np.random.Generator) -> list[Arm]:
        found = ANSWERS[self.data]
        number, size = self.num_seeds, found.num_examples
        labels = (random.random(size) < found.positives).astype(np.int64)
        if found.of_negatives is not None:
            labels = (np.arange(size) < round(found.positives * size)).astype(np.int64)
        if self.metric == "f1":
            labels[:2] = 0, 1  # both classes, so that no trial is undefined
        runs_of = [found.runs[seed % len(found.runs)] for seed in range(number)]
        run_seeds = np.repeat(np.arange(number), runs_of)
        groups = np.arange(size) // CLUSTER_SIZE
        of_examples = _example_effects(found, groups, random)
        of_seeds = random.standard_normal(number)
        arms = []
        for name in names:
            own = random.standard_normal(number)
            seeds = own
            if self.design == "paired":
                seeds = np.sqrt(found.common) * of_seeds + np.sqrt(1 - found.common) * own
            latent = seeds[run_seeds][:, None] * np.ones(size)
            if found.runs != (1,):
                latent += random.standard_normal((len(run_seeds), 1))
            examples = np.sqrt(0.8) * of_examples
            examples = examples + np.sqrt(0.2) * _example_effects(found, groups, random)
            centre: float | Array = _centre(found, found.lead if name == "base" else 0.0)
            if found.of_negatives is not None:
                of_negatives = _centre(found._replace(accuracy=found.of_negatives))
                centre = np.where(labels == 1, centre, of_negatives)
            latent = centre + found.spread * latent + examples
            right = latent + random.standard_normal(latent.shape) > 0
            answers = np.where(right, labels, 1 - labels)
            if self.data == "unlabelled":
                answers = right.astype(np.float64)
            if self.data == "failed" or (found.failing and name == "experiment"):
                answers[random.random(len(run_seeds)) < found.failing] = 1
            arm = make_arm(name, answers, labels, run_seeds.tolist())
            arms.append(clustered(arm, groups, name, "group") if found.cluster_share else arm)
        return arms

    def _real_arms(
        self, right: NDArray[np.bool_], names: tuple[str, ...], random: np.random.Generator
    ) -> list[Arm]:
        """Returns arms whose seeds and examples are drawn from real ones, with replacement."""
        examples = random.integers(right.shape[1], size=NUM_REAL_EXAMPLES)
        # Accuracy does not depend on which class is right, only on whether one dominates.
        labels = np.arange(NUM_REAL_EXAMPLES) % 2
        arms = []
        for name in names:
            seeds = random.integers(len(right), size=self.num_seeds)
            answers = np.where(right[np.ix_(seeds, examples)], labels, 1 - labels)
            arms.append(make_arm(name, answers, labels, range(self.num_seeds)))
        return arms


def _effects(kind: str, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draws effects with mean 0 and variance 1."""
    if kind == "skewed":
        return random.standard_exponential(shape) - 1
    if kind == "heavy_tailed":
        return random.standard_t(3, shape) / np.sqrt(3)
    if kind == "bimodal":
        return np.where(random.random(shape) < 0.5, -1.0, 1.0)
    return random.standard_normal(shape)


def _example_effects(found: Answers, groups: NDArray, random: np.random.Generator) -> Array:
    own = np.sqrt(1 - found.cluster_share) * random.standard_normal(len(groups))
    return own + np.sqrt(found.cluster_share) * random.standard_normal(len(groups))[groups]


def _centre(found: Answers, lead: float = 0.0) -> float:
    from scipy.special import ndtri

    of_runs = found.spread**2 if found.runs != (1,) else 0.0
    return float(ndtri(found.accuracy + lead) * np.sqrt(2 + found.spread**2 + of_runs))


def _expected_accuracy(found: Answers) -> float:
    """Returns the accuracy over endlessly many seeds, of which some fail."""
    return (1 - found.failing) * found.accuracy + found.failing * found.positives


def all_conditions(real: bool = False) -> list[Condition]:
    """Lists every condition of the study, in the order of its tables.

    Args:
      real: whether there are real answers.
    """
    both: tuple[TrialDesign, ...] = ("paired", "unpaired")
    every: tuple[TrialDesign, ...] = ("single", *both)
    kinds: list[tuple[MetricName, tuple[TrialDesign, ...], tuple[str, ...]]] = [
        ("mean", both, tuple(SHARES)),
        ("mean", every, _SHAPES),
        (
            "accuracy",
            every,
            tuple(kind for kind in ANSWERS if kind not in _OF_OTHER_METRICS),
        ),
        ("accuracy", ("paired",), ("common_seeds",)),
        ("mean", ("single", "paired"), ("unlabelled",)),
        ("recall", ("single", "paired"), POSITIVES),
        ("f1", ("single", "paired"), POSITIVES),
        ("accuracy", both, BETWEEN_SIDES),
        ("f1", every, ("rare_class",)),
        ("pearson", every, tuple(CORRELATIONS)),
        ("mean", ("family",), ("none",)),
    ]
    found = [
        Condition(metric, design, data, number)
        for metric, designs, of_kind in kinds
        for design, data, number in itertools.product(designs, of_kind, NUMBERS_OF_SEEDS)
    ]
    if real:  # ten seeds stand for all: more than ten of them would be copies
        designs: tuple[TrialDesign, ...] = ("single", "unpaired")
        found += [
            Condition("accuracy", design, data, number)
            for design, data, number in itertools.product(designs, REAL, NUMBERS_OF_SEEDS[:-1])
        ]
    return found
