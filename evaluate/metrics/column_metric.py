"""Defines metrics as columns and a finish; their columns can be made block by block.

A metric turns each example into K numbers (its columns), sums them with weights, and finishes the
sums into a score. The plain score has weights of one; a bootstrap replicate has the counts of the
examples drawn. So a thousand replicates are one product of a count matrix with the columns. A row
of zeros is an example that is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Columns = Callable[[NDArray, NDArray], Array]
Uses = Literal["prediction", "positive_score", "scores", "text", "loss"]
Unit = Literal["", "%"]

UNBOUNDED = (-float("inf"), float("inf"))


def never_degenerate(sums: Array) -> Flags:
    return np.zeros(sums.shape[:-1], dtype=bool)


@dataclass(frozen=True)
class BoundColumns:
    """Columns that must see all examples first: to check them, for their classes or their means.

    Attributes:
      bind: (labels [examples], predictions [..., examples]) -> the function that makes the
        columns of any block of these examples.
    """

    bind: Callable[[NDArray, NDArray], Columns]

    def __call__(self, labels: NDArray, predictions: NDArray) -> Array:
        return self.bind(labels, predictions)(labels, predictions)


@dataclass(frozen=True)
class Metric:
    """A score of predictions against labels: columns and a finish.

    Attributes:
      name: the key in `METRICS`.
      columns: (labels [examples], predictions [..., examples]) -> float64 [..., examples, K]; a
        `BoundColumns` where a block of examples alone would not do.
      finish: sums [..., K] -> scores [...]. Scaling all sums alike does not change the score.
      degenerate: sums [..., K] -> bool [...], True where the score is 0/0 and its defined value
        is given.
      mean_of: the column whose plain mean over examples is the score, or None for a non-linear
        metric; column 0 is then a column of ones.
      higher_is_better: the direction in which a learning rate is chosen; None where there is
        none.
      num_label_columns: the first columns that depend on the labels alone, and so are the same
        for all runs; a function of K where the classes decide.
      whole: all columns hold whole numbers of at most 255.
      uses: what predictions are: `prediction` (classes or values), `positive_score` (any score of
        class 1 [..., examples]), `scores` (probabilities of the classes [..., examples,
        classes]), `text` (answers in words, against one or several references), or `loss` (that of each
        example, which is not a prediction).
      is_correlation: whether the score is a correlation coefficient, whose intervals are made on
        Fisher's scale.
      uses_labels: whether the score depends on the labels.
      bounds: the smallest and the largest score there can be; infinite where there is none.
      scored: columns [..., examples, K] -> bool [..., examples, shares]: the examples in the denominator
        of each share that the score is made of, such as the positives of a recall; None where all
        examples count.
      steepness: at most how many times such a share the score is where the share is small: 2 for F1,
        which is 2 s / (1 + s) of the share s of true positives among all that either side calls positive.
      by_class: (labels [examples], predictions [examples]) -> the score of each class by its name, where
        the score is their average and scoring lists them.
      of_cells: cells of a table's labels or predictions -> what the metric takes, such as the empty text for
        an empty cell, which is NaN; a list of texts is a sorted tuple, and None a row that is missing. None
        where the metric takes cells as they are, and no lists.
      label: what readers see in place of the name; by default the name with blanks for underscores.
      unit: `%` of shares from 0 to 1, which readers see in per cent, and their differences in points.
      meaning: one sentence on what the score measures.
    """

    name: str
    columns: Columns
    finish: Callable[[Array], Array]
    degenerate: Callable[[Array], Flags] = never_degenerate
    mean_of: int | None = None
    higher_is_better: bool | None = True
    num_label_columns: int | Callable[[int], int] = 0
    whole: bool = False
    uses: Uses = "prediction"
    is_correlation: bool = False
    uses_labels: bool = True
    bounds: tuple[float, float] = UNBOUNDED
    scored: Callable[[Array], Flags] | None = None
    steepness: float = 1.0
    by_class: Callable[[NDArray, NDArray], Mapping[str, float]] | None = None
    of_cells: Callable[[NDArray], NDArray] | None = None
    label: str = ""
    unit: Unit = ""
    meaning: str = ""

    def bind(self, labels: ArrayLike, predictions: ArrayLike) -> BoundMetric:
        """Looks at all examples, so that columns of blocks of them can be made.

        Args:
          labels: [examples].
          predictions: [..., examples], or [..., examples, classes] for `uses="scores"`.
        """
        return self._bound(*checked(labels, predictions, self.uses))

    def _bound(self, labels: NDArray, predictions: NDArray) -> BoundMetric:
        columns = self.columns
        if isinstance(columns, BoundColumns):
            columns = columns.bind(labels, predictions)
        first = first_examples(labels, predictions, self.uses)
        num_columns = columns(labels[:1], first).shape[-1]
        shared = self.num_label_columns
        return BoundMetric(
            self, columns, num_columns, shared(num_columns) if callable(shared) else shared
        )

    def score(
        self, labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None
    ) -> Array:
        """Scores predictions, plainly or under weights.

        Args:
          labels: [examples].
          predictions: [..., examples], or [..., examples, classes] for `uses="scores"`.
          weights: None, [examples] or [replicates, examples], non-negative.

        Returns:
          float64 [...], or [..., replicates] with a matrix of weights.
        """
        columns = self.columns(*checked(labels, predictions, self.uses))
        if weights is None:
            return self.finish(columns.sum(axis=-2))
        return self.finish(np.asarray(weights, dtype=np.float64) @ columns)


@dataclass(frozen=True)
class BoundMetric:
    """A metric that has seen its data.

    Attributes:
      columns: (labels [block], predictions [..., block]) -> float64 [..., block, K] for any block
        of the examples; blocks put together are the columns of everything. In memory the axis
        K comes first, so each column is contiguous.
      num_columns: K.
      num_label_columns: the first columns that depend on the labels alone.
    """

    metric: Metric
    columns: Columns
    num_columns: int
    num_label_columns: int

    def finish(self, sums: Array) -> Array:
        """Returns the metric's scores from sums [..., K]."""
        return self.metric.finish(sums)

    def degenerate(self, sums: Array) -> Flags:
        """Returns where the metric's scores are defined values, from sums [..., K]."""
        return self.metric.degenerate(sums)


def checked(
    labels: ArrayLike, predictions: ArrayLike, uses: Uses = "prediction"
) -> tuple[NDArray, NDArray]:
    """Returns labels and predictions as arrays with matching examples.

    Args:
      labels: [examples].
      predictions: [..., examples], or with a last axis of classes.
      uses: see `Metric`.
    """
    label_array, prediction_array = reference_array(labels), np.asarray(predictions)
    fits = label_array.ndim == 1 and (
        prediction_array.shape[-1:] == label_array.shape
        or (uses == "scores" and by_class(label_array, prediction_array))
    )
    if not fits:
        wanted = "[..., examples, classes]" if uses == "scores" else "[..., examples]"
        raise ValueError(
            f"labels have shape {label_array.shape} and predictions {prediction_array.shape}, "
            f"expected [examples] and {wanted}; check that the examples are the last axis of both"
            + (" but for the classes" if uses == "scores" else "")
        )
    if label_array.size == 0:
        raise ValueError("found no examples, expected at least one")
    return label_array, prediction_array


def reference_array(labels: ArrayLike | Sequence[Any]) -> NDArray:
    """Returns labels as an array, with lists of reference texts kept as one entry [examples] each."""
    lists = isinstance(labels, (list, tuple)) and any(
        isinstance(entry, (list, tuple)) and all(isinstance(text, str) for text in entry)
        for entry in labels
    )
    if not lists:
        return np.asarray(labels)
    entries = list(labels)  # type: ignore[arg-type]
    array = np.empty(len(entries), dtype=object)
    array[:] = [tuple(entry) if isinstance(entry, list) else entry for entry in entries]
    return array


def shown(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def with_empty_texts(cells: NDArray) -> NDArray:
    """Returns cells of texts with the empty text where they are empty.

    Example:
      >>> with_empty_texts(np.array(["in May", float("nan"), None], dtype=object)).tolist()
      ['in May', '', None]
    """
    if cells.dtype.kind == "f" and np.isnan(cells).all():  # as pandas reads a column without a text
        cells = cells.astype(object)
    if cells.dtype.kind != "O":
        return cells
    empty = [isinstance(cell, float) and cell != cell for cell in cells.flat]
    return np.where(np.reshape(empty, cells.shape), "", cells)


def require_text(kind: str, labels: NDArray, predictions: NDArray, cure: str) -> None:
    """Raises ValueError unless labels and predictions are texts; `kind` begins the message."""
    for role, values in (("labels", labels), ("predictions", predictions)):
        for value in values.flat:
            if not isinstance(value, str):
                raise ValueError(f"{kind} as text, found {shown(value)} in {role}; {cure}")


def by_class(labels: NDArray, predictions: NDArray) -> bool:
    """Returns whether the last axis of class probabilities is classes, and not examples.

    It is where the axis before it has the length of the examples.
    """
    return predictions.ndim >= 2 and predictions.shape[-2] == len(labels)


def first_examples(labels: NDArray, predictions: NDArray, uses: Uses) -> NDArray:
    if uses == "scores" and by_class(labels, predictions):
        return predictions[..., :1, :]
    return predictions[..., :1]


def ratio(numerator: Array, denominator: Array) -> Array:
    """Returns numerator / denominator, and 0 where the denominator is 0."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), 0.0)


def stack(shape: tuple[int, ...], *columns: ArrayLike) -> Array:
    """Broadcasts columns to `shape` [..., examples] and stacks them to [..., examples, K].

    Each column is contiguous in memory, which is quick to write and to multiply with counts.
    """
    stacked = np.empty((len(columns), *shape))
    for position, column in enumerate(columns):
        stacked[position] = column
    return np.moveaxis(stacked, 0, -1)


def f1_finish(sums: Array) -> Array:
    """Finishes columns of 2 tp and of 2 tp + fp + fn into an F1."""
    return ratio(sums[..., 0], sums[..., 1])


def f1_degenerate(sums: Array) -> Flags:
    """Returns where an F1 has nothing to count."""
    return sums[..., 1] <= 0


def mean_finish(sums: Array) -> Array:
    """Finishes columns of ones and of values into the mean of the values."""
    return ratio(sums[..., 1], sums[..., 0])


def mean_metric(name: str, columns: Columns, **settings: Any) -> Metric:
    """Returns a metric whose score is the mean of its second column; the first one is of ones."""
    return Metric(name, columns, mean_finish, mean_of=1, num_label_columns=1, **settings)
