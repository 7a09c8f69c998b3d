"""The analyses of Zhong et al. (Findings of ACL 2021), for several sizes and tasks.

`papers.zhong.tables` and `papers.zhong.figures` present the results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.papers.zhong.decomposition import Decomposition, decompose
from multiberts.papers.zhong.ensembles import (
    Runs,
    aligned,
    as_runs,
    ensemble,
    runs_of_seed,
    single_runs,
)
from multiberts.papers.zhong.instance_level import (
    InstanceBound,
    ThresholdBias,
    decay_bound,
    fisher_tests,
    improvement_bound,
    instance_accuracy,
    relative_threshold_bias,
    threshold_bias,
)
from multiberts.papers.zhong.size_momentum import (
    Momentum,
    MomentumIndex,
    momentum,
    momentum_index,
)
from multiberts.papers.zhong.variance_by_bias import VarianceCurve, conditional_variance
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import RunsTable

Tasks = Mapping[str, Mapping[str, Runs]]
Triple = tuple[str, str, str]  # names of a small, a middle and a large size
Split = tuple[str, str]  # names of a task and a loss
ZERO_ONE = "0/1"
# With predictions of early checkpoints as innermost level.
OVER_CHECKPOINTS = "0/1 over checkpoints"
# False discovery rates from which the best for Fisher's tests is chosen, as in the paper's table 4.
RATES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
MOST_SEEDS = 10
# Edges of the histogram of instance accuracy; bars include their lower edge, the last bar both.
EDGES = np.append(np.arange(10) / 10, 1 + 1e-6)


@dataclass(frozen=True)
class SizeAccuracy:
    """Accuracy of one model size.

    Attributes:
      mean: mean accuracy over seeds and examples.
      seed_scores: accuracy of each pre-training seed, averaged over its runs [seeds].
      run_scores: accuracy of each run [runs].
      ensembled: accuracy of the majority vote of each seed's runs; None if there is one run per seed.
      shares: histogram of instance accuracy: shares of examples in the bins 0 to .1, .1 to .2, ..., .9 to 1
        [10].
    """

    mean: float
    seed_scores: NDArray[np.float64]
    run_scores: NDArray[np.float64]
    ensembled: float | None
    num_runs: int
    num_examples: int
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class PairOfSizes:
    """Results for a pair of sizes on one task.

    Attributes:
      gain: accuracy of the larger size minus that of the smaller.
      better, worse: mean share of examples on which one run of the larger size is right and one of the
        smaller is wrong, and the reverse, over all pairs of runs (section 3): with the noise of both.
      of_one_seed: mean decay bound over pairs of pre-training seeds, each computed from the fine-tuning runs
        of two models; None if there is one run per seed. The result applies to the models, not to the sizes.
      single: decay bound from the first run of each seed.
      all_runs: decay bound from the mean of each seed's runs, as in the paper's table 2; may exceed the
        truth. None if the means are too fine for exact sums.
      decay: decay bound from ensembled runs.
      improvement: improvement bound from ensembled runs.
      decay_bias: bias of the adaptive threshold of `decay`, over examples.
      relative_biases: relative biases of the adaptive thresholds of `decay` and `improvement` over seeds,
        as in the paper's table 10.
    """

    task: str
    small: str
    large: str
    gain: float
    better: float
    worse: float
    of_one_seed: float | None
    single: InstanceBound
    all_runs: InstanceBound | None
    all_runs_improvement: InstanceBound | None
    decay: InstanceBound
    improvement: InstanceBound
    decay_bias: ThresholdBias
    relative_biases: tuple[float, float]


@dataclass(frozen=True)
class FewerSeeds:
    """Decay estimated from the first seeds of each size.

    Attributes:
      bound: decay bound from ensembled runs.
      rate: false discovery rate in `RATES` with the largest discovered share.
      share: discovered share minus the expected false discoveries.
    """

    num_seeds: int
    bound: float
    rate: float
    share: float


@dataclass(frozen=True)
class InstanceAnalysis:
    """The results of `analyse_sizes`.

    Attributes:
      accuracies: results by task and size.
      decompositions: results by task and loss, and by size, without sizes that lack, for some level, two
        runs that differ only in this level.
      pairs: all pairs of a smaller and a larger size by task.
      momenta: momentum by task and triple of sizes, without triples in which a size has one seed.
      momentum_indices: estimates by the paper's method, by task and triple.
      by_seeds: bounds and Fisher's tests with fewer seeds, by task and pair of sizes.
      curves: variance given bias by task and loss, level and size, without sizes with fewer than 4 seeds.
      refused_curves: why a curve cannot be fitted, by task and loss, level and size.
    """

    accuracies: Mapping[str, Mapping[str, SizeAccuracy]]
    decompositions: Mapping[Split, Mapping[str, Decomposition]]
    pairs: Sequence[PairOfSizes]
    momenta: Mapping[str, Mapping[Triple, Momentum]]
    momentum_indices: Mapping[str, Mapping[Triple, MomentumIndex]]
    by_seeds: Mapping[tuple[str, str, str], Sequence[FewerSeeds]]
    curves: Mapping[Split, Mapping[str, Mapping[str, VarianceCurve]]]
    refused_curves: Mapping[tuple[Split, str, str], DataError]


def analyse_sizes(
    tasks: Tasks,
    ensembled: Tasks | None = None,
    n_resamples: int = 1000,
    with_curves: bool = True,
    further_losses: Mapping[str, Tasks] | None = None,
) -> InstanceAnalysis:
    """Compares sizes on each example of several tasks.

    Args:
      tasks: 0/1 correctness by task and size (smallest first), as `RunsTable` or arrays [pretrain_seeds,
        (finetune_seeds, checkpoints,) examples].
      ensembled: 0/1 correctness of ensembled runs, one per seed; by default `ensemble` of `tasks`. Use
        `ensemble(predictions, labels)` if there are more than two classes.
      n_resamples: bootstrap samples of examples.
      with_curves: whether to also fit the variance given bias.
      further_losses: by loss, scores of some tasks and sizes to decompose like `tasks`, for the loss
        (1 - score)^2: `OVER_CHECKPOINTS`, or probabilities of the right class (appendix I).
    """
    if not tasks or not all(tasks.values()):
        raise DataError("found no task or no size; give tasks={name: {size: runs}}")
    runs = {task: _aligned(task, sizes) for task, sizes in tasks.items()}
    votes = {
        task: _aligned(task, ensembled[task], sizes.values())
        if ensembled is not None
        else {size: ensemble(of_size) for size, of_size in sizes.items()}
        for task, sizes in runs.items()
    }

    losses = {ZERO_ONE: runs, **(further_losses or {})}
    splits = {
        (task, loss): {size: as_runs(scores) for size, scores in losses[loss][task].items()}
        for task in runs
        for loss in losses
        if task in losses[loss]
    }
    refused: dict[tuple[Split, str, str], DataError] = {}
    triples = {task: list(itertools.combinations(sizes, 3)) for task, sizes in runs.items()}
    return InstanceAnalysis(
        accuracies={
            task: {size: _accuracy(of_size, votes[task][size]) for size, of_size in sizes.items()}
            for task, sizes in runs.items()
        },
        decompositions={
            split: {size: decompose(of_size) for size, of_size in _spread(sizes)}
            for split, sizes in splits.items()
        },
        pairs=[
            _pair(task, sizes, votes[task], names, n_resamples)
            for task, sizes in runs.items()
            for names in itertools.combinations(sizes, 2)
        ],
        momenta={
            task: {
                names: momentum(*(sizes[name] for name in names))
                for names in triples[task]
                if all(len(sizes[name].seeds) > 1 for name in names)
            }
            for task, sizes in runs.items()
        },
        momentum_indices={
            task: {
                names: momentum_index(*(sizes[name] for name in names)) for names in triples[task]
            }
            for task, sizes in runs.items()
        },
        by_seeds={
            (task, *names): _by_seeds(votes[task], names)
            for task, sizes in runs.items()
            for names in itertools.combinations(sizes, 2)
        },
        curves={
            split: _curves(split, sizes, refused) if with_curves else {}
            for split, sizes in splits.items()
            if split[1] != OVER_CHECKPOINTS
        },
        refused_curves=refused,
    )


def _aligned(
    task: str, sizes: Mapping[str, Runs], first: Iterable[Runs] = ()
) -> dict[str, RunsTable]:
    """Sorts the examples of all sizes in one order, that of `first` if it is given."""
    try:
        tables = aligned(*first, *sizes.values())
    except DataError as error:
        names = ", ".join(f"set {number}: {size}" for number, size in enumerate(sizes, 1))
        raise DataError(f"{task}: {error} ({names})") from None
    return dict(zip(sizes, tables[-len(sizes) :], strict=True))


def _spread(sizes: Mapping[str, RunsTable]) -> Iterator[tuple[str, RunsTable]]:
    """Yields the sizes that have, for each level, runs that differ only in this level."""
    for name, runs in sizes.items():
        depths = range(len(runs.levels))
        if all(len(runs.groups(depth + 1)) > len(runs.groups(depth)) for depth in depths):
            yield name, runs


def _accuracy(runs: RunsTable, votes: RunsTable) -> SizeAccuracy:
    of_runs = runs.predictions.mean(axis=1, dtype=np.float64)
    seeds = runs.averaged(1).predictions.mean(axis=1, dtype=np.float64)
    one_run_each = len(runs.keys) == len(runs.seeds)
    return SizeAccuracy(
        float(seeds.mean()), seeds, of_runs, None if one_run_each else float(votes.mean().mean()),
        len(runs.keys), runs.num_examples,
        # Add a little, because rounding can turn a mean of .3 into .29999.
        np.histogram(instance_accuracy(runs) + 1e-9, EDGES)[0] / runs.num_examples,
    )  # fmt: skip


def _pair(
    task: str,
    runs: Mapping[str, RunsTable],
    votes: Mapping[str, RunsTable],
    names: tuple[str, str],
    n_resamples: int,
) -> PairOfSizes:
    few, many = (runs[name] for name in names)
    before, after = instance_accuracy(few), instance_accuracy(many)
    small, large = (votes[name] for name in names)
    return PairOfSizes(
        task, *names,
        gain=float(after.mean() - before.mean()),
        better=float((after * (1 - before)).mean()),
        worse=float((before * (1 - after)).mean()),
        of_one_seed=_of_one_seed(few, many),
        single=decay_bound(single_runs(few), single_runs(many)),
        all_runs=_of_all_runs(decay_bound, few, many),
        all_runs_improvement=_of_all_runs(improvement_bound, few, many),
        decay=decay_bound(small, large),
        improvement=improvement_bound(small, large),
        decay_bias=threshold_bias(
            small, large, n_resamples=n_resamples
        ),
        relative_biases=(
            relative_threshold_bias(small, large, "decay", n_resamples),
            relative_threshold_bias(small, large, "improvement", n_resamples),
        ),
    )  # fmt: skip


def _by_seeds(votes: Mapping[str, RunsTable], names: tuple[str, str]) -> list[FewerSeeds]:
    arms = [votes[name] for name in names]
    rows = []
    for number in range(2, min(MOST_SEEDS, *(len(arm.seeds) for arm in arms)) + 1):
        few, many = (arm.with_seeds(arm.seeds[:number]) for arm in arms)
        tests = [fisher_tests(few, many, level=rate) for rate in RATES]
        best = max(tests, key=lambda test: test.share)
        rows.append(FewerSeeds(number, decay_bound(few, many).bound, best.level, best.share))
    return rows


def _of_all_runs(
    bound: Callable[[RunsTable, RunsTable], InstanceBound], small: RunsTable, large: RunsTable
) -> InstanceBound | None:
    try:
        return bound(small, large)
    except DataError:  # means too fine for exact sums
        return None


def _of_one_seed(small: RunsTable, large: RunsTable) -> float | None:
    if any(len(runs.levels) < 2 or len(runs.keys) == len(runs.seeds) for runs in (small, large)):
        return None
    bounds = [
        decay_bound(single_runs(runs_of_seed(small, few)), single_runs(runs_of_seed(large, many)))
        for few, many in zip(small.seeds, large.seeds, strict=False)
    ]
    return float(np.mean([bound.bound for bound in bounds]))


def _curves(
    split: Split, sizes: Mapping[str, RunsTable], refused: dict[tuple[Split, str, str], DataError]
) -> dict[str, dict[str, VarianceCurve]]:
    """Returns curves by level and size; adds the errors of those that cannot be fitted to `refused`."""
    curves: dict[str, dict[str, VarianceCurve]] = {}
    for name, runs in _spread(sizes):
        for level in runs.levels if len(runs.seeds) >= 4 else ():
            try:
                curves.setdefault(level, {})[name] = conditional_variance(runs, level)
            except DataError as error:
                refused[split, level, name] = error
    return curves
