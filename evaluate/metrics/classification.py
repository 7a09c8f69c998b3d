"""Metrics of predicted classes: accuracy, precision, recall, F1 and Matthews correlation.

All equal scikit-learn on the full sample, including values for 0/0: `precision`, `recall` and F1 are 0 if
their denominator is 0; macro averages skip a class that neither labels nor predictions have,
`balanced_accuracy` a class without labels; `matthews` is 0 for constant labels or predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Flags,
    Metric,
    f1_degenerate,
    f1_finish,
    mean_metric,
    ratio,
    shown,
    stack,
)
from multiberts.evaluate.metrics.continuous import clipped

# In smaller ranges of whole numbers, counting is faster than sorting.
_COUNTABLE = 2**16


def is_binary(values: NDArray) -> bool:
    """Returns whether every value is 0 or 1."""
    if values.dtype.kind not in "biuf":
        return bool(np.isin(values, (0, 1)).all())
    return bool(((values == 0) | (values == 1)).all())


def require_binary(name: str, labels: NDArray, predictions: NDArray | None, cure: str) -> None:
    """Raises ValueError unless all labels and predictions (if given) are 0 or 1."""
    for role, values in (("labels", labels), ("predictions", predictions)):
        if values is not None and not is_binary(values):
            odd = values[~np.isin(values, (0, 1))].flat[0]
            raise ValueError(
                f"{name} is for two classes 0 and 1, found {shown(odd)} in {role}; {cure}"
            )


def distinct(values: NDArray) -> NDArray:
    """Returns the distinct values, sorted."""
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low < _COUNTABLE:
            # Short integers may overflow here; the sum below wraps back.
            kind, first = values.dtype, values.dtype.type(low)
            present = np.zeros(high - low + 1, dtype=bool)
            present[(values - first).astype(f"u{kind.itemsize}")] = True
            members: NDArray = np.flatnonzero(present).astype(kind) + first
            return members
    return np.unique(values)


def _check_kinds(name: str, labels: NDArray, predictions: NDArray) -> None:
    """Raises ValueError if numbers are compared with texts, which are never equal."""
    kinds = {
        "number" if values.dtype.kind in "biuf" else "text" for values in (labels, predictions)
    }
    if len(kinds) > 1 and "O" not in (labels.dtype.kind, predictions.dtype.kind):
        raise ValueError(
            f"{name}: found labels such as {shown(labels.flat[0])} and predictions such as "
            f"{shown(predictions.flat[0])}, expected both numbers or both texts; spell classes the same way"
        )


def classes_of(name: str, labels: NDArray, predictions: NDArray) -> NDArray:
    """Returns the sorted classes of labels and predictions.

    Args:
      predictions: predictions [..., examples].
    """
    plain = [
        np.array(values.tolist()) if values.dtype.kind == "O" else values
        for values in (labels, predictions)
    ]
    _check_kinds(name, *plain)
    classes = np.unique(np.concatenate([distinct(values) for values in plain]))
    if classes.dtype.kind == "f" and (classes != np.floor(classes)).any():
        fraction = classes[classes != np.floor(classes)][0]
        raise ValueError(
            f"{name} is for classes, found the fraction {shown(fraction)}; give the predicted "
            "classes, or use auc, brier, pearson or spearman for scores"
        )
    return classes


def _same_kind(name: str, columns: Columns) -> BoundColumns:
    def bind(labels: NDArray, predictions: NDArray) -> Columns:
        _check_kinds(name, labels, predictions)
        if predictions.dtype.kind == "f" and labels.dtype.kind in "biuf":
            fractions = predictions != np.floor(predictions)
            if fractions.any() and (labels == np.floor(labels)).all():
                raise ValueError(
                    f"{name} is for classes, found the fraction {shown(predictions[fractions][0])}; "
                    "give the predicted classes, or use mean for scores that are shares already"
                )
        return columns

    return BoundColumns(bind)


def _correct(labels: NDArray, predictions: NDArray) -> Array:
    return stack(predictions.shape, 1.0, predictions == labels)


def _bind_micro(labels: NDArray, predictions: NDArray) -> Columns:
    classes_of("f1_micro", labels, predictions)
    return _correct


def _bind_f1(labels: NDArray, predictions: NDArray) -> Columns:
    require_binary("f1", labels, predictions, "map the classes to 0 and 1, or use f1_macro")
    return _f1_columns


def _f1_columns(labels: NDArray, predictions: NDArray) -> Array:
    # 2 tp / (2 tp + fp + fn): the denominator is the number of positive labels plus positive predictions.
    labels, predictions = labels == 1, predictions == 1
    return stack(predictions.shape, 2.0 * (labels & predictions), 1.0 * labels + predictions)


def _bind_macro(labels: NDArray, predictions: NDArray) -> Columns:
    classes = classes_of("f1_macro", labels, predictions)

    def columns(labels: NDArray, predictions: NDArray) -> Array:
        """Makes the columns of `f1` for each class: [..., examples, 2 * classes]."""
        both, either = [], []
        for member in classes:
            truth, guess = labels == member, predictions == member
            both.append(2.0 * (truth & guess))
            either.append(1.0 * truth + guess)
        return stack(predictions.shape, *both, *either)

    return columns


def _macro_finish(sums: Array) -> Array:
    both, either = np.split(sums, 2, axis=-1)
    return ratio(ratio(both, either).sum(axis=-1), 1.0 * (either > 0).sum(axis=-1))


def _bind_matthews(labels: NDArray, predictions: NDArray) -> Columns:
    classes = classes_of("matthews", labels, predictions)

    def columns(labels: NDArray, predictions: NDArray) -> Array:
        """Makes columns: 1, and per class but the first its labels, predictions, and correct predictions."""
        others = classes[1:]
        return stack(
            predictions.shape,
            1.0,
            *(labels == member for member in others),
            *(predictions == member for member in others),
            labels == predictions,
        )

    return columns


def _matthews_spreads(sums: Array) -> tuple[Array, Array, Array]:
    """Returns variances of labels and predictions over the classes, and their covariance (Gorodkin, 2004).

    Weights may be fractions; rounding residues of a class are set to 0.
    """
    num_others = sums.shape[-1] // 2 - 1
    count, correct = sums[..., :1], sums[..., -1]
    labels, predictions = sums[..., 1 : 1 + num_others], sums[..., 1 + num_others : -1]
    labels = np.concatenate([count - labels.sum(axis=-1, keepdims=True), labels], axis=-1)
    predictions = np.concatenate(
        [count - predictions.sum(axis=-1, keepdims=True), predictions], axis=-1
    )
    number = count[..., 0]
    return (
        clipped((labels * (count - labels)).sum(axis=-1), number**2),
        clipped((predictions * (count - predictions)).sum(axis=-1), number**2),
        number * correct - (labels * predictions).sum(axis=-1),
    )


def _matthews_finish(sums: Array) -> Array:
    label_spread, prediction_spread, joint = _matthews_spreads(sums)
    return ratio(joint, np.sqrt(label_spread) * np.sqrt(prediction_spread))


def _matthews_degenerate(sums: Array) -> Flags:
    label_spread, prediction_spread, _ = _matthews_spreads(sums)
    return (label_spread <= 0) | (prediction_spread <= 0)


def _matthews_scored(columns: Array) -> Flags:
    """Returns which examples have each class as label, the first class last.

    Predictions are ignored: near a score of 1 they have the same counts, and a class of stray answers has
    no labels, so it does not contribute to the covariance, however few its answers are.
    """
    labels = columns[..., 1 : columns.shape[-1] // 2]
    first = labels.sum(axis=-1, keepdims=True) < columns[..., :1]
    return np.concatenate([labels > 0, first], axis=-1)


def _bind_positives(name: str, labels: NDArray, predictions: NDArray) -> Columns:
    require_binary(name, labels, predictions, f"map the classes to 0 and 1, or use {name}_macro")
    return _positives


def _positives(labels: NDArray, predictions: NDArray) -> Array:
    """Makes columns: positive labels, positive predictions, and both."""
    labels, predictions = labels == 1, predictions == 1
    return stack(predictions.shape, labels, predictions, labels & predictions)


def _bind_classes(name: str, labels: NDArray, predictions: NDArray) -> Columns:
    classes = classes_of(name, labels, predictions)

    def columns(labels: NDArray, predictions: NDArray) -> Array:
        """Makes the columns of `_positives` for each class: [..., examples, 3 * classes]."""
        truths = [labels == member for member in classes]
        guesses = [predictions == member for member in classes]
        both = [truth & guess for truth, guess in zip(truths, guesses, strict=True)]
        return stack(predictions.shape, *truths, *guesses, *both)

    return columns


def precision(labels: Array, predictions: Array, both: Array) -> tuple[Array, Array]:
    """Returns numerator and denominator of the precision."""
    del labels
    return both, predictions


def recall(labels: Array, predictions: Array, both: Array) -> tuple[Array, Array]:
    del predictions
    return both, labels


def f1_share(labels: Array, predictions: Array, both: Array) -> tuple[Array, Array]:
    return 2.0 * both, 1.0 * labels + predictions


# Settings of every share of counts, shown in per cent.
_OF_COUNTS: dict[str, Any] = {"unit": "%", "whole": True, "bounds": (0.0, 1.0)}

# (labels, predictions, both) sums -> numerator and denominator.
Share = Callable[[Array, Array, Array], tuple[Array, Array]]


def _positive_metric(name: str, share: Share, **settings: Any) -> Metric:
    """Returns a metric of class 1; `settings` are further fields of `Metric`."""

    def parts(sums: Array) -> tuple[Array, Array]:
        return share(sums[..., 0], sums[..., 1], sums[..., 2])

    return Metric(
        name,
        BoundColumns(partial(_bind_positives, name)),
        lambda sums: ratio(*parts(sums)),
        lambda sums: parts(sums)[1] <= 0,
        num_label_columns=1,
        scored=lambda columns: parts(columns)[1][..., None] > 0,
        **_OF_COUNTS,
        **settings,
    )


def averaged_metric(
    name: str,
    bind: Callable[[NDArray, NDArray], Columns],
    share: Share,
    weights: Callable[[Array, Array], Array] | None,
    **settings: Any,
) -> Metric:
    """Returns a metric: a share of counts, averaged over classes.

    Args:
      bind: makes columns of labels, predictions and both per class [..., examples, 3 * classes].
      weights: weights of the classes from sums of their labels and predictions; None: counts of all classes
        are added (micro average).
      **settings: further fields of `Metric`.
    """

    def parts(sums: Array) -> tuple[Array, Array]:
        split = np.split(sums, 3, axis=-1)
        if weights is None:
            both, either = share(*(part.sum(axis=-1, keepdims=True) for part in split))
            return ratio(both, either), (either > 0).astype(np.float64)
        return ratio(*share(*split)), weights(split[0], split[1])

    def finish(sums: Array) -> Array:
        shares, weight = parts(sums)
        return ratio((shares * weight).sum(axis=-1), weight.sum(axis=-1))

    def scored(columns: Array) -> Flags:
        counts: Flags = np.asarray(share(*np.split(columns, 3, axis=-1))[1] > 0)
        # If weights grow with the labels, rare classes have little weight: the examples of all classes
        # form one share.
        if weights in (None, by_labels):
            counts = np.asarray(counts.any(axis=-1, keepdims=True))
        return counts

    return Metric(
        name,
        BoundColumns(bind),
        finish,
        lambda sums: parts(sums)[1].sum(axis=-1) <= 0,
        num_label_columns=lambda num_columns: num_columns // 3,
        scored=scored,
        **_OF_COUNTS,
        **settings,
    )


def on_either_side(labels: Array, predictions: Array) -> Array:
    """Returns weights for an average: 1 for a class that labels or predictions have."""
    return ((labels > 0) | (predictions > 0)).astype(np.float64)


def by_labels(labels: Array, predictions: Array) -> Array:
    """Returns weights for an average: the number of labels per class."""
    del predictions
    return labels


CLASSIFICATION_METRICS = (
    mean_metric(
        "accuracy",
        _same_kind("accuracy", _correct),
        meaning="Share of examples whose prediction is right.",
        **_OF_COUNTS,
    ),
    mean_metric(
        "error",
        _same_kind("error", lambda labels, found: stack(found.shape, 1.0, found != labels)),
        meaning="Share of examples whose prediction is wrong.",
        higher_is_better=False,
        **_OF_COUNTS,
    ),
    Metric(
        "f1",
        BoundColumns(_bind_f1),
        f1_finish,
        f1_degenerate,
        label="F1",
        meaning="Harmonic mean of precision and recall of the positive class.",
        scored=lambda columns: columns[..., 1:] > 0,
        steepness=2.0,
        **_OF_COUNTS,
    ),
    Metric(
        "f1_macro",
        BoundColumns(_bind_macro),
        _macro_finish,
        lambda sums: np.asarray((np.split(sums, 2, axis=-1)[1] <= 0).all(axis=-1)),
        label="macro F1",
        meaning="F1 of every class, averaged over classes.",
        scored=lambda columns: np.split(columns, 2, axis=-1)[1] > 0,
        steepness=2.0,
        **_OF_COUNTS,
    ),
    # Each error is one false positive and one false negative, so this equals the accuracy.
    mean_metric(
        "f1_micro",
        BoundColumns(_bind_micro),
        label="micro F1",
        meaning="F1 of all classes counted together.",
        **_OF_COUNTS,
    ),
    Metric(
        "matthews",
        BoundColumns(_bind_matthews),
        _matthews_finish,
        _matthews_degenerate,
        label="Matthews' correlation",
        meaning="Correlation of two binary variables.",
        num_label_columns=lambda num_columns: num_columns // 2,
        whole=True,
        bounds=(-1.0, 1.0),
        scored=_matthews_scored,
    ),
    _positive_metric("precision", precision, meaning="Share of positive answers that are right."),
    _positive_metric("recall", recall, meaning="Share of the positive class that is found."),
    averaged_metric(
        "precision_macro", partial(_bind_classes, "precision_macro"), precision, on_either_side,
        label="macro precision", meaning="Precision of every class, averaged over classes.",
    ),
    averaged_metric(
        "recall_macro", partial(_bind_classes, "recall_macro"), recall, on_either_side,
        label="macro recall", meaning="Recall of every class, averaged over classes.",
    ),
    averaged_metric(
        "f1_weighted", partial(_bind_classes, "f1_weighted"), f1_share, by_labels,
        label="weighted F1", meaning="F1 of every class, averaged by its number of examples.",
        steepness=2.0,
    ),
    averaged_metric(
        "balanced_accuracy", partial(_bind_classes, "balanced_accuracy"), recall,
        lambda labels, _: (labels > 0).astype(np.float64),
        meaning="Recall of every labelled class, averaged.",
    ),
)  # fmt: skip

CLASS_METRICS = tuple(metric.name for metric in CLASSIFICATION_METRICS)

# With more classes, answers may be free texts, most of which equal no label.
MOST_CLASSES = 20


def unlike_classes(labels: Collection[Any], predicted: Collection[Any]) -> str:
    """Returns a message if predictions and labels spell classes differently, otherwise "".

    The sign is a label that no run predicts together with a prediction that is never a label. Either alone
    is possible: a class may be missing from a small test set, or be too hard.

    Args:
      labels: distinct labels; a single one, or more than `MOST_CLASSES`, are not checked.
      predicted: distinct predictions of an arm's runs.

    Examples:
      >>> unlike_classes({0, 1}, {1, 2})[:63]
      'no run predicts the label 0, and no label is the prediction 2; '
      >>> unlike_classes({0, 1}, {0, 1, 2})
      ''
    """
    unseen, alien = {*labels} - {*predicted}, {*predicted} - {*labels}
    if not (unseen and alien and 2 <= len({*labels}) <= MOST_CLASSES):
        return ""
    return (
        f"no run predicts the {_listed('label', unseen)}, and no label is the "
        f"{_listed('prediction', alien)}; write classes alike in both, or give each example's own score "
        "(--score=COLUMN)"
    )


def _listed(noun: str, values: set) -> str:
    shown = [repr(value) for value in sorted(values, key=str)]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return f"{noun}{'s' if len(shown) > 1 else ''} {', '.join(shown[:10])}{more}"
