"""The worked example: real predictions of several seeds, taken apart section by section.

    python docs/worked_example.py --data FOLDER                     # prints the page
    python docs/worked_example.py --data FOLDER --section agreement # prints what one section shows
    python docs/worked_example.py --data FOLDER --write             # writes the page and its figures

The prose is in docs/worked_example.template.md; every number is printed by a function of this file.
FOLDER holds multiseed/, hans/ and glue/, as SOURCES.md there describes them.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import inspect
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import scipy.stats
import xarray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import stats
from evaluate.metrics import softmax
from runs.errors import UserError
from runs.files import write_atomically
from stats.arms import DataError
from stats.components import (
    VarianceComponents,
    disagreement_across_seeds,
    intraclass_correlation,
    unpaired_components,
    variance_components,
)
from stats.decomposition import decompose
from stats.figures import COLOURS, GREY, LINES, MARKERS, forest_figure, save_figure
from stats.instance_analysis import InstanceAnalysis, analyse_sizes
from stats.instance_figures import decay_figure
from stats.intervals import (
    Interval,
    acceleration,
    bca_interval,
    percentile_interval,
    studentised_interval,
    t_interval,
)
from stats.nested_runs import NestedRuns, nested_runs_from_array
from stats.planning import (
    PlannedDesign,
    best_runs_per_seed,
    minimum_detectable_effect,
    power_curve,
    seeds_needed,
    variance_of_estimate,
)
from stats.sequential import sequential_decision
from stats.table_writer import Table
from stats.wording import finding, warnings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "worked_example.template.md"
PAGE = HERE / "worked_example.md"

TEN_SEEDS = "multiseed/instability_bert_base_10seeds.npz"
HUNDRED_RUNS = "multiseed/berts_of_a_feather_accuracies_by_run.csv"
NUMBER_RIGHT = "multiseed/mnli_development_set_number_of_correct_responses.txt.gz"
RESPONDERS = "multiseed/nlu_test_sets_irt_correctness.npz"
HANS = "hans/heuristics_evaluation_set.txt.gz"
HANS_BERT = "hans/reference_preds/bert_preds.txt.gz"
MNLI = "glue/MNLI/dev_matched.tsv.gz"

# Agreement of two runs with the same, and with different pre-training seeds: Sellam et al. (2022).
MULTIBERTS_AGREEMENT = {
    "MNLI": (0.936, 0.901),
    "HANS": (0.922, 0.881),
    "HANS, not entailed": (0.883, 0.819),
}
HEURISTICS = {"l": "lexical overlap", "s": "subsequence", "c": "constituent"}
# What the file of the 100 runs calls them.
HUNDRED_COLUMNS = {
    "lexical overlap": "Lexical",
    "subsequence": "Subseq",
    "constituent": "Constituent",
}
COVERAGE_NAMES = {
    "MNLI dev acc.": "MNLI",
    "Overall accuracy": "HANS",
    "Lexical (nonent)": "lexical overlap, not entailed",
    "ln_passive": "its subcase ln_passive",
}
EXIT_USER_ERROR = 2  # as runs.command has it


# ---- The data ----


@dataclass(frozen=True, eq=False)
class Data:
    """What the files hold.

    Attributes:
        mnli, hans: ten fine-tuning seeds, dims (run, example[, class]): prediction, scores, label.
        published: the one BERT of the HANS paper on HANS, of the same layout.
        reported: accuracies that the ten seeds' authors reported, by set [10].
        hundred: accuracies of 100 fine-tuned BERTs [runs], by column of their file.
        number_right: how many of these were right on each MNLI example [9815].
        responders: row of each model in the tables of `correct`.
        correct: 0/1 by test set [models, examples].
    """

    mnli: xarray.Dataset
    hans: xarray.Dataset
    published: xarray.Dataset
    reported: dict[str, np.ndarray]
    hundred: pandas.DataFrame
    number_right: np.ndarray
    responders: dict[str, int]
    correct: dict[str, np.ndarray]

    def group(self, test_set: str, name: str) -> xarray.Dataset:
        """Three separately pre-trained models at their best checkpoint, right (1) or wrong (0)."""
        rows = [self.responders[f"{name}-{number}_best"] for number in (1, 2, 3)]
        return dataset(self.correct[test_set][rows], np.ones(self.correct[test_set].shape[1], int))


def dataset(
    predictions: np.ndarray, labels: np.ndarray, **of_examples: np.ndarray
) -> xarray.Dataset:
    """Runs with the seeds 1, 2, ..., and what is known of each example."""
    return xarray.Dataset(
        {"prediction": (("run", "example"), predictions), "label": ("example", labels)},
        coords={
            "pretrain_seed": ("run", np.arange(1, len(predictions) + 1)),
            **{name: ("example", values) for name, values in of_examples.items()},
        },
    )


def load(folder: Path) -> Data:
    """Reads the files.

    Raises:
        UserError: one is missing, or two of them list other examples.
    """
    for name in (TEN_SEEDS, HUNDRED_RUNS, NUMBER_RIGHT, RESPONDERS, HANS, HANS_BERT, MNLI):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} holds no {name}; give with --data the folder of real data that holds "
                "multiseed/, hans/ and glue/"
            )
    ten = np.load(folder / TEN_SEEDS)
    mnli, hans = _table(folder / MNLI), _table(folder / HANS)
    hundred = pandas.read_csv(folder / HUNDRED_RUNS, encoding="utf-8-sig", dtype=object)
    hundred = hundred[hundred["Run"].str.fullmatch(r"Run \d+", na=False)].set_index("Run")
    responders = np.load(folder / RESPONDERS)
    return Data(
        mnli=dataset(
            ten["preds_mnli"], ten["gold_mnli"], premise=mnli["sentence1"].to_numpy()
        ).assign(scores=(("run", "example", "class"), ten["logits_mnli"])),
        hans=_hans(ten, hans),
        published=_published(_table(folder / HANS_BERT, ","), hans),
        reported={name: ten[f"reported_acc_{name}"] for name in ("mnli", "hans")},
        hundred=hundred.astype(float),
        number_right=_table(folder / NUMBER_RIGHT).iloc[:, -1].astype(int).to_numpy(),
        responders={name: row for row, name in enumerate(responders["responders"].tolist())},
        correct={
            name.removeprefix("correct_"): responders[name]
            for name in responders
            if name != "responders"
        },
    )


def _table(path: Path, separator: str = "\t") -> pandas.DataFrame:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return pandas.read_csv(file, sep=separator, dtype=object, quoting=3, keep_default_na=False)


def _hans(ten: np.lib.npyio.NpzFile, pairs: pandas.DataFrame) -> xarray.Dataset:
    """HANS asks for entailment or not; the other two of MNLI's classes are joined."""
    entails = softmax(ten["logits_hans"])[..., 1]
    return dataset(
        (ten["preds_hans"] == 1).astype(int),
        ten["gold_hans_entailment"].astype(int),
        subcase=pairs["subcase"].to_numpy(),
        template=pairs["template"].to_numpy(),
    ).assign(
        scores=(("run", "example", "class"), np.log(np.stack([1 - entails, entails], axis=-1)))
    )


def _published(answers: pandas.DataFrame, pairs: pandas.DataFrame) -> xarray.Dataset:
    if answers["pairID"].tolist() != pairs["pairID"].tolist():
        raise UserError(f"{HANS_BERT} and {HANS} list other pairs; fetch both again")
    answer, gold = ((table["gold_label"] == "entailment").astype(int) for table in (answers, pairs))
    return dataset(answer.to_numpy()[None], gold.to_numpy())


def right(data: xarray.Dataset) -> np.ndarray:
    """1.0 where a run is right [runs, examples]."""
    return (data["prediction"] == data["label"]).to_numpy().astype(float)


def parts_of_hans(data: Data) -> Iterator[tuple[str, np.ndarray]]:
    """Names of the six groups of HANS, and which examples are theirs."""
    subcase = data.hans["subcase"].to_numpy().astype(str)
    for kind, answer in (("n", "not entailed"), ("e", "entailed")):
        for letter, name in HEURISTICS.items():
            yield f"{name}, {answer}", np.char.startswith(subcase, letter + kind)


def agreement_of_seeds(answers: np.ndarray) -> float:
    """How often two seeds give one answer; each seed has one run [seeds, examples]."""
    return 1 - disagreement_across_seeds([run[None] for run in answers])


def table(rows: list[dict[str, Any]], numbers: str = "", **formats: str) -> str:
    """Markdown: `numbers` is the format of all columns of fractions but those in `formats`."""
    columns = list(rows[0])
    fractions = [
        name
        for name in columns
        if any(isinstance(row[name], float | Interval) for row in rows)
        and not any(isinstance(row[name], int) for row in rows)
    ]
    kept = {name: text for name, text in formats.items() if name in columns}
    cells = [tuple(row[name] for name in columns) for row in rows]
    return Table(columns, cells, dict.fromkeys(fractions, numbers) | kept).markdown()


# ---- Sections: each prints what its place in the page shows ----


def sources(data: Data) -> str:
    rows = []
    for name, runs in (("mnli", data.mnli), ("hans", data.hans)):
        scores = right(runs).mean(axis=1)
        rows.append(
            {
                "Set": name.upper(),
                "Examples": right(runs).shape[1],
                "Seeds": len(scores),
                "With the reported accuracy": int((scores == data.reported[name]).sum()),
                "Mean accuracy": scores.mean(),
                "SD over seeds": scores.std(ddof=1),
            }
        )
    by_runs, by_examples = data.hundred["MNLI dev acc."].mean(), data.number_right.mean() / 100
    return table(rows, ".2%") + (
        f"\nMNLI accuracy of the 100 BERTs: {by_runs:.7f} by runs, {by_examples:.7f} by examples.\n"
    )


def agreement(data: Data) -> str:
    whole = {"MNLI": data.mnli, "HANS": data.hans}
    parts = {f"HANS, {name}": data.hans.isel(example=here) for name, here in parts_of_hans(data)}
    rows = []
    for name, runs in {**whole, **parts}.items():
        scores = right(runs).mean(axis=1)
        rows.append(
            {
                "Examples": name,
                "Two seeds agree": agreement_of_seeds(runs["prediction"].to_numpy()),
                "Mean accuracy": scores.mean(),
                "SD over seeds": scores.std(ddof=1),
                "Worst seed": scores.min(),
                "Best seed": scores.max(),
            }
        )
    return table(rows, ".1%", **{"SD over seeds": ".2%"})


def published_agreement(data: Data) -> str:
    sets = {
        "MNLI": data.mnli,
        "HANS": data.hans,
        "HANS, not entailed": data.hans.isel(example=data.hans["label"] == 0),
    }
    rows = [
        {
            "Set": name,
            "These ten seeds": agreement_of_seeds(runs["prediction"].to_numpy()),
            "MultiBERTs, one checkpoint": MULTIBERTS_AGREEMENT[name][0],
            "MultiBERTs, two checkpoints": MULTIBERTS_AGREEMENT[name][1],
        }
        for name, runs in sets.items()
    ]
    return table(rows, ".1%")


def subcases(data: Data) -> str:
    rows = []
    for name in dict.fromkeys(data.hans["subcase"].to_numpy()):
        if name[1] == "n":  # the answer is: not entailed
            runs = data.hans.isel(example=data.hans["subcase"] == name)
            ten, hundred = right(runs).mean(axis=1), data.hundred[name]
            rows.append(
                {
                    "Subcase": name,
                    "Agree": agreement_of_seeds(runs["prediction"].to_numpy()),
                    "Mean of 10": ten.mean(),
                    "Worst": ten.min(),
                    "Best": ten.max(),
                    "SD": ten.std(ddof=1),
                    "Mean of the 100": hundred.mean(),
                    "SD of the 100": hundred.std(),
                }
            )
    return table(rows, ".1%")


def components(data: Data) -> str:
    not_entailed = data.hans.isel(example=data.hans["label"] == 0)
    rows = []
    for name, runs in (
        ("MNLI", data.mnli),
        ("HANS", data.hans),
        ("HANS, not entailed", not_entailed),
    ):
        scores = right(runs)  # [seeds, examples]
        parts, number = variance_components(scores), scores.shape[1]
        of_mean = variance_of_estimate(parts, 10, num_examples=number, design="single")
        rows.append(
            {
                "Examples": name,
                "Seed": parts.seed,
                "Example": parts.example,
                "Residual": parts.residual,
                "ICC of examples": intraclass_correlation(scores).single,
                "SD of seeds": math.sqrt(parts.seed),
                "Share in a mean of 10 seeds: seeds": parts.seed / 10 / of_mean,
                "examples": parts.example / number / of_mean,
            }
        )
    percent = ("Share in a mean of 10 seeds: seeds", "examples")
    return table(rows, "", **dict.fromkeys(percent, ".0%"), **{"SD of seeds": ".2%", "Seed": ".2g"})


def components_from_margins(data: Data) -> str:
    runs, examples = data.hundred["MNLI dev acc."].to_numpy(), data.number_right / 100
    num_runs, num_examples, mean = len(runs), len(examples), runs.mean()
    # The squares of 0s and 1s add up to their sum, so the margins of the table are all it takes.
    total = num_runs * num_examples * mean * (1 - mean)
    of_runs = num_examples * ((runs - mean) ** 2).sum()
    of_examples = num_runs * ((examples - mean) ** 2).sum()
    residual = (total - of_runs - of_examples) / ((num_runs - 1) * (num_examples - 1))
    of_hundred = VarianceComponents(
        seed=(of_runs / (num_runs - 1) - residual) / num_examples,
        example=(of_examples / (num_examples - 1) - residual) / num_runs,
        residual=residual,
    )
    found = {"10 seeds": variance_components(right(data.mnli)), "100 runs": of_hundred}
    rows = [
        {
            "MNLI": name,
            "Seed": parts.seed,
            "Example": parts.example,
            "Residual": parts.residual,
            "SD of seeds": math.sqrt(parts.seed),
        }
        for name, parts in found.items()
    ]
    return table(rows, "", **{"SD of seeds": ".2%", "Seed": ".2g"})


def interval_of_deviation(scores: np.ndarray, confidence: float = 0.95) -> Interval:
    """Of the standard deviation of normal scores, from their chi-squared [groups, seeds]."""
    freedom = scores.shape[0] * (scores.shape[1] - 1)
    deviation = math.sqrt(scores.var(axis=1, ddof=1).mean())
    tail = (1 - confidence) / 2
    high, low = (float(scipy.stats.chi2.ppf(share, freedom)) for share in (tail, 1 - tail))
    return Interval(deviation * math.sqrt(freedom / low), deviation * math.sqrt(freedom / high))


def hundred_runs(data: Data) -> str:
    groups = [
        ("MNLI", right(data.mnli), "MNLI dev acc."),
        ("HANS", right(data.hans), "Overall accuracy"),
    ]
    for name, here in parts_of_hans(data):
        heuristic, answer = name.split(", ")
        column = f"{HUNDRED_COLUMNS[heuristic]} ({'nonent' if 'not' in answer else answer})"
        groups.append((f"HANS, {name}", right(data.hans)[:, here], column))
    rows = []
    for name, scores, column in groups:
        ten, hundred = scores.mean(axis=1), data.hundred[column].to_numpy()
        rows.append(
            {
                "Examples": name,
                "SD of 10": ten.std(ddof=1),
                "95% CI of it": interval_of_deviation(ten[None]),
                "SD of 100": hundred.std(ddof=1),
                "Mean of 10": ten.mean(),
                "Mean of 100": hundred.mean(),
                "p, equal means": scipy.stats.ttest_ind(ten, hundred, equal_var=False).pvalue,
            }
        )
    return table(rows, ".2%", **{"p, equal means": ".1g"})


def scopes(data: Data) -> str:
    rows = []
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        for resample, speaks_about in (
            ("seeds", "new seeds, these examples"),
            ("examples", "these seeds, new examples"),
            ("both", "new seeds, new examples"),
        ):
            found = stats.compare(runs, None, "accuracy", "single", resample=resample)
            rows.append(
                {
                    "Set": name,
                    "resample": resample,
                    "Speaks about": speaks_about,
                    "Accuracy": found.estimate,
                    "95% CI": found.t,
                    "Width": found.t.high - found.t.low,
                }
            )
    return table(rows, ".2%")


def clusters(data: Data) -> str:
    rows = []
    for name, runs, unit in (
        ("MNLI", data.mnli, None),
        ("MNLI", data.mnli, "premise"),
        ("HANS", data.hans, None),
        ("HANS", data.hans, "template"),
        ("HANS", data.hans, "subcase"),
    ):
        found = stats.compare(runs, None, "accuracy", "single", clusters=unit)
        rows.append(
            {
                "Set": name,
                "Drawn whole": unit or "example",
                "Number": found.base.num_clusters or found.num_examples,
                "95% CI": found.t,
                "Width": found.t.high - found.t.low,
            }
        )
    return table(rows, ".2%")


def intervals(data: Data) -> str:
    rows = []
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        for number in (3, 5, 10):
            first = runs.isel(run=slice(number))
            found = stats.compare(first, None, "accuracy", "single")
            rows.append(
                {
                    "Set": name,
                    "Seeds": number,
                    "Accuracy": found.estimate,
                    "t (recommended)": found.t,
                    "Percentile (published)": found.percentile,
                    "BCa": found.bca,
                    "Studentised": found.studentised,
                }
            )
    return table(rows, ".2%")


def coverage(data: Data, num_trials: int = 2000) -> str:
    def intervals_of_mean(runs: np.ndarray, replicates: np.ndarray) -> list[Interval]:
        """Of the mean of runs [R], given bootstrap replicates [B, R]."""
        root = math.sqrt(len(runs))
        mean, error = runs.mean(), runs.std(ddof=1) / root
        samples, errors = replicates.mean(axis=1), replicates.std(axis=1, ddof=1) / root
        return [
            t_interval(mean, error, len(runs) - 1, 0.95),
            percentile_interval(samples, 0.95),
            bca_interval(samples, mean, acceleration([runs]), 0.95),
            studentised_interval(samples, errors, mean, error, 0.95),
        ]

    rows = []
    for column in ("MNLI dev acc.", "Overall accuracy", "Lexical (nonent)", "ln_passive"):
        population = data.hundred[column].to_numpy()
        for number in (3, 5, 10):
            random = np.random.Generator(np.random.Philox(key=number))
            trials = population[random.integers(100, size=(num_trials, number))]
            redrawn = random.integers(number, size=(1000, number))
            ends = np.array([intervals_of_mean(runs, runs[redrawn]) for runs in trials])
            low, high = ends[..., 0], ends[..., 1]  # [trials, intervals]
            held = ((low <= population.mean()) & (population.mean() <= high)).mean(axis=0)
            endless = (high - low > 1)[:, 3].mean()
            rows.append(
                {
                    "Accuracy on": COVERAGE_NAMES[column],
                    "Skewness": float(scipy.stats.skew(population)),
                    "Runs": number,
                    "t": held[0],
                    "Percentile": held[1],
                    "BCa": held[2],
                    "Studentised": held[3],
                    "wider than 0 to 1": endless,
                }
            )
    return table(rows, ".1%", Skewness=".1f")


def other_metrics(data: Data) -> str:
    rows = []
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        for metric in ("log_loss", "brier", "ece"):
            found = stats.compare(runs, None, metric, "single")
            rows.append(
                {
                    "Set": name,
                    "Metric": metric,
                    "Estimate": found.estimate,
                    "SD over seeds": found.base.seed_scores.std(ddof=1),
                    "95% CI (t)": found.t,
                    "95% CI (percentile)": found.percentile,
                    "Bias (bootstrap)": found.bias,
                }
            )
    return table(rows, ".4f")


@functools.cache
def one_billion_against_100_million(data: Data) -> stats.TaskComparisons:
    tasks = {
        test_set: stats.Task(
            data.group(test_set, "roberta-base-100M"),
            data.group(test_set, "roberta-base-1B"),
            "accuracy",
        )
        for test_set in data.correct
    }
    return stats.compare_tasks(
        tasks, "unpaired", base_name="RoBERTa 100M", experiment_name="RoBERTa 1B"
    )


def groups(data: Data) -> str:
    family = one_billion_against_100_million(data)
    rows = []
    for found in [*family.comparisons.values(), family.macro_average]:
        rows.append(
            {
                "Test set": found.name,
                "Examples": found.num_examples,
                "100M": found.base.estimate,
                "1B - 100M": found.estimate,
                "95% CI (t)": found.t,
                "p (t)": found.p_t.two_sided,
                "p (percentile)": found.p_percentile.two_sided,
                "p (permutation)": found.p_permutation.two_sided,
            }
        )
    return table(rows, ".3f", **dict.fromkeys(("100M", "1B - 100M", "95% CI (t)"), ".1%"))


def corrections(data: Data) -> str:
    family = one_billion_against_100_million(data)
    rows = [
        {
            "Test set": name,
            "p (t)": found.p_t.two_sided,
            "Holm": family.adjusted["holm"][place],
            "Benjamini-Hochberg": family.adjusted["bh"][place],
            "max-T": family.adjusted["max_t"][place],
        }
        for place, (name, found) in enumerate(family.comparisons.items())
        if found.p_t.two_sided < 0.1
    ]
    mnli = family.comparisons["mnli"]
    return "\n".join(
        [table(rows, ".3f"), *(f"> {text}\n" for text in (finding(mnli), *warnings(mnli)))]
    )


def fixed_baseline(data: Data) -> str:
    one = data.published.assign_coords(template=data.hans["template"])
    rows = []
    for unit in (None, "template"):
        found = stats.compare(one, data.hans, "accuracy", "fixed_baseline", clusters=unit)
        rows.append(
            {
                "Drawn whole": unit or "example",
                "Published": found.base.estimate,
                "Ten seeds": found.experiment.estimate,
                "Difference": found.estimate,
                "95% CI (t)": found.t,
                "p (t)": found.p_t.two_sided,
            }
        )
    return table(rows, ".1%", **{"p (t)": ".1g"})


def looks(data: Data) -> str:
    planned, p_values, rows = (4, 7, 10), [], []
    for number in planned:
        first = data.hans.isel(run=slice(number))
        found = stats.compare(data.published, first, "accuracy", "fixed_baseline")
        p_values.append(found.p_t.two_sided)
        decision = sequential_decision(p_values, planned[: len(p_values)], planned_seeds=10)
        rows.append(
            {
                "Seeds": number,
                "Difference": found.estimate,
                "p": p_values[-1],
                "Stop at": float(decision.boundaries.nominal_p[-1]),
                "Decision": "stop" if decision.stop else "go on",
            }
        )
        if decision.stop:
            break
    return table(rows, ".2g", Difference=".2%")


@functools.cache
def sizes(data: Data) -> InstanceAnalysis:
    def models(test_set: str, size: str) -> NestedRuns:
        scores = data.group(test_set, f"roberta-base-{size}")["prediction"].to_numpy()
        return nested_runs_from_array(scores, levels=("model",))

    tasks = {
        test_set.upper(): {size: models(test_set, size) for size in ("10M", "100M", "1B")}
        for test_set in ("mnli", "snli")
    }
    return analyse_sizes(tasks, levels=(0.05, 0.2), with_curves=False)


def decay(data: Data) -> str:
    rows = []
    for pair in sizes(data).pairs:
        bias = pair.decay_bias
        rows.append(
            {
                "Task": pair.task,
                "Pair": f"{pair.small} to {pair.large}",
                "Gain in accuracy": pair.gain,
                "Improving, at least": pair.improvement.bound,
                "Decaying, at least": pair.decay.bound,
                "less the threshold's bias": bias.corrected,
                "95% CI over examples": Interval(bias.low, bias.high) if bias.bound else None,
            }
        )
    return table(rows, ".2%")


def single_tests(data: Data) -> str:
    rows = []
    for pair in sizes(data).pairs:
        p_values = pair.fisher[0.05].p_values
        rows.append(
            {
                "Task": pair.task,
                "Pair": f"{pair.small} to {pair.large}",
                "Smallest p": float(p_values.min()),
                "Examples with it": int((p_values == p_values.min()).sum()),
                "Needed at level 0.2": math.ceil(len(p_values) * p_values.min() / 0.2 - 1e-9),
                "Found at level 0.05": pair.fisher[0.05].num_discoveries,
                "Found at level 0.2": pair.fisher[0.2].num_discoveries,
            }
        )
    return table(rows, ".3f")


def loss(data: Data) -> str:
    ten = nested_runs_from_array(right(data.mnli), levels=("finetune_seed",))
    of_mnli = {**sizes(data).decompositions["MNLI"], "one BERT": decompose(ten)}
    rows = []
    for name, found in of_mnli.items():
        parts = found.parts
        (level,) = found.variances
        rows.append(
            {
                "Models": name,
                "Loss": parts["loss"].mean,
                "Squared bias": parts["bias_squared"].mean,
                "Variance": parts[level].mean,
                "SE of the variance": parts[level].standard_error,
                "between": {"model": "pre-trainings", "finetune_seed": "fine-tunings"}[level],
            }
        )
    return table(rows, ".4f")


@dataclass(frozen=True)
class Plan:
    """A kind of comparison: its design, the variances it meets, the number of its examples, and
    the scores of seeds [groups, seeds] that its seeds' part was learnt from."""

    design: PlannedDesign
    components: VarianceComponents
    num_examples: int
    seed_scores: np.ndarray


@functools.cache
def plans(data: Data) -> dict[str, Plan]:
    sides = [right(data.group("mnli", f"roberta-base-{size}")) for size in ("100M", "1B")]
    parts = unpaired_components(*sides)
    seed_scores = np.array([side.mean(axis=1) for side in sides])
    found = {"two pre-trainings, MNLI": Plan("unpaired", parts, sides[0].shape[1], seed_scores)}
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        scores = right(runs)
        found[f"one fine-tuning, {name}"] = Plan(
            "single", variance_components(scores), scores.shape[1], scores.mean(axis=1)[None]
        )
    return found


def plan_inputs(data: Data) -> str:
    rows = []
    for name, plan in plans(data).items():
        parts = plan.components
        rows.append(
            {
                "Plan": name,
                "Design": plan.design,
                "SD of a seed's score": math.sqrt(plan.seed_scores.var(axis=1, ddof=1).mean()),
                "95% CI of it": interval_of_deviation(plan.seed_scores),
                "Example": parts.example,
                "Residual": parts.residual,
                "Examples": plan.num_examples,
                "SD that examples leave": math.sqrt(parts.example / plan.num_examples),
            }
        )
    return table(rows, ".2%", Example=".3f", Residual=".3f")


def detectable(data: Data) -> str:
    rows = []
    for name, plan in plans(data).items():
        row: dict[str, Any] = {"Least difference found with power 0.8": name}
        for number in (3, 5, 10, 25, 1_000_000):
            row[f"{number:,} seeds"] = minimum_detectable_effect(
                plan.components, number, num_examples=plan.num_examples, design=plan.design
            )
        rows.append(row)
    return table(rows, ".2%")


def enough_seeds(data: Data) -> str:
    rows, messages = [], []
    for name, plan in plans(data).items():
        row: dict[str, Any] = {"Seeds (of each side) for a difference of": name}
        for effect in (0.005, 0.01, 0.02, 0.03):
            try:
                row[f"{effect:.1%}"] = seeds_needed(
                    effect, plan.components, num_examples=plan.num_examples, design=plan.design
                )
            except DataError as error:
                row[f"{effect:.1%}"] = None
                messages.append(f"> {name}: {error}\n")
        rows.append(row)
    return "\n".join([table(rows), *messages])


def runs_per_seed(data: Data) -> str:
    plan, fine_tuning = (
        plans(data)["two pre-trainings, MNLI"],
        variance_components(right(data.mnli)),
    )
    rows = []
    for name, seed in (
        ("as the RoBERTas have it", plan.components.seed - fine_tuning.seed),
        ("four times that of fine-tuning", 4 * fine_tuning.seed),
        ("that of fine-tuning", fine_tuning.seed),
        ("a quarter of that", fine_tuning.seed / 4),
    ):
        parts = VarianceComponents(
            seed=seed,
            example=plan.components.example,
            residual=plan.components.residual - fine_tuning.residual,
            run=fine_tuning.seed,
            run_residual=fine_tuning.residual,
        )
        row: dict[str, Any] = {"Variance of pre-training seeds": name, "SD": math.sqrt(seed)}
        for cost in (1, 10, 100, 1000):
            row[f"cost {cost:,}"] = best_runs_per_seed(cost, 1, parts, plan.num_examples)
        rows.append(row)
    return table(rows, ".2%")


# ---- Figures ----


def forest(data: Data) -> Figure:
    family = one_billion_against_100_million(data)
    return forest_figure([*family.comparisons.values(), family.macro_average], "RoBERTa 1B - 100M")


def smallest_to_largest(data: Data) -> Figure:
    return decay_figure(next(pair for pair in sizes(data).pairs if pair.large == "1B"))


def power(data: Data) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.1), layout="constrained")
    panels, effects, numbers = (
        figure.subplots(1, 3, sharey=True),
        np.linspace(0, 0.05, 101),
        (3, 5, 10, 25),
    )
    for axes, (name, plan) in zip(panels, plans(data).items(), strict=True):
        curves = power_curve(
            effects, numbers, plan.components, num_examples=plan.num_examples, design=plan.design
        )
        for place, (number, curve) in enumerate(zip(numbers, curves, strict=True)):
            axes.plot(
                100 * effects, curve, linestyle=LINES[place], color=COLOURS[place],
                marker=MARKERS[place], markevery=(5 + 4 * place, 20), markersize=5,
                label=f"{number} seeds",
            )  # fmt: skip
        axes.axhline(0.8, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xlabel("true difference (points)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(0, 1.02)
    panels[0].set_ylabel("power of the t-test")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False
    )
    return figure


# ---- The page ----

SECTIONS: dict[str, Callable[[Data], str]] = {
    section.__name__: section
    for section in (
        sources, agreement, published_agreement, subcases, components, components_from_margins,
        hundred_runs, scopes, clusters, intervals, coverage, other_metrics, groups, corrections,
        fixed_baseline, decay, single_tests, loss, plan_inputs, detectable, enough_seeds,
        runs_per_seed, looks,
    )
}  # fmt: skip
# Those that several sections share, shown in the page where the first of them stands.
STEPS = {step.__name__: step for step in (one_billion_against_100_million, sizes, plans)}
FIGURES: dict[str, Callable[[Data], Figure]] = {
    "forest": forest,
    "decay": smallest_to_largest,
    "power": power,
}


def page(data: Data, template: str) -> str:
    """The page: `{{name}}` in the template becomes the code of a section and what it prints, or
    the code of a step."""

    def filled(place: re.Match) -> str:
        name = place[1]
        code = f"```python\n{inspect.getsource((SECTIONS | STEPS)[name]).strip()}\n```"
        if name in STEPS:
            return code
        command = f"`python docs/worked_example.py --data FOLDER --section {name}` prints"
        return f"{code}\n\n{command}\n\n{SECTIONS[name](data).strip()}"

    return re.sub(r"^\{\{(\w+)\}\}$", filled, template, flags=re.MULTILINE)


def write(data: Data) -> None:
    """Writes the page and its figures."""
    text = page(data, TEMPLATE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for name, make in FIGURES.items():
            image = save_figure(make(data), Path(folder) / name)[0]
            write_atomically(HERE / f"worked_example_{name}.png", image.read_bytes())
    write_atomically(PAGE, text)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status: 2, with one line, where the data are not there."""
    parser = argparse.ArgumentParser(description="The worked example of the statistics library.")
    parser.add_argument("--data", type=Path, required=True, help="holds multiseed/, hans/, glue/")
    parser.add_argument("--section", choices=SECTIONS, help="print what this section shows")
    parser.add_argument("--write", action="store_true", help="write the page and its figures")
    options = parser.parse_args(arguments)
    try:
        data = load(options.data)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    if options.section:
        print(SECTIONS[options.section](data), end="")
    elif options.write:
        write(data)
    else:
        print(page(data, TEMPLATE.read_text(encoding="utf-8")), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
