"""Intervals of other models for scores of several seeds, one trial at a time, for `benchmarks.rivals`.

- `logistic_intervals`: right and wrong answers by a crossed logistic model. The likelihood of the seeds'
  logits is integrated over examples by Gauss-Hermite quadrature and taken as normal about its mode; the
  seeds' standard deviations, with half-normal priors, lie on a grid. The interval is that of posterior
  draws of the accuracy (or difference) of new seeds on new examples.
- `evalstats_interval`: evalstats 0.3 with its automatic choice for three runs or more, over examples.
- `kenward_roger_interval`: REML with crossed effects where cells are missing, as pbkrtest has it.
- `pooled_variance`: REML with Satterthwaite's degrees of freedom in a balanced table, as lmerTest has it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import chdtri, expit, log_expit, logsumexp, ndtri, stdtrit

Array = NDArray[np.float64]
Ends = tuple[float, float]

CONFIDENCE = 0.95
# Scales of the half-normal priors, in logits: .5 expects seeds of BERT, 2 hardly expects anything.
PRIORS = {"logistic": 0.5, "logistic_wide": 2.0}
_NORMAL = float(ndtri((1 + CONFIDENCE) / 2))
_SPREADS = np.geomspace(0.01, 5.0, 24)  # the grid of a standard deviation of seeds, in logits
_DRAWS = 2000


def _reach(centre: float, error: float, freedom: float) -> Ends:
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return centre - reach, centre + reach


def evalstats_interval(sides: Sequence[Array], binary: bool) -> Ends:
    """Computes the interval of evalstats 0.3 from scores [seeds, examples] of one side or two."""
    means = [side.mean(axis=0) for side in sides]
    number = sides[0].shape[1]
    if not binary:
        values = means[-1] - means[0] if len(means) == 2 else means[0]
        return _reach(
            float(values.mean()), float(values.std(ddof=1)) / math.sqrt(number), number - 1
        )
    if len(sides) == 1:  # Wilson's, of the rounded sum of the examples' means
        share, square = round(float(means[0].sum())) / number, _NORMAL**2
        centre = (share + square / (2 * number)) / (1 + square / number)
        root = math.sqrt(share * (1 - share) / number + square / (4 * number**2))
        reach = _NORMAL / (1 + square / number) * root
        return max(0.0, centre - reach), min(1.0, centre + reach)
    difference, apart = means[1] - means[0], float(np.abs(sides[1] - sides[0]).mean(axis=0).sum())
    squares = float(difference @ difference)
    mean = float(difference.sum()) / (number + 2)
    second = (squares + 2 * (squares + 2) / (apart + 2)) / (number + 2)
    reach = _NORMAL * math.sqrt(max(second - mean**2, 0.0) / (number + 2))
    return max(-1.0, mean - reach), min(1.0, mean + reach)


def _gauss_hermite(number: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(number)
    return nodes, weights / weights.sum()


def logistic_intervals(
    answers: Sequence[Array], paired: bool, random: np.random.Generator
) -> dict[str, Ends]:
    """Computes the intervals of the crossed logistic model.

    Args:
      answers: 0 or 1 [seeds, examples], of one side or two.
      paired: whether the seeds of two sides have an effect in common.
      random: of the posterior draws.

    Returns:
      By prior, an interval of the accuracy, or of the difference second - first.
    """
    sides, number = len(answers), len(answers[0])
    mode, covariance = _seed_logits(answers)
    known = sides * number
    design = np.zeros((len(mode), sides + len(mode) - known))
    design[:known, :sides] = np.kron(np.eye(sides), np.ones((number, 1)))
    design[known:, sides:] = np.eye(len(mode) - known)
    # Seeds' variance [grid, logits, logits]: own effects, and where paired an effect in common.
    shapes = [np.eye(known)] + [np.kron(np.ones((2, 2)), np.eye(number))] * paired
    grid = np.array(list(itertools.product(_SPREADS, repeat=len(shapes))))
    total = np.broadcast_to(covariance, (len(grid), *covariance.shape)).copy()
    total[:, :known, :known] += np.einsum("gs,sij->gij", grid**2, np.array(shapes))
    inverse = np.linalg.inv(total)
    precision = design.T @ inverse @ design
    spread = np.linalg.inv(precision)
    centre = np.einsum("gij,gj->gi", spread, design.T @ inverse @ mode)
    rest = mode - centre @ design.T
    fit = -0.5 * (
        np.einsum("gi,gij,gj->g", rest, inverse, rest)
        + np.linalg.slogdet(total)[1]
        + np.linalg.slogdet(precision)[1]
    )
    nodes, weights = _gauss_hermite(21)
    found = {}
    for name, scale in PRIORS.items():
        # The grid is even in the logarithm, so that a density is weighted by the standard deviation.
        log_weights = fit + (np.log(grid) - 0.5 * (grid / scale) ** 2).sum(axis=1)
        posterior = np.exp(log_weights - logsumexp(log_weights))
        chosen = random.choice(len(grid), _DRAWS, p=posterior / posterior.sum())
        roots = np.linalg.cholesky(spread)[chosen]
        normal = random.standard_normal((_DRAWS, design.shape[1]))
        drawn = centre[chosen] + np.einsum("dij,dj->di", roots, normal)
        of_examples = np.exp(2 * np.minimum(drawn[:, sides:], 5.0)).sum(axis=1)
        width = np.sqrt(of_examples + (grid[chosen] ** 2).sum(axis=1))
        latent = drawn[:, :sides, None] + width[:, None, None] * nodes
        accuracy = expit(latent) @ weights  # [draws, sides]
        value = accuracy[:, 1] - accuracy[:, 0] if sides == 2 else accuracy[:, 0]
        low, high = np.quantile(value, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        found[name] = (float(low), float(high))
    return found


def _seed_logits(answers: Sequence[Array]) -> tuple[Array, Array]:
    """Returns the mode and covariance of the logits of all seeds and of the examples' log spreads.

    An example has an effect in common to all seeds and, of two sides, one of its own on each. The nodes are
    for spreads of up to about 3 logits, as made-up answers have them; where examples are nearly all easy
    or hopeless (10 logits in MNLI), four times as many are needed.
    """
    sides, (number, size) = len(answers), answers[0].shape
    nodes, weights = _gauss_hermite(15)
    own_nodes, own_weights = _gauss_hermite(7) if sides == 2 else (np.zeros(1), np.ones(1))
    places = np.array([np.repeat(nodes, len(own_nodes)), np.tile(own_nodes, len(nodes))])[:sides]
    shape = (size, len(nodes), len(own_nodes))
    prior = 3.0  # half-normal, of the examples' spreads

    def loss(parameters: Array) -> tuple[float, Array]:
        spreads = np.exp(parameters[sides * number :])
        logits = parameters[: sides * number].reshape(sides, number, 1) + spreads @ places
        of_nodes = np.log(weights)  # [examples, nodes]
        shares: list[Array] = []  # [examples, nodes, own nodes]
        for side, logit in zip(answers, logits, strict=True):
            joint = (side.T @ logit + log_expit(-logit).sum(axis=0)).reshape(shape)
            sums, share = _log_sums(joint + np.log(own_weights))
            of_nodes = of_nodes + sums
            shares.append(share)
        whole, node_share = _log_sums(of_nodes)
        gradient = np.zeros_like(parameters)
        for place, (side, logit) in enumerate(zip(answers, logits, strict=True)):
            share = (shares[place] * node_share[:, :, None]).reshape(size, -1)
            expected = expit(logit) * share.sum(axis=0)  # [seeds, nodes]
            of_seeds = side.sum(axis=1) - expected.sum(axis=1)
            gradient[place * number : (place + 1) * number] = of_seeds
            moved = side.sum(axis=0) @ share - expected.sum(axis=0)
            gradient[sides * number :] += spreads * (places @ moved)
        log_prior = np.log(spreads).sum() - (spreads**2).sum() / (2 * prior**2)
        gradient[sides * number :] += 1 - (spreads / prior) ** 2
        return -float(whole.sum() + log_prior), np.asarray(-gradient, dtype=np.float64)

    rates = np.concatenate([(side.sum(axis=1) + 0.5) / (size + 1) for side in answers])
    start = np.concatenate([1.5 * np.log(rates / (1 - rates)), np.zeros(sides)])
    mode = minimize(loss, start, jac=True, method="L-BFGS-B").x
    step = 1e-4
    moves = step * np.eye(len(mode))
    hessian = np.array([loss(mode + move)[1] - loss(mode - move)[1] for move in moves]) / (2 * step)
    return mode, np.asarray(np.linalg.inv((hessian + hessian.T) / 2), dtype=np.float64)


def _log_sums(values: Array) -> tuple[Array, Array]:
    """Returns the logarithm of the sum of exponentials over the last axis, and each one's share."""
    most = values.max(axis=-1, keepdims=True)
    powers = np.exp(values - most)
    sums = powers.sum(axis=-1, keepdims=True)
    return np.asarray(most + np.log(sums))[..., 0], np.asarray(powers / sums)


def kenward_roger_interval(table: Array) -> Ends:
    """Computes the interval of the mean of scores [seeds, examples], NaN where a cell is missing.

    Crossed random effects of seeds and examples by REML; all of it follows from G = Z' V^-1 Z, where Z
    has a column per seed and per example, as the effects of seeds add up to the intercept.

    Reference: Kenward & Roger (1997), Small sample inference for fixed effects from REML; for a single
    effect the scale of F is 1 and the degrees of freedom are 2 / A.
    """
    there = ~np.isnan(table)
    number, size = table.shape
    seeds, examples = slice(0, number), slice(number, number + size)
    groups = (seeds, examples)
    counts = np.diag(np.concatenate([there.sum(axis=1), there.sum(axis=0)]).astype(float))
    counts[seeds, examples], counts[examples, seeds] = there, there.T
    scores = np.where(there, table, 0.0)
    scores = scores - scores.sum() / there.sum() * there
    sums = np.concatenate([scores.sum(axis=1), scores.sum(axis=0)])
    squares, cells = float((scores**2).sum()), int(there.sum())
    kind = np.repeat([0, 1], [number, size])

    def solved(ratios: Array) -> tuple[Array, Array, Array, float, float]:
        """Returns G, Z' V^-1 1, Z' P y, 1' V^-1 1 and y' P y for a residual variance of 1."""
        system = np.eye(number + size) + counts * ratios[kind]
        both = np.linalg.solve(system, np.column_stack([counts, sums]))
        g, of_y = both[:, :-1], both[:, -1]
        of_one = g[:, seeds].sum(axis=1)
        one = float(of_one[seeds].sum())
        mean = float(of_y[seeds].sum()) / one
        left = squares - float((sums * ratios[kind]) @ of_y) - mean**2 * one
        return g, of_one, of_y - mean * of_one, one, left

    def loss(roots: Array) -> tuple[float, Array]:
        ratios = roots**2
        g, of_one, projected, one, left = solved(ratios)
        variance = left / (cells - 1)
        gradient = []
        for group in groups:
            trace = np.trace(g[group, group]) - float(of_one[group] @ of_one[group]) / one
            gradient.append(trace - float(projected[group] @ projected[group]) / variance)
        determinant = np.linalg.slogdet(np.eye(number + size) + counts * ratios[kind])[1]
        value = (cells - 1) * math.log(variance) + determinant + math.log(one)
        return value, 2 * roots * np.array(gradient)

    # Roots of the ratios, as lme4 has them: a component of zero is an inner point.
    found = minimize(
        loss, np.full(2, 0.5), jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}
    )
    ratios = found.x**2
    g, of_one, _, one, left = solved(ratios)
    weighted = ratios[kind]
    p = g - np.outer(of_one, of_one) / one  # Z' P Z
    # V^-1 and P times the residual's identity follow from V = I + Z D Z'.
    p2 = p - (p * weighted) @ p
    trace_p = cells - 1 - float(weighted @ np.diag(p))
    of_one2 = of_one - (g * weighted) @ of_one
    one2 = one - float(weighted @ of_one**2)
    information, slopes, curves = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3))
    for first, group in enumerate(groups):
        for second, other in enumerate(groups):
            information[first, second] = (p[group, other] ** 2).sum() / 2
            curves[first, second] = of_one[group] @ g[group, other] @ of_one[other]
        information[first, 2] = information[2, first] = np.trace(p2[group, group]) / 2
        curves[first, 2] = curves[2, first] = of_one2[group] @ of_one[group]
        slopes[first] = -float(of_one[group] @ of_one[group])
    information[2, 2] = (trace_p - float(weighted @ np.diag(p2))) / 2
    slopes[2], curves[2, 2] = -one2, one2 - float(weighted @ (of_one2 * of_one))
    weights = np.linalg.inv(information)
    variance = 1 / one + 2 / one**2 * float(
        (weights * (curves - np.outer(slopes, slopes) / one)).sum()
    )
    freedom = 2 * one**2 / float(slopes @ weights @ slopes)
    shift = float(np.nansum(table)) / cells
    of_y = np.linalg.solve(np.eye(number + size) + counts * weighted, sums)
    centre = shift + float(of_y[seeds].sum()) / one
    return _reach(centre, math.sqrt(variance * left / (cells - 1)), freedom)


def pooled_variance(
    squares: Array, freedoms: Sequence[float], quantile: float | None = None
) -> tuple[Array, Array]:
    """Returns REML's variance of the mean of a balanced table, and its degrees of freedom.

    Args:
      squares: mean squares of seeds, examples and residual, over all cells [3, tables]; one of seeds or
        examples that is below the residual's is pooled with it.
      freedoms: theirs.
      quantile: where in its law each mean square is taken to lie for the degrees of freedom; None: at its
        expectation, which is Satterthwaite's formula.
    """
    (seeds, examples, rest), (of_seeds, of_examples, of_rest) = squares, freedoms
    seeds_first = seeds < examples
    ordered = [
        (np.where(seeds_first, seeds, examples), np.where(seeds_first, of_seeds, of_examples)),
        (np.where(seeds_first, examples, seeds), np.where(seeds_first, of_examples, of_seeds)),
    ]
    total, freedom = rest * of_rest, np.full(rest.shape, float(of_rest))
    terms, apart = [], np.zeros(rest.shape)
    for square, own in ordered:
        pooled = square < total / freedom
        total, freedom = (
            total + np.where(pooled, square * own, 0.0),
            freedom + np.where(pooled, own, 0.0),
        )
        apart += ~pooled
        terms.append((np.where(pooled, 0.0, square), own))
    root = (1 - apart) * total / freedom
    variance = sum(square for square, _ in terms) + root
    if quantile is not None:
        terms = [(square * own / chdtri(own, 1 - quantile), own) for square, own in terms]
    likely = sum(square for square, _ in terms) + root
    spread = sum(square**2 / own for square, own in terms) + root**2 / freedom
    return variance, np.maximum(1.0, likely**2 / spread)


def mean_squares(table: Array) -> tuple[Array, tuple[int, int, int]]:
    """Returns those of seeds, examples and residual over all cells [3, 1], and their degrees of freedom."""
    number, size = table.shape
    by_seed, by_example = table.mean(axis=1), table.mean(axis=0)
    rest = table - by_seed[:, None] - by_example + table.mean()
    freedoms = (number - 1, size - 1, (number - 1) * (size - 1))
    squares = [size * by_seed.var() * number, number * by_example.var() * size, (rest**2).sum()]
    return (np.array(squares) / freedoms / table.size)[:, None], freedoms
