"""Least squares with a piecewise smooth, monotone or bounded solution.

Trend filtering: Kim, Koh, Boyd and Gorinevsky, "l1 Trend Filtering" (SIAM Review 51, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.errors import DataError, check_choice

Penalty = Literal["l1", "squared"]
Floats = NDArray[np.float64]

_MAX_ITERATIONS = 200


@dataclass(frozen=True)
class Regularisation:
    """Penalty and constraints of e.

    e minimises ||A e - b||^2 + weight x ||D^k e||_1 (or weight x ||D^k e||^2 for `squared`), with
    D^k the differences of order k: the trend filter of order k prefers piecewise polynomials of
    degree k - 1.

    Attributes:
      monotone: e never rises with j: samples of the own cluster do no harm.
      trend_order: k, 2 to 4 in the paper (1 or more here); None for no trend filter.
      trend_weight: lambda, in the paper .1 for synthetic data and 10 for real data.
      penalty: `l1`, the trend filter, or `squared`, a smoothing spline of the same order.
      lower: no loss is below this; None for no bound.
      upper: no loss is above this; None for no bound.
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

    A monotone e above a lower bound, without an l1 penalty or an upper bound, is a cumulative sum
    of non-negative steps, which `scipy.optimize.nnls` finds. Without any constraint it is the least
    squares solution of smallest norm. Everything else is a convex quadratic programme.
    """
    from scipy.optimize import nnls

    size = matrix.shape[1]
    order = rules.trend_order if rules.trend_weight > 0 else None
    rows, target = matrix, b
    if order is not None and rules.penalty == "squared":
        bends = np.sqrt(rules.trend_weight) * _differences(size, order)
        rows = np.vstack([matrix, bends])
        target = np.concatenate([b, np.zeros(len(bends))])
    l1 = order if rules.penalty == "l1" else None
    bounded = rules.lower is not None or rules.upper is not None
    if l1 is None and not rules.monotone and not bounded:
        return np.linalg.lstsq(rows, target, rcond=None)[0].astype(np.float64)
    if l1 is None and rules.monotone and rules.upper is None and rules.lower is not None:
        # e_j = lower + the steps from j on; [rows, steps].
        sums = np.cumsum(rows, axis=1)
        steps, _ = nnls(sums, target - rules.lower * rows.sum(axis=1), maxiter=100 * size)
        return rules.lower + np.cumsum(steps[::-1])[::-1]
    return _interior_point(rows, target, l1, rules)


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

    In e itself, rounding of heavily penalised differences would swamp the polynomials, which have
    none.

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


def _interior_point(rows: Floats, b: Floats, l1: int | None, rules: Regularisation) -> Floats:
    """Minimises ||rows e - b||^2 + weight sum |D^k e| with G e >= h, in the trend's coordinates."""
    size = rows.shape[1]
    constraints, limits = _constraints(size, rules)
    if l1 is None:
        return _quadratic_programme(rows, b, constraints, limits, np.empty(0))
    basis, scales = _trend_basis(size, l1)
    weights = rules.trend_weight / scales
    return basis @ _quadratic_programme(rows @ basis, b, constraints @ basis, limits, weights)


# Why a solver of our own: neither clarabel 0.11.1 nor quadprog 0.1.14 gives the same e to 1e-8 at
# n' = 100. On 18 problems of the size of `benchmarks/b3_experiment.py`, clarabel's objective agrees
# to 1e-11 but its e to 4e-6 only, as e is nearly free along small singular values of A, and it takes
# 2.6 times the processor time; with weights of 0.001 to 10 it stops short ("AlmostSolved") in 2 of 9
# problems, with e off by up to 1.5e-3. quadprog refuses a singular A^T A, and a ridge of 1e-10, which
# it then solves, moves e by 7e-6 there and by 1e-3 here.
def _quadratic_programme(
    rows: Floats, b: Floats, constraints: Floats, limits: Floats, weights: Floats
) -> Floats:
    """Minimises ||rows x - b||^2 + weights . |last of x| with constraints x >= limits.

    Mehrotra's predictor-corrector interior-point method.

    Args:
      rows: [rows, size].
      b: [rows].
      constraints: [constraints, size]; there is a feasible x.
      limits: [constraints].
      weights: positive, one per element at the end of x that is penalised [penalised].

    Returns:
      x [size].
    """
    programme = _Programme(rows, b, constraints, limits, weights)
    point = programme.start()
    scale = 1 + float(np.abs(b).max())
    for iteration in range(_MAX_ITERATIONS):
        gap, faults = float(point.slack @ point.dual), programme.faults(point)
        # Well conditioned problems converge soon; for others rounding limits the precision.
        loose = 1.0 if iteration < 40 else 1e3
        feasible = faults.largest < 1e-9 * loose * (scale + np.abs(point.x).max())
        if feasible and gap < 1e-11 * loose * scale**2:
            return point.x
        newton = _Newton(programme, point, faults)
        guess = newton.step(point.slack * point.dual)
        ahead = _moved(point.slack, guess.slack) @ _moved(point.dual, guess.dual)
        # A gap far below the faults would leave no room to correct them.
        average = gap / len(point.slack)
        share = (ahead / gap) ** 3 if feasible or average > 1e-2 * faults.largest else 1.0
        step = newton.step(point.slack * point.dual + guess.slack * guess.dual - share * average)
        reach = 0.995 * min(_reach(point.slack, step.slack), _reach(point.dual, step.dual))
        point = _Point(*(old + reach * new for old, new in zip(point, step, strict=True)))
    raise ArithmeticError(
        f"the solver of A e = b did not converge: gap {gap:.1e}, residuals {faults.largest:.1e}"
    )


class _Point(NamedTuple):
    """x [size], t >= |last of x| [penalised], slacks and their multipliers [inequalities]."""

    x: Floats
    t: Floats
    slack: Floats
    dual: Floats


class _Faults(NamedTuple):
    """The violations of the conditions of Karush, Kuhn and Tucker at a point."""

    x: Floats
    t: Floats
    slack: Floats

    @property
    def largest(self) -> float:
        return max(float(np.abs(part).max(initial=0.0)) for part in self)


class _Programme:
    """The inequalities in order: constraints x >= limits; t - x >= 0; t + x >= 0."""

    def __init__(
        self, rows: Floats, b: Floats, constraints: Floats, limits: Floats, weights: Floats
    ):
        self.rows, self.b, self.constraints, self.weights = rows, b, constraints, weights
        self.hessian, self.linear = 2 * rows.T @ rows, -2 * rows.T @ b
        self.free = rows.shape[1] - len(weights)
        self.offset = np.concatenate([limits, np.zeros(2 * len(weights))])
        self.cuts = (len(limits), len(limits) + len(weights))

    def apply(self, x: Floats, t: Floats) -> Floats:
        return np.concatenate([self.constraints @ x, t - x[self.free :], t + x[self.free :]])

    def transposed(self, dual: Floats) -> tuple[Floats, Floats]:
        """Applies the transpose of `apply`."""
        first, minus, plus = np.split(dual, self.cuts)
        pull = self.constraints.T @ first
        pull[self.free :] += plus - minus
        return pull, minus + plus

    def start(self) -> _Point:
        scale = 1 + float(np.abs(self.b).max())
        x: Floats = np.linalg.lstsq(self.rows, self.b, rcond=1e-3)[0].astype(np.float64)
        t = np.abs(x[self.free :]) + 0.1 * scale
        slack = np.maximum(self.apply(x, t) - self.offset, 0.1 * scale)
        return _Point(x, t, slack, np.full(len(slack), 0.1 * scale))

    def faults(self, point: _Point) -> _Faults:
        pull_x, pull_t = self.transposed(point.dual)
        return _Faults(
            self.hessian @ point.x + self.linear - pull_x,
            self.weights - pull_t,
            self.apply(point.x, point.t) - self.offset - point.slack,
        )


class _Newton:
    """Newton's system at a point, with t eliminated: it has the size of x."""

    def __init__(self, programme: _Programme, point: _Point, faults: _Faults):
        from scipy.linalg import cho_factor

        self._programme, self._point, self._faults = programme, point, faults
        self._ratio = point.dual / point.slack
        first, minus, plus = np.split(self._ratio, programme.cuts)
        self._both, self._cross = minus + plus, (plus - minus) / (minus + plus)
        matrix = programme.hessian + (programme.constraints.T * first) @ programme.constraints
        tail = np.arange(programme.free, len(matrix))
        matrix[tail, tail] += 4 * minus * plus / self._both
        self._matrix, self._shrink = matrix, 1 / np.sqrt(matrix.diagonal())
        even = self._shrink[:, None] * matrix * self._shrink + 1e-13 * np.eye(len(matrix))
        self._factor = cho_factor(even)

    def step(self, products: Floats) -> _Point:
        """Computes the step that, to first order, removes faults and `products` of slack x dual."""
        programme, free = self._programme, self._programme.free
        off = products / self._point.slack
        shift_x, shift_t = programme.transposed(off + self._ratio * self._faults.slack)
        right_x, right_t = -self._faults.x - shift_x, -self._faults.t - shift_t
        right_x[free:] -= self._cross * right_t
        x = self._solved(right_x)
        t = right_t / self._both - self._cross * x[free:]
        slack = programme.apply(x, t) + self._faults.slack
        return _Point(x, t, slack, -off - self._ratio * slack)

    def _solved(self, right: Floats) -> Floats:
        """Solves with one refinement, because a small number was added to the diagonal."""
        from scipy.linalg import cho_solve

        answer: Floats = self._shrink * cho_solve(self._factor, self._shrink * right)
        fault = right - self._matrix @ answer
        answer += self._shrink * cho_solve(self._factor, self._shrink * fault)
        return answer


def _reach(values: Floats, step: Floats) -> float:
    """Computes the longest step, at most 1, that keeps all values positive."""
    falling = step < 0
    return float(np.min(-values[falling] / step[falling], initial=1.0))


def _moved(values: Floats, step: Floats) -> Floats:
    return values + _reach(values, step) * step
