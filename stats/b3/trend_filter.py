"""Least squares with a piecewise smooth, monotone or bounded solution.

Trend filtering: Kim, Koh, Boyd and Gorinevsky, "l1 Trend Filtering" (SIAM Review 51, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.errors import DataError, check_choice

Penalty = Literal["l1", "squared"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Regularisation:
    """Penalty on e and constraints.

    e minimises ||A e - b||^2 + weight x ||D^k e||_1 (or weight x ||D^k e||^2 for `squared`), with
    D^k the differences of order k: the trend filter of order k prefers piecewise polynomials of
    degree k - 1.

    Attributes:
      monotone: whether e never increases with j, because training samples of the same cluster do no harm.
      trend_order: k, 2 to 4 in the paper (1 or more here); None for no trend filter.
      trend_weight: lambda (paper: .1 for synthetic data, 10 for real data).
      penalty: `l1`, the trend filter, or `squared`, a smoothing spline of the same order.
      lower: lower bound of losses; None for no bound.
      upper: upper bound of losses; None for no bound.
    """

    monotone: bool = True
    trend_order: int | None = 2
    trend_weight: float = 0.1
    penalty: Penalty = "l1"
    lower: float | None = 0.0
    upper: float | None = None

    def check(self, num_train: int) -> None:
        """Refuses settings that cannot be solved."""
        order = self.trend_order
        if order is not None and not 1 <= order <= num_train:
            raise DataError(
                f"found trend_order {order}, expected None or 1 to num_train = {num_train}, such as 3"
            )
        if not (np.isfinite(self.trend_weight) and self.trend_weight >= 0):
            raise DataError(f"found trend_weight {self.trend_weight}, expected 0 or more")
        check_choice("penalty", self.penalty, Penalty)
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise DataError(
                f"found bounds {self.lower} to {self.upper} of the loss, expected lower < upper"
            )


def _differences(size: int, order: int) -> Floats:
    """Returns D^k, [size - k, size]."""
    differences: Floats = np.diff(np.eye(size), order, axis=0)
    return differences


def penalty(e: Floats, rules: Regularisation) -> float:
    """Computes weight x ||D^k e||_1, or weight x ||D^k e||^2."""
    if rules.trend_order is None:
        return 0.0
    bends = np.diff(e, rules.trend_order)
    total = np.abs(bends).sum() if rules.penalty == "l1" else (bends**2).sum()
    return float(rules.trend_weight * total)


def solve_regularised(matrix: Floats, b: Floats, rules: Regularisation) -> Floats:
    """Solves for e [size], for a matrix [rows, size] and b [rows]; see `Regularisation`.

    A monotone e with a lower bound, without l1 penalty and upper bound, is a cumulative sum of non-negative
    steps, computed by `scipy.optimize.nnls`. Without constraints it is the least squares solution of smallest
    norm. All other cases are convex quadratic programmes.
    """
    from scipy.optimize import nnls

    size = matrix.shape[1]
    order = rules.trend_order if rules.trend_weight > 0 else None
    rows, target = matrix, b
    if order is not None and rules.penalty == "squared":
        bends = np.sqrt(rules.trend_weight) * _differences(size, order)
        rows = np.vstack([matrix, bends])
        target = np.concatenate([b, np.zeros(len(bends))])
    constraints, limits = _constraints(size, rules)
    if order is not None and rules.penalty == "l1":
        basis, scales = _trend_basis(size, order)
        weights = rules.trend_weight / scales
        x = _quadratic_programme(rows @ basis, target, constraints @ basis, limits, weights)
        return basis @ x
    if not len(limits):
        return np.linalg.lstsq(rows, target, rcond=None)[0].astype(np.float64)
    if rules.monotone and rules.upper is None and rules.lower is not None:
        # e_j = lower + the steps from j on; [rows, steps].
        sums = np.cumsum(rows, axis=1)
        steps, _ = nnls(sums, target - rules.lower * rows.sum(axis=1), maxiter=100 * size)
        return rules.lower + np.cumsum(steps[::-1])[::-1]
    return _quadratic_programme(rows, target, constraints, limits, np.empty(0))


def _constraints(size: int, rules: Regularisation) -> tuple[Floats, Floats]:
    """Returns G and h of G e >= h."""
    identity = np.eye(size)
    rows: list[Floats] = []
    limits: list[Floats] = []
    if rules.monotone:
        rows.append(identity[:-1] - identity[1:])
        limits.append(np.zeros(size - 1))
    if rules.lower is not None:
        bound = identity[-1:] if rules.monotone else identity
        rows.append(bound)
        limits.append(np.full(len(bound), rules.lower))
    if rules.upper is not None:
        bound = identity[:1] if rules.monotone else identity
        rows.append(-bound)
        limits.append(np.full(len(bound), -rules.upper))
    if not rows:
        return np.empty((0, size)), np.empty(0)
    return np.vstack(rows), np.concatenate(limits)


def _trend_basis(size: int, order: int) -> tuple[Floats, Floats]:
    """Builds coordinates in which the differences of order k are single elements.

    In the coordinates e, rounding errors of heavily penalised differences would dominate the polynomials,
    whose differences are 0.

    Returns:
      B [size, size] and scales [size - k], with e = B x and D^k e = x[k:] / scales: first the
      polynomials below degree k, then splines with one kink each, as large as 1.
    """
    powers = np.polynomial.chebyshev.chebvander(np.linspace(-1, 1, size), order - 1)
    polynomials = np.linalg.qr(powers)[0]
    kinks = np.eye(size - order)
    for _ in range(order):
        kinks = np.vstack([np.zeros(size - order), np.cumsum(kinks, axis=0)])
    kinks -= polynomials @ (polynomials.T @ kinks)
    scales = np.abs(kinks).max(axis=0)
    return np.hstack([polynomials, kinks / scales]), scales


def _quadratic_programme(
    rows: Floats, b: Floats, constraints: Floats, limits: Floats, weights: Floats
) -> Floats:
    """Minimises ||rows x - b||^2 + weights . |last of x| with constraints x >= limits.

    Args:
      rows: [rows, size].
      b: [rows].
      constraints: [constraints, size]; there is a feasible x.
      limits: [constraints].
      weights: positive, one per element at the end of x that is penalised [penalised].

    Returns:
      x [size].
    """
    import piqp

    size, penalised = rows.shape[1], len(weights)
    unit = max(1.0, float(np.abs(b).max()))  # tolerances are absolute
    # Variables x and t, with t >= |last of x|.
    hessian = np.zeros((size + penalised, size + penalised))
    hessian[:size, :size] = 2 * rows.T @ rows
    linear = np.concatenate([-2 * rows.T @ b, weights]) / unit
    last, t = np.eye(size)[size - penalised :], np.eye(penalised)
    inequalities = np.block(
        [[constraints, np.zeros((len(constraints), penalised))], [-last, t], [last, t]]
    )
    least = np.concatenate([limits / unit, np.zeros(2 * penalised)])
    solver = piqp.DenseSolver()
    solver.setup(hessian, linear, None, None, inequalities, least)
    solver.settings.max_iter = 100
    solver.settings.reg_lower_limit = 1e-12
    solver.settings.eps_rel = solver.settings.eps_duality_gap_rel = 0
    # e is nearly free along small singular values of A: at the default tolerance, 1e-8, its third
    # digit may be off. Where the penalty is light, rounding allows no better.
    for tolerance in (1e-11, 1e-8):
        solver.settings.eps_abs = solver.settings.eps_duality_gap_abs = tolerance
        status = solver.solve()
        if status == piqp.Status.PIQP_SOLVED:
            return unit * np.array(solver.result.x)[:size]
    raise DataError(
        f"the losses do not determine e ({status.name} after {solver.result.info.iter} steps); "
        "give a trend filter, such as trend_order=2, or both a lower and an upper bound"
    )
