"""Leakage of the test sample's cluster into training sets, and draws that add known doses of leakage.

`papers.b3.model` defines the model and the terms p_0, purity and dose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_MAX_TESTS = 10
_GOLDEN = 0.6180339887498949


def binomial_matrix(num_train: int, leakages: ArrayLike) -> Floats:
    """Computes A of A e = b: the distribution of the number of same-cluster samples per leakage.

    Args:
      num_train: n', number of training samples.
      leakages: probability that a training sample is from the test sample's cluster [levels].

    Returns:
      Binomial(n', p_i).pmf(j) at [i, j], float64 [levels, n' + 1]; rows sum to 1. The condition
      numbers for 2 n' + 1 leakages evenly spaced from .1 to 1 are 32, 2e3, 9e6, 5e15 at n' = 5, 10,
      20, 50.

    Raises:
      DataError: n' is below 1 or a leakage outside [0, 1].

    Examples:
      >>> from multiberts import stats
      >>> stats.b3.binomial_matrix(2, [0.0, 0.5]).round(2).tolist()
      [[1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]

    See also: `solve`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters.
    """
    from scipy.stats import binom

    levels = np.atleast_1d(np.asarray(leakages, dtype=np.float64))
    if num_train < 1:
        raise DataError(f"found num_train {num_train}, expected at least 1 training sample")
    if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise DataError(f"found leakages {levels}, expected probabilities [levels] in [0, 1]")
    return np.asarray(binom.pmf(np.arange(num_train + 1)[None, :], num_train, levels[:, None]))


def leakage_levels(p_0: float, injections: ArrayLike, purity: float = 1.0) -> Floats:
    """Computes (1 - q) p_0 + q r, the leakage at each dose.

    Args:
      p_0: leakage of draws from other observed clusters.
      injections: share q of draws from the test sample's own observed cluster [levels].
      purity: r, leakage of draws from the test sample's own observed cluster; 1 in one direction.

    Returns:
      float64 [levels].

    Raises:
      DataError: p_0 is outside [0, 1), purity outside (p_0, 1], or a dose outside [0, 1].

    Examples:
      >>> from multiberts import stats
      >>> stats.b3.leakage_levels(0.1, [0.0, 0.5, 1.0]).round(2).tolist()
      [0.1, 0.55, 1.0]

    See also: `solve`.

    Reference: Barnes & Dubrawski (2017), The Binomial Block Bootstrap Estimator for Evaluating Loss on
    Dependent Clusters.
    """
    doses = np.asarray(injections, dtype=np.float64)
    if not 0 <= p_0 < 1:
        raise DataError(f"found p_0 {p_0}, expected a probability from 0 to below 1")
    if not p_0 < purity <= 1:
        raise DataError(
            f"found purity {purity:.4g} at p_0 {p_0:.4g}, expected more than p_0 and at most 1: an "
            "observed cluster must hold more of a sample's true cluster than the rest of the data"
        )
    if not np.all((doses >= 0) & (doses <= 1)):
        raise DataError(f"found injections {doses}, expected shares in [0, 1]")
    return (1 - doses) * p_0 + doses * purity


def matching_purity(groups: ArrayLike, p_0: float, min_size: int = 2) -> float:
    """Computes the purity from p_0, if observed and true clusters have equal sizes.

    A sample of an observed cluster of n among N samples has n - 1 companions in its true cluster:
    r (n - 1) in the observed cluster and p_0 (N - n) outside, so r = 1 - p_0 (N - n) / (n - 1),
    here averaged over samples.

    Args:
      groups: observed clusters [samples].
      p_0: leakage of draws from other observed clusters.
      min_size: smallest size of tested clusters.
    """
    _, sizes = np.unique(np.asarray(groups), return_counts=True)
    total = sizes.sum()
    sizes = sizes[sizes >= max(2, min_size)]
    return float(1 - p_0 * np.average((total - sizes) / (sizes - 1), weights=sizes))


class LeakageDraws(NamedTuple):
    """Indices of training samples and test samples.

    Attributes:
      train: training samples, with repetitions [draws, num_train].
      test: test samples from one observed cluster per draw, not in its training set [draws, num_test].
      cluster: index of the tested cluster in the sorted distinct groups [draws].
    """

    train: Indices
    test: Indices
    cluster: Indices


@dataclass(frozen=True)
class LeakageSampling:
    """Sizes and seed of the draws of B3.

    Attributes:
      num_train: n', number of training samples per draw (paper: 100).
      num_levels: number of levels, m + 1; None for the paper's m = 2 n'.
      num_draws: t, number of draws at each level (paper: 2500, synthetic data 1000).
      max_injection: largest dose, below 1 if draws from small clusters repeat too often.
      num_test: number of test samples per draw; None for half of the smallest cluster with two or more
        samples, at most 10. Clusters with up to `num_test` samples are used for training only.
      rng: seed of the draws.

    Examples:
      >>> from multiberts import stats
      >>> stats.b3.LeakageSampling(num_train=20).num_draws
      2500

    See also: `estimate`.
    """

    num_train: int = 100
    num_levels: int | None = None
    num_draws: int = 2500
    max_injection: float = 1.0
    num_test: int | None = None
    rng: int = 0


class LeakageDesign:
    """Training and test samples for all draws of all levels.

    A draw has `num_test` random test samples from one observed cluster, and n' training samples drawn with
    replacement: with probability q_i from the other samples of that cluster, else from all other observed
    clusters. Clusters are tested in proportion to their size, and equally at all levels, so that
    differences between clusters do not add noise to differences between levels.

    Each draw is a function of (rng, level, draw), so it does not depend on order or number of draws.

    Attributes:
      injections: doses q_i, evenly spaced from 0 to max_injection [num_levels].
    """

    def __init__(self, groups: ArrayLike, sampling: LeakageSampling | None = None):
        """Checks the clusters and sizes.

        Args:
          groups: observed cluster of each sample [samples].
          sampling: sizes and seed of the draws; `LeakageSampling()` by default.
        """
        sampling = sampling or LeakageSampling()
        labels = np.asarray(groups)
        if labels.ndim != 1 or not labels.size:
            raise DataError(f"found groups of shape {labels.shape}, expected one group per sample")
        missing = np.asarray(pd.isna(groups))
        if missing.any():  # else all samples without a group would be one cluster
            raise DataError(
                f"groups: found no group of sample {int(missing.argmax())}, expected one per sample; give "
                "each sample of unknown cluster a group of its own"
            )
        names, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        num_train, num_draws, num_test = sampling.num_train, sampling.num_draws, sampling.num_test
        num_levels = 2 * num_train + 1 if sampling.num_levels is None else sampling.num_levels
        if num_test is None and (sizes >= 2).any():
            num_test = min(_MAX_TESTS, max(1, int(sizes[sizes >= 2].min()) // 2))
        num_test = num_test or 0
        for wrong, actual, expected in (
            (
                len(names) < 2,
                f"one observed cluster only ({names.tolist()[0]!r}) in groups",
                "2 or more: one is held out and the others train",
            ),
            (
                not 1 <= num_train <= len(labels),
                f"num_train {num_train} for {len(labels)} samples",
                f"1 to {len(labels)}; draw fewer training samples",
            ),
            (
                num_levels < 2 or num_draws < 1,
                f"{num_levels} levels and {num_draws} draws",
                "at least 2 and 1",
            ),
            (
                not 0 < sampling.max_injection <= 1,
                f"max_injection {sampling.max_injection}",
                "a share in (0, 1]",
            ),
            (not 0 <= sampling.rng < 2**64, f"rng {sampling.rng}", "0 to 2**64 - 1"),
            (
                not (sizes >= 2).any(),
                "only observed clusters of one sample in groups",
                "some of 2 or more: one sample is tested and others are injected",
            ),
            (
                not (num_test >= 1 and (sizes > num_test).any()),
                f"num_test {num_test}",
                f"at least 1 and below the size of the largest observed cluster, {sizes.max()}",
            ),
        ):
            if wrong:
                raise DataError(f"found {actual}, expected {expected}")
        self.num_train, self.num_draws, self.num_test = num_train, num_draws, num_test
        self.num_levels, self.rng = num_levels, sampling.rng
        self.groups = labels
        self.injections = sampling.max_injection * np.linspace(0, 1, num_levels)
        self._sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._order = np.argsort(codes, kind="stable")  # samples sorted by cluster
        self._tested = np.flatnonzero(sizes > num_test)
        self._last_members: tuple[int, int, Indices] | None = None

    @cached_property
    def clusters(self) -> Indices:
        """Returns the tested cluster of each draw [num_draws], the same at all levels."""
        ends = np.cumsum(self._sizes[self._tested])
        # A Weyl sequence distributes any number of draws evenly over the samples.
        points = (np.arange(self.num_draws) * _GOLDEN + 0.5) % 1 * ends[-1]
        return np.asarray(self._tested[np.searchsorted(ends, points, side="right")])

    @property
    def min_size(self) -> int:
        return self.num_test + 1

    def draws(self, level: int, start: int = 0, stop: int | None = None) -> LeakageDraws:
        """Returns draws `start` to `stop` (all by default) of a level."""
        stop = self.num_draws if stop is None else stop
        if not (0 <= level < self.num_levels and 0 <= start < stop <= self.num_draws):
            raise DataError(
                f"found level {level} and draws {start} to {stop}, expected levels below "
                f"{self.num_levels} and draws up to {self.num_draws}"
            )
        cluster = self.clusters[start:stop]
        size, first = self._sizes[cluster][:, None], self._starts[cluster][:, None]
        # The test samples are `num_test` random members, the same at all levels; the other members are
        # injected.
        rank = self._members(cluster, start)
        test = np.take_along_axis(rank, np.arange(self.num_test)[None, :], axis=1)
        numbers = _uniforms(self.rng, level + 1, start, stop, 2 * self.num_train)
        coins, points = numbers[:, : self.num_train], numbers[:, self.num_train :]
        inside = coins < self.injections[level]
        outside_index = (points * (len(self.groups) - size)).astype(np.int64)
        outside_index += size * (outside_index >= first)
        inside_index = self.num_test + (points * (size - self.num_test)).astype(np.int64)
        inside_index = np.take_along_axis(rank, inside_index, axis=1)
        train = self._order[np.where(inside, first + inside_index, outside_index)]
        return LeakageDraws(train, self._order[first + test], cluster)

    def _members(self, cluster: Indices, start: int) -> Indices:
        """Orders the members of each draw's cluster at random [draws, largest size].

        Indices past the end of a cluster are last. All levels use the same order, so it is cached.
        """
        if self._last_members is not None and self._last_members[:2] == (start, len(cluster)):
            return self._last_members[2]
        width = int(self._sizes[self._tested].max())
        keys = _uniforms(self.rng, 0, start, start + len(cluster), width)
        keys = np.where(np.arange(width) < self._sizes[cluster][:, None], keys, 2.0)
        order = np.argsort(keys, axis=1, kind="stable")
        self._last_members = (start, len(cluster), order)
        return order


def _uniforms(rng: int, stream: int, start: int, stop: int, width: int) -> Floats:
    """Draws uniform numbers [stop - start, width] that depend on their indices only."""
    blocks = -(-width // 4)  # Philox generates four numbers at a time
    bits = np.random.Philox(key=[rng, stream], counter=[start * blocks, 0, 0, 0])
    generator = np.random.Generator(bits)
    return generator.random((stop - start, 4 * blocks))[:, :width]
