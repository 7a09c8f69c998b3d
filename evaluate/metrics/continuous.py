"""Metrics of numbers against numbers: errors, means, Pearson correlation, slope.

`pearson` is 0 for constant labels or predictions (SciPy: NaN), `slope` for constant labels.
"""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Flags,
    Metric,
    mean_metric,
    shown,
    stack,
)
from multiberts.evaluate.metrics.column_metric import ratio as ratio_of

# Sums of squares below this share of their terms are rounding errors, not variance.
RELATIVE_ROUNDING = 1e-13


def require_numbers(name: str, labels: NDArray, predictions: NDArray) -> None:
    """Raises ValueError unless labels and predictions are numbers."""
    for role, values in (("labels", labels), ("predictions", predictions)):
        if values.dtype.kind not in "biuf":
            culprit = next((cell for cell in values.flat if not _is_number(cell)), values.flat[0])
            raise ValueError(
                f"{name} is for numbers, found {shown(culprit)} in {role}; for classes use "
                "accuracy, f1_macro or matthews, for texts squad_f1"
            )


def _is_number(cell: object) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return bool(float(cell) == float(cell))  # type: ignore[arg-type]
    return False


def _number_columns(name: str, columns: Columns) -> BoundColumns:
    def bind(labels: NDArray, predictions: NDArray) -> Columns:
        require_numbers(name, labels, predictions)
        return columns

    return BoundColumns(bind)


def _squared_errors(labels: NDArray, predictions: NDArray) -> Array:
    return stack(predictions.shape, 1.0, (predictions.astype(np.float64) - labels) ** 2)


def _absolute_errors(labels: NDArray, predictions: NDArray) -> Array:
    return stack(predictions.shape, 1.0, np.abs(predictions.astype(np.float64) - labels))


def _mean_columns(labels: NDArray, predictions: NDArray) -> Array:
    del labels
    return stack(predictions.shape, 1.0, predictions)


def _bind_answers(labels: NDArray, predictions: NDArray) -> Columns:
    require_numbers("share", labels, predictions)
    odd = predictions[(predictions != 0) & (predictions != 1)]
    if odd.size:
        raise ValueError(
            f"share is for scores 0 and 1, found {shown(odd.flat[0])}; for other numbers use mean"
        )
    return _mean_columns


def clipped(spread: Array, scale: Array) -> Array:
    """Returns the spread, or 0 if it is a rounding error at the size of `scale`."""
    return np.where(spread > RELATIVE_ROUNDING * scale, spread, 0.0)


class _Centring:
    """Subtracts the mean over all examples, and sets rounding errors of a constant row to 0.

    Correlation and slope are invariant to shifts, and centred sums of squares keep their digits.
    """

    def __init__(self, values: NDArray):
        self._mean = values.mean(axis=-1, keepdims=True, dtype=np.float64)
        size = np.maximum(
            np.abs(values.max(axis=-1, keepdims=True).astype(np.float64)),
            np.abs(values.min(axis=-1, keepdims=True).astype(np.float64)),
        )
        self._rounding = 8 * np.finfo(np.float64).eps * size

    def __call__(self, values: NDArray) -> Array:
        centred: Array = values.astype(np.float64) - self._mean
        centred[np.abs(centred) <= self._rounding] = 0.0
        return centred


def _moment_columns(name: str) -> BoundColumns:
    """Makes columns 1, x, x^2 of the labels, then y, y^2, xy."""

    def bind(labels: NDArray, predictions: NDArray) -> Columns:
        require_numbers(name, labels, predictions)
        centre_labels, centre_predictions = _Centring(labels), _Centring(predictions)

        def columns(labels: NDArray, predictions: NDArray) -> Array:
            x, y = centre_labels(labels), centre_predictions(predictions)
            return stack(y.shape, 1.0, x, x * x, y, y * y, x * y)

        return columns

    return BoundColumns(bind)


def _spreads(sums: Array) -> tuple[Array, Array, Array]:
    """Returns label variance, prediction variance and covariance (population), times count**2."""
    count, x, xx, y, yy, xy = np.moveaxis(sums, -1, 0)
    return (
        clipped(count * xx - x * x, count * xx),
        clipped(count * yy - y * y, count * yy),
        count * xy - x * y,
    )


def _pearson_finish(sums: Array) -> Array:
    label_spread, prediction_spread, joint = _spreads(sums)
    return np.clip(ratio_of(joint, np.sqrt(label_spread) * np.sqrt(prediction_spread)), -1.0, 1.0)


def _pearson_degenerate(sums: Array) -> Flags:
    label_spread, prediction_spread, _ = _spreads(sums)
    return (label_spread <= 0) | (prediction_spread <= 0)


def _slope_finish(sums: Array) -> Array:
    label_spread, _, joint = _spreads(sums)
    return ratio_of(joint, label_spread)


_NOT_NEGATIVE = (0.0, float("inf"))

CONTINUOUS_METRICS = (
    mean_metric(
        "mse",
        _number_columns("mse", _squared_errors),
        label="mean squared error",
        meaning="Mean of squared differences from the labels.",
        higher_is_better=False,
        bounds=_NOT_NEGATIVE,
    ),
    mean_metric(
        "mae",
        _number_columns("mae", _absolute_errors),
        label="mean absolute error",
        meaning="Mean of absolute differences from the labels.",
        higher_is_better=False,
        bounds=_NOT_NEGATIVE,
    ),
    # For predictions that are scores already.
    mean_metric(
        "mean",
        _number_columns("mean", _mean_columns),
        meaning="Mean of the examples' own scores.",
        uses_labels=False,
    ),
    # As `mean`, but lower is better.
    mean_metric(
        "loss",
        _number_columns("loss", _mean_columns),
        meaning="Mean of the examples' own losses.",
        higher_is_better=False,
        uses="loss",
        uses_labels=False,
    ),
    # Mean of scores 0 and 1, displayed in per cent.
    mean_metric(
        "share",
        BoundColumns(_bind_answers),
        label="mean",
        unit="%",
        meaning="Share of the examples whose own score is 1.",
        whole=True,
        uses_labels=False,
        bounds=(0.0, 1.0),
    ),
    Metric(
        "pearson",
        _moment_columns("pearson"),
        _pearson_finish,
        _pearson_degenerate,
        label="Pearson's correlation",
        meaning="Correlation of predictions and labels.",
        num_label_columns=3,
        is_correlation=True,
        bounds=(-1.0, 1.0),
    ),
    Metric(
        "slope",
        _moment_columns("slope"),
        _slope_finish,
        lambda sums: _spreads(sums)[0] <= 0,
        meaning="Slope of the predictions on the labels.",
        higher_is_better=None,
        num_label_columns=3,
    ),
)
