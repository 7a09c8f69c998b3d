"""The instance-level tables and figures of Zhong et al. (2021) from finished fine-tuning runs.

multiberts stats instances --run_dir=results/sizes --predictions=results --sizes="['mini', 'large']"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np

from multiberts.evaluate.prediction_files.text_file import example_texts
from multiberts.runs.errors import UserError
from multiberts.runs.identity import Identity
from multiberts.runs.parameters import check_arguments
from multiberts.stats.formats import Cell
from multiberts.stats.presentation.sections import Report
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.report.page_run import write_page_of_runs
from multiberts.stats.report.prediction_sets import PredictionSet
from multiberts.stats.report.selection import (
    FinishedRun,
    finished_runs,
    last_steps,
    prediction_sets_of_runs,
)
from multiberts.stats.runs_table import Arm, RunsTable, aligned, make_runs
from multiberts.stats.zhong.analysis import FISHER_LEVELS, InstanceAnalysis, analyse_sizes
from multiberts.stats.zhong.ensembles import ensemble
from multiberts.stats.zhong.figures import report_of_sizes
from multiberts.stats.zhong.instance_level import fisher_tests, instance_accuracy

MOST_EXAMPLES = 100  # number of listed decaying examples per pair of sizes
LONGEST_TEXT = 200  # number of characters shown of each text
IDENTITY = Identity(inputs=("predictions",))


def instances(*, run_dir: str, predictions: str | Sequence[str], sizes: Sequence[str]) -> None:
    """Compares model sizes on each example, and lists examples on which the larger size is worse.

    Writes `run_dir/report/` with `index.html`, `index.md`, `tables/` and `figures/` for every evaluation
    set with accuracy of two or more sizes.

    Args:
      run_dir: run directory of the report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      sizes: procedures to compare, starting with the smallest model, each at its last step.

    Reference: Zhong et al., "Are Larger Pretrained Language Models Uniformly Better?" (2021).
    """
    parameters, _ = IDENTITY.of(locals())
    check_arguments(instances, parameters)
    runs = finished_runs(predictions)
    procedures = sorted({str(run.facts["procedure"]) for run in runs})
    if len(sizes) < 2 or len(set(sizes)) < len(sizes) or not set(sizes) <= set(procedures):
        raise UserError(
            f"instances.sizes is {list(sizes)}, expected two or more of {', '.join(procedures)}, each "
            "once, the smallest model first"
        )
    chosen = last_steps([run for run in runs if run.facts["procedure"] in sizes])
    parameters["sizes"] = list(sizes)
    make = partial(_report, chosen, sizes)
    write_page_of_runs("instances", run_dir, parameters, chosen, make)


def _report(runs: Sequence[FinishedRun], sizes: Sequence[str]) -> Report:
    prediction_sets = _prediction_sets_by_size(prediction_sets_of_runs(runs)[0], sizes)
    right, votes = (
        {
            name: {size: make(each.arm("accuracy")[0]) for size, each in by_size.items()}
            for name, by_size in prediction_sets.items()
        }
        for make in (_right, _voted)
    )
    analysis = analyse_sizes(right, votes)
    listed = {
        f"{direction}_examples": _changed_examples(analysis, prediction_sets, votes, direction)
        for direction in ("decaying", "improving")
    }
    return report_of_sizes(analysis, listed)


def _prediction_sets_by_size(
    prediction_sets: Sequence[PredictionSet], sizes: Sequence[str]
) -> dict[str, dict[str, PredictionSet]]:
    """Returns prediction sets with accuracy by evaluation set (with two or more sizes) and size."""
    by_set: dict[str, dict[str, PredictionSet]] = {}
    for size in sizes:
        for predictions in prediction_sets:
            if predictions.procedure == size and "accuracy" in predictions.measures:
                by_set.setdefault(predictions.set_name, {})[size] = predictions
    by_set = {name: by_size for name, by_size in by_set.items() if len(by_size) > 1}
    if not by_set:
        raise UserError(
            f"found no evaluation set with accuracy of two of the sizes {', '.join(sizes)}; "
            "fine-tune both on the same task"
        )
    return by_set


def _right(arm: Arm) -> RunsTable:
    values = (arm.predictions == arm.labels).astype(np.uint8)
    return make_runs(values, arm.keys, arm.levels, arm.example_ids)


def _voted(arm: Arm) -> RunsTable:
    runs = make_runs(arm.predictions, arm.keys, arm.levels, arm.example_ids)
    return ensemble(runs, arm.labels)


def _changed_examples(
    analysis: InstanceAnalysis,
    prediction_sets: Mapping[str, Mapping[str, PredictionSet]],
    votes: Mapping[str, Mapping[str, RunsTable]],
    direction: Literal["decaying", "improving"],
) -> Table:
    """Lists the examples on which the larger size is worse (or better), starting with the clearest.

    An example is listed if its difference passes the bound's threshold. Some are listed by chance; the bound
    is a lower limit on the share of examples with a true difference. Texts and other columns are shown if the
    predictions have them.

    Args:
      votes: ensembled predictions with one run per seed.
    """
    decays = direction == "decaying"
    records: list[dict[str, Cell]] = []
    num_significant = 0
    for pair in analysis.pairs:
        small, large = aligned(*(votes[pair.task][size] for size in (pair.small, pair.large)))
        tests = fisher_tests(small, large, "decay" if decays else "improvement")
        num_significant += int((tests.adjusted <= FISHER_LEVELS[0]).sum())
        difference = instance_accuracy(large) - instance_accuracy(small)
        sign = 1 if decays else -1
        limit = pair.decay.threshold if decays else -pair.improvement.threshold
        passing = np.flatnonzero(sign * difference <= limit + 1e-9)
        order = passing[np.argsort(sign * difference[passing], kind="stable")]
        texts = example_texts(prediction_sets[pair.task][pair.small].data, LONGEST_TEXT)
        for row in order[:MOST_EXAMPLES].tolist():
            name = str(row if small.example_ids is None else small.example_ids[row])
            records.append(
                {
                    "Set": pair.task, "Smaller": pair.small, "Larger": pair.large,
                    "Example": name,
                    "Accuracy, smaller": float(instance_accuracy(small)[row]),
                    "Accuracy, larger": float(instance_accuracy(large)[row]),
                    "Difference": float(difference[row]),
                    "p (Fisher)": float(tests.p_values[row]),
                    "p (BH)": float(tests.adjusted[row]), "Text": texts[name],
                }
            )  # fmt: skip
    shares = dict.fromkeys(("Accuracy, smaller", "Accuracy, larger", "Difference"), ".0%")
    formats = shares | {"p (Fisher)": "p", "p (BH)": "p"}
    title = f"{direction.capitalize()} examples: {num_significant or 'none'} at a false discovery rate of 5 %"
    return Table.from_records(records, formats, title)
