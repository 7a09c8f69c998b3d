"""The instance-level tables and figures of Zhong et al. (2021) from finished fine-tuning runs.

multiberts stats instances --run_dir=results/sizes --predictions=results --sizes="['mini', 'large']"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from multiberts.evaluate.metrics.probability import softmax
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import set_of
from multiberts.evaluate.prediction_files.text_file import example_texts
from multiberts.papers.page_run import write_page_of_runs
from multiberts.papers.zhong.analysis import (
    OVER_CHECKPOINTS,
    ZERO_ONE,
    InstanceAnalysis,
    analyse_sizes,
)
from multiberts.papers.zhong.ensembles import aligned, ensemble
from multiberts.papers.zhong.figures import report_of_sizes
from multiberts.papers.zhong.instance_level import fisher_tests, instance_accuracy
from multiberts.report.prediction_sets import PredictionSet
from multiberts.report.presentation.formats import Cell
from multiberts.report.presentation.sections import Report
from multiberts.report.presentation.table_writer import Table
from multiberts.report.selection import (
    FinishedRun,
    LearningRateRule,
    PredictionSetReader,
    RunGroup,
    choose_learning_rate,
    finished_runs,
    last_steps,
    make_groups,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.identity import Identity, opened
from multiberts.runs.parameters import check_arguments
from multiberts.stats.runs_table import Arm, RunsTable, make_runs

MOST_EXAMPLES = 100  # listed decaying examples per pair of sizes, and rows to judge per set
MOST_DECAY = -0.9  # difference from which an example is judged by hand, as in the paper
LONGEST_TEXT, LONGEST_JUDGED = 200, 100_000  # number of characters shown of each text
IDENTITY = Identity({"predictions": opened})


def instances(*, run_dir: str, predictions: str | Sequence[str], sizes: Sequence[str]) -> None:
    """Compares model sizes on each example, and lists examples on which the larger size is worse.

    Writes `run_dir/report/` with `index.html`, `index.md`, `tables/` and `figures/` for every evaluation
    set with accuracy of two or more sizes. `blind/sheet.csv` has examples to judge by hand, about half of
    them decaying, and `blind/key.csv` says which.

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
    groups = _groups_by_size(runs, sizes)
    prediction_sets = {
        name: {size: predictions for size, (_, predictions) in by_size.items()}
        for name, by_size in groups.items()
    }
    right, votes = (
        {
            name: {size: make(each.arm("accuracy")[0]) for size, each in by_size.items()}
            for name, by_size in prediction_sets.items()
        }
        for make in (_right, _voted)
    )
    of_losses = {OVER_CHECKPOINTS: _over_checkpoints, "squared": _probabilities}
    further = {
        loss: {
            name: {
                size: scores
                for size, (group, predictions) in by_size.items()
                if (scores := make(predictions, group)) is not None
            }
            for name, by_size in groups.items()
        }
        for loss, make in of_losses.items()
    }
    analysis = analyse_sizes(right, votes, further_losses=further)
    for name, by_size in right.items():
        if lacking := by_size.keys() - analysis.decompositions[name, ZERO_ONE].keys():
            console.note_once(
                f"{name}, {', '.join(sorted(lacking))}: no decomposition, disagreement or variance given "
                "bias: they need two pre-training seeds, and one with two fine-tuning runs"
            )
    listed = {
        f"{direction}_examples": _changed_examples(analysis, prediction_sets, votes, direction)
        for direction in ("decaying", "improving")
    }
    blind = _blind_sheet(prediction_sets, votes)
    return replace(report_of_sizes(analysis, listed), further_files=blind)


def _groups_by_size(
    runs: Sequence[FinishedRun], sizes: Sequence[str]
) -> dict[str, dict[str, tuple[RunGroup, PredictionSet]]]:
    """Returns runs and predictions with accuracy by evaluation set (with two or more sizes) and size."""
    reader = PredictionSetReader()
    groups, all_groups = [], make_groups(runs)
    on_dev = {
        group.task
        for group in all_groups
        if len(group.learning_rates) > 1
        and {*group.learning_rates} - {run.facts["learning_rate"] for run in group.held_out_runs}
    }
    for group in all_groups:
        # As in appendix A, if all sizes tried every rate on held-out data, too: one rule for all.
        rule: LearningRateRule = "dev" if group.task in on_dev else "held_out"
        chosen, choice = choose_learning_rate(group, reader, rule)
        groups.append(chosen)
        if choice is not None:
            console.note_once(f"{group.task}, {group.name}: {choice.in_words()}")
    by_set: dict[str, dict[str, tuple[RunGroup, PredictionSet]]] = {}
    for group in sorted(groups, key=lambda group: sizes.index(group.procedure)):
        for evaluation_set, measures in group.evaluation_sets().items():
            if "accuracy" in measures:
                predictions = reader(group, evaluation_set)
                by_set.setdefault(predictions.set_name, {})[group.procedure] = group, predictions
    by_set = {name: by_size for name, by_size in by_set.items() if len(by_size) > 1}
    if not by_set:
        raise UserError(
            f"found no evaluation set with accuracy of two of the sizes {', '.join(sizes)}; "
            "fine-tune both on the same task"
        )
    return by_set


def _over_checkpoints(predictions: PredictionSet, group: RunGroup) -> RunsTable | None:
    """Returns 0/1 correctness with the epoch as innermost level; None without early predictions."""
    evaluation_set = predictions.evaluation_set
    names_of_runs = []
    for run in group.runs:
        entries = run.facts["evaluation_sets"].items()
        epochs = {
            name: entry.get("epochs")
            for name, entry in entries
            if set_of(name, entry) == evaluation_set
        }
        kept = run.facts.get("kept_model", {}).get("epochs", -1)
        if kept in epochs.values():  # the last predictions are those of an early epoch
            del epochs[evaluation_set]
        names_of_runs.append({*epochs})
    names = sorted(set.intersection(*names_of_runs))
    if uncommon := sorted(set.union(*names_of_runs).difference(names)):
        console.note_once(
            f"{predictions.set_name}, {predictions.name}: only some runs have {', '.join(uncommon)}, which "
            "the variance over checkpoints leaves out"
        )
    if len(names) < 2:
        return None
    folders = [run.directory for run in group.runs]
    tables = []
    for name in names:
        arm = replace(predictions, data=read_predictions(folders, name)).arm("accuracy")[0]
        tables.append(replace(_right(arm), keys=tuple((*key, name) for key in arm.keys)))
    tables = aligned(*tables)
    return make_runs(
        np.concatenate([table.predictions for table in tables]),
        [key for table in tables for key in table.keys],
        (*tables[0].levels, "checkpoint"),
        tables[0].example_ids,
    )


def _probabilities(predictions: PredictionSet, _: RunGroup) -> RunsTable | None:
    """Returns the probability of the right class; None without scores of all classes."""
    arm, scores = predictions.arm("accuracy")[0], predictions.data["scores"].to_numpy()
    labels = arm.labels.astype(np.int64)
    if scores.shape[-1] <= max(1, labels.max()) or np.isnan(scores).any():
        return None
    classes = np.broadcast_to(labels, scores.shape[:2])[..., None]
    right = np.take_along_axis(softmax(scores), classes, axis=-1)[..., 0]  # [runs, examples]
    return make_runs(right, arm.keys, arm.levels, arm.example_ids)


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
        num_significant += tests.num_discoveries
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


def _blind_sheet(
    prediction_sets: Mapping[str, Mapping[str, PredictionSet]],
    votes: Mapping[str, Mapping[str, RunsTable]],
) -> dict[str, Callable[[], str]]:
    """Draws examples to judge by hand, and which of them decay from the smallest to the largest size.

    Zhong et al., section 4.2: each row is an example that decays by .9 or more, or with equal probability one
    of the others, until a group or `MOST_EXAMPLES` are used up.

    Args:
      votes: ensembled predictions with one run per seed, as in table 3, which appendix J refers to.

    Returns:
      Functions that make the sheet and its key, by file name; none if no example decays so much.
    """
    rows: list[tuple[dict[str, Cell], str]] = []
    for name, by_size in prediction_sets.items():
        small, *_, large = votes[name]
        before, after = aligned(votes[name][small], votes[name][large])
        decaying = instance_accuracy(after) - instance_accuracy(before) <= MOST_DECAY + 1e-9
        random = np.random.Generator(np.random.Philox(key=0))
        left = {
            group: random.permutation(np.flatnonzero(chosen)).tolist()
            for group, chosen in (("decaying", decaying), ("control", ~decaying))
        }
        texts = example_texts(by_size[small].data, longest=LONGEST_JUDGED)
        if not decaying.any():
            continue
        if not any("; " in text for text in texts.values()):
            console.note_once(
                f"{name}: the predictions have no texts, so the blind sheet has ids and labels only"
            )
        for heads in random.integers(2, size=MOST_EXAMPLES).tolist():
            group = "decaying" if heads else "control"
            if not left[group]:
                break
            row = left[group].pop()
            example = str(row if before.example_ids is None else before.example_ids[row])
            cells = {"Set": name, "Smaller": small, "Larger": large, "Example": example}
            rows.append(({**cells, "Text": texts[example], "category": ""}, group))
    if not rows:
        return {}
    sheet = [cells for cells, _ in rows]
    key = [
        {"Set": cells["Set"], "Example": cells["Example"], "Group": group} for cells, group in rows
    ]
    tables = {"sheet": Table.from_records(sheet, {}), "key": Table.from_records(key, {})}
    return {f"blind/{name}.csv": table.csv for name, table in tables.items()}
