"""Agreement between the answers of two runs, with equal and with different pre-training seeds.

The MultiBERTs paper (Sellam et al., 2022, table 3) gives for each task the share of examples on which two
runs agree, with equal and with different pre-training seeds. This module estimates both numbers:

- same seed: the probability that two random runs of a random seed agree on a random example;
- different seeds: the same for one run each of two random seeds.

All seeds have equal weights, and so have all pairs of runs of a seed (or of two seeds), so that both
estimates are unbiased with unequal numbers of runs. The first requires seeds with two runs.

Answers on a continuous scale, such as the similarities of STS-B, are rarely equal. For these the agreement is
the Pearson correlation of the two runs' answers, as in the paper's table 3. With rounded answers the value
would depend on the limits of the classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.interval_rule import (
    interval_of_difference,
    interval_of_score,
    scored,
)
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.reading import arm_of, table_of
from multiberts.stats.runs_table import Arm
from multiberts.stats.score import Score
from multiberts.stats.variance.crossing import Crossing
from multiberts.stats.variance.score_tables import TablePart, score_table

if TYPE_CHECKING:
    import xarray

Array = NDArray[np.float64]
Kind = Literal["classes", "correlation"]
# Examples are processed in blocks of about this many cells.
_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True)
class Estimate:
    """A mean over examples for fixed runs.

    Attributes:
      value: the mean, in [-1, 1].
      standard_error: standard error over examples; by linearisation for a correlation.
      interval: recommended interval (`stats.interval_rule`) for new examples.
    """

    value: float
    standard_error: float
    interval: ConfidenceInterval


@dataclass(frozen=True)
class Agreement:
    """Agreement of pairs of runs.

    Attributes:
      kind: `classes` (share of equal answers) or `correlation` of answers on a scale.
      same_seed: agreement of two runs with the same pre-training seed; None if no seed has two runs.
      different_seeds: agreement of runs with different seeds; None if there is one seed.
      difference: same_seed - different_seeds on the same examples; None if either is None.
    """

    kind: Kind
    same_seed: Estimate | None
    different_seeds: Estimate | None
    difference: Estimate | None
    num_seeds: int
    num_runs: int
    num_examples: int


def agreement(
    data: xarray.Dataset, kind: Kind | None = None, confidence_level: float = 0.95
) -> Agreement:
    """Estimates the mean agreement of two runs, within and between pre-training seeds.

    Args:
      data: predictions of runs with the coordinate `pretrain_seed`, as
        `evaluate.prediction_files.predictions.read_predictions` returns them; numbers or texts. Labels
        are not used. If there is a `prediction_text`, answers with equal texts agree.
      kind: comparison of answers; by default `classes` if all answers are texts or integers, else
        `correlation`. The correlation is 0 for runs with constant answers.
      confidence_level: level of the intervals, over examples.

    Raises:
      DataError: there is only one run or example, a prediction is missing, or the kind is unknown.

    Examples:
      >>> from multiberts import stats
      >>> import xarray
      >>> answers = [[1, 0, 1], [1, 1, 1], [0, 0, 1], [1, 0, 1]]
      >>> variables = {'prediction': (('run', 'example'), answers), 'label': ('example', [1, 0, 1])}
      >>> places = {'pretrain_seed': ('run', [0, 0, 1, 1]), 'finetune_seed': ('run', [0, 1, 0, 1])}
      >>> data = xarray.Dataset(variables, places)
      >>> found = stats.zhong.agreement(data)
      >>> round(found.same_seed.value, 2), round(found.different_seeds.value, 2)
      (0.67, 0.67)

    See also: `decompose`.

    Reference: Sellam et al. (2022), The MultiBERTs: BERT Reproductions for Robustness Analysis.
    """
    answers = data["prediction_text" if "prediction_text" in data else "prediction"]
    table = table_of("predictions", answers)
    arm = arm_of("predictions", replace(table, labels=np.zeros(table.values.shape[1])))  # unused
    if kind is not None:
        check_choice("kind", kind, Kind)
    if len(arm.run_seeds) < 2 or arm.num_examples < 2:
        raise DataError(
            f"found {counted(len(arm.run_seeds), 'run')} and {counted(arm.num_examples, 'example')}, "
            "expected two or more of each"
        )
    kind = kind or ("classes" if _are_classes(arm.predictions) else "correlation")
    weights = _pair_weights(arm)
    compute = _equal_answers if kind == "classes" else _correlations
    values = dict(zip(weights, compute(arm.predictions, list(weights.values())), strict=True))
    estimates = _estimates(values, kind, confidence_level)
    return Agreement(
        kind,
        estimates.get("same_seed"),
        estimates.get("different_seeds"),
        estimates.get("difference"),
        len(arm.seeds),
        len(arm.run_seeds),
        arm.num_examples,
    )


def _are_classes(predictions: NDArray) -> bool:
    if predictions.dtype.kind not in "fc":
        return True
    return bool((predictions == np.round(predictions)).all())


def _pair_weights(arm: Arm) -> dict[str, Array]:
    """Computes weights [runs, runs] of pairs of runs within and between seeds; each sums to 1."""
    member = np.array([[seed == run_seed for run_seed in arm.seeds] for seed in arm.run_seeds])
    counts = member.sum(axis=0)  # [seeds]
    of_run = counts[member.argmax(axis=1)]  # [runs]
    within = member.astype(float) @ member.T
    weights = {}
    if counts.max() > 1:
        pairs = np.maximum(of_run * (of_run - 1), 1)[:, None]
        weights["same_seed"] = (within - np.eye(len(of_run))) / pairs / (counts > 1).sum()
    if len(counts) > 1:
        between = (1 - within) / np.outer(of_run, of_run)
        weights["different_seeds"] = between / (len(counts) * (len(counts) - 1))
    return weights


def _blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    size = max(1, _BLOCK_CELLS // shape[0])
    for start in range(0, shape[1], size):
        yield slice(start, start + size)


def _equal_answers(predictions: NDArray, weights: list[Array]) -> list[Array]:
    """Computes, for each table of weights, the weighted share of pairs that agree [examples]."""
    sums = [np.zeros(predictions.shape[1]) for _ in weights]
    for block in _blocks(predictions.shape):
        ranks = _ranks_of_answers(predictions[:, block])
        for rank in range(int(ranks.max()) + 1):
            chosen = ranks == rank
            columns = np.flatnonzero(chosen.any(axis=0))  # few examples have many answers
            gave = chosen[:, columns].astype(np.float64)
            for table, values in zip(weights, sums, strict=True):
                values[block][columns] += ((table @ gave) * gave).sum(axis=0)
    return sums


def _ranks_of_answers(predictions: NDArray) -> NDArray[np.int64]:
    """Ranks each answer among the different answers to its example [runs, examples]."""
    codes = np.unique(predictions, return_inverse=True)[1].reshape(predictions.shape)
    order = codes.argsort(axis=0)
    rises = np.diff(np.take_along_axis(codes, order, axis=0), axis=0, prepend=0) > 0
    rises[0] = False
    ranks = np.empty(codes.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, rises.cumsum(axis=0), axis=0)
    return ranks


def _correlations(predictions: NDArray, weights: list[Array]) -> list[Array]:
    """Computes, for each table of weights, values [examples] with the mean correlation as mean.

    A value is r plus the influence of the example on r, so that the spread of values gives the standard error
    by the delta method. The influence on r of two runs is z1 z2 - r (z1^2 + z2^2) / 2.
    """
    values = np.asarray(predictions, dtype=np.float64)
    centred = values - values.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    flat = spread <= 1e-14 * np.abs(values).max(axis=1, keepdims=True)
    standard = np.where(flat, 0.0, centred / np.where(flat, 1.0, spread))
    correlations = standard @ standard.T / values.shape[1]
    of_pair = []
    for table in weights:
        shared = (table * correlations).sum(axis=1)  # [runs]
        mean = float((table * correlations).sum())
        of_pair.append(((table @ standard) * standard).sum(axis=0) - shared @ standard**2 + mean)
    return of_pair


def _estimates(
    values: Mapping[str, Array], kind: Kind, confidence_level: float
) -> dict[str, Estimate]:
    """Estimates the mean of each array of values [examples], and the difference if there are two."""
    ends = (0.0, 1.0) if kind == "classes" else (-1.0, 1.0)
    score = Score("agreement", kind == "correlation", ends)

    def crossing(cells: Array) -> Crossing:
        return Crossing([TablePart(score_table(cells[None]), 1.0, None, "examples")])

    estimates, shares = {}, []
    for name, cells in values.items():
        share = scored(crossing(cells), len(cells))
        interval = interval_of_score(
            crossing(cells), share.estimate, confidence_level, score, len(cells)
        )
        estimates[name] = Estimate(share.estimate, share.standard_error, interval)
        shares.append(share)
    if len(values) == 2:
        cells = values["same_seed"] - values["different_seeds"]
        interval, _ = interval_of_difference(
            shares[::-1], crossing(cells), None, score, "examples", confidence_level
        )
        error = scored(crossing(cells), len(cells)).standard_error
        estimates["difference"] = Estimate(float(cells.mean()), error, interval)
    return estimates
