"""Tables of instance-level analyses, after those of Zhong et al. (Findings of ACL 2021).

`all_tables` makes the tables from the result of `papers.zhong.analysis.analyse_sizes`;
`papers.zhong.figures.report_of_sizes` makes a page of tables and figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from multiberts.papers.zhong.analysis import (
    OVER_CHECKPOINTS,
    ZERO_ONE,
    InstanceAnalysis,
    PairOfSizes,
    Split,
)
from multiberts.papers.zhong.decomposition import Decomposition, LossPart, part
from multiberts.papers.zhong.size_momentum import MomentumIndex
from multiberts.report.presentation.formats import Cell
from multiberts.report.presentation.table_writer import Table
from multiberts.stats.intervals import Interval

Records = Iterable[dict[str, Cell]]

LEVEL_NAMES = {
    "bias_squared": "bias squared",
    "pretrain_seed": "pre-training",
    "finetune_seed": "fine-tuning",
    "checkpoint": "checkpoint",
}


def level_name(level: str) -> str:
    return LEVEL_NAMES.get(level, level.replace("_", " "))


def _accuracy(analysis: InstanceAnalysis) -> Records:
    for task, sizes in analysis.accuracies.items():
        for size, item in sizes.items():
            scores = item.seed_scores
            yield {
                "Task": task, "Size": size, "Seeds": len(scores), "Runs": item.num_runs,
                "Examples": item.num_examples, "Accuracy": item.mean,
                "SD over seeds": float(scores.std(ddof=1)) if len(scores) > 1 else None,
                "SD over runs": float(item.run_scores.std(ddof=1)) if item.num_runs > 1 else None,
                "Lowest seed": float(scores.min()), "Highest seed": float(scores.max()),
                "Ensembled": item.ensembled,
            }  # fmt: skip


def _pair_cells(pair: PairOfSizes) -> dict[str, Cell]:
    return {"Task": pair.task, "Smaller": pair.small, "Larger": pair.large}


def _decay(analysis: InstanceAnalysis) -> Records:
    for pair in analysis.pairs:
        bound, bias = pair.decay, pair.decay_bias
        yield {
            **_pair_cells(pair), "Accuracy gain": pair.gain,
            "Decay, 95% lower limit": bound.lower,
            "Decay, one pre-training seed": pair.of_one_seed,
            "Decay, one run per seed": pair.single.bound,
            "Decay, all runs": pair.all_runs.bound if pair.all_runs else None,
            "Decay, ensembled": bound.bound, "Threshold": _finite(bound.threshold),
            "Threshold bias": bias.bias, "Corrected": bias.corrected,
            # If the bound is 0, all bootstrap bounds can be 0, and their spread is meaningless.
            "Corrected (95% CI)": Interval(bias.low, bias.high) if bias.bound > 0 else None,
            "Cross-fitted": bias.cross_fitted,
        }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _matrix(
    values: Callable[[PairOfSizes], tuple[float | None, float | None]], analysis: InstanceAnalysis
) -> Records:
    """Arranges values of decay and improvement like the paper's tables 2, 9 and 10.

    Above the diagonal: improvement from the row's size to the larger size of the column. Below it:
      improvement from the row's size to a smaller one, which is decay with size.
    """
    pairs = analysis.pairs
    cell_of: dict[tuple[str, str, str], Cell] = {}
    for pair in pairs:
        cell_of[pair.task, pair.large, pair.small], cell_of[pair.task, pair.small, pair.large] = (
            values(pair)
        )
    sizes = list(dict.fromkeys(name for pair in pairs for name in (pair.small, pair.large)))
    for task in dict.fromkeys(pair.task for pair in pairs):
        for start in sizes:
            cells = {f"To {end}": cell_of.get((task, start, end)) for end in sizes}
            if any(value is not None for value in cells.values()):
                yield {"Task": task, "From": start, **cells}


def _all_runs(pair: PairOfSizes) -> tuple[float | None, float | None]:
    decay, improvement = pair.all_runs, pair.all_runs_improvement
    return decay.bound if decay else None, improvement.bound if improvement else None


def _relative_bias(pair: PairOfSizes) -> tuple[float | None, float | None]:
    decay, improvement = pair.relative_biases
    return _finite(decay), _finite(improvement)


def _thresholds(analysis: InstanceAnalysis) -> Records:
    """Yields the shares of examples with a difference up to the threshold, and of false ones among them.

    The random baseline gives the share of the false ones.
    """
    for pair in analysis.pairs:
        for threshold in np.round(np.arange(-1, 0, 0.1), 1).tolist():
            discovered = float(pair.decay.difference.cdf(threshold))
            false = float(pair.decay.baseline.cdf(threshold))
            yield {
                **_pair_cells(pair), "Difference at most": threshold, "Discovered": discovered,
                "Falsely discovered": false, "At least": discovered - false,
            }  # fmt: skip


def _seeds(analysis: InstanceAnalysis) -> Records:
    for (task, small, large), items in analysis.by_seeds.items():
        for item in items:
            yield {
                "Task": task, "Smaller": small, "Larger": large, "Seeds": item.num_seeds,
                "Decay bound": item.bound, "Fisher's tests": item.share, "Best rate": item.rate,
            }  # fmt: skip


def _improvement(analysis: InstanceAnalysis) -> Records:
    for pair in analysis.pairs:
        yield {
            **_pair_cells(pair), "Accuracy gain": pair.gain,
            "Improving, at least": pair.improvement.lower, "Improving, bound": pair.improvement.bound,
            "Decaying, at least": pair.decay.lower, "Decaying, bound": pair.decay.bound,
            "Better, one run each": pair.better, "Worse, one run each": pair.worse,
        }  # fmt: skip


def _parts(
    parts: Mapping[tuple[Split, str], Mapping[str, LossPart]],
    names: Mapping[str, str],
    further: Mapping[tuple[Split, str], Mapping[str, Cell]] = {},
) -> Records:
    """Yields the named parts, further cells and standard errors, by task, loss and size."""
    for ((task, loss), size), variances in parts.items():
        items = {name: variances.get(part_name) for part_name, name in names.items()}
        yield {
            "Task": task, "Loss": loss, "Size": size,
            **{name: item.mean if item else None for name, item in items.items()},
            **further.get(((task, loss), size), {}),
            **{f"SE {name.lower()}": item.standard_error if item else None for name, item in items.items()},
        }  # fmt: skip


def _by_split_and_size(
    analysis: InstanceAnalysis,
) -> Iterator[tuple[tuple[Split, str], Decomposition]]:
    for split, sizes in analysis.decompositions.items():
        for size, item in sizes.items():
            yield (split, size), item


def _decomposition(analysis: InstanceAnalysis) -> Records:
    items = dict(_by_split_and_size(analysis))
    levels = dict.fromkeys(level for item in items.values() for level in item.variances)
    names = {name: level_name(name).capitalize() for name in ("bias_squared", *levels)}
    parts = {key: item.parts for key, item in items.items()}
    ratios = {
        key: dict(zip(_RATIOS, map(_finite, item.ratios), strict=True))
        for key, item in items.items()
    }
    return _parts(parts, {**names, "loss": "Mean loss"}, ratios)


def _disagreement(analysis: InstanceAnalysis) -> Records:
    parts = {
        key: {level: part(rates) for level, rates in item.disagreements.items()}
        for key, item in _by_split_and_size(analysis)
        if key[0][1] in (ZERO_ONE, OVER_CHECKPOINTS)
    }
    levels = dict.fromkeys(level for variances in parts.values() for level in variances)
    return _parts(parts, {level: f"Different {level_name(level)}" for level in reversed(levels)})


def _momentum(analysis: InstanceAnalysis) -> Records:
    for task, triples in analysis.momenta.items():
        for names, item in triples.items():
            yield {
                "Task": task, "Sizes": " to ".join(names),
                "Seeds": ", ".join(map(str, item.num_seeds)), "Examples": item.num_examples,
                "r": _finite(item.r), "r (95% CI)": Interval(item.low, item.high),
            }  # fmt: skip


def _index(analysis: InstanceAnalysis) -> Records:
    for task, triples in analysis.momentum_indices.items():
        for names, item in triples.items():
            for bucket, count, value in (
                *zip(_bucket_names(item), item.counts, item.correlation, strict=True),
                ("all", item.counts.sum(), item.pooled),
                ("not held equal", item.counts.sum(), item.without_buckets),
            ):
                yield {
                    "Task": task, "Sizes": " to ".join(names), "Accuracy of the middle": bucket,
                    "Examples": int(count), "Index": _finite(value),
                }  # fmt: skip


def _bucket_names(item: MomentumIndex) -> list[str]:
    return [f"{100 * low:g} to {100 * high:g} %" for low, high in itertools.pairwise(item.edges)]


class _Kind(NamedTuple):
    """Makes a table with a common format for the measured columns, except some."""

    title: str
    records: Callable[[InstanceAnalysis], Records]
    first_measured: int
    format: str
    others: Mapping[str, str] = {}


_RATIOS = ("Fine-tuning / pre-training", "Example / overall variance")
_TABLES = {
    "accuracy": _Kind("Accuracy by size", _accuracy, 5, ".2%"),
    "decay": _Kind(
        "Decaying examples: 95% lower limit, and bounds before sampling error", _decay, 3, ".2%",
        {"Threshold": ".0%"},
    ),
    "bounds": _Kind(
        "Bound on improving examples, from the row's size to the column's",
        partial(_matrix, _all_runs), 2, ".1%",
    ),
    "relative_bias": _Kind(
        "Relative upward bias of the bounds' thresholds", partial(_matrix, _relative_bias), 2, ".1%"
    ),
    "thresholds": _Kind(
        "Discoveries of decay by threshold", _thresholds, 3, ".2%", {"Difference at most": ".0%"}
    ),
    "seeds": _Kind(
        "Decay by number of seeds of each size", _seeds, 4, ".2%", {"Best rate": "g"}
    ),
    "improvement": _Kind(
        "Improving and decaying examples: 95% lower limits, and bounds before sampling error",
        _improvement, 3, ".2%",
    ),
    "decomposition": _Kind(
        "Loss, bias and variances", _decomposition, 3, ".4f",
        dict(zip(_RATIOS, (".1f", ",.0f"), strict=True)),
    ),
    "disagreement": _Kind("Pairs of runs that disagree", _disagreement, 3, ".2%"),
    "momentum": _Kind("Momentum", _momentum, 4, ".2f"),
    "momentum_index": _Kind("Index of momentum", _index, 4, ".2f"),
}  # fmt: skip


def all_tables(analysis: InstanceAnalysis) -> dict[str, Table]:
    """Returns all tables that the data allow, by name."""
    tables = {}
    for name, kind in _TABLES.items():
        if records := list(kind.records(analysis)):
            formats = dict.fromkeys(list(records[0])[kind.first_measured :], kind.format)
            formats = {key: text for key, text in {**formats, **kind.others}.items() if text}
            tables[name] = Table.from_records(records, formats, kind.title)
    return tables
