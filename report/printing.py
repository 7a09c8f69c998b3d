"""Words, tables and figures of results: the methods of `stats.results.Readable` call these by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from multiberts.report.presentation import comparison_tables, methods_paragraph, ranking_words
from multiberts.report.presentation.answer import drawn
from multiberts.report.presentation.figures import (
    bootstrap_figure,
    draw_ranking,
    forest_figure,
    sources_figure,
)
from multiberts.report.presentation.formats import (
    decimals_for,
    difference_text,
    format_cell,
    metric_at_start,
    score_format,
    score_text,
    with_decimals,
)
from multiberts.report.presentation.planning import detectable_text, needs_in_words
from multiberts.report.presentation.table_writer import Table
from multiberts.report.presentation.words import finding, unknown_sense, warnings
from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.compare.checks import calibrated_scores, undefined_seeds
from multiberts.stats.compare.prepared_arms import named_notes
from multiberts.stats.compare.ranking import ArmComparisons
from multiberts.stats.compare.result import Comparison, arms_of
from multiberts.stats.results import Readable, seed_names
from multiberts.stats.score import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from multiberts.stats.variance.plan import Plan

_ECE_DECIMALS = 3


def texts(result: Readable) -> tuple[list[str], list[str]]:
    """Returns the finding with short answers, and notes; for several tasks, those of their mean."""
    if isinstance(result, ArmComparisons):
        notes = [*result.notes, *ranking_words.ranking_notes(result)]
        return [ranking_words.ranking_finding(result)], [f"Note: {note}" for note in notes]
    last = result.comparisons_shown()[-1]
    return [finding(last), *needs_in_words(last)], [f"Note: {note}" for note in warnings(last)]


def table(result: Readable) -> Table:
    """Makes the small table of a result: arms and difference of each comparison, or a ranking."""
    if isinstance(result, ArmComparisons):
        return comparison_tables.arms_table(result)
    rows: list[tuple] = []
    items = result.comparisons_shown()
    for item in items:
        where = [item.name or item.metric] if len(items) > 1 else []
        arms = arms_of(item)
        for arm in arms:
            rows.append((*where, arm.name, arm.estimate, arm.ci, len(arm.seeds), None))
        if item.experiment is not None:
            seeds = min(len(arm.seeds) for arm in arms)
            rows.append((*where, "difference", item.estimate, item.ci, seeds, item.p_value))
    intervals = [row[-3] for row in rows]
    tests = [item.ci for item in items if item.experiment is not None]
    method_names = methods_paragraph.method_names
    level = f"{items[0].confidence_level:.0%} CI ({method_names(intervals)})"
    score = metric_name(items[0].metric) if len(items) == 1 else "score"
    p_value = f"p ({method_names(tests)})"
    columns = ["", score, level, "seeds", p_value]
    if len(items) > 1:
        columns.insert(0, "task")
    if all(row[-1] is None for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    formats = {p_value: "p"} if p_value in columns else {}
    units = {score_format(item.metric) for item in items}
    unit = units.pop() if len(units) == 1 else ""
    shown = with_decimals(unit, decimals_for(items[-1].ci, unit))
    formats |= dict.fromkeys((score, level), shown)
    return Table(columns, rows, formats)


def notes(result: Comparison | ArmComparisons) -> tuple[str, ...]:
    """Returns notes on the data (with the arms' names), on undefined scores, calibration errors and sense."""
    asked = unknown_sense(result.score)
    if isinstance(result, ArmComparisons):
        found = [*result.data_notes, *_notes_of_calibration(result.calibrated_scores), *asked]
        return (*dict.fromkeys(found),)
    origin, names = result.computed_from(), [arm.name for arm in arms_of(result)]
    if origin.spec is None:
        return (*origin.notes, *asked)
    jobs, of_data = origin.spec.jobs, origin.spec.prepared.notes
    of_arms = [(*data, *_notes_of_undefined(job)) for data, job in zip(of_data, jobs, strict=False)]
    by_chance = calibrated_scores(origin.spec.metric, origin.spec.arms)
    pairs = [*zip(names, by_chance, strict=False)]
    return (*named_notes(of_arms, names), *_notes_of_calibration(pairs), *asked)


def _notes_of_undefined(job: ScoreJob) -> list[str]:
    """Returns a note on seeds with a score defined for 0/0; `{arm}` is replaced by the arm's name."""
    seeds = undefined_seeds(job)
    if not seeds:
        return []
    scores, flags = job.run_scores(None)
    value = score_text(float(scores[flags][0]), job.score.name)
    return [
        f"{metric_at_start(job.score.name)} of {{arm}} is 0/0 in {seed_names(seeds)} and "
        f"counts as {value} there."
    ]


def _notes_of_calibration(by_chance: Sequence[tuple[str, float]]) -> list[str]:
    """Returns a note on the calibration errors of calibrated models, by the names of the arms."""
    if not by_chance:
        return []
    names, scores = zip(*by_chance, strict=True)
    shown = " and ".join(score_text(score, "ece", _ECE_DECIMALS) for score in scores)
    models = "a perfectly calibrated model" if len(names) == 1 else "perfectly calibrated models"
    text = (
        f"The calibration error (ECE) counts chance, too: on these examples {models} with the confidences of "
        f"{' and '.join(names)} would show {shown} on average."
    )
    if len(names) == 1:
        return [
            f"{text} The interval is of such a biased score: {names[0]} is shown to be miscalibrated only "
            f"where all of it lies above {shown}."
        ]
    of_difference = ""
    if len(names) == 2:
        bias = difference_text(scores[1] - scores[0], "ece", _ECE_DECIMALS)
        of_difference = f", and of the difference {bias} is there without any miscalibration"
    return [
        f"{text} Intervals are of such biased scores: an arm is shown to be miscalibrated only where all of "
        f"its own lies above its number{of_difference}."
    ]


def methods(result: Readable) -> str:
    if isinstance(result, ArmComparisons):
        return methods_paragraph.ranking_methods(result)
    return methods_paragraph.methods(result.comparisons_shown())


def plot(result: Readable, ax: Axes | None) -> Figure | Axes:
    if isinstance(result, ArmComparisons):
        return drawn(partial(draw_ranking, result), ax)
    items = result.comparisons_shown()
    if len(items) > 1 or "percentile" not in items[0].intervals:
        return drawn(lambda: forest_figure({item.name: item for item in items}), ax)
    if ax is None and items[0].experiment is not None:
        return bootstrap_figure(items[0])
    return drawn(lambda: sources_figure(items), ax)


def plan_text(plan: Plan) -> str:
    """Returns a text on the detectable difference and on the power at the plan's effect."""
    sizes = [f"{counted(plan.num_seeds, 'seed')}{' per arm' * (plan.design == 'unpaired')}"]
    sizes += [f"{plan.num_runs:g} runs per seed"] if plan.num_runs > 1 else []
    sizes += [f"{plan.num_examples:,} examples"] if math.isfinite(plan.num_examples) else []
    power = f"{100 * plan.target_power:g} %"
    smallest = detectable_text(
        plan.minimum_detectable_effect(), plan.minimum_detectable_range(), power
    )
    text = f"With {', '.join(sizes)}, the {smallest}."
    if plan.effect is not None:
        chance = f"{100 * plan.power():.0f} % power"
        text += f" A true difference of {format_cell(plan.effect)} is detected with {chance}."
    return text
