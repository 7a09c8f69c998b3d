"""Rank metrics: ROC AUC, Spearman's correlation and average precision.

The first two follow from the moments of mid-ranks (`evaluate.metrics.rank_moments`): joint and the two
spreads.

- Spearman's correlation is joint / sqrt(label spread x prediction spread);
- the area under the ROC curve is 1/2 + joint / (2 label spread), because with P positives and N
  negatives the label spread is P N (P + N) / 4, and joint is (P + N) / 2 times the excess of the
  positives' ranks.

Average precision, the area under the precision-recall curve, is the mean over positives of the precision
among examples with at least their score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.classification import require_binary
from multiberts.evaluate.metrics.column_metric import Array, Flags, Unit, Uses, checked, ratio
from multiberts.evaluate.metrics.continuous import require_numbers
from multiberts.evaluate.metrics.rank_moments import RankMoments, SortedRuns


@dataclass(frozen=True, kw_only=True)
class RankMetric(ABC):
    """A score of predictions against labels that depends only on their order.

    Attributes (the others are those of `Metric`):
      check: raises ValueError for unsuitable labels or predictions.
      mean_of: None, as no rank metric is a mean.
      scored: labels [examples] -> bool [examples, shares]; otherwise as in `Metric`.
    """

    name: str
    check: Callable[[NDArray, NDArray], None]
    higher_is_better: bool | None = True
    uses: Uses = "prediction"
    mean_of: int | None = None
    is_correlation: bool = False
    uses_labels: bool = True
    bounds: tuple[float, float] = (-1.0, 1.0)
    scored: Callable[[NDArray], Flags] | None = None
    steepness: float = 1.0
    label: str = ""
    unit: Unit = ""
    meaning: str = ""

    def bind(
        self, labels: ArrayLike, predictions: ArrayLike, observed: ArrayLike | None = None
    ) -> BoundRankMetric:
        """Sorts the predictions, once for any number of replicates.

        Args:
          observed: bool [runs, examples], False for missing predictions; None if none is missing.
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
        return self._bound(label_array, prediction_array, mask)

    def score(
        self, labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None
    ) -> Array:
        """Scores predictions, unweighted or weighted; see `Metric.score`."""
        label_array, prediction_array = self._checked(labels, predictions)
        rows = prediction_array.reshape(-1, len(label_array))
        table = np.ones(len(label_array)) if weights is None else np.asarray(weights)
        scores, _ = self._bound(label_array, rows, None).weighted(np.atleast_2d(table))
        return scores.T.reshape(prediction_array.shape[:-1] + table.shape[:-1])

    def influence(self, labels: ArrayLike, predictions: ArrayLike) -> Array:
        """Computes the influence of each example: examples x d score / d weight, at weights of one.

        Its mean is 0; score + influence are pseudo-values, for AUC DeLong's placements (DeLong et al.,
        1988). It is 0 for a degenerate score.

        Args:
          predictions: predictions [..., examples].

        Returns:
          float64 [..., examples].
        """
        label_array, prediction_array = self._checked(labels, predictions)
        rows = prediction_array.reshape(-1, len(label_array))
        return self._influences(label_array, rows).reshape(prediction_array.shape)

    @abstractmethod
    def _bound(
        self, labels: NDArray, predictions: NDArray, observed: NDArray | None
    ) -> BoundRankMetric: ...

    @abstractmethod
    def _influences(self, labels: NDArray, predictions: NDArray) -> Array:
        """Computes `influence` for predictions [runs, examples]."""

    def _checked(self, labels: ArrayLike, predictions: ArrayLike) -> tuple[NDArray, NDArray]:
        label_array, prediction_array = checked(labels, predictions)
        require_numbers(self.name, label_array, prediction_array)
        for role, values in (("labels", label_array), ("predictions", prediction_array)):
            if values.dtype.kind == "f" and np.isnan(values).any():
                raise ValueError(
                    f"{self.name}: found nan in {role}, and nan has no rank; leave out the runs or "
                    "examples that have it"
                )
        self.check(label_array, prediction_array)
        return label_array, prediction_array


@dataclass(frozen=True, kw_only=True)
class MomentMetric(RankMetric):
    """A metric that follows from moments of ranks.

    Attributes:
      finish: moments -> scores.
      degenerate: moments -> bool, True if the score is 0/0 and a defined value is returned.
      partials: (moments, scores) -> derivatives of the score by joint, label spread and prediction
        spread.
      both_spreads: whether the score needs the spread of the predictions' ranks; otherwise it is 0.
    """

    finish: Callable[[RankMoments], Array]
    degenerate: Callable[[RankMoments], Flags]
    partials: Callable[[RankMoments, Array], tuple[Array, Array, Array]]
    both_spreads: bool = True

    def _bound(
        self, labels: NDArray, predictions: NDArray, observed: NDArray | None
    ) -> BoundRankMetric:
        return _BoundMoments(self, labels, predictions, observed)

    def _influences(self, labels: NDArray, predictions: NDArray) -> Array:
        of_labels = _PlainRanks(labels)
        return np.stack([self._influence(of_labels, _PlainRanks(row)) for row in predictions])

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


class _PlainRanks:
    """Centred mid-ranks of values [examples] of weight one, and their derivatives by the weights."""

    def __init__(self, values: NDArray):
        _, self._group, self._sizes = np.unique(values, return_inverse=True, return_counts=True)
        below = np.cumsum(self._sizes) - self._sizes
        self.ranks = (below + self._sizes / 2 - len(values) / 2)[self._group]

    def moved(self, others: Array) -> Array:
        """Returns derivatives of sum_j others_j ranks_j by the weights in the ranks.

        One more copy of example k raises centred ranks above it by a half, and lowers those below by a half.
        """
        sums = np.bincount(self._group, others, minlength=len(self._sizes))
        until = np.cumsum(sums)
        derivatives: Array = ((until[-1] - 2 * until + sums) / 2)[self._group]
        return derivatives

    @property
    def spread_derivative(self) -> Array:
        """Returns derivatives of the sum of squared ranks, (n^3 - sum of the groups' sizes^3) / 12."""
        return (len(self._group) ** 2 - self._sizes.astype(np.float64) ** 2)[self._group] / 4


class BoundRankMetric(ABC):
    """A rank metric with its predictions sorted."""

    def __init__(self, metric: RankMetric, num_examples: int, num_runs: int):
        self.metric = metric
        self.num_examples, self.num_runs = num_examples, num_runs

    def weighted(self, weights: ArrayLike) -> tuple[Array, Flags]:
        """Computes weighted scores, and whether they are defined values for 0/0.

        Args:
          weights: non-negative weights [replicates, examples].

        Returns:
          float64 [replicates, runs] and bool [replicates, runs].
        """
        table = np.asarray(weights)
        if table.ndim != 2 or table.shape[1] != self.num_examples:
            raise ValueError(
                f"found weights of shape {table.shape}, expected [replicates, {self.num_examples}]"
            )
        shape = len(table), self.num_runs
        scores, degenerate = np.empty(shape), np.empty(shape, dtype=bool)
        self._fill(table, scores, degenerate)
        return scores, degenerate

    @abstractmethod
    def _fill(self, table: NDArray, scores: Array, degenerate: Flags) -> None: ...


class _BoundMoments(BoundRankMetric):
    def __init__(
        self,
        metric: MomentMetric,
        labels: NDArray,
        predictions: NDArray,
        observed: NDArray | None,
    ):
        super().__init__(metric, len(labels), len(predictions))
        self._moment_metric = metric
        self._sorted = SortedRuns(labels, predictions, observed, metric.both_spreads)

    def _fill(self, table: NDArray, scores: Array, degenerate: Flags) -> None:
        for rows, moments in self._sorted.moments(table):
            number = rows.stop - rows.start
            scores[rows] = self._moment_metric.finish(moments)[:number]
            degenerate[rows] = self._moment_metric.degenerate(moments)[:number]


class AveragePrecision(RankMetric):
    """The area under the steps of precision over recall."""

    def _bound(
        self, labels: NDArray, predictions: NDArray, observed: NDArray | None
    ) -> BoundRankMetric:
        return _BoundPrecision(self, labels, predictions, observed)

    def _influences(self, labels: NDArray, predictions: NDArray) -> Array:
        positive, influences = 1.0 * (labels == 1), np.zeros(predictions.shape)
        number = positive.sum()
        for influence, values in zip(influences, predictions, strict=True):
            if not number:
                break
            order, ends = _falling(values)
            groups = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
            hits, counts = np.cumsum(positive[order])[ends], ends + 1.0
            gained = np.diff(hits, prepend=0.0)
            precision = hits / counts
            # A further example changes the precision at all positives with at most its score.
            raised = np.cumsum((gained / counts)[::-1])[::-1]
            lowered = np.cumsum((gained * precision / counts)[::-1])[::-1]
            score = gained @ precision / number
            gain = positive[order] * (precision + raised - score)[groups]
            influence[order] = len(labels) * (gain - lowered[groups]) / number
        return influences


# Replicates per chunk.
_CHUNK = 64


class _BoundPrecision(BoundRankMetric):
    def __init__(
        self, metric: RankMetric, labels: NDArray, predictions: NDArray, observed: NDArray | None
    ):
        super().__init__(metric, len(labels), len(predictions))
        self._positive = labels == 1
        self._runs = []
        for row, values in enumerate(predictions):
            seen = np.arange(len(labels)) if observed is None else np.flatnonzero(observed[row])
            order, ends = _falling(values[seen])
            self._runs.append((seen[order], ends))

    def _fill(self, table: NDArray, scores: Array, degenerate: Flags) -> None:
        for run, (order, ends) in enumerate(self._runs):
            positive = self._positive[order]
            for first in range(0, len(table), _CHUNK):
                rows = slice(first, first + _CHUNK)
                weights = table[rows][:, order].astype(np.float64)
                counts = np.cumsum(weights, axis=1)[:, ends]
                hits = np.cumsum(weights * positive, axis=1)[:, ends]
                total = hits[:, -1] if len(ends) else np.zeros(len(weights))
                gained = np.diff(hits, axis=1, prepend=0.0)
                # Contiguous, so that all replicates are summed in the same order.
                terms = np.ascontiguousarray(gained * ratio(hits, counts))
                scores[rows, run] = ratio(terms.sum(axis=1), total)
                degenerate[rows, run] = total <= 0


def _falling(values: NDArray) -> tuple[NDArray, NDArray]:
    """Returns the descending order, and the last index of each group of equal values."""
    order = np.argsort(values, kind="stable")[::-1]
    ordered = values[order]
    return order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], len(ordered) > 0))


def _auc_partials(moments: RankMoments, score: Array) -> tuple[Array, Array, Array]:
    by_joint = 1 / (2 * moments.label_spread)
    return by_joint, -(score - 0.5) / moments.label_spread, np.zeros_like(by_joint)


def _check_binary(name: str, labels: NDArray, predictions: NDArray) -> None:
    del predictions
    require_binary(name, labels, None, "map the classes to 0 and 1 and give the score of class 1")


def _of_rarer_class(labels: NDArray) -> Flags:
    """Returns whether each example has the rarer class [examples, 1]."""
    positive = labels == 1
    rarer: Flags = positive if 2 * positive.sum() <= len(labels) else ~positive
    return rarer[:, None]


def _spearman(moments: RankMoments) -> Array:
    scale = np.sqrt(moments.label_spread * moments.prediction_spread)
    return np.clip(ratio(moments.joint, scale), -1.0, 1.0)


def _spearman_partials(moments: RankMoments, score: Array) -> tuple[Array, Array, Array]:
    return (
        1 / np.sqrt(moments.label_spread * moments.prediction_spread),
        -score / (2 * moments.label_spread),
        -score / (2 * moments.prediction_spread),
    )


RANK_METRICS = (
    # 1/2 with a single class, the mean of random rankings, so that such replicates do not bias the score.
    MomentMetric(
        name="auc",
        label="AUC",
        meaning="Chance that a positive example scores above a negative one.",
        finish=lambda of: np.clip(0.5 + ratio(of.joint, 2 * of.label_spread), 0.0, 1.0),
        degenerate=lambda moments: moments.label_spread <= 0,
        partials=_auc_partials,
        check=partial(_check_binary, "auc"),
        uses="positive_score",
        both_spreads=False,
        bounds=(0.0, 1.0),
        scored=_of_rarer_class,
    ),
    # 0 for constant labels or predictions, as Pearson's correlation.
    MomentMetric(
        name="spearman",
        label="Spearman's correlation",
        meaning="Correlation of their ranks.",
        finish=_spearman,
        degenerate=lambda of: (of.label_spread <= 0) | (of.prediction_spread <= 0),
        partials=_spearman_partials,
        check=lambda _labels, _predictions: None,
        is_correlation=True,
    ),
    # 0 without a positive, as scikit-learn.
    AveragePrecision(
        name="average_precision",
        meaning="Area under precision over recall.",
        check=partial(_check_binary, "average_precision"),
        uses="positive_score",
        bounds=(0.0, 1.0),
        scored=lambda labels: (labels == 1)[:, None],
    ),
)
