"""Metrics as columns and a finish: one definition for evaluation and for the bootstrap.

A metric turns each example into K numbers (its columns), sums them with weights, and finishes the
sums into a score. The plain score has weights of one; a bootstrap replicate has the counts of the
examples drawn. So a thousand replicates are one product of a count matrix with the columns.

Values where the textbook formula is 0/0 are defined, so that no replicate is lost, and can be
counted with `Metric.degenerate`:

- `f1` is 0 where neither labels nor predictions hold a positive (scikit-learn's `zero_division`
  default);
- `matthews` is 0 where labels or predictions are constant (as scikit-learn);
- `pearson` is 0 where labels or predictions are constant (SciPy gives NaN);
- `slope` is 0 where the labels are constant.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# A sum of squares this small beside the sum it was made from is rounding, not spread.
_RELATIVE_ROUNDING = 1e-13


def _never_degenerate(sums: Array) -> NDArray[np.bool_]:
    return np.zeros(sums.shape[:-1], dtype=bool)


@dataclass(frozen=True)
class Metric:
    """A score of predictions against labels.

    Attributes:
        name: the key in `METRICS`.
        columns: (labels [examples], predictions [..., examples]) -> float64 [..., examples, K].
        finish: sums [..., K] -> scores [...]. Scaling all sums alike does not change the score.
        degenerate: sums [..., K] -> bool [...], True where the score is 0/0 and its defined value
            stands.
        mean_of: the column whose plain mean over examples is the score, or None for a non-linear
            metric; column 0 is then a column of ones.
        higher_is_better: the direction in which a learning rate is chosen; None where there is
            none.
    """

    name: str
    columns: Callable[[NDArray, NDArray], Array]
    finish: Callable[[Array], Array]
    degenerate: Callable[[Array], NDArray[np.bool_]] = _never_degenerate
    mean_of: int | None = None
    higher_is_better: bool | None = True

    def score(
        self, labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None
    ) -> Array:
        """Scores predictions, plainly or under weights.

        Args:
            labels: [examples].
            predictions: [..., examples].
            weights: None, [examples] or [replicates, examples], non-negative.

        Returns:
            float64 [...], or [..., replicates] with a matrix of weights.

        Raises:
            ValueError: the shapes differ, there are no examples, or the values do not suit the
                metric.
        """
        columns = self.columns(*_checked(labels, predictions))
        if weights is None:
            return self.finish(columns.sum(axis=-2))
        return self.finish(np.asarray(weights, dtype=np.float64) @ columns)


def _checked(labels: ArrayLike, predictions: ArrayLike) -> tuple[NDArray, NDArray]:
    label_array, prediction_array = np.asarray(labels), np.asarray(predictions)
    if label_array.ndim != 1 or prediction_array.shape[-1:] != label_array.shape:
        raise ValueError(
            f"labels have shape {label_array.shape} and predictions {prediction_array.shape}, "
            "expected "
            "[examples] and [..., examples]; check that the examples are the last axis of both"
        )
    if label_array.size == 0:
        raise ValueError("found no examples, expected at least one")
    return label_array, prediction_array


def _ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator, and 0 where the denominator is 0."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), 0.0)


def _stack(shape: tuple[int, ...], *columns: ArrayLike) -> Array:
    """Columns broadcast to `shape` [..., examples] and stacked to [..., examples, K]."""
    stacked = np.empty((*shape, len(columns)))
    for position, column in enumerate(columns):
        stacked[..., position] = column
    return stacked


def _mean_finish(sums: Array) -> Array:
    return _ratio(sums[..., 1], sums[..., 0])


def _accuracy_columns(labels: NDArray, predictions: NDArray) -> Array:
    return _stack(predictions.shape, 1.0, predictions == labels)


def _error_columns(labels: NDArray, predictions: NDArray) -> Array:
    return _stack(predictions.shape, 1.0, predictions != labels)


def _mse_columns(labels: NDArray, predictions: NDArray) -> Array:
    return _stack(predictions.shape, 1.0, (predictions.astype(np.float64) - labels) ** 2)


def _mean_columns(labels: NDArray, predictions: NDArray) -> Array:
    return _stack(predictions.shape, 1.0, predictions)


def is_binary(values: NDArray) -> bool:
    """Whether every value is 0 or 1."""
    return bool(np.isin(values, (0, 1)).all())


def _require_binary(name: str, labels: NDArray, predictions: NDArray) -> None:
    for what, values in (("labels", labels), ("predictions", predictions)):
        if not is_binary(values):
            other = values[~np.isin(values, (0, 1))].flat[0]
            raise ValueError(
                f"{name} is for two classes 0 and 1, found {other!r} in {what}; map the classes "
                "to 0 and 1"
            )


def _f1_columns(labels: NDArray, predictions: NDArray) -> Array:
    _require_binary("f1", labels, predictions)
    # 2 tp / (2 tp + fp + fn), and the denominator is the positives on either side.
    return _stack(predictions.shape, 2.0 * labels * predictions, 1.0 * labels + predictions)


def _f1_finish(sums: Array) -> Array:
    return _ratio(sums[..., 0], sums[..., 1])


def _f1_degenerate(sums: Array) -> NDArray[np.bool_]:
    return sums[..., 1] <= 0


def _matthews_columns(labels: NDArray, predictions: NDArray) -> Array:
    _require_binary("matthews", labels, predictions)
    return _stack(predictions.shape, 1.0, labels, predictions, 1.0 * labels * predictions)


def _matthews_finish(sums: Array) -> Array:
    count, labels, predictions, both = np.moveaxis(sums, -1, 0)
    # Weights may be fractions: what is left of a class by rounding counts as none.
    spread = _clipped(labels * (count - labels), count**2) * _clipped(
        predictions * (count - predictions), count**2
    )
    return _ratio(count * both - labels * predictions, np.sqrt(spread))


def _matthews_degenerate(sums: Array) -> NDArray[np.bool_]:
    count, labels, predictions, _ = np.moveaxis(sums, -1, 0)
    return (_clipped(labels * (count - labels), count**2) <= 0) | (
        _clipped(predictions * (count - predictions), count**2) <= 0
    )


def _clipped(spread: Array, scale: Array) -> Array:
    return np.where(spread > _RELATIVE_ROUNDING * scale, spread, 0.0)


def _centred(values: NDArray) -> Array:
    """Values less their plain mean over examples, with rounding of a constant row set to 0.

    Correlation and slope do not change by a shift, and sums of squares keep their digits.
    """
    values = values.astype(np.float64)
    centred = values - values.mean(axis=-1, keepdims=True)
    size = np.abs(values).max(axis=-1, keepdims=True)
    return np.where(np.abs(centred) <= 8 * np.finfo(np.float64).eps * size, 0.0, centred)


def _moment_columns(labels: NDArray, predictions: NDArray) -> Array:
    x, y = _centred(labels), _centred(predictions)
    return _stack(y.shape, 1.0, x, y, x * x, y * y, x * y)


def _spreads(sums: Array) -> tuple[Array, Array, Array]:
    """Label spread, prediction spread and co-spread, each count**2 times its population moment."""
    count, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    return (
        _clipped(count * xx - x * x, count * xx),
        _clipped(count * yy - y * y, count * yy),
        count * xy - x * y,
    )


def _pearson_finish(sums: Array) -> Array:
    label_spread, prediction_spread, joint = _spreads(sums)
    return np.clip(_ratio(joint, np.sqrt(label_spread) * np.sqrt(prediction_spread)), -1.0, 1.0)


def _pearson_degenerate(sums: Array) -> NDArray[np.bool_]:
    label_spread, prediction_spread, _ = _spreads(sums)
    return (label_spread <= 0) | (prediction_spread <= 0)


def _slope_finish(sums: Array) -> Array:
    label_spread, _, joint = _spreads(sums)
    return _ratio(joint, label_spread)


def _slope_degenerate(sums: Array) -> NDArray[np.bool_]:
    return _spreads(sums)[0] <= 0


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", _accuracy_columns, _mean_finish, mean_of=1),
        Metric("error", _error_columns, _mean_finish, mean_of=1, higher_is_better=False),
        Metric("mse", _mse_columns, _mean_finish, mean_of=1, higher_is_better=False),
        # The plain mean of the predictions, for those that are scores already (exact match, F1 of
        # SQuAD).
        Metric("mean", _mean_columns, _mean_finish, mean_of=1),
        Metric("f1", _f1_columns, _f1_finish, _f1_degenerate),
        Metric("matthews", _matthews_columns, _matthews_finish, _matthews_degenerate),
        Metric("pearson", _moment_columns, _pearson_finish, _pearson_degenerate),
        # The least-squares slope of the predictions on the labels.
        Metric("slope", _moment_columns, _slope_finish, _slope_degenerate, higher_is_better=None),
    )
}


def metric_named(name: str) -> Metric:
    """The metric of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in METRICS:
        raise ValueError(f"found metric {name!r}, expected one of {', '.join(sorted(METRICS))}")
    return METRICS[name]
