"""ROC AUC and Spearman's correlation: metrics of ranks.

Both follow from the moments of mid-ranks (`evaluate.metrics.rank_moments`): joint and the two spreads.

- Spearman's correlation is joint / sqrt(label spread x prediction spread);
- the area under the ROC curve is 1/2 + joint / (2 label spread), for with P positives and N
  negatives the label spread is P N (P + N) / 4 and joint is (P + N) / 2 times the excess of the
  positives' ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.classification import require_binary
from multiberts.evaluate.metrics.column_metric import Array, Flags, Uses, checked, ratio
from multiberts.evaluate.metrics.continuous import require_numbers
from multiberts.evaluate.metrics.rank_moments import RankMoments, SortedRuns


@dataclass(frozen=True)
class RankMetric:
    """A score of predictions against labels that depends on their order alone.

    Attributes:
      name: the key in `METRICS`.
      finish: moments -> scores.
      degenerate: moments -> bool, True where the score is 0/0 and its defined value is given.
      partials: (moments, scores) -> derivatives of the score by joint, label spread and
        prediction spread.
      check: raises ValueError where labels or predictions do not suit.
      higher_is_better: the direction in which a learning rate is chosen.
      uses: what predictions are, see `Metric`.
      both_spreads: whether the score looks at the spread of the predictions' ranks, which is else
        left 0.
      mean_of: None, for no rank metric is a mean.
      is_correlation: see `Metric`.
      uses_labels: see `Metric`.
      bounds: see `Metric`.
    """

    name: str
    finish: Callable[[RankMoments], Array]
    degenerate: Callable[[RankMoments], Flags]
    partials: Callable[[RankMoments, Array], tuple[Array, Array, Array]]
    check: Callable[[NDArray, NDArray], None]
    higher_is_better: bool | None = True
    uses: Uses = "prediction"
    both_spreads: bool = True
    mean_of: int | None = None
    is_correlation: bool = False
    uses_labels: bool = True
    bounds: tuple[float, float] = (-1.0, 1.0)

    def bind(
        self, labels: ArrayLike, predictions: ArrayLike, observed: ArrayLike | None = None
    ) -> BoundRankMetric:
        """Sorts the predictions, once for any number of replicates.

        Args:
          labels: [examples].
          predictions: [runs, examples].
          observed: bool [runs, examples], False where a prediction is missing; None if none is.

        Raises:
          ValueError: the shapes differ, there are no examples, or the values do not suit the
            metric.
        """
        label_array, prediction_array = self._checked(labels, predictions)
        if prediction_array.ndim != 2:
            raise ValueError(
                f"found predictions of shape {prediction_array.shape}, expected [runs, examples]"
            )
        mask = None if observed is None else np.asarray(observed, dtype=bool)
        if mask is not None and mask.shape != prediction_array.shape:
            raise ValueError(
                f"found observed of shape {mask.shape}, expected that of the predictions, "
                f"{prediction_array.shape}"
            )
        return BoundRankMetric(self, label_array, prediction_array, mask)

    def score(
        self, labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None
    ) -> Array:
        """Scores predictions, plainly or under weights; see `Metric.score`."""
        label_array, prediction_array = self._checked(labels, predictions)
        rows = prediction_array.reshape(-1, len(label_array))
        table = np.ones(len(label_array)) if weights is None else np.asarray(weights)
        scores, _ = BoundRankMetric(self, label_array, rows).weighted(np.atleast_2d(table))
        return scores.T.reshape(prediction_array.shape[:-1] + table.shape[:-1])

    def influence(self, labels: ArrayLike, predictions: ArrayLike) -> Array:
        """Computes how each example moves the score: examples x d score / d weight, at weights of one.

        Its mean is 0; the score + influence are pseudo-values. For AUC these are DeLong's
        placements (DeLong et al., 1988). Zero where the score is degenerate.

        Args:
          labels: [examples].
          predictions: [..., examples].

        Returns:
          float64 [..., examples].
        """
        label_array, prediction_array = self._checked(labels, predictions)
        of_labels = _PlainRanks(label_array)
        influence = np.empty(prediction_array.shape)
        flat = influence.reshape(-1, len(label_array))
        for row, values in enumerate(prediction_array.reshape(flat.shape)):
            flat[row] = self._influence(of_labels, _PlainRanks(values))
        return influence

    def _influence(self, labels: _PlainRanks, predictions: _PlainRanks) -> Array:
        number = len(labels.ranks)
        x, y = labels.ranks, predictions.ranks
        moments = RankMoments(*map(np.asarray, (x @ y, x @ x, y @ y)))
        if self.degenerate(moments):
            return np.zeros(number)
        by_joint, by_label_spread, by_prediction_spread = self.partials(
            moments, self.finish(moments)
        )
        joint = (
            labels.ranks * predictions.ranks
            + labels.moved(predictions.ranks)
            + predictions.moved(labels.ranks)
        )
        spreads = by_label_spread * labels.spread_derivative
        spreads += by_prediction_spread * predictions.spread_derivative
        return number * (by_joint * joint + spreads)

    def _checked(self, labels: ArrayLike, predictions: ArrayLike) -> tuple[NDArray, NDArray]:
        label_array, prediction_array = checked(labels, predictions)
        require_numbers(self.name, label_array, prediction_array)
        for what, values in (("labels", label_array), ("predictions", prediction_array)):
            if values.dtype.kind == "f" and np.isnan(values).any():
                raise ValueError(
                    f"{self.name}: found nan in {what}, and nan has no rank; leave out the runs or "
                    "examples that hold it"
                )
        self.check(label_array, prediction_array)
        return label_array, prediction_array


class _PlainRanks:
    """Centred mid-ranks of values [examples] of weight one, and how weights move them."""

    def __init__(self, values: NDArray):
        _, self._group, self._sizes = np.unique(values, return_inverse=True, return_counts=True)
        below = np.cumsum(self._sizes) - self._sizes
        self.ranks = (below + self._sizes / 2 - len(values) / 2)[self._group]

    def moved(self, others: Array) -> Array:
        """Derivatives of sum_j others_j ranks_j by the weights, through the ranks alone.

        One more of example k lifts centred ranks above it by a half and lowers those below.
        """
        sums = np.bincount(self._group, others, minlength=len(self._sizes))
        until = np.cumsum(sums)
        derivatives: Array = ((until[-1] - 2 * until + sums) / 2)[self._group]
        return derivatives

    @property
    def spread_derivative(self) -> Array:
        """Of (n^3 - sum of the groups' sizes^3) / 12, which is the sum of squared ranks."""
        return (len(self._group) ** 2 - self._sizes.astype(np.float64) ** 2)[self._group] / 4


class BoundRankMetric:
    """A rank metric with its predictions sorted.

    Attributes:
      metric: which.
    """

    def __init__(
        self,
        metric: RankMetric,
        labels: NDArray,
        predictions: NDArray,
        observed: NDArray | None = None,
    ):
        self.metric = metric
        self._sorted = SortedRuns(labels, predictions, observed, metric.both_spreads)

    def weighted(self, weights: ArrayLike) -> tuple[Array, Flags]:
        """Computes scores under weights, and where they are defined values.

        Args:
          weights: [replicates, examples], non-negative.

        Returns:
          float64 [replicates, runs] and bool [replicates, runs].
        """
        table = np.asarray(weights)
        if table.ndim != 2 or table.shape[1] != self._sorted.num_examples:
            raise ValueError(
                f"found weights of shape {table.shape}, expected [replicates, "
                f"{self._sorted.num_examples}]"
            )
        shape = len(table), self._sorted.num_runs
        scores, degenerate = np.empty(shape), np.empty(shape, dtype=bool)
        for rows, moments in self._sorted.moments(table):
            number = rows.stop - rows.start
            scores[rows] = self.metric.finish(moments)[:number]
            degenerate[rows] = self.metric.degenerate(moments)[:number]
        return scores, degenerate


def _auc(moments: RankMoments) -> Array:
    return np.clip(0.5 + ratio(moments.joint, 2 * moments.label_spread), 0.0, 1.0)


def _auc_degenerate(moments: RankMoments) -> Flags:
    return moments.label_spread <= 0


def _auc_partials(moments: RankMoments, score: Array) -> tuple[Array, Array, Array]:
    by_joint = 1 / (2 * moments.label_spread)
    return by_joint, -(score - 0.5) / moments.label_spread, np.zeros_like(by_joint)


def _auc_check(labels: NDArray, predictions: NDArray) -> None:
    del predictions
    require_binary("auc", labels, None, "map the classes to 0 and 1 and give the score of class 1")


def _spearman(moments: RankMoments) -> Array:
    scale = np.sqrt(moments.label_spread * moments.prediction_spread)
    return np.clip(ratio(moments.joint, scale), -1.0, 1.0)


def _spearman_degenerate(moments: RankMoments) -> Flags:
    return (moments.label_spread <= 0) | (moments.prediction_spread <= 0)


def _spearman_partials(moments: RankMoments, score: Array) -> tuple[Array, Array, Array]:
    return (
        1 / np.sqrt(moments.label_spread * moments.prediction_spread),
        -score / (2 * moments.label_spread),
        -score / (2 * moments.prediction_spread),
    )


RANK_METRICS = (
    # With one class alone there is nothing to rank: 1/2, what ranking by chance gives on average,
    # so that such a replicate pulls the score neither way.
    RankMetric(
        "auc",
        _auc,
        _auc_degenerate,
        _auc_partials,
        _auc_check,
        uses="positive_score",
        both_spreads=False,
        bounds=(0.0, 1.0),
    ),
    # 0 where labels or predictions are constant, as for Pearson's correlation.
    RankMetric(
        "spearman",
        _spearman,
        _spearman_degenerate,
        _spearman_partials,
        lambda _labels, _predictions: None,
        is_correlation=True,
    ),
)
