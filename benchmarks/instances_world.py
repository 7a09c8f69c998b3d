"""`python -m multiberts.benchmarks.instances_world > docs/zhong_world.csv`: the tables of Zhong et al. (2021)
in a world whose truth is known.

An example's logit under the middle size is normal; those under the small and the large size are a step
below and above. The two steps of an example are normal, too, and correlate. A pre-training seed moves each
logit by a normal effect, and each fine-tuning run is then right or wrong by chance. So accuracies, shares of
decaying examples and variances are known without simulation. For the variance over checkpoints, a run moves
the logit by such an effect, too, and each checkpoint is right by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from multiberts.papers.zhong.analysis import ZERO_ONE, FewerSeeds, analyse_sizes
from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.ensembles import ensemble
from multiberts.papers.zhong.instance_level import decay_bound
from multiberts.papers.zhong.size_momentum import momentum_index
from multiberts.report.presentation.table_writer import Table
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command

Array = NDArray[np.float64]
SIZES = ("mini", "medium", "large")
SEEDS, RUNS, CHECKPOINTS = 10, 5, 4  # as in the paper
FRESH = 20  # draws of new seeds per world, for the true bias of the threshold


class World(NamedTuple):
    """Distribution of true accuracies.

    Attributes:
      centre, spread: mean and standard deviation of the middle size's logit.
      step: standard deviation of a step; the mean is half of it.
      relation: correlation of an example's two steps.
      seed_spread: standard deviation of a seed's effect.
    """

    centre: float = 1.2
    spread: float = 1.5
    step: float = 0.8
    relation: float = 0.6
    seed_spread: float = 0.0

    def logits(self, random: np.random.Generator, number: int) -> Array:
        """Draws the logits of examples under the three sizes [sizes, examples]."""
        middle, first, other = random.normal(size=(3, number))
        second = self.relation * first + np.sqrt(1 - self.relation**2) * other
        steps = self.step * np.stack([-0.5 - first, 0 * first, 0.5 + second])
        return np.asarray(self.centre + self.spread * middle + steps)


WORLD = World(centre=1.0, spread=1.5, step=0.8, seed_spread=0.6)


def sigmoid(logits: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-logits)))


def instances_world(
    *, num_worlds: int = 20, num_examples: int = 2000, simulation_seed: int = 0
) -> None:
    """Prints each quantity's true value, and the mean and spread of its estimates over worlds, as CSV.

    Args:
      num_examples: number of examples per world.
    """
    estimates: dict[str, list[tuple[float, float]]] = {}
    for index in range(num_worlds):
        random = np.random.default_rng([simulation_seed, index])
        for name, truth, estimate in one_world(random, num_examples):
            estimates.setdefault(name, []).append((truth, estimate))
        console.progress(f"world {index + 1} of {num_worlds}")
    records: list[dict[str, str | float]] = []
    for name, rows in estimates.items():
        truth, estimate = np.nanmean(rows, axis=0).round(5).tolist()
        spread = round(float(np.nanstd([row[1] for row in rows], ddof=1)), 5)
        records.append(
            {"quantity": name, "truth": truth, "estimate": estimate, "sd_of_an_estimate": spread}
        )
    console.report(Table.from_records(records, {}).csv().rstrip())


def one_world(random: np.random.Generator, num_examples: int) -> Iterator[tuple[str, float, float]]:
    """Yields names, true values and estimates of one world."""
    logits = WORLD.logits(random, num_examples)
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()
    of_seeds = sigmoid(logits[..., None] + WORLD.seed_spread * nodes)  # [sizes, examples, nodes]
    accuracy = of_seeds @ weights
    voted = binom.sf(RUNS // 2, RUNS, of_seeds) @ weights  # accuracy of a seed's majority vote
    fine, pre = (of_seeds * (1 - of_seeds)) @ weights, (of_seeds**2) @ weights - accuracy**2
    sizes = dict(zip(SIZES, draw_runs(random, logits), strict=True))
    analysis = analyse_sizes({"world": sizes}, n_resamples=200, with_curves=False)

    parts = analysis.decompositions["world", ZERO_ONE]["large"]
    for name, level, truth in (
        ("fine-tuning", "finetune_seed", 2 * fine[2]),
        ("pre-training", "pretrain_seed", 2 * (fine[2] + pre[2])),
    ):
        estimate = float(parts.disagreements[level].mean())
        yield f"1: large, runs that differ in {name} disagree", float(truth.mean()), estimate
    pair = next(item for item in analysis.pairs if (item.small, item.large) == ("mini", "large"))
    decays = float((accuracy[2] < accuracy[0]).mean())
    assert pair.all_runs and pair.all_runs_improvement
    yield "2, 9: mini to large, improving", 1 - decays, pair.all_runs_improvement.bound
    yield "2, 9: mini to large, decaying, all runs", decays, pair.all_runs.bound
    of_votes = float((voted[2] < voted[0]).mean())
    at = float(pair.decay.difference.cdf(-0.4) - pair.decay.baseline.cdf(-0.4))
    yield "3: decaying, votes, at a threshold of -.4", of_votes, at
    for item in analysis.by_seeds["world", "mini", "large"]:
        if item.num_seeds in (2, 6, 10):
            yield from _of_number(item, of_votes)
    index = analysis.momentum_indices["world"][SIZES]
    exact = momentum_index(*(correct[None] for correct in accuracy))
    for bucket in range(10):
        yield (
            f"6, 12: improvements of examples at {index.edges[bucket + 1]:.1f} correlate",
            float(exact.correlation[bucket]),
            float(index.correlation[bucket]),
        )
    for name, level, truth in (
        ("squared bias", "bias_squared", (1 - accuracy[2]) ** 2),
        ("pre-training variance", "pretrain_seed", pre[2]),
        ("fine-tuning variance", "finetune_seed", fine[2]),
    ):
        yield f"7: large, {name}", float(truth.mean()), parts.parts[level].mean
    for size, truth in zip(SIZES, accuracy, strict=True):
        yield f"8: accuracy of {size}", truth.mean(), analysis.accuracies["world"][size].mean
    yield "10: relative bias, decaying", new_seeds_bias(random, logits, 1), pair.relative_biases[0]
    yield (
        "10: relative bias, improving",
        new_seeds_bias(random, logits, -1),
        pair.relative_biases[1],
    )
    of_runs = sigmoid(logits[2, :, None] + np.sqrt(2) * WORLD.seed_spread * nodes)
    drawn = decompose(draw_checkpoints(random, logits[2])).parts["checkpoint"].mean
    yield (
        "H.1: large, checkpoint variance",
        float(((of_runs * (1 - of_runs)) @ weights).mean()),
        drawn,
    )


def _of_number(item: FewerSeeds, truth: float) -> Iterator[tuple[str, float, float]]:
    yield f"4, 11: decaying, votes, {item.num_seeds} seeds, the bound", truth, item.bound
    yield f"4, 11: decaying, votes, {item.num_seeds} seeds, Fisher's tests", truth, item.share


def draw_runs(random: np.random.Generator, logits: Array) -> NDArray[np.uint8]:
    """Draws right and wrong answers [sizes, seeds, runs, examples]."""
    effects = WORLD.seed_spread * random.normal(size=(len(logits), SEEDS, logits.shape[1]))
    chances = sigmoid(logits[:, None] + effects)[:, :, None]
    drawn = random.random((len(logits), SEEDS, RUNS, logits.shape[1]))
    return (drawn < chances).astype(np.uint8)


def draw_checkpoints(random: np.random.Generator, logits: Array) -> NDArray[np.uint8]:
    """Draws right and wrong answers of one size [seeds, runs, checkpoints, examples]."""
    shape = (SEEDS, RUNS, CHECKPOINTS, len(logits))
    seeds, runs = (random.normal(size=(SEEDS, number, 1, len(logits))) for number in (1, RUNS))
    chances = sigmoid(logits + WORLD.seed_spread * (seeds + runs))
    return (random.random(shape) < chances).astype(np.uint8)


def new_seeds_bias(random: np.random.Generator, logits: Array, order: int) -> float:
    """Computes the relative bias of the threshold with new seeds of the world instead of resampled ones."""
    pairs = []
    for _ in range(FRESH):
        (small, large), (new_small, new_large) = (
            [ensemble(size) for size in draw_runs(random, logits)[[0, 2]]][::order]
            for _ in range(2)
        )
        best = decay_bound(small, large)
        again = decay_bound(new_small, new_large, threshold=best.threshold)
        pairs.append((best.bound, again.bound))
    adaptive, honest = np.mean(pairs, axis=0)
    return float(adaptive / honest - 1)


if __name__ == "__main__":
    run_command(instances_world)
