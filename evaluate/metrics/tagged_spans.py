"""F1 of spans in sequences of tags, as seqeval by default.

A label or prediction is the tags of one example separated by spaces, such as `B-PER I-PER O`. A span is a
maximal run of tags of one type, split at each `B-`; an `I-` after no span of its type begins a span. A
predicted span is right if its type, first and last tag equal those of a labelled span.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Metric,
    f1_degenerate,
    f1_finish,
    require_text,
    shown,
    stack,
)

Span = tuple[str, int, int]


@functools.lru_cache(maxsize=65536)
def spans(tags: str) -> frozenset[Span]:
    """Returns the spans of BIO tags: type, first and last index, from 0.

    Examples:
      >>> sorted(spans("B-PER I-PER O I-LOC B-LOC I-PER"))
      [('LOC', 3, 3), ('LOC', 4, 4), ('PER', 0, 1), ('PER', 5, 5)]
    """
    ordered: list[Span] = []
    open_type = None
    for index, tag in enumerate(tags.split()):
        prefix, _, kind = tag.partition("-")
        if tag != "O" and (prefix not in ("B", "I") or not kind):
            raise ValueError(
                f"span_f1 is for tags in BIO, found {shown(tag)}, expected O, B-<type> or I-<type>"
            )
        if tag == "O":
            open_type = None
        elif prefix == "I" and kind == open_type:
            ordered[-1] = (kind, ordered[-1][1], index)
        else:
            ordered.append((kind, index, index))
            open_type = kind
    return frozenset(ordered)


def _bind(labels: NDArray, predictions: NDArray) -> Columns:
    cure = "give the tags of an example with spaces between them"
    require_text("span_f1 is for tags", labels, predictions, cure)
    for label, *answers in zip(labels, *predictions.reshape(-1, len(labels)), strict=True):
        for answer in answers:
            if len(label.split()) != len(answer.split()):
                raise ValueError(
                    f"span_f1: found {len(answer.split())} tags for the {len(label.split())} of "
                    f"{shown(label)}; give one tag for each"
                )
            spans(label), spans(answer)
    return _columns


def _columns(labels: NDArray, predictions: NDArray) -> Array:
    """Makes columns: twice the shared spans, and the spans of both sides [..., examples, 2]."""
    truths = [spans(label) for label in labels]
    counts = [
        [(2 * len(truth & spans(answer)), len(truth) + len(spans(answer)))
         for truth, answer in zip(truths, run, strict=True)]
        for run in predictions.reshape(-1, len(labels))
    ]  # fmt: skip
    shared, either = np.moveaxis(np.array(counts, float), -1, 0).reshape(2, *predictions.shape)
    return stack(predictions.shape, shared, either)


SPAN_F1 = Metric(
    "span_f1",
    BoundColumns(_bind),
    f1_finish,
    f1_degenerate,
    label="F1 of spans",
    unit="%",
    meaning="F1 of tagged spans, right in type and both ends.",
    uses="text",
    bounds=(0.0, 1.0),
    scored=lambda columns: (
        columns[..., 1:] > 0
    ),  # counts examples with a span, as errors within one example may be dependent
    steepness=2.0,
)
