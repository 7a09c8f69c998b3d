"""Compares B3 with held-out clusters and with the paper's own choices, in worlds whose loss is known.

`python -m multiberts.benchmarks.b3_experiment` makes the rows of docs/b3_worlds.csv. Barnes and
Dubrawski (2017), section 4, compare estimators on two parts of data, linear regression with squared loss
(experiment I, figure 3a); the paper does not fully describe its data, so both worlds are made up:

* two parts: two clusters of 400 samples, linear regression (with a ridge of 1, against singular draws),
  squared loss;
* six clusters: of 100 samples each, a ridge classifier, 0/1 loss.

A true cluster c has a mean m_c and a tilt g_c, both normal; its samples have features x = m_c + normal
noise and the target x . (w + g_c) + noise, or its sign. A learner with training samples of the test
sample's cluster learns the tilt, and its loss is lower than on new clusters.

Observed clusters have errors. In *one* direction (V to T) a share of each cluster's samples becomes
observed clusters of one sample each. In *two* directions this share is permuted among clusters.

All estimators train on the same number of draws with replacement. Leaving out one *true* cluster shows
the result of a perfect correction, and is what the others are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from multiberts.papers.b3.fit import Regularisation, solve
from multiberts.papers.b3.leakage import (
    LeakageDesign,
    LeakageSampling,
    binomial_matrix,
    leakage_levels,
)
from multiberts.runs import console
from multiberts.runs.command_line.command import run_command
from multiberts.runs.files import write_atomically

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

NUM_TRAIN, NUM_DRAWS = 100, 1000  # n' and t; t of the paper's synthetic data
NOISES = (0.1, 0.25, 0.5)  # shares of each true cluster's samples with a wrong observed cluster
TRUE = "leave one true cluster out"
RULES = {
    "B3": Regularisation(),
    "B3, lambda .1": Regularisation(trend_weight=0.1),
    "B3, order 3": Regularisation(trend_order=3),
    "B3, order 4": Regularisation(trend_order=4),
}


class Kind(NamedTuple):
    """Sizes of a world, and its loss."""

    num_clusters: int
    cluster_size: int
    squared_loss: bool
    num_features: int = 10
    ridge: float = 1.0
    tilt: float = 1.0
    spread: float = 0.5
    label_noise: float = 0.5


KINDS = {"two parts": Kind(2, 400, True), "six clusters": Kind(6, 100, False)}


class ClusteredSamples(NamedTuple):
    """Samples with known true clusters.

    Attributes:
      features: [samples, 1 + features], the first column 1.
      targets: [samples].
      clusters: true cluster of each [samples].
    """

    features: Floats
    targets: Floats
    clusters: Indices


def b3_experiment(*, output: str = "b3_worlds.csv", num_worlds: int = 10) -> None:
    """Simulates worlds and writes each estimator's loss, a row per kind, direction, noise and world.

    Args:
      output: CSV file.
      num_worlds: number of worlds of each kind, used for each direction and noise.
    """
    rows: list[dict[str, str | float]] = []
    for kind in KINDS:
        for world in range(num_worlds):
            rows += world_rows(kind, world)
            console.progress(f"{kind}: {world + 1} of {num_worlds} worlds")
    table = pd.DataFrame(rows)
    write_atomically(output, table.round(5).to_csv(index=False))
    console.report(error_table(table).to_string(index=False))


def error_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Root mean square errors relative to leaving out one true cluster, as on docs/departures.md."""
    names = rows.columns[rows.columns.get_loc("leave one cluster out") :].drop(TRUE)
    cells = ["kind", "directions", "noise"]
    squares = rows[names].sub(rows[TRUE], axis=0) ** 2
    grouped = [
        frame.groupby([rows[cell] for cell in cells], sort=False).mean()
        for frame in (rows[["p_0"]], squares)
    ]
    return grouped[0].join(np.sqrt(grouped[1])).round(4).reset_index()


def world_rows(kind: str, world: int) -> Iterator[dict[str, str | float]]:
    """Estimates the loss of one world's learner for each direction and noise."""
    samples = make_world(KINDS[kind], world)
    learner = Learner(samples, KINDS[kind])
    design = _design(samples.clusters, world)
    truth = learner.losses(design, 0)[0]
    folds = k_fold(learner, len(samples.targets), world)
    for directions in ("one", "two"):
        for noise in NOISES:
            observed = observe(samples.clusters, noise, directions, _generator(world, 2))
            row = {"kind": kind, "directions": directions, "noise": noise, "world": world}
            yield (
                row
                | estimates(learner, samples.clusters, observed, world)
                | {"k-fold": folds, TRUE: truth}
            )


def estimates(
    learner: Learner, clusters: Indices, observed: Indices, world: int
) -> dict[str, float]:
    """Returns p_0, the purity and the estimates from observed clusters."""
    design = _design(observed, world)
    levels = [learner.losses(design, level) for level in range(design.num_levels)]
    inside, outside = np.array(levels).T
    p_0, purity = true_leakage(clusters, observed, design.min_size)
    leakages = leakage_levels(p_0, design.injections, purity)
    fits = {name: solve(NUM_TRAIN, leakages, inside, rules).e_0 for name, rules in RULES.items()}
    return {
        "p_0": p_0, "purity": purity, "leave one cluster out": float(inside[0]), **fits,
        "B3, joint": joint(clusters, observed, design, inside, outside),
    }  # fmt: skip


def joint(
    clusters: Indices, observed: Indices, design: LeakageDesign, inside: Floats, outside: Floats
) -> float:
    """Solves with the joint binomial of algorithm 3 (section 3.4): counts in the training and in the test
    set.

    The loss is a mean over the test set, so e is linear in its number of foreign samples (section 5):
    e_V, the loss on samples of V, falls with the number of V's samples in the training set, and e_T, on
    others, rises.

    Args:
      clusters: true clusters [samples].
      observed: observed clusters [samples].
      inside: mean loss on the tested observed cluster [levels].
      outside: mean loss on samples of other observed clusters [levels].
    """
    from scipy.optimize import nnls

    tested = np.isin(observed, np.unique(clusters))  # observed clusters of several samples
    p_v = float(np.mean(observed[tested] != clusters[tested]))
    size = tested.sum() / len(np.unique(clusters))
    lost = len(clusters) / len(np.unique(clusters)) - size * (1 - p_v)
    p_t = lost / (len(clusters) - size)
    matrix = binomial_matrix(NUM_TRAIN, leakage_levels(p_t, design.injections, 1 - p_v))
    falling = np.triu(np.ones((NUM_TRAIN + 1, NUM_TRAIN + 1)))  # e_V from steps of 0 or more
    bends = np.sqrt(RULES["B3"].trend_weight) * np.diff(np.eye(NUM_TRAIN + 1), 2, axis=0)
    blocks = [
        [(1 - share) * matrix @ falling, share * matrix @ falling.T] for share in (p_v, 1 - p_t)
    ]
    none = np.zeros_like(bends)
    rows = np.block([*blocks, [bends @ falling, none], [none, bends @ falling.T]])
    losses = np.concatenate([inside, outside, np.zeros(2 * len(bends))])
    return float(nnls(rows, losses, maxiter=100 * rows.shape[1])[0][: NUM_TRAIN + 1].sum())


def k_fold(learner: Learner, num_samples: int, world: int) -> float:
    """Returns the ten-fold estimate, whose folds ignore clusters."""
    random = _generator(world, 3)
    means = []
    for fold in np.array_split(random.permutation(num_samples), 10):
        others = np.setdiff1d(np.arange(num_samples), fold)
        train = others[random.integers(len(others), size=(NUM_DRAWS // 10, NUM_TRAIN))]
        means.append(learner.all_losses(train)[:, fold].mean())
    return float(np.mean(means))


# --- The world ----------------------------------------------------------------------------------


def make_world(kind: Kind, world: int) -> ClusteredSamples:
    """Simulates clusters; the direction w is (1, ..., 1) / sqrt(features) in every world."""
    random = _generator(world, 0)
    number, size, width = kind.num_clusters, kind.cluster_size, kind.num_features
    means = kind.spread * random.normal(size=(number, 1, width))
    tilts = kind.tilt * random.normal(size=(number, width, 1)) / np.sqrt(width)
    x = means + random.normal(size=(number, size, width))
    noise = kind.label_noise * random.normal(size=(number, size))
    target = ((x @ (np.ones((width, 1)) / np.sqrt(width) + tilts))[..., 0] + noise).ravel()
    features = np.column_stack([np.ones(number * size), x.reshape(-1, width)])
    targets = target if kind.squared_loss else np.where(target > 0, 1.0, -1.0)
    return ClusteredSamples(features, targets, np.repeat(np.arange(number), size))


def observe(
    clusters: Indices, noise: float, directions: str, random: np.random.Generator
) -> Indices:
    """Simulates observed clusters [samples].

    Args:
      clusters: true clusters [samples], numbered from 0.
      noise: share of each cluster's samples that get a wrong observed cluster.
      directions: `one`: each of these samples becomes a separate observed cluster; `two`: they are
        permuted.
      random: generator to draw these samples.
    """
    observed = clusters.copy()
    astray = np.concatenate(
        [
            random.permutation(members)[: round(noise * len(members))]
            for members in (np.flatnonzero(clusters == c) for c in np.unique(clusters))
        ]
    ).astype(np.int64)
    if directions == "one":
        observed[astray] = clusters.max() + 1 + np.arange(len(astray))
    else:
        observed[astray] = clusters[random.permutation(astray)]
    return observed


def true_leakage(clusters: Indices, observed: Indices, min_size: int) -> tuple[float, float]:
    """Counts p_0 and purity: means over the samples of observed clusters with `min_size` samples or more.

    Args:
      clusters: true clusters [samples].
      observed: observed clusters [samples].
      min_size: smallest size of tested clusters.
    """
    _, observed_codes, sizes = np.unique(observed, return_inverse=True, return_counts=True)
    both = np.zeros((len(sizes), int(clusters.max()) + 1))
    np.add.at(both, (observed_codes, clusters), 1)
    tested = sizes[observed_codes] >= min_size
    own_size = sizes[observed_codes][tested]
    in_cluster = both[observed_codes, clusters][tested] - 1
    elsewhere = both.sum(axis=0)[clusters][tested] - 1 - in_cluster
    return float(np.mean(elsewhere / (len(clusters) - own_size))), float(
        np.mean(in_cluster / (own_size - 1))
    )


class Learner:
    """Ridge regression, fitted to many training sets at once.

    Training sets are represented by counts of each sample, so that sums of squares are one matrix product.
    """

    def __init__(self, samples: ClusteredSamples, kind: Kind):
        self._x, self._y, self._kind = samples.features, samples.targets, kind
        self._upper = np.triu_indices(self._x.shape[1])
        squares = self._x[:, self._upper[0]] * self._x[:, self._upper[1]]
        self._columns = np.column_stack([squares, self._x * self._y[:, None]])

    def fit(self, train: Indices) -> Floats:
        """Returns weights [draws, 1 + features], intercept first, for training sets [draws, n']."""
        draws, samples = len(train), len(self._y)
        indices = train + samples * np.arange(draws)[:, None]
        counts = np.bincount(indices.ravel(), minlength=draws * samples).reshape(draws, samples)
        sums = counts.astype(np.float64) @ self._columns
        width = self._x.shape[1]
        normal = np.empty((draws, width, width))
        normal[:, self._upper[0], self._upper[1]] = sums[:, : len(self._upper[0])]
        normal[:, self._upper[1], self._upper[0]] = sums[:, : len(self._upper[0])]
        normal[:, np.arange(width), np.arange(width)] += self._kind.ridge
        weights = np.linalg.solve(normal, sums[:, len(self._upper[0]) :, None])
        return np.asarray(weights[..., 0], dtype=np.float64)

    def all_losses(self, train: Indices) -> Floats:
        """Returns the loss on every sample [draws, samples] after training on `train` [draws, n']."""
        answers = self.fit(train) @ self._x.T
        if self._kind.squared_loss:
            return np.asarray((answers - self._y) ** 2)
        return np.asarray((answers > 0) != (self._y > 0), dtype=np.float64)

    def losses(self, design: LeakageDesign, level: int) -> tuple[float, float]:
        """Returns mean losses on the test samples, and on undrawn samples of other clusters."""
        drawn = design.draws(level)
        losses = self.all_losses(drawn.train)
        others = design.groups != np.unique(design.groups)[drawn.cluster][:, None]
        np.put_along_axis(others, drawn.train, False, axis=1)
        return float(np.take_along_axis(losses, drawn.test, axis=1).mean()), float(
            losses[others].mean()
        )


def _design(groups: Indices, world: int) -> LeakageDesign:
    sampling = LeakageSampling(num_train=NUM_TRAIN, num_draws=NUM_DRAWS, rng=world)
    return LeakageDesign(groups, sampling)


def _generator(world: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[world, 2**32 + stream]))


if __name__ == "__main__":
    run_command(b3_experiment)
