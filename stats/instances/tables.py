"""Tables of instance-level analyses, after those of Zhong et al. (Findings of ACL 2021).

Every function takes the results of `stats.instances.analysis.analyse_sizes`, or a part of them, and
returns a `stats.presentation.table_writer.Table`. `all_tables` returns all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from multiberts.stats.bootstrap.intervals import Interval
from multiberts.stats.instances.analysis import InstanceAnalysis, PairOfSizes, SizeAccuracy
from multiberts.stats.instances.decomposition import Decomposition, Disagreement
from multiberts.stats.instances.instance_level import ThresholdBias
from multiberts.stats.instances.momentum_test import Momentum
from multiberts.stats.presentation.table_writer import Cell, Table

LEVEL_NAMES = {
    "bias_squared": "bias squared",
    "pretrain_seed": "pre-training",
    "finetune_seed": "fine-tuning",
    "checkpoint": "checkpoint",
}


def all_tables(analysis: InstanceAnalysis) -> dict[str, Table]:
    """Returns every table that the data allow, by name."""
    tables = {
        "accuracy": accuracy_table(analysis.accuracies),
        "decay": decay_table(analysis.pairs),
        "improvement": improvement_table(analysis.pairs),
        "fisher": fisher_table(analysis.pairs),
        "decomposition": decomposition_table(analysis.decompositions),
        "disagreement": disagreement_table(analysis.disagreements),
        "momentum": momentum_table(analysis.momenta),
    }
    return {name: table for name, table in tables.items() if table.rows}


def level_name(level: str) -> str:
    """Returns the readable name of a level or part of the loss."""
    return LEVEL_NAMES.get(level, level.replace("_", " "))


def accuracy_table(accuracies: Mapping[str, Mapping[str, SizeAccuracy]]) -> Table:
    """Tabulates accuracy by size, its spread over pre-training seeds, and with runs ensembled."""
    rows: list[Sequence[Cell]] = []
    for task, sizes in accuracies.items():
        for size, found in sizes.items():
            seeds = found.seed_scores
            spread = float(seeds.std(ddof=1)) if len(seeds) > 1 else None
            rows.append(
                (
                    task, size, len(seeds), found.num_runs, found.num_examples, found.mean, spread,
                    float(seeds.min()), float(seeds.max()), found.ensembled,
                )
            )  # fmt: skip
    columns = (
        "Task", "Size", "Seeds", "Runs", "Examples", "Accuracy", "SD over seeds", "Lowest seed",
        "Highest seed", "Ensembled",
    )  # fmt: skip
    shares = ("Accuracy", "SD over seeds", "Lowest seed", "Highest seed", "Ensembled")
    return Table(columns, rows, dict.fromkeys(shares, ".2%"), "Accuracy by size")


def _interval(bias: ThresholdBias) -> Interval | None:
    """Returns None where the bound is 0: the bounds of all samples may then be 0 too."""
    return Interval(bias.low, bias.high) if bias.bound > 0 else None


def decay_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Tabulates lower bounds on the share of examples on which a larger size is worse."""
    rows: list[Sequence[Cell]] = []
    for pair in pairs:
        bound, bias = pair.decay, pair.decay_bias
        rows.append(
            (
                pair.task, pair.small, pair.large, pair.gain, pair.of_one_seed, pair.single.bound,
                bound.bound, bound.threshold if np.isfinite(bound.threshold) else None, bias.bias,
                bias.corrected, _interval(bias), bias.cross_fitted,
            )
        )  # fmt: skip
    columns = (
        "Task", "Smaller", "Larger", "Accuracy gain", "Decay, one pre-training seed",
        "Decay, one run per seed", "Decay, ensembled", "Threshold", "Threshold bias", "Corrected",
        "Corrected (95% CI)", "Cross-fitted",
    )  # fmt: skip
    formats = dict.fromkeys(columns[3:], ".2%") | {"Threshold": ".2f"}
    return Table(columns, rows, formats, "Decaying examples, at least")


def improvement_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Tabulates bounds on the shares of examples that get better and worse, and the gain."""
    rows = [
        (
            pair.task, pair.small, pair.large, pair.gain, pair.improvement.bound, pair.decay.bound,
        )
        for pair in pairs
    ]  # fmt: skip
    columns = ("Task", "Smaller", "Larger", "Accuracy gain", "Improving", "Decaying")
    return Table(
        columns,
        rows,
        dict.fromkeys(columns[3:], ".2%"),
        "Improving and decaying examples, at least",
    )


def fisher_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Tabulates decaying examples found by single tests, alongside the bound."""
    levels = sorted({level for pair in pairs for level in pair.fisher})
    rows: list[Sequence[Cell]] = []
    for pair in pairs:
        tests = [pair.fisher.get(level) for level in levels]
        smallest = min((float(test.p_values.min()) for test in tests if test), default=None)
        cells: list[Cell] = [pair.task, pair.small, pair.large, smallest]
        for test in tests:
            cells += [test.num_discoveries, test.share] if test else [None, None]
        rows.append((*cells, pair.decay.bound))
    names = [
        name for level in levels for name in (f"Found at FDR {level:g}", f"Share at FDR {level:g}")
    ]
    formats = dict.fromkeys([name for name in names if name.startswith("Share")], ".2%")
    return Table(
        ("Task", "Smaller", "Larger", "Smallest p", *names, "Decay bound"),
        rows, formats | {"Decay bound": ".2%"}, "Decaying examples found by single tests",
    )  # fmt: skip


def decomposition_table(
    decompositions: Mapping[str, Mapping[str, Decomposition]], digits: int = 4
) -> Table:
    """Tabulates the loss as the sum of squared bias and variances, with standard errors."""
    levels = _levels(
        found.variances for sizes in decompositions.values() for found in sizes.values()
    )
    names = ["bias_squared", *levels, "loss"]
    rows: list[Sequence[Cell]] = []
    for task, sizes in decompositions.items():
        for size, found in sizes.items():
            parts, cells = found.parts, list[Cell]([task, size])
            for name in names:
                part = parts.get(name)
                cells += [part.mean, part.standard_error] if part else [None, None]
            rows.append(cells)
    titles = [level_name(name).capitalize() for name in names]
    columns = ["Task", "Size", *(text for name in titles for text in (name, f"SE {name.lower()}"))]
    formats = dict.fromkeys(columns[2:], f".{digits}f")
    return Table(columns, rows, formats, "Loss, bias and variances")


def disagreement_table(disagreements: Mapping[str, Mapping[str, Disagreement]]) -> Table:
    """Tabulates how often one of two runs is right, by the outermost seed that differs."""
    levels = _levels(found.rates for sizes in disagreements.values() for found in sizes.values())
    rows: list[Sequence[Cell]] = []
    for task, sizes in disagreements.items():
        for size, found in sizes.items():
            cells: list[Cell] = [task, size]
            for level in reversed(levels):
                part = found.parts.get(level)
                cells += [part.mean, part.standard_error] if part else [None, None]
            rows.append(cells)
    names = [f"Different {level_name(level)}" for level in reversed(levels)]
    columns = ["Task", "Size", *(text for name in names for text in (name, f"SE {name.lower()}"))]
    return Table(columns, rows, dict.fromkeys(columns[2:], ".2%"), "Pairs of runs that disagree")


def momentum_table(momenta: Mapping[str, Mapping[tuple[str, str, str], Momentum]]) -> Table:
    """Tabulates the correlation of the two improvements, by accuracy of the middle size."""
    found = [
        (task, names, item) for task, triples in momenta.items() for names, item in triples.items()
    ]
    rows: list[Sequence[Cell]] = []
    for task, names, item in found:
        for bucket, correlation in enumerate(item.correlation):
            low, high = item.edges[bucket : bucket + 2]
            cells = (correlation, Interval(float(item.low[bucket]), float(item.high[bucket])))
            known = np.isfinite(correlation)
            rows.append(
                (
                    task, " to ".join(names), f"{low:g} to {high:g}",
                    round(float(item.counts[bucket])), *(cells if known else (None, None)),
                )
            )  # fmt: skip
        pooled = (item.pooled, Interval(item.pooled_low, item.pooled_high))
        rows.append((task, " to ".join(names), "all", round(float(item.counts.sum())), *pooled))
    columns = ("Task", "Sizes", "Accuracy of the middle", "Examples", "r", "r (95% CI)")
    return Table(columns, rows, {"r": ".2f", "r (95% CI)": ".2f"}, "Momentum of instance accuracy")


def _levels(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    """Collects the levels of some mappings, outermost first."""
    return list(dict.fromkeys(level for mapping in mappings for level in mapping))
