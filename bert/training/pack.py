"""Training runs of one process, side by side: one run, or several seeds whose updates are made together."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError

if TYPE_CHECKING:
    from multiberts.bert.training.engine import Dispatch

# Updates that are made in both ways before one program is trusted with so many seeds: each has sums in which
# another order is likely to show.
_UPDATES_COMPARED = 64

Metrics = dict[str, Any]
# A training run: yields the updates that come next, and takes the metrics that `Trainer.steps` returns.
Run = Generator["Dispatch", Metrics, None]


def carry_out_together(runs: Sequence[Run]) -> list[Exception | None]:
    """Carries out training runs to their ends, each at its own step.

    In each round every run makes one dispatch. Those of twins (`Trainer.twin`) with equally many updates are
    one program where the engine packs seeds. A run that ends leaves the others to continue.

    Args:
      runs: each with a trainer of its own.

    Returns:
      Of each run None, or the `UserError` or `PreemptedError` that ended it. Other errors are raised,
      and end all.

    Example:
      >>> def refused():
      ...     raise UserError("the disk is full; free some space")
      ...     yield
      >>> carry_out_together([refused(), (update for update in ())])
      [UserError('the disk is full; free some space'), None]
    """
    errors: list[Exception | None] = [None] * len(runs)
    asked: dict[int, Dispatch] = {}

    def advance(number: int, resume: Callable[[], Dispatch]) -> None:
        asked.pop(number, None)
        try:
            asked[number] = resume()
        except StopIteration:
            pass
        except (UserError, PreemptedError) as error:
            errors[number] = error

    with contextlib.ExitStack() as at_end:
        for number, run in enumerate(runs):
            at_end.callback(run.close)
            advance(number, functools.partial(next, run))
        while asked:
            for numbers in _of_equal_length(asked):
                try:
                    found = _made([asked[number] for number in numbers])
                except Exception as error:  # as if each had made its updates by itself
                    for number in numbers:
                        advance(number, functools.partial(runs[number].throw, error))
                else:
                    for number, metrics in zip(numbers, found, strict=True):
                        advance(number, functools.partial(runs[number].send, metrics))
    return errors


def _of_equal_length(asked: Mapping[int, Dispatch]) -> list[list[int]]:
    """Returns the numbers of the runs, those together that want equally many updates."""
    groups: dict[int, list[int]] = {}
    for number in sorted(asked):
        groups.setdefault(len(asked[number].batches), []).append(number)
    return list(groups.values())


def _made(dispatches: Sequence[Dispatch]) -> list[Metrics]:
    """Makes the updates of several runs; in one program where that ends in the bytes of single runs.

    Which order a compiler adds in depends on shapes, so the first updates of so many seeds decide: they are
    made in both ways, and all bits compared.
    """
    first, count = dispatches[0].trainer, len(dispatches)
    compared = first.exact_packs.get(count, 0)
    if count == 1 or not first.packs_seeds or compared is None:
        return _made_apart(dispatches)
    if compared >= _UPDATES_COMPARED:
        return first.steps_in_one_program(dispatches)
    before = [of.trainer.state() for of in dispatches]
    in_one_program = _bits(dispatches, first.steps_in_one_program(dispatches))
    for of, state in zip(dispatches, before, strict=True):
        of.trainer.restore(state)
    found = _made_apart(dispatches)
    is_exact = in_one_program == _bits(dispatches, found)
    first.exact_packs[count] = compared + len(dispatches[0].batches) if is_exact else None
    if not is_exact:
        console.progress(
            f"note: {count} seeds in one program of {first.devices.kind} do not end in the bytes of single "
            "seeds, so their updates are made one after the other"
        )
    return found


def _made_apart(dispatches: Sequence[Dispatch]) -> list[Metrics]:
    return [of.trainer.steps(*of[1:]) for of in dispatches]


def _bits(dispatches: Sequence[Dispatch], metrics: Sequence[Metrics]) -> list[Any]:
    """Returns what tells whether two ways to make updates gave the same states and metrics."""
    count = len(dispatches[0].batches)
    scalars = [
        {name: np.ravel(values)[:count].tobytes() for name, values in of.items()} for of in metrics
    ]
    return [scalars, [of.trainer.state().digest() for of in dispatches]]
