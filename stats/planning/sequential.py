"""Looking at results while seeds arrive, without spending the level more than once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.arms import DataError

Array = NDArray[np.float64]

# A number is the exponent of the power family alpha t**exponent.
Spending = Literal["obrien_fleming", "pocock"] | float

# Beyond this many standard deviations there is less than 1e-18.
_REACH = 9.0
_NODES_PER_PANEL = 12
# A look that may spend less than this has no boundary: nothing is stopped there.
_LEAST_SPENT = 1e-15


@dataclass(frozen=True)
class Boundaries:
    """When to stop, look by look.

    Attributes:
      information: the share of the planned information at each look [K].
      spent: the level spent up to each look, both sides together [K].
      z: stop where |z| (one-sided: z) reaches this [K]; infinite where the look spends nothing.
      nominal_p: the same as a p-value: stop where p is at most this [K].
    """

    information: Array
    spent: Array
    z: Array
    nominal_p: Array


def spent_level(information: float, alpha: float, spending: Spending) -> float:
    """How much of a one-sided level alpha may be spent up to a share of the information.

    Args:
      information: t, from 0 to 1.
      alpha: the level in all.
      spending: `obrien_fleming` 2 - 2 Phi(z_{alpha/2} / sqrt(t)), nearly nothing early;
        `pocock` alpha log(1 + (e - 1) t), about even; or a number r > 0 for alpha t**r.

    Reference: Lan & DeMets (1983); Kim & DeMets (1987) for the power family.
    """
    from scipy.special import ndtr, ndtri

    if spending == "obrien_fleming":
        return float(2 * ndtr(ndtri(alpha / 2) / math.sqrt(information))) if information else 0.0
    if spending == "pocock":
        return alpha * math.log1p((math.e - 1) * information)
    if isinstance(spending, str) or not spending > 0:
        raise DataError(
            f"found spending {spending!r}, expected 'obrien_fleming', 'pocock' or the positive "
            "exponent of the power family"
        )
    return alpha * information**spending


def spending_boundaries(
    information_fractions: Sequence[float],
    alpha: float = 0.05,
    spending: Spending = "obrien_fleming",
    sides: int = 2,
) -> Boundaries:
    """Boundaries that spend the level as the information grows.

    The looks need not be planned: a boundary depends on the looks up to it only.

    Args:
      information_fractions: at each look the share of the planned information, growing, the last
        at most 1. Where seeds dominate the variance it is the share of the planned seeds.
      alpha: the level in all, both sides together.
      spending: see `spent_level`; with two sides each spends alpha / 2.
      sides: 1 or 2.

    Raises:
      DataError: fractions that do not grow within (0, 1], or a level that is none.

    Reference: Armitage, McPherson & Rowe (1969), Repeated significance tests, for the recursion;
        Lan & DeMets (1983), Discrete sequential boundaries for clinical trials.
    """
    from scipy.special import ndtr

    information = np.asarray(information_fractions, dtype=np.float64)
    if (
        information.ndim != 1
        or not information.size
        or not (np.diff(information, prepend=0.0) > 0).all()
        or information[-1] > 1 + 1e-12
    ):
        raise DataError(
            f"found information fractions {information.tolist()}, expected growing shares above 0 "
            "and at most 1"
        )
    if not 0 < alpha < 1 or sides not in (1, 2):
        raise DataError(
            f"found alpha {alpha} and {sides} sides, expected a level between 0 and 1, and 1 or 2"
        )
    one_side = np.array(
        [spent_level(min(1.0, float(t)), alpha / sides, spending) for t in information]
    )
    z = np.empty(len(information))
    path = _Path(sides)
    steps = np.sqrt(np.diff(information, prepend=0.0))
    for look, increment in enumerate(np.diff(one_side, prepend=0.0)):
        next_step = steps[look + 1] if look + 1 < len(steps) else math.inf
        z[look] = path.boundary(float(steps[look]), float(increment), float(next_step))
    return Boundaries(information, sides * one_side, z, sides * ndtr(-z))


@dataclass(frozen=True)
class SequentialDecision:
    """What to do after the latest look.

    Attributes:
      stop: whether to stop: the difference is shown, or the plan is used up.
      shown: whether a boundary was crossed.
      look: the first look that crossed, counted from 1; None where none did.
      boundaries: of the looks so far.
    """

    stop: bool
    shown: bool
    look: int | None
    boundaries: Boundaries


def sequential_decision(
    p_values: Sequence[float],
    seeds_at_looks: Sequence[int],
    planned_seeds: int,
    alpha: float = 0.05,
    spending: Spending = "obrien_fleming",
    sides: int = 2,
) -> SequentialDecision:
    """Whether to stop, given the p-values of the looks so far.

    Each p-value, of a t-test on all seeds up to its look, is held against the nominal level of that
    look. The boundaries are those of normal scores with known variance; carrying their levels over
    to t is close from about five seeds on.

    Args:
      p_values: one a look, of a test with as many sides as `sides` [K].
      seeds_at_looks: the seeds (of each side) at each look [K].
      planned_seeds: the number at which the last look is to be.
      alpha, spending, sides: see `spending_boundaries`.

    Raises:
      DataError: not one p-value a look, p-values outside [0, 1], or looks beyond the plan.
    """
    if len(p_values) != len(seeds_at_looks) or not all(0 <= p <= 1 for p in p_values):
        raise DataError(
            f"found p-values {list(p_values)} at {len(seeds_at_looks)} looks, expected one from 0 "
            "to 1 a look"
        )
    if max(seeds_at_looks, default=0) > planned_seeds:
        raise DataError(
            f"found a look at {max(seeds_at_looks)} seeds, expected at most the {planned_seeds} "
            "planned; the level is spent at the planned number"
        )
    boundaries = spending_boundaries(
        [number / planned_seeds for number in seeds_at_looks], alpha, spending, sides
    )
    crossed = np.flatnonzero(np.asarray(p_values) <= boundaries.nominal_p)
    look = int(crossed[0]) + 1 if crossed.size else None
    finished = seeds_at_looks[-1] == planned_seeds
    return SequentialDecision(look is not None or finished, look is not None, look, boundaries)


class _Path:
    """A Brownian motion not stopped so far: its density at the last look, as masses on nodes."""

    def __init__(self, sides: int) -> None:
        self.sides = sides
        self.information = 0.0
        # All the mass at 0, before the first look.
        self.nodes, self.mass = np.zeros(1), np.ones(1)

    def boundary(self, step: float, increment: float, next_step: float) -> float:
        """Goes on to the next look.

        Args:
          step: standard deviation of the motion up to this look.
          increment: the probability that each side is to be crossed at this look.
          next_step: as `step`, of the look after it.

        Returns:
          z of the boundary.
        """
        from scipy.optimize import brentq
        from scipy.special import ndtr

        self.information += step**2
        root = math.sqrt(self.information)

        def excess(z: float) -> float:
            return float(self.mass @ ndtr((self.nodes - z * root) / step)) - increment

        z = math.inf
        if increment >= _LEAST_SPENT:
            z = float(brentq(excess, -_REACH, 2 * _REACH, xtol=1e-12))
        self._stop_beyond(min(z, _REACH) * root, root, step, next_step)
        return z

    def _stop_beyond(self, high: float, root: float, step: float, next_step: float) -> None:
        low = -high if self.sides == 2 else -_REACH * root
        # The density bends on the scale of the step just made, what it meets on that of the next.
        nodes, weights = _panels(low, high, min(step, next_step))
        kernel = np.exp(-0.5 * ((nodes[:, None] - self.nodes) / step) ** 2)
        self.mass = weights * (kernel @ self.mass) / (step * math.sqrt(2 * math.pi))
        self.nodes = nodes


def _panels(low: float, high: float, width: float) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre's quadrature on panels of at most `width`."""
    points, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    number = max(1, math.ceil((high - low) / width))
    edges = np.linspace(low, high, number + 1)
    half = (high - low) / number / 2
    nodes = (edges[:-1, None] + half * (points + 1)).ravel()
    return nodes, np.tile(half * weights, number)
