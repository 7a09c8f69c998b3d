"""The command `learned`: when examples are learned during pre-training, and which are forgotten.

multiberts stats learned --run_dir=results/learned --predictions=results/runs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from multiberts.evaluate.prediction_files.text_file import example_texts
from multiberts.runs.errors import UserError, counted
from multiberts.runs.figure_style import COLOURS, canvas
from multiberts.runs.identity import Identity
from multiberts.runs.parameters import check_arguments
from multiberts.stats.formats import Cell
from multiberts.stats.presentation.sections import Report, ReportSection, slug
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.report.page_run import write_page_of_runs
from multiberts.stats.report.prediction_sets import PredictionSet
from multiberts.stats.report.selection import FinishedRun, finished_runs, prediction_sets_of_runs
from multiberts.stats.zhong.example_learning import Learning, learning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_TEXT = 200  # characters of each text of an example in the table
IDENTITY = Identity(inputs=("predictions",))


@dataclass(frozen=True)
class _Learned:
    """One evaluation set of one procedure at several steps."""

    name: str
    course: Learning
    data: PredictionSet
    right: np.ndarray  # bool [seeds, steps, examples]
    chance: float  # probability of a right answer by guessing among the labels' classes
    most_frequent: float  # share of the most frequent label


def learned(*, run_dir: str, predictions: str | Sequence[str]) -> None:
    """Finds when examples are learned during pre-training, over seeds, and which are forgotten.

    For each procedure and evaluation set with accuracy at two or more steps, the report gives the step by
    which half of the seeds have permanently learned an example, the differences between seeds, the number of
    times it was forgotten, and its confidence and variability. The task `masked_words` makes such sets from
    held-out text. Writes `run_dir/report/`.

    Args:
      run_dir: run directory of the report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.

    Raises:
      UserError: no procedure has two steps with the same seeds, or a file is damaged.
    """
    parameters, _ = IDENTITY.of(locals())
    check_arguments(learned, parameters)
    runs = finished_runs(predictions)
    write_page_of_runs("learned", run_dir, parameters, runs, lambda: _report(predictions, runs))


def _report(predictions: str | Sequence[str], runs: Sequence[FinishedRun]) -> Report:
    by_set: dict[tuple[str, str], list[PredictionSet]] = {}
    for read in prediction_sets_of_runs(runs)[0]:
        if read.step is not None and "accuracy" in read.measures:
            by_set.setdefault((read.set_name, read.procedure), []).append(read)
    sets = [_learned(steps) for steps in by_set.values() if len(steps) > 1]
    if not sets:
        raise UserError(
            f"{predictions}: found no evaluation set with accuracy at two steps of one procedure; predict "
            "with checkpoints of several steps"
        )
    sections = []
    for item in sets:
        name = slug(item.name)
        sections += [
            ReportSection(f"{name}-learned", _CURVE.format(item.name), partial(_curves, item)),
            ReportSection(f"{name}-map", _MAP.format(item.name), partial(_map, item)),
            ReportSection(f"{name}-examples", _EXAMPLES.format(item.name), partial(_table, item)),
        ]
    return Report("Examples along training", sections, [_finding(item) for item in sets])


def _learned(sets: Sequence[PredictionSet]) -> _Learned:
    """Stacks the runs of one evaluation set as [seeds, steps, examples]."""
    ordered = sorted(sets, key=lambda each: each.step or 0)
    name = f"{ordered[0].set_name}, {ordered[0].procedure}"
    by_step = [each.data.sortby(["pretrain_seed", "finetune_seed"]) for each in ordered]
    first = by_step[0]
    for each, data in zip(ordered, by_step, strict=True):
        coordinates = ("pretrain_seed", "finetune_seed", "example_id")
        if not all(np.array_equal(data[level], first[level]) for level in coordinates):
            raise UserError(
                f"{name}: step {each.step} has other seeds or examples than step {ordered[0].step}; add the "
                "missing runs, or leave the step out"
            )
    right = np.stack([data["prediction"] == data["label"] for data in by_step], axis=1)
    losses = None
    if all("loss" in data for data in by_step):
        losses = np.stack([data["loss"].astype(np.float64) for data in by_step], axis=1)
    course = learning([each.step or 0 for each in ordered], right, losses)
    _, counts = np.unique(first["label"], return_counts=True)
    return _Learned(
        name, course, ordered[0], right, 1 / len(counts), counts.max() / first.sizes["example"]
    )


def _finding(item: _Learned) -> str:
    course, number = item.course, len(item.course.learned)
    by_all, by_none = ((course.share_learned == share).mean() for share in (1, 0))
    classes = round(1 / item.chance)
    return (
        f"{item.name}: of {counted(course.learned.shape[1], 'example')}, {by_all:.0%} are right at the last "
        f"step in all of {counted(number, 'run')} and {by_none:.0%} in none; "
        f"{(course.forgotten > 0).any(axis=0).mean():.0%} were right and then wrong again in at least one. "
        f"By chance: guesses among the {classes} class{'es' * (classes > 1)} of the labels are right in all "
        f"runs for {item.chance**number:.0%} and in none for {(1 - item.chance) ** number:.0%}, and always "
        f"the most frequent class is right for {item.most_frequent:.0%} in all of them."
    )


_CURVE = (
    "{}: share of examples that are right at each step. Each line is a run; dashed, what guesses among the "
    "classes of the labels would show."
)
_MAP = (
    "{}: each dot is an example. Confidence: the mean probability of the right answer (or share of right "
    "answers) over steps and runs; variability: its standard deviation over steps. Top left: easy; bottom "
    "left: hard; right: learned on the way."
)
_EXAMPLES = (
    "{}: learned by the step from which on half of the runs (and the first, and all of them) are right up to "
    "the end; a dash: not at the end. By chance: the probability that guesses among the classes of the "
    "labels are right at the end in half of the runs, and so count as learned. Forgotten: right answers "
    "that were followed by a wrong one, per run."
)


def _table(item: _Learned) -> Table:
    course = item.course
    first, half, every = (course.learned_step(share) for share in (1e-9, 0.5, 1.0))
    by_chance = course.learned_by_guesses(item.chance)
    data = item.data.data
    texts = example_texts(data, LONGEST_TEXT)

    def step(value: float) -> Cell:
        return int(value) if np.isfinite(value) else None

    records: list[dict[str, Cell]] = [
        {
            "Example": name,
            "Learned by half": step(half[row]),
            "By chance": by_chance,
            "By the first": step(first[row]),
            "By all": step(every[row]),
            "Right at the end": float(course.share_learned[row]),
            "Forgotten": float(course.forgotten[:, row].mean()),
            "Confidence": float(course.confidence[row]),
            "Variability": float(course.variability[row]),
            "About it": texts[name],
        }
        for row, name in enumerate(map(str, data["example_id"].to_numpy()))
    ]
    records.sort(
        key=lambda record: (record["Learned by half"] is None, record["Learned by half"] or 0)
    )
    return Table.from_records(records, {"Right at the end": ".0%", "By chance": ".1%"})


def _curves(shown: _Learned) -> Figure:
    with canvas(5.2, 3.2) as (figure, axes):
        for run in shown.right:
            axes.plot(
                shown.course.steps, run.mean(axis=1), color=COLOURS[0], linewidth=1, marker="o"
            )
        axes.axhline(shown.chance, color=COLOURS[-1], linewidth=1, linestyle="--")
        axes.set_xlabel("pre-training step")
        axes.set_ylabel("share of examples that are right")
    return figure


def _map(item: _Learned) -> Figure:
    course = item.course
    with canvas(5.2, 3.8) as (figure, axes):
        axes.plot(
            course.variability, course.confidence, linestyle="none", marker="o", markersize=3,
            color=COLOURS[0], alpha=0.5, markeredgewidth=0,
        )  # fmt: skip
        axes.set_xlabel("variability")
        axes.set_ylabel("confidence")
        axes.set_ylim(-0.03, 1.03)
    return figure
