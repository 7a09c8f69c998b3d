"""Tests whether examples that improve from a small to a middle size improve further to a large one.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?"
(Findings of ACL 2021), on the momentum of instance accuracy.

The middle size's accuracy is used three times: in the first difference, in the second, and to group
similar examples. The paper uses one common estimate (`shared`). Its noise enters the two differences
with opposite signs, so that it pulls the correlation down: where every example is equally hard for the
three sizes, and only luck moves, r is negative although nothing is related. How much depends on the
examples: r is about -v / (v + s), where v is the variance of their true accuracies within a bucket and
s that of a size's estimate. With 5 seeds per size and 4,000 examples it is -.40 to -.44 in every bucket
where accuracies are spread evenly over 0 to 1, and -.08 to -.14 where they lie close together
(Beta(20, 20)); with 25 seeds it comes near -.5. So by default the middle size's
pre-training seeds are split at random into three parts, one for each use, and the result is averaged over
many such splits; r is then 0 within its interval.

Parts have a price: a third of the seeds groups the examples coarsely, and what is left of the middle
size's spread within a bucket enters the two differences with opposite signs, too. Where the accuracies of
the three sizes are unrelated, r by parts is -.23 with 5 seeds and -.17 with 10, and by one estimate -.06
and -.03. Both errors pull down, so neither makes momentum where there is none. Noise in the parts also
shrinks the correlation towards 0, more so with fewer seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.instances.nested_runs import Runs, aligned

Array = NDArray[np.float64]
Correlation = Literal["pearson", "spearman"]
# Cells of one block of samples, which bounds the memory whatever the number of examples.
_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True)
class Momentum:
    """Correlation of two improvements, by accuracy of the middle size.

    Attributes:
      edges: limits of the buckets of the middle size's accuracy [buckets + 1]; a bucket includes its
        lower limit, the last bucket both limits.
      correlation: [buckets], mean over splits; NaN where a bucket has no spread.
      low, high: percentile interval over examples [buckets], seeds held fixed.
      counts: mean number of examples over splits [buckets].
      pooled, pooled_low, pooled_high: the mean over buckets, weighted by their examples.
      kind: pearson or spearman.
      shared: whether one estimate of the middle size served all uses, as in the paper.
      num_splits, num_bootstrap: random splits of seeds, bootstrap samples of examples.
      split_seed, bootstrap_seed: of the two.
    """

    edges: Array
    correlation: Array
    low: Array
    high: Array
    counts: Array
    pooled: float
    pooled_low: float
    pooled_high: float
    kind: Correlation
    shared: bool
    num_splits: int
    num_bootstrap: int
    split_seed: int
    bootstrap_seed: int


def momentum(
    small: Runs,
    middle: Runs,
    large: Runs,
    num_buckets: int = 5,
    kind: Correlation = "pearson",
    shared: bool = False,
    edges: Sequence[float] | None = None,
    num_splits: int = 10,
    num_bootstrap: int = 500,
    split_seed: int = 0,
    bootstrap_seed: int = 0,
    confidence: float = 0.95,
) -> Momentum:
    """Correlates (middle - small) with (large - middle) within buckets of the middle's accuracy.

    Args:
      small: `NestedRuns` or an array [pretrain_seeds, ..., examples].
      middle: the same, with 3 or more pre-training seeds.
      large: the same.
      num_buckets: buckets of equal width between 0 and 1, unless `edges` are given.
      kind: pearson, or spearman (ranks within a bucket).
      shared: use one estimate of the middle size, from all its seeds, three times, as the paper
        does; by default three parts of its seeds.
      edges: limits of the buckets, rising.
      num_splits: random splits of the middle size's seeds to average over.
      num_bootstrap: bootstrap samples of examples for the interval.
      split_seed: of the splits.
      bootstrap_seed: of the samples.
      confidence: of the interval.

    Raises:
      DataError: fewer than 3 seeds of the middle size, or limits that do not rise.
    """
    sizes = aligned(small, middle, large)
    seeds = sizes[1].averaged(1).scores.astype(np.float64)  # [seeds, examples]
    if len(seeds) < 3:
        raise DataError(
            f"found {counted(len(seeds), 'pre-training seed')} of the middle size, expected 3 or more: one "
            "part for each difference and one for the buckets"
        )
    limits = np.linspace(0, 1, num_buckets + 1) if edges is None else np.asarray(edges, float)
    if limits.ndim != 1 or len(limits) < 2 or (np.diff(limits) <= 0).any():
        raise DataError(f"found limits of buckets {limits.tolist()}, expected rising numbers")
    before, after = sizes[0].mean(), sizes[2].mean()
    random = np.random.Generator(np.random.Philox(key=split_seed))
    splits = []
    for _ in range(1 if shared else num_splits):
        parts = np.array_split(random.permutation(len(seeds)), 1 if shared else 3)
        means = [seeds[part].mean(axis=0) for part in parts]
        first_mean, second_mean, bucket_mean = means * 3 if shared else means
        bucket = np.searchsorted(limits, bucket_mean + 1e-9, side="right") - 1
        bucket[np.isclose(bucket_mean, limits[-1])] = len(limits) - 2
        splits.append((bucket, first_mean - before, after - second_mean))
    number, width = seeds.shape[1], len(limits) - 1
    counts = np.array([np.bincount(b[(b >= 0) & (b < width)], minlength=width) for b, *_ in splits])
    whole = _correlations(splits, np.ones((1, number)), width, kind)[0]
    samples = _bootstrap(splits, number, width, kind, num_bootstrap, bootstrap_seed)
    weights = counts.mean(axis=0)
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    with _quiet():
        low, high = np.nanquantile(samples, tails, axis=0)
        pooled_low, pooled_high = np.nanquantile(_pooled(samples, weights), tails)
    return Momentum(
        limits, whole, low, high, weights, float(_pooled(whole[None], weights)[0]),
        float(pooled_low), float(pooled_high), kind, shared, len(splits), num_bootstrap, split_seed,
        bootstrap_seed,
    )  # fmt: skip


ThreeWaySplit = tuple[
    NDArray[np.intp], Array, Array
]  # bucket, first and second difference [examples]


def _bootstrap(
    splits: list[ThreeWaySplit], number: int, width: int, kind: Correlation, samples: int, key: int
) -> Array:
    """Computes correlations of bootstrap samples of examples [samples, buckets]."""
    random = np.random.Generator(np.random.Philox(key=key))
    found = []
    block = max(1, _BLOCK_CELLS // number)
    for start in range(0, samples, block):
        draws = min(block, samples - start)
        picked = random.integers(0, number, size=(draws, number))
        counts = np.stack([np.bincount(row, minlength=number) for row in picked]).astype(float)
        found.append(_correlations(splits, counts, width, kind))
    return np.concatenate(found)


def _correlations(
    splits: list[ThreeWaySplit], counts: Array, width: int, kind: Correlation
) -> Array:
    """Averages the correlations over splits, by sample and bucket [samples, buckets].

    Args:
      splits: see `ThreeWaySplit`.
      counts: how often each example was drawn [samples, examples].
      width: number of buckets.
      kind: pearson or spearman.
    """
    values = np.full((len(splits), len(counts), width), np.nan)
    for place, (bucket, first, second) in enumerate(splits):
        for number in range(width):
            inside = np.flatnonzero(bucket == number)
            if len(inside) < 3:
                continue
            drawn, x, y = counts[:, inside], first[inside], second[inside]
            if kind == "spearman":
                values[place, :, number] = _pearson(drawn, _ranks(drawn, x), _ranks(drawn, y))
            else:
                columns = np.stack([x - x.mean(), y - y.mean()])
                values[place, :, number] = _pearson(drawn, *columns)
    with _quiet():
        return np.asarray(np.nanmean(values, axis=0))


def _pearson(counts: Array, x: Array, y: Array) -> Array:
    """Computes Pearson's r of examples drawn `counts` [samples, examples] times.

    x and y are [examples] or [samples, examples]; r is NaN where one of them has no spread.
    """
    total = counts.sum(axis=1)

    def mean(values: Array) -> Array:
        summed = counts @ values if values.ndim == 1 else (counts * values).sum(axis=1)
        return summed / np.where(total > 0, total, np.nan)

    mean_x, mean_y = mean(x), mean(y)
    mean_xx, mean_yy = mean(x * x), mean(y * y)
    spread = (mean_xx - mean_x**2) * (mean_yy - mean_y**2)
    known = spread > 1e-20 * (mean_xx * mean_yy)
    covariance = mean(x * y) - mean_x * mean_y
    return np.where(known, covariance / np.sqrt(np.where(known, spread, 1.0)), np.nan)


def _ranks(counts: Array, values: Array) -> Array:
    """Computes centred mid-ranks within every sample [samples, examples]."""
    distinct, place = np.unique(np.round(values, 12), return_inverse=True)
    member = np.zeros((len(values), len(distinct)))
    member[np.arange(len(values)), place] = 1
    drawn = counts @ member  # [samples, distinct values]
    middle = np.cumsum(drawn, axis=1) - drawn / 2
    return np.asarray((middle - counts.sum(axis=1, keepdims=True) / 2)[:, place])


@contextmanager
def _quiet() -> Iterator[None]:
    """Lets buckets without a single known value pass as NaN, without NumPy's warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(Mean of empty|All-NaN) slice", RuntimeWarning)
        yield


def _pooled(values: Array, weights: Array) -> Array:
    """Computes the weighted mean over the buckets that are not NaN [samples]."""
    shares = np.where(np.isnan(values), 0.0, weights)
    total = shares.sum(axis=1)
    summed = (np.nan_to_num(values) * shares).sum(axis=1)
    return np.where(total > 0, summed / np.where(total > 0, total, 1.0), np.nan)
