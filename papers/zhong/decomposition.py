"""Decomposes the expected loss into squared bias and the variance of each source of randomness.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?"
(Findings of ACL 2021), section 6 and appendix H. A run's score v on an example has the loss (v - target)^2.
Over pre-training seeds, fine-tuning seeds and further levels,

    expected loss = (E v - target)^2 + variance between pre-training seeds
                    + variance between fine-tuning runs of a seed + ...

With target 1 and v = 1 for right answers (else 0), this is the 0/1 loss; with v the probability of the right
answer, it is the squared loss. For the Brier score, decompose the probability of each class with its target,
and add up the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.papers.zhong.ensembles import Runs, as_runs
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import Key, RunsTable

Array = NDArray[np.float64]
# Number of cells per block of examples, which limits the memory.
_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True)
class LossPart:
    """A mean over examples with its standard error for fixed seeds."""

    mean: float
    standard_error: float


@dataclass(frozen=True)
class Decomposition:
    """Loss of one size on each example, and its parts.

    Attributes:
      loss: expected loss [examples].
      bias_squared: loss minus all variances [examples]; an unbiased estimate, so values can be negative.
      variances: variance [examples] by level, outermost first, between members of a level that share all
        levels above; unbiased estimates, so values can be negative.
      overall: variance of the mean score over all examples, by level: that of accuracy, for 0/1 scores.
    """

    loss: Array
    bias_squared: Array
    variances: Mapping[str, Array]
    overall: Mapping[str, float]

    @property
    def parts(self) -> dict[str, LossPart]:
        """Returns means over examples: `bias_squared`, the variance of each level, and `loss`, their sum."""
        columns = {"bias_squared": self.bias_squared, **self.variances, "loss": self.loss}
        return {name: part(values) for name, values in columns.items()}

    @property
    def ratios(self) -> tuple[float, float]:
        """Returns two ratios of section 6; NaN if a variance is missing, or estimated below 0.

        Fine-tuning variance to pre-training variance, and the variance of one run's score on an example to
        that of its mean score over all examples.
        """
        means = {level: float(values.mean()) for level, values in self.variances.items()}
        pairs = (
            (means.get("finetune_seed", np.nan), means.get("pretrain_seed", np.nan)),
            (sum(means.values()), sum(self.overall.values())),
        )
        fine, overall = (upper / lower if upper >= 0 < lower else np.nan for upper, lower in pairs)
        return fine, overall

    @property
    def disagreements(self) -> dict[str, Array]:
        """Returns mean squared differences [examples] of two runs, by the outermost level that differs.

        The mean is twice the sum of the variances of that level and the levels below. For 0/1 scores it is
        the share of pairs of runs with one right and one wrong answer.
        """
        inner_first = list(self.variances)[::-1]
        sums = np.cumsum([self.variances[level] for level in inner_first], axis=0)
        by_depth = dict(zip(inner_first, 2 * sums, strict=True))
        return {level: by_depth[level] for level in self.variances}


def part(values: Array) -> LossPart:
    """Computes mean and standard error over examples; the error is NaN for one example."""
    number = len(values)
    spread = values.std(ddof=1) / np.sqrt(number) if number > 1 else np.nan
    return LossPart(float(values.mean()), float(spread))


def decompose(runs: Runs, target: ArrayLike = 1.0) -> Decomposition:
    """Estimates the squared bias and nested variances of the loss (score - target)^2.

    From the innermost level outwards, a variance is that of the members' means, minus the mean contribution
    of the levels below to these means. The members of a node have equal weight, for any numbers of runs. A
    node with one member has no information on the variance at that level, which is then taken from the other
    nodes. Trees may therefore be unbalanced; all estimates are unbiased if the numbers of runs do not depend
    on the scores.

    Args:
      runs: scores as a `RunsTable` or an array [pretrain_seeds, ..., examples].
      target: score of a perfect run, one number or an array [examples].

    Returns:
      The parts; their sum is exactly the loss.

    Raises:
      DataError: no node of a level has two members.

    Examples:
      >>> from multiberts import stats
      >>> runs = [[[1, 0, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 1], [1, 0, 1], [1, 0, 1]]]  # by seed and run
      >>> sorted(stats.zhong.decompose(runs).variances)
      ['finetune_seed', 'pretrain_seed']

    See also: `conditional_variance`, `variance_components`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", appendix H.
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
    of_runs = nested.predictions.mean(axis=1, keepdims=True, dtype=np.float64)
    overall = {level: float(value[0]) for level, value in _variances(nested, of_runs).items()}
    return Decomposition(loss, bias_squared, variances, overall)


def _members(nested: RunsTable, depth: int) -> dict[Key, list[int]]:
    """Returns for each node at `depth` the indices of its members among the nodes one level below."""
    members: dict[Key, list[int]] = {}
    for column, key in enumerate(nested.groups(depth + 1)):
        members.setdefault(key[:depth], []).append(column)
    return members


def _mean_over_nodes(values: Mapping[Key, Array], levels: tuple[str, ...]) -> Array:
    """Averages values [examples] of some nodes of one depth, first within siblings."""
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
    """Computes the variance of each level, outermost first, from scores [runs, examples]."""
    means = scores
    # Variance of each node's mean that is due to the levels below [nodes, examples].
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
