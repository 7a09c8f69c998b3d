"""Intervals that other programs give to scores of several seeds, for many trials at a time.

Most of these methods ignore seeds; each is used in the way that is most favourable to it:

- `miller`: standard errors over examples, clustered or paired (Miller 2024, "Adding error bars to
  evals"), of the examples' means over seeds, with normal quantiles; as lm-evaluation-harness,
  evalci and evaluatellm compute them.
- `bayes`: all answers of all seeds as one sample: Beta(1, 1) for one side and for two whose seeds
  are not paired, Dirichlet(1, 1, 1, 1) of the four outcomes for paired ones (Bowyer et al. 2025,
  "Don't use the CLT in LLM evals with fewer than a few hundred datapoints"). Their library
  bayes_evals weights 10,000 draws from the prior instead, which leaves few where answers are many.
- `rliable`: the stratified bootstrap (Agarwal et al. 2021) of the seeds' scores, each side drawn by
  itself, percentile interval. One task is one stratum.
- `mixed`: a linear mixed model with crossed effects of seeds and examples, by REML, and normal
  quantiles, as statsmodels' MixedLM has them. In a balanced table REML is a closed form.
- `seeds`: Student's t over the scores of seeds alone, paired or Welch's.
- `reml`: the same mixed model with Satterthwaite's degrees of freedom, as R's lmerTest has them.
- `jackknife`: leaves out one seed, one example and one cell at a time and adds the variances of the first
  two less that of the last, with Student's t of the smaller number less one (MacKinnon, Nielsen & Webb
  2024, "Jackknife inference with two-way clustering"); at least that of seeds or examples alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

Array = NDArray[np.float64]

NEIGHBOURS = ("seeds", "miller", "bayes", "rliable", "mixed", "reml", "jackknife")
CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
_NORMAL = float(ndtri(1 - _TAIL))
_DRAWS = 2000


def neighbour_intervals(
    sides: Sequence[Array],
    paired: bool,
    random: np.random.Generator,
    answers: Sequence[Array] | None = None,
    cluster_size: int = 1,
) -> dict[str, Array]:
    """Computes 95 % intervals of the mean of one side, or of the difference second - first.

    Args:
      sides: scores [trials, seeds, examples] of one side or two, on the same examples.
      paired: whether the seeds of two sides belong together.
      random: of the bootstrap and the posterior samples.
      answers: by side, answers of all runs, 0 or 1 [trials, runs, examples]; None for other scores,
        which have no Bayesian interval here.
      cluster_size: examples that follow each other and belong together.

    Returns:
      By name, [trials, 2].
    """
    table = sides[0] if len(sides) == 1 else sides[1] - sides[0] if paired else None
    scores = [side.mean(axis=2) for side in sides]  # [trials, seeds]
    tables = sides if table is None else [table]
    if cluster_size > 1:
        tables = [_cluster_means(each, cluster_size) for each in tables]
    model = _mixed_model(tables)
    found = {
        "seeds": _over_seeds(scores, paired),
        "miller": _over_examples([side.mean(axis=1) for side in sides], cluster_size),
        "rliable": _stratified_bootstrap(scores, random),
        "mixed": _around(model.centre, _NORMAL * np.sqrt(model.variance)),
        "reml": _around(model.centre, stdtrit(model.freedom, 1 - _TAIL) * np.sqrt(model.variance)),
        "jackknife": _two_way_jackknife(tables, model),
    }
    if answers is not None:
        found["bayes"] = _posterior(answers, paired, random)
    return found


def _around(centre: Array, reach: Array) -> Array:
    return np.stack([centre - reach, centre + reach], axis=1)


def _over_seeds(scores: Sequence[Array], paired: bool) -> Array:
    if len(scores) == 2 and paired:
        scores = [scores[1] - scores[0]]
    number = scores[0].shape[1]
    terms = np.array([found.var(axis=1, ddof=1) / number for found in scores])  # [sides, trials]
    variance = terms.sum(axis=0)
    # Welch's degrees of freedom; those of one sample where there is one.
    with np.errstate(invalid="ignore"):
        freedom = (number - 1) * variance**2 / (terms**2).sum(axis=0)
    freedom = np.where(variance > 0, freedom, number - 1)
    centre = scores[-1].mean(axis=1) - (scores[0].mean(axis=1) if len(scores) == 2 else 0.0)
    return _around(centre, stdtrit(freedom, 1 - _TAIL) * np.sqrt(variance))


def _over_examples(means: Sequence[Array], cluster_size: int) -> Array:
    """Uses the paired difference of examples [trials, examples], whose correlation is for free."""
    values = means[-1] - means[0] if len(means) == 2 else means[0]
    number = values.shape[1]
    centre = values.mean(axis=1)
    deviations = values - centre[:, None]
    if cluster_size == 1:
        error = np.sqrt((deviations**2).sum(axis=1) / (number - 1) / number)
    else:  # Miller's equation 4
        sums = deviations.reshape(len(values), -1, cluster_size).sum(axis=2)
        error = np.sqrt((sums**2).sum(axis=1)) / number
    return _around(centre, _NORMAL * error)


def _stratified_bootstrap(scores: Sequence[Array], random: np.random.Generator) -> Array:
    samples: Array | float = 0.0
    for sign, found in zip((1.0,) if len(scores) == 1 else (-1.0, 1.0), scores, strict=True):
        number = found.shape[1]
        counts = random.multinomial(number, np.full(number, 1 / number), size=_DRAWS)
        samples = samples + sign * (found @ counts.T) / number  # [trials, draws]
    return np.quantile(samples, [_TAIL, 1 - _TAIL], axis=1).T


def _posterior(answers: Sequence[Array], paired: bool, random: np.random.Generator) -> Array:
    right = [side.sum(axis=(1, 2)) for side in answers]
    totals = [side.shape[1] * side.shape[2] for side in answers]
    if len(answers) == 1:
        good, bad = 1 + right[0], 1 + totals[0] - right[0]
        return np.stack([betaincinv(good, bad, level) for level in (_TAIL, 1 - _TAIL)], axis=1)
    shape = (_DRAWS, len(right[0]))
    if paired:
        both = (answers[0] * answers[1]).sum(axis=(1, 2))
        table = [both, right[0] - both, right[1] - both, totals[0] - right[0] - right[1] + both]
        draws = [random.standard_gamma(1 + count, shape) for count in table]
        differences = (draws[2] - draws[1]) / sum(draws)
    else:
        first, second = (
            random.beta(1 + good, 1 + total - good, shape)
            for good, total in zip(right, totals, strict=True)
        )
        differences = second - first
    return np.quantile(differences, [_TAIL, 1 - _TAIL], axis=0).T


def _cluster_means(table: Array, size: int) -> Array:
    return table.reshape(*table.shape[:2], -1, size).mean(axis=3)


class _Model(NamedTuple):
    """A crossed model of each trial: the estimate, its variance by REML, and mean squares."""

    centre: Array
    variance: Array
    freedom: Array
    seeds: Array  # sums of squares over their degrees of freedom [trials]
    examples: Array


def _mixed_model(tables: Sequence[Array]) -> _Model:
    """Takes one table [trials, R, C], or two whose seeds are not paired, with an example's own
    effect on each side.
    """
    number, size = tables[0].shape[1:]
    seeds, residual = np.zeros((2, len(tables[0])))
    for table in tables:
        by_seed, by_example = table.mean(axis=2), table.mean(axis=1)
        mean = table.mean(axis=(1, 2))
        seeds += size * ((by_seed - mean[:, None]) ** 2).sum(axis=1)
        rest = table - by_seed[:, :, None] - by_example[:, None, :] + mean[:, None, None]
        residual += (rest**2).sum(axis=(1, 2))
    values = tables[-1].mean(axis=1) - (tables[0].mean(axis=1) if len(tables) == 2 else 0.0)
    centre = values.mean(axis=1)
    sides = len(tables)
    examples = number / sides * ((values - centre[:, None]) ** 2).sum(axis=1)
    freedoms = (sides * (number - 1), size - 1, sides * (number - 1) * (size - 1))
    shares = [
        _pooled(*squares, freedoms) for squares in zip(seeds, examples, residual, strict=True)
    ]
    total, spread = np.array(shares).T
    with np.errstate(invalid="ignore"):
        freedom = np.where(spread > 0, total**2 / spread, freedoms[0])
    return _Model(
        centre,
        sides * total / (number * size),
        freedom,
        sides * seeds / freedoms[0] / (number * size),
        sides * examples / freedoms[1] / (number * size),
    )


def _pooled(
    seeds: float, examples: float, residual: float, freedoms: tuple[int, int, int]
) -> tuple[float, float]:
    """Returns REML's seeds + examples - residual mean squares, from sums of squares, and their spread.

    A mean square below the residual's has a component of 0, and is pooled with the residual's. The
    spread is the sum of squared mean squares over their degrees of freedom, as Satterthwaite's formula
    has it.
    """
    leaves = sorted(
        zip((seeds, examples), freedoms[:2], strict=True), key=lambda leaf: leaf[0] / leaf[1]
    )
    total, freedom = residual, freedoms[2]
    apart = []
    for squares, own in leaves:  # the smallest first
        if squares / own < total / freedom:
            total, freedom = total + squares, freedom + own
        else:
            apart.append((squares / own, own))
    root, weight = total / freedom, 1 - len(apart)
    spread = sum(mean**2 / own for mean, own in apart) + weight**2 * root**2 / freedom
    return sum(mean for mean, _ in apart) + weight * root, spread


def _two_way_jackknife(tables: Sequence[Array], model: _Model) -> Array:
    number, size = tables[0].shape[1:]
    cells = number * size
    of_cells = sum(table.var(axis=(1, 2)) / (cells - 1) for table in tables)
    variance = np.maximum.reduce(
        [model.seeds + model.examples - of_cells, model.seeds, model.examples]
    )
    freedom = min(len(tables) * number, size) - 1
    return _around(model.centre, stdtrit(freedom, 1 - _TAIL) * np.sqrt(variance))
