"""Fast versions of `multibootstrap` and `report_ci` with the published signatures, draws and results.

Reference: Sellam et al., "The MultiBERTs" (ICLR 2022), section 3.2, appendix A; its published library.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.classification import is_binary
from multiberts.runs import console
from multiberts.stats.bootstrap.replicates import PublishedDraws, ScoreJob, bootstrap
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import percentile_interval
from multiberts.stats.metrics import MetricLike, ScoreFunction, named_metric
from multiberts.stats.runs_table import Arm, check_kinds, make_arm, pair
from multiberts.stats.significance import published_p_values

if TYPE_CHECKING:
    import pandas


def multibootstrap(
    run_info: pandas.DataFrame,
    preds: ArrayLike,
    labels: ArrayLike,
    score_fn: str | MetricLike | ScoreFunction,
    paired_seeds: bool = False,
    sample_seeds: bool = True,
    sample_examples: bool = True,
    nboot: int = 500,
    rng: Any = np.random,
    verbose: bool = True,
    progress_indicator: Callable[[Iterable[int]], Iterable[int]] = lambda replicates: replicates,
) -> list[tuple[float, float]]:
    """Bootstraps a score over seeds and examples, for a base and an intervention.

    With an int `rng` the draws equal those of the published library. Seeds are sorted; the published paired
    mode used the order of a set, which is the same for small ints and not reproducible for strings.

    Args:
      run_info: one row per run [runs], with columns `seed` (any sortable type) and `intervention`
        (bool; False = base). Rows of the same seed and arm are scored separately and averaged,
        never resampled.
      preds: predictions [runs, examples], aligned with the rows of `run_info`.
      labels: labels [examples].
      score_fn: the name of a metric in `evaluate.metrics.register.METRICS`, a `Metric`, or a
        function of (labels, predictions). Functions of scikit-learn that equal a metric of ours
        (accuracy_score, zero_one_loss, mean_squared_error, mean_absolute_error, f1_score,
        matthews_corrcoef, roc_auc_score, brier_score_loss, log_loss) and pearsonr and spearmanr
        of SciPy (the coefficient only) are fast too; any other function is called in a loop.
      paired_seeds: whether to draw the common seeds once for both arms; otherwise each arm draws its own.
      sample_seeds: whether seeds are resampled.
      sample_examples: whether examples are resampled; both arms share the draws.
      nboot: number of samples.
      rng: int to seed a new RandomState, or any object with numpy's `choice`.
      verbose: whether to print the seeds and runs of both arms.
      progress_indicator: wraps the range of samples, as tqdm does.

    Returns:
      `nboot` pairs (L, L') of the base's and the intervention's mean score.

    Raises:
      ValueError: columns are missing, lengths differ, axes are swapped, or a value is NaN.

    Warns:
      UserWarning: an arm has one seed, so resampling shows no variation over seeds.

    Examples:
      >>> import pandas as pd
      >>> from multiberts import stats
      >>> runs = pd.DataFrame({"seed": [0, 1, 0, 1], "intervention": [False, False, True, True]})
      >>> preds = [[1, 0, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
      >>> labels = [1, 1, 1, 1]
      >>> stats.multibootstrap(
      ...     runs, preds, labels, "accuracy", sample_examples=False, nboot=2, verbose=False
      ... )
      [(0.75, 1.0), (0.75, 1.0)]

    See also: `report_ci`, `compare`.

    Reference: Sellam et al. (2022), The MultiBERTs: BERT Reproductions for Robustness Analysis, section 3.2.
    """
    base, experiment = _arms(run_info, preds, labels)
    if paired_seeds:
        base, experiment = _paired(base, experiment, verbose)
    if sample_seeds:
        _warn_of_one_seed(base, experiment)
    if nboot < 1:
        raise DataError(f"found nboot = {nboot}, expected at least 1")
    if verbose:
        _describe(base, experiment, paired_seeds)
    examples = "examples" if sample_examples else None
    score = named_metric(score_fn, (base, experiment))
    pools = ("seeds", "seeds") if paired_seeds else ("seeds of base", "seeds of experiment")
    jobs = [
        ScoreJob(arm, score, pool if sample_seeds else None, examples)
        for arm, pool in zip((base, experiment), pools, strict=True)
    ]
    draws = PublishedDraws(np.random.RandomState(rng) if isinstance(rng, int | np.integer) else rng)
    replicates = bootstrap(jobs, draws, nboot, progress=progress_indicator)
    return [(base_score, score) for base_score, score in replicates.scores.tolist()]


def _arms(run_info: pandas.DataFrame, preds: ArrayLike, labels: ArrayLike) -> tuple[Arm, Arm]:
    missing = [column for column in ("seed", "intervention") if column not in run_info]
    if missing:
        raise DataError(f"run_info lacks the column {missing[0]!r}; it needs seed and intervention")
    seeds = run_info["seed"].tolist()
    intervention = np.array(run_info["intervention"].tolist())
    if not is_binary(intervention):
        raise DataError(
            "run_info.intervention holds values other than True and False; make it boolean"
        )
    everything = make_arm("preds", preds, labels, seeds)
    check_kinds("preds", everything)
    arms = []
    for name, chosen in (("base", intervention == 0), ("intervention", intervention == 1)):
        if not chosen.any():
            raise DataError(f"run_info has no row of the {name} (intervention = {name != 'base'})")
        rows = np.flatnonzero(chosen)
        arms.append(
            make_arm(
                name, everything.predictions[rows], everything.labels, [seeds[row] for row in rows]
            )
        )
    return arms[0], arms[1]


def _paired(base: Arm, experiment: Arm, verbose: bool) -> tuple[Arm, Arm]:
    paired_base, paired_experiment = pair(base, experiment)
    if not paired_base.seeds:
        raise DataError(
            f"base has seeds {list(base.seeds)} and the intervention {list(experiment.seeds)}, "
            "none in common; use paired_seeds=False"
        )
    for name, arm in (("base", base), ("intervention", experiment)):
        only = [seed for seed in arm.seeds if seed not in paired_base.seeds]
        if only and verbose:
            console.report(f"  Left out, found in the {name} only: seeds {only}")
    return paired_base, paired_experiment


def _warn_of_one_seed(base: Arm, experiment: Arm) -> None:
    for name, arm in (("base", base), ("intervention", experiment)):
        if len(arm.seeds) == 1:
            warnings.warn(
                f"the {name} has one seed ({arm.seeds[0]!r}): its variation over seeds is not in the "
                "samples, so claim nothing beyond this seed",
                stacklevel=4,  # past the check of keywords, to the caller
            )


def _describe(base: Arm, experiment: Arm, paired: bool) -> None:
    kind = "paired" if paired else "unpaired"
    console.report(f"Multi-Bootstrap ({kind}) on {base.num_examples} examples")
    for name, arm in (("Base", base), ("Intervention", experiment)):
        seeds = f"{len(arm.seeds)} seeds {list(arm.seeds)}"
        console.report(f"  {name}: {len(arm.run_seeds)} runs of {seeds}")


def report_ci(
    samples: Sequence[tuple[float, float]] | NDArray,
    c: float = 0.95,
    abs_threshold: float | None = None,
    rel_threshold: float | None = None,
    expect_negative_effect: bool = False,
    verbose: bool = True,
) -> dict[str, dict[str, float]]:
    """Computes percentile intervals and the one-sided p of the published library.

    Args:
      samples: pairs (L, L') from `multibootstrap`, [replicates, 2].
      c: confidence level.
      abs_threshold: also print the share of samples where the effect is at least this.
      rel_threshold: also print the share of samples where the effect relative to L is at least this (useful
        only far from L = 0).
      expect_negative_effect: whether to test for L' < L; p is then the share of samples with L' >= L.
      verbose: whether to print; the published function always prints.

    Returns:
      `base`, `expt` and `delta`, each with `mean`, `low` and `high`; `delta` also with `p`, which is
      1/replicates if no sample contradicts the effect.

    Raises:
      ValueError: `samples` is not [replicates, 2] or `c` not inside (0, 1).

    Examples:
      >>> from multiberts import stats
      >>> found = stats.report_ci([(0.75, 1.0), (0.5, 1.0), (0.75, 0.5)], c=0.5)
      3 bootstrap samples, 50% percentile intervals:
        base: 0.667 (0.625 to 0.75)
        expt: 0.833 (0.75 to 1)
        delta: 0.167 (0 to 0.375); p = 0.333

    See also: `multibootstrap`.

    Reference: Sellam et al. (2022), The MultiBERTs: BERT Reproductions for Robustness Analysis, section 3.2.
    """
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"found samples of shape {array.shape}, expected [replicates, 2]")
    base, experiment = array.T
    delta = experiment - base
    report: dict[str, dict[str, float]] = {}
    for name, values in (("base", base), ("expt", experiment), ("delta", delta)):
        low, high = percentile_interval(values, c)
        report[name] = {"mean": float(values.mean()), "low": low, "high": high}
    p_values = published_p_values(delta)
    report["delta"]["p"] = p_values.less if expect_negative_effect else p_values.greater
    if verbose:
        console.report(f"{len(delta)} bootstrap samples, {c:.0%} percentile intervals:")
        for name, values in report.items():
            p = f"; p = {values['p']:.3g}" if "p" in values else ""
            console.report(
                f"  {name}: {values['mean']:.3g} ({values['low']:.3g} to {values['high']:.3g}){p}"
            )
        sign = -1.0 if expect_negative_effect else 1.0
        for threshold, effect, unit in (
            (abs_threshold, delta, ""),
            (rel_threshold, delta / base if rel_threshold is not None else delta, " of base"),
        ):
            if threshold is not None:
                share = float(np.mean(sign * effect >= threshold))
                direction = "below" if expect_negative_effect else "above"
                console.report(
                    f"  {share:.2f} of samples are {direction} base by {threshold:.3g}{unit} or more"
                )
    return report
