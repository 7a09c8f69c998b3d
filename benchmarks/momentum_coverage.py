"""`python -m multiberts.benchmarks.momentum_coverage`: how often momentum's interval holds the true
correlation, and where the paper's index lies, in worlds whose true accuracies are known.

An example's logit under the middle size is normal; those under the small and the large size are a step
below and above. The two steps of an example are normal, too, and correlate by `relation`. With
`seed_spread` a seed moves all examples of a kind alike (there are 20 kinds), as pre-training seeds do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.command_line.command import run_command
from multiberts.stats.instances.size_momentum import momentum, momentum_index

Array = NDArray[np.float64]
NUM_KINDS = 20


class World(NamedTuple):
    """A law of true accuracies.

    Attributes:
      centre, spread: mean and standard deviation of the middle size's logit.
      step: standard deviation of a step; half of it is its mean.
      relation: correlation of an example's two steps.
      seed_spread: standard deviation of a seed's effect on a kind of examples.
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

    def accuracies(self, logits: Array) -> Array:
        """Computes true accuracies, over all seeds."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(21)
        moved = (sigmoid(logits + self.seed_spread * node) for node in nodes)
        return np.asarray(sum(w * p for w, p in zip(weights / weights.sum(), moved, strict=True)))

    def runs(self, random: np.random.Generator, logits: Array, seeds: int) -> list[Array]:
        """Draws right and wrong answers, by size [seeds, examples]."""
        kinds = np.arange(logits.shape[1]) % NUM_KINDS
        runs = []
        for own in logits:
            effects = self.seed_spread * random.normal(size=(seeds, NUM_KINDS))
            right = random.random((seeds, len(own))) < sigmoid(own + effects[:, kinds])
            runs.append(right.astype(np.float64))
        return runs


WORLDS = {
    "steps alike": World(),
    "unrelated steps": World(relation=0.0),
    "mostly easy": World(centre=3.0, spread=2.5),
    "small steps": World(step=0.3),
    "kinds of examples": World(seed_spread=0.6),
}


def sigmoid(logits: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-logits)))


def true_momentum(accuracies: Array) -> tuple[float, float]:
    """Computes r where the middle size is held equal by regression, and within its fifths of [0, 1].

    Args:
      accuracies: [sizes, examples].
    """
    small, middle, large = accuracies
    rest = [own - np.polyval(np.polyfit(middle, own, 1), middle) for own in (small, large)]
    index = momentum_index(*(own[None] for own in accuracies), num_buckets=5)
    return -float(np.corrcoef(rest)[0, 1]), index.pooled


def momentum_coverage(
    *,
    num_repetitions: int = 200,
    num_examples: int = 1000,
    seeds: tuple[int, ...] = (5, 10, 25),
    simulation_seed: int = 0,
) -> None:
    """Prints coverage and width of momentum's interval, and the mean of the paper's index.

    Args:
      num_repetitions: samples of every world and number of seeds.
      num_examples: examples of each.
      seeds: numbers of seeds per size.
      simulation_seed: names the worlds.
    """
    print(
        "| world | true r (in buckets) | seeds | median r | interval covers | median width | index |"
    )
    print("|---|---|---|---|---|---|---|")
    for place, (name, world) in enumerate(WORLDS.items()):
        random = np.random.default_rng([simulation_seed, place])
        truth, inside = true_momentum(world.accuracies(world.logits(random, 400_000)))
        for number in seeds:
            found, index = [], []
            for _ in range(num_repetitions):
                runs = world.runs(random, world.logits(random, num_examples), number)
                found.append(momentum(*runs))
                index.append(momentum_index(*runs, num_buckets=5).pooled)
            covered = np.mean([item.low <= truth <= item.high for item in found])
            width = np.median([item.high - item.low for item in found])
            print(
                f"| {name} | {truth:.2f} ({inside:.2f}) | {number} | "
                f"{np.nanmedian([item.r for item in found]):.2f} | {covered:.3f} | {width:.2f} | "
                f"{np.mean(index):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    run_command(momentum_coverage)
