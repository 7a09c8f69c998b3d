"""Decomposes the expected loss: squared bias, and a variance for every source of randomness.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?"
(Findings of ACL 2021), section 5 and appendix H. A run's score v on an example has the loss
(v - target)^2. Over pre-training seeds, fine-tuning seeds and whatever lies below,

    expected loss = (E v - target)^2 + variance between pre-training seeds
                    + variance between fine-tuning runs of a seed + ...

With v = 1 where the run is right and target 1 the loss is the 0/1 loss; with v the probability of
the right answer it is the squared loss. For the Brier score take each class's probability with its
own target, and add up the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import Key, Runs, RunsTable, as_runs

Array = NDArray[np.float64]
# Examples are independent of each other; blocks of cells bound the memory.
_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True)
class LossPart:
    """A mean over examples with its standard error, seeds held fixed."""

    mean: float
    standard_error: float


@dataclass(frozen=True)
class Decomposition:
    """The loss of one size, by example.

    Attributes:
      loss: [examples].
      bias_squared: loss minus all variances [examples]; an unbiased estimate, so single values
        may fall below 0.
      variances: by level, outermost first, the variance [examples] between the members of that
        level that share all levels above; unbiased, so single values may fall below 0.
    """

    loss: Array
    bias_squared: Array
    variances: Mapping[str, Array]

    @property
    def parts(self) -> dict[str, LossPart]:
        """Means over examples: `bias_squared`, every level's variance, and `loss`, their sum."""
        columns = {"bias_squared": self.bias_squared, **self.variances, "loss": self.loss}
        return {name: part(values) for name, values in columns.items()}

    @property
    def disagreements(self) -> dict[str, Array]:
        """Mean squared difference [examples] of two runs, by the outermost level that differs.

        It is twice the sum of the variances of that level and of those below it. For answers that
        are right or wrong it is the share of pairs of runs of which one is right.
        """
        inner_first = list(self.variances)[::-1]
        sums = np.cumsum([self.variances[level] for level in inner_first], axis=0)
        by_depth = dict(zip(inner_first, 2 * sums, strict=True))
        return {level: by_depth[level] for level in self.variances}


def part(values: Array) -> LossPart:
    """Computes the mean and standard error over examples; the error of one example is NaN."""
    number = len(values)
    spread = values.std(ddof=1) / np.sqrt(number) if number > 1 else np.nan
    return LossPart(float(values.mean()), float(spread))


def decompose(runs: Runs, target: ArrayLike = 1.0) -> Decomposition:
    """Estimates the squared bias and nested variances of the loss (score - target)^2.

    From the innermost level outwards: the variance of the members' means, minus the mean variance
    that the levels below contribute to these means. The members of a node have equal weight,
    however many runs they have. A node with one member contains no information on the variance at
    that level; its contribution to the node's mean is then taken from the other nodes. So trees may
    be unbalanced; every estimate is unbiased if the numbers of runs do not depend on the scores.

    Args:
      runs: scores as `RunsTable`, or an array [pretrain_seeds, ..., examples].
      target: the score of a perfect run, one number or [examples].

    Returns:
      The parts, whose sum is exactly the loss.

    Raises:
      DataError: a level where no node has two members.

    Example:
      >>> from multiberts import stats
      >>> runs = [[[1, 0, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 1], [1, 0, 1], [1, 0, 1]]]  # by seed and run
      >>> sorted(stats.zhong.decompose(runs).variances)
      ['finetune_seed', 'pretrain_seed']

    See also: `conditional_variance`, `variance_components`.

    Reference: Zhong et al. (2021), Are Larger Pretrained Language Models Uniformly Better? Comparing
    Performance at the Instance Level, appendix H.
    """
    nested = as_runs(runs)
    _refuse_lone_levels(nested)
    targets = np.broadcast_to(np.asarray(target, dtype=np.float64), (nested.num_examples,))
    loss = np.empty(nested.num_examples)
    variances = {level: np.empty(nested.num_examples) for level in nested.levels}
    block = max(1, _BLOCK_CELLS // len(nested.keys))
    for start in range(0, nested.num_examples, block):
        columns = slice(start, start + block)
        scores = nested.predictions[:, columns].astype(np.float64)
        for level, values in _variances(nested, scores).items():
            variances[level][columns] = values
        losses = RunsTable((scores - targets[columns]) ** 2, nested.keys, nested.levels)
        loss[columns] = losses.mean()
    bias_squared = loss - sum(variances.values())
    return Decomposition(loss, bias_squared, variances)


def _members(nested: RunsTable, depth: int) -> dict[Key, list[int]]:
    """Returns, for every node at `depth`, its members' positions among the nodes one level below."""
    members: dict[Key, list[int]] = {}
    for column, key in enumerate(nested.groups(depth + 1)):
        members.setdefault(key[:depth], []).append(column)
    return members


def _mean_over_nodes(values: Mapping[Key, Array], levels: tuple[str, ...]) -> Array:
    """Averages values [examples] of some nodes of one depth, siblings first."""
    keys = tuple(values)
    if not keys[0]:  # the root alone
        return values[()]
    return RunsTable(np.stack(list(values.values())), keys, levels[: len(keys[0])]).mean()


def _refuse_lone_levels(nested: RunsTable) -> None:
    for depth, level in enumerate(nested.levels):
        if max(map(len, _members(nested, depth).values())) < 2:
            raise DataError(
                f"found no two runs that differ in {level} alone, expected some to estimate its "
                f"variance; add runs, or leave {level} out of the keys"
            )


def _variances(nested: RunsTable, scores: Array) -> dict[str, Array]:
    """Computes the variance of every level, outermost first, from scores [runs, examples]."""
    means = scores
    # The variance of each mean that comes from the levels below [nodes, examples].
    noise = np.zeros_like(scores)
    variances: dict[str, Array] = {}
    for depth in range(len(nested.levels) - 1, -1, -1):
        members = _members(nested, depth)
        inner = {node: noise[rows].mean(axis=0) for node, rows in members.items()}
        spread = {
            node: means[rows].var(axis=0, ddof=1) for node, rows in members.items() if len(rows) > 1
        }
        deviations = {node: values - inner[node] for node, values in spread.items()}
        variance = _mean_over_nodes(deviations, nested.levels)
        variances[nested.levels[depth]] = variance
        noise = np.stack(
            [
                spread[node] / len(rows) if node in spread else variance + inner[node]
                for node, rows in members.items()
            ]
        )
        means = np.stack([means[rows].mean(axis=0) for rows in members.values()])
    return {level: variances[level] for level in nested.levels}
