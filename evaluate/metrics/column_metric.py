"""Metrics as columns and a finish; columns can be computed block by block.

A metric maps each example to K numbers (its columns), sums them with weights, and turns the sums into a
score (its finish). The plain score has weights of one; a bootstrap replicate has the counts of the drawn
examples. So a thousand replicates are one product of a count matrix with the columns. A row of zeros
excludes an example.
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
    """Columns that depend on all examples, through checks, classes or means.

    Attributes:
      bind: (labels [examples], predictions [..., examples]) -> function that makes the columns of any
        block of these examples.
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
        `BoundColumns` if a block of examples is not enough.
      finish: sums [..., K] -> scores [...]; invariant to scaling of all sums.
      degenerate: sums [..., K] -> bool [...], True if the score is 0/0 and a defined value is returned.
      mean_of: column whose plain mean over examples is the score (column 0 is then ones); None for a
        non-linear metric.
      higher_is_better: direction for the choice of a learning rate; None if there is none.
      num_label_columns: number of first columns that depend on the labels only, and so are equal for all
        runs; a function of K if it depends on the classes.
      whole: whether all columns are whole numbers of at most 255.
      uses: form of predictions: `prediction` (classes or values), `positive_score` (any score of class 1
        [..., examples]), `scores` (class probabilities [..., examples, classes]), `text` (answers in
        words, compared with one or several references), or `loss` (each example's loss).
      is_correlation: whether the score is a correlation coefficient, with intervals on Fisher's scale.
      uses_labels: whether the score depends on the labels.
      bounds: minimum and maximum score; infinite if there is none.
      scored: columns [..., examples, K] -> bool [..., examples, shares]: examples in the denominator of
        each share that the score combines, such as the positives for recall; None: all examples.
      steepness: maximum ratio of the score to such a share, if the share is small: 2 for F1, which is
        2 s / (1 + s) for the share s of true positives among labelled or predicted positives.
      by_class: (labels [examples], predictions [examples]) -> scores by class name, for scores that are
        averages over classes.
      of_cells: cells of a table's labels or predictions -> the metric's input. An empty cell is NaN, a list
        of texts a sorted tuple, a missing row None. None: the metric takes cells unchanged, and no lists.
      label: displayed name; by default the name with blanks for underscores.
      unit: `%` for shares from 0 to 1, displayed in per cent, with differences in points.
      meaning: one sentence on what the score measures.
      zero_means_no: what a score of 0 means the absence of, such as "bias"; a change is then named by it.
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
    zero_means_no: str = ""

    def bind(self, labels: ArrayLike, predictions: ArrayLike) -> BoundMetric:
        """Prepares columns of blocks from all examples.

        Args:
          predictions: predictions [..., examples], or [..., examples, classes] for `uses="scores"`.
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
        """Scores predictions, unweighted or weighted.

        Args:
          labels: labels [examples].
          predictions: predictions [..., examples], or [..., examples, classes] for `uses="scores"`.
          weights: non-negative weights [examples] or [replicates, examples], or None.

        Returns:
          float64 [...], or [..., replicates] with a matrix of weights.
        """
        columns = self.columns(*checked(labels, predictions, self.uses))
        if weights is None:
            return self.finish(columns.sum(axis=-2))
        return self.finish(np.asarray(weights, dtype=np.float64) @ columns)


@dataclass(frozen=True)
class BoundMetric:
    """A metric bound to its data.

    Attributes:
      columns: (labels [block], predictions [..., block]) -> float64 [..., block, K] for any block of the
        examples; concatenated blocks equal the columns of all examples. In memory the axis K comes
        first, so each column is contiguous.
    """

    metric: Metric
    columns: Columns
    num_columns: int
    num_label_columns: int

    def finish(self, sums: Array) -> Array:
        """Returns the metric's scores from sums [..., K]."""
        return self.metric.finish(sums)

    def degenerate(self, sums: Array) -> Flags:
        """Returns whether scores are defined values for 0/0, from sums [..., K]."""
        return self.metric.degenerate(sums)


def checked(
    labels: ArrayLike, predictions: ArrayLike, uses: Uses = "prediction"
) -> tuple[NDArray, NDArray]:
    """Returns labels and predictions as arrays with matching examples.

    Args:
      predictions: predictions [..., examples], or [..., examples, classes].
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
            + (", before the classes of predictions" if uses == "scores" else "")
        )
    if label_array.size == 0:
        raise ValueError("found no examples, expected at least one")
    return label_array, prediction_array


def reference_array(labels: ArrayLike | Sequence[Any]) -> NDArray:
    """Returns labels as an array [examples], with each list of reference texts as one entry."""
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
    """Returns text cells, with the empty text for empty cells.

    Examples:
      >>> with_empty_texts(np.array(["in May", float("nan"), None], dtype=object)).tolist()
      ['in May', '', None]
    """
    if cells.dtype.kind == "f" and np.isnan(cells).all():  # pandas' form of an empty column
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
    """Returns whether the last axis of probabilities is classes, not examples.

    It is if the axis before it has the length of the labels.
    """
    return predictions.ndim >= 2 and predictions.shape[-2] == len(labels)


def first_examples(labels: NDArray, predictions: NDArray, uses: Uses) -> NDArray:
    if uses == "scores" and by_class(labels, predictions):
        return predictions[..., :1, :]
    return predictions[..., :1]


def ratio(numerator: Array, denominator: Array) -> Array:
    """Returns numerator / denominator, or 0 if the denominator is 0."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), 0.0)


def stack(shape: tuple[int, ...], *columns: ArrayLike) -> Array:
    """Broadcasts columns to `shape` [..., examples] and stacks them to [..., examples, K].

    Each column is contiguous in memory, which is fast to write and to multiply with counts.
    """
    stacked = np.empty((len(columns), *shape))
    for position, column in enumerate(columns):
        stacked[position] = column
    return np.moveaxis(stacked, 0, -1)


def f1_finish(sums: Array) -> Array:
    """Returns F1 from sums of 2 tp and of 2 tp + fp + fn."""
    return ratio(sums[..., 0], sums[..., 1])


def f1_degenerate(sums: Array) -> Flags:
    """Returns whether F1 is 0/0."""
    return sums[..., 1] <= 0


def mean_finish(sums: Array) -> Array:
    """Returns the mean from sums of ones and of values."""
    return ratio(sums[..., 1], sums[..., 0])


def mean_metric(name: str, columns: Columns, **settings: Any) -> Metric:
    """Returns a metric whose score is the mean of its second column; the first column is ones."""
    return Metric(name, columns, mean_finish, mean_of=1, num_label_columns=1, **settings)
