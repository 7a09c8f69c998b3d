"""The command `learned`: when examples are learned during pre-training, and which are forgotten.

multiberts stats learned --run_dir=results/learned --predictions=results/runs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from multiberts.evaluate.prediction_files.text_file import example_texts
from multiberts.runs.errors import UserError, counted
from multiberts.runs.figure_style import GREY, canvas
from multiberts.runs.identity import Identity
from multiberts.runs.parameters import check_arguments
from multiberts.stats.formats import Cell
from multiberts.stats.presentation import drawing
from multiberts.stats.presentation.readable_names import readable
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

    procedure: str
    course: Learning
    data: PredictionSet
    right: np.ndarray  # bool [runs, steps, examples]
    chance: float  # probability of a right answer by guessing among the labels' classes
    most_frequent: float  # share of the most frequent label

    @property
    def by_half(self) -> np.ndarray:
        """Returns the share of examples that half of the runs have learned by each step [steps]."""
        learned_step = self.course.learned_step()
        return np.array([(learned_step <= step).mean() for step in self.course.steps])


def learned(*, run_dir: str, predictions: str | Sequence[str]) -> None:
    """Finds when examples are learned during pre-training, over seeds, and which are forgotten.

    For each procedure and evaluation set with accuracy at two or more steps, the report gives the step from
    which half of the runs answer an example correctly up to the end, the differences between runs, the
    number of times it was forgotten, and its confidence and variability. The task `masked_words` makes such
    sets from held-out text. Writes `run_dir/report/`.

    Args:
      run_dir: run directory of the report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
    """
    parameters, _ = IDENTITY.of(locals())
    check_arguments(learned, parameters)
    runs = finished_runs(predictions)
    write_page_of_runs("learned", run_dir, parameters, runs, lambda: _report(predictions, runs))


def _report(predictions: str | Sequence[str], runs: Sequence[FinishedRun]) -> Report:
    by_set: dict[str, dict[str, list[PredictionSet]]] = {}
    for read in prediction_sets_of_runs(runs)[0]:
        if read.step is not None and "accuracy" in read.measures:
            by_set.setdefault(read.set_name, {}).setdefault(read.procedure, []).append(read)
    learned_sets = {
        name: [_learned(name, steps) for steps in procedures.values() if len(steps) > 1]
        for name, procedures in by_set.items()
    }
    learned_sets = {name: items for name, items in learned_sets.items() if items}
    if not learned_sets:
        raise UserError(
            f"{predictions}: found no evaluation set with accuracy at two steps of one procedure; predict "
            "with checkpoints of several steps"
        )
    sections = [
        ReportSection("learned", _SUMMARY, partial(_summary, learned_sets), title="By step")
    ]
    for name, items in learned_sets.items():
        title = readable(name, {})
        for part, caption, make, of_part in (
            ("curves", _CURVES, _curves, "examples that are right"),
            ("map", _MAP, _map, "easy and hard examples"),
            ("examples", _EXAMPLES, _table, "each example"),
        ):
            sections.append(
                ReportSection(
                    f"{slug(name)}-{part}",
                    caption,
                    partial(make, items),
                    title=f"{title}: {of_part}",
                )
            )
    findings = [_finding(readable(name, {}), items) for name, items in learned_sets.items()]
    findings += ["Learned: right from a step up to the last one, in half of the runs."]
    findings += [_guesses(readable(name, {}), items[0]) for name, items in learned_sets.items()]
    return Report("When examples are learned", sections, findings)


def _learned(set_name: str, sets: Sequence[PredictionSet]) -> _Learned:
    """Stacks the runs of one evaluation set as [runs, steps, examples]."""
    ordered = sorted(sets, key=lambda each: each.step or 0)
    by_step = [each.data.sortby(["pretrain_seed", "finetune_seed"]) for each in ordered]
    first = by_step[0]
    for each, data in zip(ordered, by_step, strict=True):
        coordinates = ("pretrain_seed", "finetune_seed", "example_id")
        if not all(np.array_equal(data[level], first[level]) for level in coordinates):
            raise UserError(
                f"{set_name}, {each.procedure}: step {each.step} has other seeds or examples than step "
                f"{ordered[0].step}; add the missing runs, or leave the step out"
            )
    right = np.stack([data["prediction"] == data["label"] for data in by_step], axis=1)
    losses = None
    if all("loss" in data for data in by_step):
        losses = np.stack([data["loss"].astype(np.float64) for data in by_step], axis=1)
    course = learning([each.step or 0 for each in ordered], right, losses)
    _, counts = np.unique(first["label"], return_counts=True)
    name, shares = readable(ordered[0].procedure, {}), counts / counts.sum()
    return _Learned(name, course, ordered[0], right, 1 / len(counts), shares.max())


def _finding(name: str, items: Sequence[_Learned]) -> str:
    """Returns how many examples were learned at the end, and when half of them were, by procedure."""
    parts, examples = [], counted(items[0].right.shape[2], "example")
    for item in items:
        steps, shares = item.course.steps, item.by_half
        early = steps[np.argmax(shares >= 0.5)]
        half = (
            f", and half of all by step {early:,}"
            if shares[-1] >= 0.5 and early < steps[-1]
            else ""
        )
        parts.append(
            f"{item.procedure} has learned {shares[-1]:.0%} of {examples} by step {steps[-1]:,}{half}"
        )
    return f"{name}: {'; '.join(parts)}."


def _guesses(name: str, first: _Learned) -> str:
    classes = round(1 / first.chance)
    return (
        f"{name}, by chance: guesses among the {classes} class{'es' * (classes > 1)} of the labels pass "
        f"for learned on {first.course.learned_by_guesses(first.chance):.0%} of the examples, and always the "
        f"most frequent class is right on {first.most_frequent:.0%}."
    )


_SUMMARY = (
    "Learned by a step: the share of examples that half of the runs answer correctly from then on, up to the "
    "last step. Forgotten: examples that were right and then wrong again in at least one run."
)
_CURVES = (
    "Share of examples that are right at each step. Thin lines are runs, thick lines their means; dashed: "
    "guesses among the classes of the labels."
)
_MAP = (
    "Each dot is an example; a larger one is several at the same place. Confidence: the mean probability of "
    "the right answer (or share of right answers) over steps and runs; variability: its standard deviation "
    "over steps. Top left: easy; bottom left: hard; right: learned on the way."
)
_EXAMPLES = (
    "The step from which half of the runs (the first of them; all of them) are right up to the last step; a "
    "dash: never. Forgotten: right answers followed by a wrong one, per run."
)


def _summary(learned_sets: Mapping[str, Sequence[_Learned]]) -> Table:
    every = [item for items in learned_sets.values() for item in items]
    steps = sorted({step for item in every for step in item.course.steps.tolist()})
    records: list[dict[str, Cell]] = []
    for name, items in learned_sets.items():
        for item in items:
            course = item.course
            shares = dict(zip(course.steps.tolist(), item.by_half.tolist(), strict=True))
            records.append(
                {
                    "Set": name, "Procedure": item.procedure, "Runs": len(item.right),
                    "Examples": item.right.shape[2],
                    **{f"Learned by step {step:,}": shares.get(step) for step in steps},
                    "Right in all runs": float((course.share_learned == 1).mean()),
                    "Right in none": float((course.share_learned == 0).mean()),
                    "Forgotten": float((course.forgotten > 0).any(axis=0).mean()),
                }
            )  # fmt: skip
    return Table.from_records(records, dict.fromkeys(list(records[0])[4:], ".0%"))


def _table(items: Sequence[_Learned]) -> Table:
    def step(value: float) -> Cell:
        return int(value) if np.isfinite(value) else None

    records: list[dict[str, Cell]] = []
    for item in items:
        course, data = item.course, item.data.data
        first, half, every = (course.learned_step(share) for share in (1e-9, 0.5, 1.0))
        texts = example_texts(data, LONGEST_TEXT)
        for row in np.argsort(half, kind="stable").tolist():
            name = str(data["example_id"].to_numpy()[row])
            records.append(
                {
                    "Example": name, "Procedure": item.procedure,
                    "Learned by half": step(half[row]), "By the first": step(first[row]),
                    "By all": step(every[row]), "Right at the end": float(course.share_learned[row]),
                    "Forgotten": float(course.forgotten[:, row].mean()),
                    "Confidence": float(course.confidence[row]),
                    "Variability": float(course.variability[row]), "Text": texts[name],
                }
            )  # fmt: skip
    formats = dict.fromkeys(("Forgotten", "Confidence", "Variability"), ".2f")
    return Table.from_records(records, {"Right at the end": ".0%", **formats})


def _curves(items: Sequence[_Learned]) -> Figure:
    with canvas(6.2, 3.6) as (figure, axes):
        for number, item in enumerate(items):
            steps, style = item.course.steps, drawing.curve_style(number)
            for run in item.right:
                axes.plot(
                    steps, 100 * run.mean(axis=1), color=style["color"], linewidth=0.7, alpha=0.6
                )
            mean = 100 * item.right.mean(axis=(0, 2))
            axes.plot(steps, mean, linewidth=1.8, label=item.procedure, **style)
        axes.axhline(
            100 * items[0].chance, color=GREY, linewidth=1, linestyle="--", label="guesses"
        )
        axes.set_xlabel("pre-training step")
        axes.set_ylabel("examples that are right (%)")
        drawing.legend_below(figure, [axes], 3)
    return figure


def _map(items: Sequence[_Learned]) -> Figure:
    with canvas(6.2, 3.6) as (figure, axes):
        for number, item in enumerate(items):
            points = np.stack([item.course.variability, item.course.confidence], axis=1)
            places, counts = np.unique(points.round(6), axis=0, return_counts=True)
            for count in np.unique(counts)[::-1].tolist():  # large dots below small ones
                size = min(14.0, 4 * count**0.5)
                axes.plot(
                    *places[counts == count].T, alpha=0.7, label=item.procedure,
                    **drawing.dot_style(number, size=size, edge=0),
                )  # fmt: skip
        axes.set_xlabel("variability")
        axes.set_ylabel("confidence")
        axes.set_ylim(-0.08, 1.08)
        drawing.legend_below(figure, [axes], 3)
    return figure
