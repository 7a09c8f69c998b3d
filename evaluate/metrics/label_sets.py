"""Metrics of multi-label classification, with any number of labels per example.

A label or prediction is the names of one example separated by `|`, such as `joy|relief`, in any order; the
empty text has no names. Tables may have lists of names and empty cells. All equal scikit-learn with
`zero_division=0` on the classes of labels and predictions. Macro averages skip a class that neither has;
in bootstrap replicates these may be other classes than in the sample.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import (
    Share,
    averaged_metric,
    by_labels,
    f_beta,
    on_either_side,
    precision,
    recall,
)
from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Metric,
    mean_metric,
    ratio,
    require_text,
    shown,
    stack,
    with_empty_texts,
)

SEPARATOR = "|"
_PREFIX = "multilabel_"
# Truths, guesses and both, [..., examples, classes] each -> a number per example.
_OfExample = Callable[[NDArray, NDArray, NDArray], NDArray]


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


def _averaged(
    name: str, share: Share, weights: Callable[[Array, Array], Array] | None = None
) -> Metric:
    def by_class(labels: NDArray, predictions: NDArray) -> Mapping[str, float]:
        classes = _classes(labels, predictions)
        split = [part.sum(axis=0) for part in _parts(labels, predictions, classes)]
        return dict(zip(classes, ratio(*share(*split)).tolist(), strict=True))

    return averaged_metric(
        _PREFIX + name,
        _bind_classes,
        share,
        weights,
        uses="text",
        of_cells=_of_cells,
        steepness=2.0 if name.startswith("f1") else 1.0,
        by_class=by_class if weights is on_either_side else None,
    )


def _of_examples(name: str, value: _OfExample, whole: bool = False) -> Metric:

    def bind(labels: NDArray, predictions: NDArray) -> Columns:
        classes = _classes(labels, predictions)

        def columns(labels: NDArray, predictions: NDArray) -> Array:
            parts = _parts(labels, predictions, classes)
            return stack(predictions.shape, 1.0, value(*parts))

        return columns

    return mean_metric(
        _PREFIX + name,
        BoundColumns(bind),
        whole=whole,
        uses="text",
        of_cells=_of_cells,
        bounds=(0.0, 1.0),
    )


def _share_of_examples(share: Share) -> _OfExample:
    def value(truths: NDArray, guesses: NDArray, both: NDArray) -> NDArray:
        return ratio(
            *share(*(part.sum(axis=-1, dtype=np.float64) for part in (truths, guesses, both)))
        )

    return value


def _all_right(truths: NDArray, guesses: NDArray, both: NDArray) -> NDArray:
    del both
    is_right: NDArray = np.all(truths == guesses, axis=-1)
    return is_right


_SHARES: Mapping[str, Share] = {"F1": f_beta(1.0), "precision": precision, "recall": recall}
_AVERAGES: Mapping[str, tuple[Callable[[str, Share], Metric], str]] = {
    "micro": (_averaged, "all labels counted together"),
    "macro": (functools.partial(_averaged, weights=on_either_side), "averaged over labels"),
    "weighted": (
        functools.partial(_averaged, weights=by_labels),
        "averaged over labels by their numbers",
    ),
    "samples": (
        lambda name, share: _of_examples(name, _share_of_examples(share)),
        "averaged over examples",
    ),
}

LABEL_SET_METRICS = (
    *(
        dataclasses.replace(
            make(f"{label.lower()}_{average}", share),
            label=f"{average} {label}",
            unit="%",
            meaning=f"{label[0].upper()}{label[1:]} of sets of labels, {how}.",
        )
        for label, share in _SHARES.items()
        for average, (make, how) in _AVERAGES.items()
    ),
    dataclasses.replace(
        _of_examples("accuracy", _all_right, whole=True),
        label="exact sets",
        unit="%",
        meaning="Share of examples with all labels right, and no others.",
    ),
)
