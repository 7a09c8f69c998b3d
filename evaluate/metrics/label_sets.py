"""Metrics of multi-label classification, with any number of labels per example.

A label or prediction is the names of one example separated by `|`, such as `joy|relief`, in any order; the
empty text has no names. Tables may have lists of names and empty cells. All equal scikit-learn with
`zero_division=0` on the classes of labels and predictions. Macro averages skip a class that neither has;
in bootstrap replicates these may be other classes than in the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import (
    averaged_metric,
    f1_share,
    on_either_side,
)
from multiberts.evaluate.metrics.column_metric import (
    Array,
    Columns,
    Metric,
    ratio,
    require_text,
    shown,
    stack,
    with_empty_texts,
)

SEPARATOR = "|"


def names_of(text: str) -> frozenset[str]:
    """Returns the labels that a text lists.

    Examples:
      >>> sorted(names_of("relief|joy")), sorted(names_of(""))
      (['joy', 'relief'], [])
    """
    return frozenset(text.split(SEPARATOR)) if text else frozenset()


def separator_in(texts: Iterable[str], separators: str) -> str:
    """Returns the first separator of names in texts; empty if none separates names.

    Label names are few and recur in other sets, whereas free texts have more distinct parts than texts.

    Examples:
      >>> separator_in(["joy, relief", "joy", "relief"], "|,"), separator_in(["Nice, France"], "|,")
      (',', '')
    """
    different = {*texts}
    for sign in separators:
        if any(sign in text for text in different):
            names = {name.strip() for text in different for name in text.split(sign)}
            if len(names) <= len(different):
                return sign
    return ""


def write_them(texts: Iterable[str], sign: str) -> tuple[str, str]:
    """Returns the first text with the separator, and the advice how to write such names."""
    text = min(text for text in texts if sign in text)
    if sign == SEPARATOR:
        return (
            text,
            "give --metric=multilabel_f1_micro, or --metric=accuracy, which takes a cell for one class",
        )
    names = [name.strip() for name in text.split(sign) if name.strip()]
    return text, (
        f"write the names of an example with {SEPARATOR} between them ({SEPARATOR.join(names)}), or give "
        "--metric=accuracy if each cell is one class"
    )


def _of_cells(cells: NDArray) -> NDArray:
    """Joins lists of names, and refuses names that another separator seems to separate."""
    values = with_empty_texts(cells)
    sets = [cell for cell in values.flat if isinstance(cell, tuple)]
    for name in sorted({name for cell in sets for name in cell}):
        if SEPARATOR in name:
            raise ValueError(
                f"found the name {name!r}, expected names without {SEPARATOR}; rename it"
            )
    if sets:
        joined = [SEPARATOR.join(c) if isinstance(c, tuple) else c for c in values.flat]
        return np.array(joined, dtype=object).reshape(values.shape)
    texts = {cell for cell in values.flat if isinstance(cell, str)}
    sign = next((sign for sign in f"{SEPARATOR},;" if any(sign in text for text in texts)), "")
    sign = sign or separator_in(texts, " ")
    if sign not in ("", SEPARATOR):
        text, cure = write_them(texts, sign)
        raise ValueError(f"found {shown(text)}, and {SEPARATOR} in no cell; {cure}")
    return values


def _classes(labels: NDArray, predictions: NDArray) -> list[str]:
    cure = f"give the names of an example with {SEPARATOR} between them"
    require_text("multi-label metrics are for the names of labels", labels, predictions, cure)
    texts = {str(text) for values in (labels, predictions) for text in values.flat}
    return sorted(frozenset().union(*map(names_of, texts)))


def _indicators(values: NDArray, classes: Sequence[str]) -> NDArray[np.bool_]:
    """Returns whether each text [..., examples] contains each class, [..., examples, classes]."""
    texts, codes = np.unique(values.astype(str), return_inverse=True)
    listed = [[name in names_of(str(text)) for name in classes] for text in texts]
    table = np.array(listed, dtype=bool).reshape(len(texts), len(classes))
    indicators: NDArray[np.bool_] = table[codes.reshape(values.shape)]
    return indicators


def _parts(
    labels: NDArray, predictions: NDArray, classes: Sequence[str]
) -> tuple[NDArray, NDArray, NDArray]:
    truths, guesses = _indicators(labels, classes), _indicators(predictions, classes)
    return truths, guesses, truths & guesses


def _bind_classes(labels: NDArray, predictions: NDArray) -> Columns:
    classes = _classes(labels, predictions)

    def columns(labels: NDArray, predictions: NDArray) -> Array:
        """Makes labels, predictions and both per class: [..., examples, 3 * classes]."""
        parts = _parts(labels, predictions, classes)
        return stack(predictions.shape, *(c for part in parts for c in np.moveaxis(part, -1, 0)))

    return columns


def _f1_by_class(labels: NDArray, predictions: NDArray) -> Mapping[str, float]:
    classes = _classes(labels, predictions)
    counts = (part.sum(axis=0) for part in _parts(labels, predictions, classes))
    return dict(zip(classes, ratio(*f1_share(*counts)).tolist(), strict=True))


def _f1(
    average: str, how: str, weights: Callable[[Array, Array], Array] | None, **settings: Any
) -> Metric:
    return averaged_metric(
        f"multilabel_f1_{average}",
        _bind_classes,
        f1_share,
        weights,
        uses="text",
        of_cells=_of_cells,
        steepness=2.0,
        label=f"{average} F1",
        meaning=f"F1 of sets of labels, {how}.",
        **settings,
    )


LABEL_SET_METRICS = (
    _f1("micro", "all labels counted together", None),
    _f1("macro", "averaged over labels", on_either_side, by_class=_f1_by_class),
)
