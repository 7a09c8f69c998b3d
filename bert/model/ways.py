"""Which parts of the model an engine computes in its own way: equal to the definition up to rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

from multiberts.bert.model.attention import AttentionCore, plain
from multiberts.bert.model.products import PLAIN, Products


class Ways(NamedTuple):
    """Ways to compute what is worth a way of its own; the defaults are the definition.

    Attributes:
      products: with weights.
      attention: its core.
      labels_compared: the score of a label is found by comparing each class with it. An accelerator
        then needs neither a lookup nor, for its gradient, a scatter, which would each be a pass over
        the scores of a vocabulary.
    """

    products: Products = PLAIN
    attention: AttentionCore = plain
    labels_compared: bool = False


_DEFINITION = Ways()
_chosen: ContextVar[Ways] = ContextVar("ways", default=_DEFINITION)


def chosen_ways() -> Ways:
    """Returns how the model is computed here: by the definition, unless `computed_in` says otherwise."""
    return _chosen.get()


@contextlib.contextmanager
def computed_in(ways: Ways) -> Iterator[None]:
    """Computes what is traced inside in these ways."""
    token = _chosen.set(ways)
    try:
        yield
    finally:
        _chosen.reset(token)
