"""Tables of instance-level analyses, after those of Zhong et al. (Findings of ACL 2021).

Every function takes the result of `stats.zhong.analysis.analyse_sizes`, or a part of it, and returns
a `stats.presentation.table_writer.Table`, which writes Markdown, LaTeX and CSV. `all_tables` returns them
all; `stats.zhong.figures.write_instances` writes them into a folder, with the figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from multiberts.stats.formats import Cell
from multiberts.stats.intervals import Interval
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.zhong.analysis import (
    InstanceAnalysis,
    PairOfSizes,
    SizeAccuracy,
    Triple,
)
from multiberts.stats.zhong.decomposition import Decomposition, LossPart, part
from multiberts.stats.zhong.size_momentum import Momentum, MomentumIndex

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
        "bounds": bounds_matrix(analysis.pairs),
        "relative_bias": bias_matrix(analysis.pairs),
        "thresholds": threshold_table(analysis.pairs),
        "seeds": seeds_table(analysis),
        "improvement": improvement_table(analysis.pairs),
        "fisher": fisher_table(analysis.pairs),
        "decomposition": decomposition_table(analysis.decompositions),
        "disagreement": disagreement_table(analysis.decompositions),
        "momentum": momentum_table(analysis.momenta),
        "momentum_index": index_table(analysis.momentum_indices["pearson"]),
        "momentum_index_spearman": index_table(analysis.momentum_indices["spearman"]),
    }
    return {name: table for name, table in tables.items() if table.rows}


def level_name(level: str) -> str:
    return LEVEL_NAMES.get(level, level.replace("_", " "))


def accuracy_table(accuracies: Mapping[str, Mapping[str, SizeAccuracy]]) -> Table:
    """Makes a table of the accuracy of every size, its spread, and with runs ensembled."""
    records: list[dict[str, Cell]] = [
        {
            "Task": task, "Size": size, "Seeds": len(found.seed_scores), "Runs": found.num_runs,
            "Examples": found.num_examples, "Accuracy": found.mean,
            "SD over seeds": float(found.seed_scores.std(ddof=1)) if len(found.seed_scores) > 1 else None,
            "Lowest seed": float(found.seed_scores.min()),
            "Highest seed": float(found.seed_scores.max()), "Ensembled": found.ensembled,
        }
        for task, sizes in accuracies.items()
        for size, found in sizes.items()
    ]  # fmt: skip
    shares = ("Accuracy", "SD over seeds", "Lowest seed", "Highest seed", "Ensembled")
    return Table.from_records(records, dict.fromkeys(shares, ".2%"), "Accuracy by size")


def _pair_cells(pair: PairOfSizes) -> dict[str, Cell]:
    return {"Task": pair.task, "Smaller": pair.small, "Larger": pair.large}


def decay_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Makes a table of lower bounds on the share of examples that a larger size is worse on."""
    records: list[dict[str, Cell]] = []
    for pair in pairs:
        bound, bias = pair.decay, pair.decay_bias
        # Where the bound is 0, the bounds of all samples may be 0; then their spread is meaningless.
        interval = Interval(bias.low, bias.high) if bias.bound > 0 else None
        records.append(
            {
                **_pair_cells(pair), "Accuracy gain": pair.gain,
                "Decay, 95% lower limit": bound.lower,
                "Decay, one pre-training seed": pair.of_one_seed,
                "Decay, one run per seed": pair.single.bound,
                "Decay, all runs": pair.all_runs.bound if pair.all_runs else None,
                "Decay, ensembled": bound.bound,
                "Threshold": bound.threshold if np.isfinite(bound.threshold) else None,
                "Threshold bias": bias.bias, "Corrected": bias.corrected,
                "Corrected (95% CI)": interval, "Cross-fitted": bias.cross_fitted,
            }
        )  # fmt: skip
    formats = dict.fromkeys(list(records[0])[3:], ".2%") if records else {}
    title = "Decaying examples, at least"
    return Table.from_records(records, formats | {"Threshold": ".2f"}, title)


def bounds_matrix(pairs: Sequence[PairOfSizes]) -> Table:
    """Makes a table in the layout of the paper's tables 2 and 9, of the means of all runs.

    Above the diagonal the share of examples that improve from the row's size to the larger one of the
    column; below it, the share that improve from the row's size to a smaller one: that decay with size.
    """
    found: dict[tuple[str, str, str, int], Cell] = {}
    for pair in pairs:
        for direction, bound in enumerate((pair.all_runs, pair.all_runs_improvement)):
            found[pair.task, pair.small, pair.large, direction] = bound.bound if bound else None
    return _matrix(
        pairs, found, "Improving examples, at least, from the row's size to the column's"
    )


def bias_matrix(pairs: Sequence[PairOfSizes]) -> Table:
    """Makes a table of the relative bias of adaptive thresholds over seeds, as the paper's table 10."""
    found = {
        (pair.task, pair.small, pair.large, direction): value if np.isfinite(value) else None
        for pair in pairs
        for direction, value in enumerate(pair.relative_biases)
    }
    return _matrix(pairs, found, "Relative upward bias of the bounds' thresholds")


def _matrix(
    pairs: Sequence[PairOfSizes], found: Mapping[tuple[str, str, str, int], Cell], title: str
) -> Table:
    """Makes a table of one row per task and size, by (task, smaller, larger, is it improvement)."""
    sizes = list(dict.fromkeys(name for pair in pairs for name in (pair.small, pair.large)))
    records: list[dict[str, Cell]] = []
    for task in dict.fromkeys(pair.task for pair in pairs):
        for start in sizes:
            cells = {
                f"To {end}": found.get((task, start, end, 1), found.get((task, end, start, 0)))
                for end in sizes
            }
            if any(value is not None for value in cells.values()):
                records.append({"Task": task, "From": start, **cells})
    return Table.from_records(records, {f"To {end}": ".1%" for end in sizes}, title)


def threshold_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Makes a table of discoveries and false discoveries of decay by threshold.

    A discovery is an example whose difference is at most the threshold; the random baseline gives
    the share of false ones.
    """
    records: list[dict[str, Cell]] = [
        {
            **_pair_cells(pair), "Difference at most": threshold, "Discovered": found,
            "Falsely discovered": false, "At least": found - false,
        }
        for pair in pairs
        for threshold in np.round(np.arange(-1, 0, 0.1), 1).tolist()
        for found, false in [
            [float(curve.cdf(threshold)) for curve in (pair.decay.difference, pair.decay.baseline)]
        ]
    ]  # fmt: skip
    shares = dict.fromkeys(("Discovered", "Falsely discovered", "At least"), ".2%")
    formats = {"Difference at most": ".1f", **shares}
    return Table.from_records(records, formats, "Discoveries of decay by threshold")


def seeds_table(analysis: InstanceAnalysis) -> Table:
    """Makes a table of the bound and of Fisher's tests at their best rate, by number of seeds."""
    records: list[dict[str, Cell]] = [
        {
            "Task": task, "Smaller": small, "Larger": large, "Seeds": item.num_seeds,
            "Decay bound": item.bound, "Fisher's tests": item.found, "Best rate": item.rate,
        }
        for (task, small, large), found in analysis.by_seeds.items()
        for item in found
    ]  # fmt: skip
    formats = {"Decay bound": ".2%", "Fisher's tests": ".2%", "Best rate": "g"}
    return Table.from_records(records, formats, "Decay by number of seeds of each size")


def improvement_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Makes a table of bounds on the shares of examples that get better and worse."""
    records: list[dict[str, Cell]] = [
        {
            **_pair_cells(pair), "Accuracy gain": pair.gain, "Improving": pair.improvement.bound,
            "Decaying": pair.decay.bound,
        }
        for pair in pairs
    ]  # fmt: skip
    formats = dict.fromkeys(("Accuracy gain", "Improving", "Decaying"), ".2%")
    return Table.from_records(records, formats, "Improving and decaying examples, at least")


def fisher_table(pairs: Sequence[PairOfSizes]) -> Table:
    """Makes a table of single decaying examples (Fisher exact tests, Benjamini-Hochberg)."""
    levels = sorted({level for pair in pairs for level in pair.fisher})
    records: list[dict[str, Cell]] = []
    for pair in pairs:
        tests = {level: pair.fisher.get(level) for level in levels}
        smallest = min(
            (float(test.p_values.min()) for test in tests.values() if test), default=None
        )
        record = {**_pair_cells(pair), "Smallest p": smallest}
        for level, test in tests.items():
            record[f"Found at FDR {level:g}"] = test.num_discoveries if test else None
            record[f"Share at FDR {level:g}"] = test.share if test else None
        records.append({**record, "Decay bound": pair.decay.bound})
    shares = [*(f"Share at FDR {level:g}" for level in levels), "Decay bound"]
    title = "Decaying examples found by single tests"
    return Table.from_records(records, dict.fromkeys(shares, ".2%"), title)


def _parts_table(
    parts: Mapping[tuple[str, str], Mapping[str, LossPart]],
    names: Mapping[str, str],
    number_format: str,
    title: str,
) -> Table:
    """Makes a table of named parts, each with its standard error, by task and size."""
    records: list[dict[str, Cell]] = []
    for (task, size), found in parts.items():
        record: dict[str, Cell] = {"Task": task, "Size": size}
        for part_name, name in names.items():
            known = found.get(part_name)
            record[name] = known.mean if known else None
            record[f"SE {name.lower()}"] = known.standard_error if known else None
        records.append(record)
    columns = list(records[0])[2:] if records else []
    return Table.from_records(records, dict.fromkeys(columns, number_format), title)


def decomposition_table(decompositions: Mapping[str, Mapping[str, Decomposition]]) -> Table:
    """Makes a table of the loss as the sum of squared bias and variances."""
    parts = {key: item.parts for key, item in _by_task_and_size(decompositions)}
    levels = [level for found in parts.values() for level in list(found)[1:-1]]
    names = {name: level_name(name).capitalize() for name in ("bias_squared", *levels, "loss")}
    return _parts_table(parts, names, ".4f", "Loss, bias and variances")


def disagreement_table(decompositions: Mapping[str, Mapping[str, Decomposition]]) -> Table:
    """Makes a table of how often two runs disagree in being right, by the outermost seed that
    differs.
    """
    parts = {
        key: {level: part(rates) for level, rates in item.disagreements.items()}
        for key, item in _by_task_and_size(decompositions)
    }
    levels = dict.fromkeys(level for found in parts.values() for level in found)
    names = {level: f"Different {level_name(level)}" for level in reversed(levels)}
    return _parts_table(parts, names, ".2%", "Pairs of runs that disagree")


def _by_task_and_size(
    decompositions: Mapping[str, Mapping[str, Decomposition]],
) -> Iterator[tuple[tuple[str, str], Decomposition]]:
    for task, sizes in decompositions.items():
        for size, found in sizes.items():
            yield (task, size), found


def momentum_table(momenta: Mapping[str, Mapping[Triple, Momentum]]) -> Table:
    """Makes a table of the correlation of two successive improvements."""
    records: list[dict[str, Cell]] = [
        {
            "Task": task, "Sizes": " to ".join(names),
            "Seeds": ", ".join(map(str, item.num_seeds)), "Examples": item.num_examples,
            "r": item.r if np.isfinite(item.r) else None,
            "r (95% CI)": Interval(item.low, item.high),
        }
        for task, triples in momenta.items()
        for names, item in triples.items()
    ]  # fmt: skip
    return Table.from_records(records, {"r": ".2f", "r (95% CI)": ".2f"}, "Momentum")


def index_table(indices: Mapping[str, Mapping[Triple, MomentumIndex]]) -> Table:
    """Makes a table of the paper's index of momentum, by accuracy of the middle size."""
    records: list[dict[str, Cell]] = [
        {
            "Task": task, "Sizes": " to ".join(names), "Accuracy of the middle": bucket,
            "Examples": int(count), "Index": value if np.isfinite(value) else None,
        }
        for task, triples in indices.items()
        for names, item in triples.items()
        for bucket, count, value in (
            *zip(_bucket_names(item), item.counts, item.correlation, strict=True),
            ("all", item.counts.sum(), item.pooled),
        )
    ]  # fmt: skip
    return Table.from_records(records, {"Index": ".2f"}, "Index of momentum")


def _bucket_names(item: MomentumIndex) -> list[str]:
    return [f"{low:g} to {high:g}" for low, high in itertools.pairwise(item.edges)]
