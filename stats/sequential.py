"""Sequential tests: interim looks while seeds arrive, at one overall level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.errors import DataError
from multiberts.stats.significance import check_level

Array = NDArray[np.float64]

# Cut-off in standard deviations: the probability beyond it is below 1e-18.
_REACH = 9.0
_NODES_PER_PANEL = 12
# Smallest level that a look with a boundary spends.
_LEAST_SPENT = 1e-15


@dataclass(frozen=True)
class Boundaries:
    """Stopping boundaries, one per look.

    Attributes:
      information: share of the planned information at each look [K].
      spent: two-sided level spent up to each look [K].
      z: boundary of |z| at each look [K]; infinite for looks that spend nothing.
      nominal_p: boundary of the two-sided p at each look [K]: stop if p is at most this.
    """

    information: Array
    spent: Array
    z: Array
    nominal_p: Array


def spent_level(information: float, alpha: float) -> float:
    """Computes the one-sided level to spend up to a share t (0 to 1) of the information.

    O'Brien and Fleming's form, 2 - 2 Phi(z_{alpha/2} / sqrt(t)), spends almost nothing at early looks.

    Reference: Lan & DeMets (1983), Discrete sequential boundaries for clinical trials.
    """
    from scipy.special import ndtr, ndtri

    return float(2 * ndtr(ndtri(alpha / 2) / math.sqrt(information))) if information else 0.0


def spending_boundaries(information_fractions: Sequence[float], alpha: float = 0.05) -> Boundaries:
    """Computes boundaries of |z| that spend the level as the information grows.

    The looks need not be planned, because each boundary depends only on the looks up to it.

    Args:
      information_fractions: share of the planned information at each look, increasing and at most 1; the
        share of the planned seeds if seeds dominate the variance.
      alpha: overall two-sided level; each side spends half.

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
    check_level(alpha, sides=2)
    one_side = np.array([spent_level(min(1.0, float(t)), alpha / 2) for t in information])
    z = np.empty(len(information))
    path = _Path()
    steps = np.sqrt(np.diff(information, prepend=0.0))
    for look, increment in enumerate(np.diff(one_side, prepend=0.0)):
        next_step = steps[look + 1] if look + 1 < len(steps) else math.inf
        z[look] = path.boundary(float(steps[look]), float(increment), float(next_step))
    return Boundaries(information, 2 * one_side, z, 2 * ndtr(-z))


@dataclass(frozen=True)
class SequentialDecision:
    """The decision after the latest look.

    Attributes:
      stop: whether to stop, because a difference is shown or the plan is complete.
      shown: whether a boundary was crossed.
      look: first look that crossed a boundary, counted from 1; None if none did.
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
) -> SequentialDecision:
    """Decides whether to stop, from the p-values of the looks so far.

    Each p-value comes from a t test on all seeds up to its look, and is compared with the look's nominal
    level. The boundaries assume normal scores with known variance; for t tests they are a good approximation
    from about five seeds.

    Args:
      p_values: two-sided p-value of each look [K].
      seeds_at_looks: number of seeds (of each arm) at each look [K].
      planned_seeds: number of seeds at the planned last look.
      alpha: overall two-sided level.

    Raises:
      DataError: the number of p-values differs from that of looks, a p-value is outside [0, 1], no seed is
        planned, or a look has more seeds than planned.

    Examples:
      >>> from multiberts import stats
      >>> decision = stats.sequential_decision([0.2, 0.004], [4, 7], planned_seeds=10)
      >>> decision.shown, decision.look
      (True, 2)

    See also: `early_look`.

    Reference: Lan & DeMets (1983), Discrete sequential boundaries for clinical trials.
    """
    if len(p_values) != len(seeds_at_looks) or not all(0 <= p <= 1 for p in p_values):
        raise DataError(
            f"found p-values {list(p_values)} at {len(seeds_at_looks)} looks, expected one from 0 "
            "to 1 per look"
        )
    if planned_seeds < 1:
        raise DataError(f"found {planned_seeds} planned seeds, expected one or more")
    if max(seeds_at_looks, default=0) > planned_seeds:
        raise DataError(
            f"found a look at {max(seeds_at_looks)} seeds, expected at most the {planned_seeds} "
            "planned; the level is spent at the planned number"
        )
    boundaries = spending_boundaries([number / planned_seeds for number in seeds_at_looks], alpha)
    crossed = np.flatnonzero(np.asarray(p_values) <= boundaries.nominal_p)
    look = int(crossed[0]) + 1 if crossed.size else None
    finished = seeds_at_looks[-1] == planned_seeds
    return SequentialDecision(look is not None or finished, look is not None, look, boundaries)


class _Path:
    """The density of a Brownian motion that has not been stopped up to the last look, as masses on nodes."""

    def __init__(self) -> None:
        self.information = 0.0
        # All the mass at 0, before the first look.
        self.nodes, self.mass = np.zeros(1), np.ones(1)

    def boundary(self, step: float, increment: float, next_step: float) -> float:
        """Advances to the next look.

        Args:
          step: standard deviation of the motion between the previous look and this one.
          increment: probability of crossing each side at this look.
          next_step: standard deviation of the motion between this look and the next.

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
        self._stop_beyond(min(z, _REACH) * root, step, next_step)
        return z

    def _stop_beyond(self, high: float, step: float, next_step: float) -> None:
        # The density varies on the scale of this step, and the integrand of the next look on that of the
        # next.
        nodes, weights = _panels(-high, high, min(step, next_step))
        kernel = np.exp(-0.5 * ((nodes[:, None] - self.nodes) / step) ** 2)
        self.mass = weights * (kernel @ self.mass) / (step * math.sqrt(2 * math.pi))
        self.nodes = nodes


def _panels(low: float, high: float, width: float) -> tuple[Array, Array]:
    """Returns nodes and weights of Gauss-Legendre quadrature on panels of at most `width`."""
    points, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    number = max(1, math.ceil((high - low) / width))
    edges = np.linspace(low, high, number + 1)
    half = (high - low) / number / 2
    nodes = (edges[:-1, None] + half * (points + 1)).ravel()
    return nodes, np.tile(half * weights, number)
