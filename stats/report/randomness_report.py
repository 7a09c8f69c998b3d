"""The command `stats shares`: the share of each source of randomness in a score's variance.

multiberts stats shares --run_dir=results/seeds --predictions=results/runs
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import COLOURS, canvas, width_of_names
from multiberts.runs.identity import Identity
from multiberts.runs.parameters import check_arguments
from multiberts.stats.formats import PERCENT, Cell, format_cell
from multiberts.stats.metric_names import metric_name
from multiberts.stats.presentation import drawing
from multiberts.stats.presentation.readable_names import readable
from multiberts.stats.presentation.sections import Report, ReportSection, slug
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.report.page_run import describe, write_page_of_runs
from multiberts.stats.report.selection import (
    SEEDS_OF_SOURCES,
    FinishedRun,
    PredictionSetReader,
    RunGroup,
    choose_learning_rate,
    finished_runs,
    make_groups,
)
from multiberts.stats.variance.randomness_sources import SeedSources, seed_sources

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDENTITY = Identity(inputs=("predictions",))
_LIMIT = (
    "The intervals take effects of seeds as normal: where one seed in ten of a source fails, those of "
    "crossed seeds hold its true share in 59 to 85% of data sets, not in 95%."
)
_CAPTION = (
    "Shares of the variance of a run's score on these examples, with 95% intervals. "
    "Others fixed: what is left where all other seeds are held fixed; these shares overlap where sources "
    "act together. Alone: what the source moves whatever the other seeds are; crossed seeds show it. "
    f"{_LIMIT}"
)


def seed_shares(
    *, run_dir: str, predictions: str | Sequence[str], metric: str | None = None
) -> None:
    """Estimates how much of a score's variance is due to each source: initialisation, order, masks, dropout.

    Compares runs that share all other seeds, as `launch.pretrain_sources` and `launch.finetune_sources`
    plan them. Writes `run_dir/report/` with a table and a figure for each task, evaluation set, procedure
    and step.

    Args:
      run_dir: run directory of the report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      metric: metric of the score; None: the main metric of each evaluation set.
    """
    parameters, _ = IDENTITY.of(locals())
    check_arguments(seed_shares, parameters)
    runs = finished_runs(predictions)
    make = partial(_report, predictions, runs, metric)
    write_page_of_runs("seed_shares", run_dir, parameters, runs, make)


def _report(
    predictions: str | Sequence[str], runs: Sequence[FinishedRun], metric: str | None
) -> Report:
    by_set: dict[str, SeedSources] = {}
    refused: dict[str, str] = {}
    reader = PredictionSetReader()
    for group in make_groups(runs):
        best, _ = choose_learning_rate(group, reader)
        for evaluation_set, metrics in best.evaluation_sets().items():
            if metric in (None, *metrics):
                measure = metric or metrics[0]
                predictions_of = reader(best, evaluation_set)
                name = f"{predictions_of.set_name}, {metric_name(measure)}, {predictions_of.name}"
                try:
                    by_set[name] = _shares(best, predictions_of.scores_of_runs(measure))
                except UserError as error:
                    refused[name] = str(error)
    if not by_set:
        name, reason = next(iter(refused.items()), (str(predictions), f"no set has {metric}"))
        every = f"none of {len(refused)} sets shows its shares; " * (len(refused) > 1)
        raise UserError(f"{every}{name}: {reason}")
    sections = [
        ReportSection("shares", _CAPTION, partial(_table, by_set), title="Shares of variance")
    ]
    sections += [
        ReportSection(
            slug(name),
            "Share of the variance of a run's score that is left where all other seeds are held fixed, with "
            "its 95% interval.",
            partial(_figure, shares),
            title=readable(name, {}),
        )
        for name, shares in by_set.items()
    ]
    for name, reason in refused.items():
        console.warn(f"{name} is left out: {reason}")
    findings = [_finding(name, shares) for name, shares in by_set.items()]
    return Report("Shares of the sources of randomness", sections, findings)


def describe_shares(run_dir: str) -> str:
    """Returns the path of the page, its table and a note on the intervals, for the terminal."""
    return f"{describe(run_dir, 'shares')}\n\n{_LIMIT}"


def _shares(group: RunGroup, scores: np.ndarray) -> SeedSources:
    """Returns the shares of the varying sources; fine-tuning seeds are averaged unless they are a source."""
    rows = [_seeds_of(run) for run in group.runs]
    names = list(dict.fromkeys(name for row in rows for name in row))
    # If sources have separate seeds, the overall seeds are only numbers of the runs.
    if any(run.facts.get("seeds") for run in group.runs):
        names.remove("pretrain_seed")
    if any(name.startswith("finetune.") for name in names) or "pretrain_seed" not in names:
        names.remove("finetune_seed")
    names = [name for name in names if len({row.get(name) for row in rows}) > 1]
    if not names:
        raise UserError("all runs have the same seeds; vary some (launch.pretrain_sources)")
    is_averaged = not any(name.startswith("finetune") for name in names)
    together: dict[tuple, dict[int | None, float]] = {}
    for row, score in zip(rows, scores.tolist(), strict=True):
        runs = together.setdefault(tuple(row.get(name) for name in names), {})
        finetune_seed = row["finetune_seed"] if is_averaged else None
        if finetune_seed in runs:
            raise UserError(f"two runs have the same seeds ({', '.join(names)}); give each once")
        runs[finetune_seed] = score
    if len({frozenset(runs) for runs in together.values()}) > 1:
        raise UserError(
            "a checkpoint lacks a fine-tuning seed that others have; add the missing runs"
        )
    means = [float(np.mean([*runs.values()])) for runs in together.values()]
    columns = zip(*together, strict=True)
    return seed_sources(means, dict(zip(names, columns, strict=True)))


def _seeds_of(run: FinishedRun) -> dict[str, int | None]:
    """Returns the seeds of a run by source; names of single sources begin with their stage."""
    facts = run.facts
    of_sources = dict(facts.get("seeds", {}))
    if of_sources or facts["data_seed"] != facts["pretrain_seed"]:
        of_sources["data_seed"] = facts["data_seed"]
    parameters = facts.get("parameters", {})
    return {
        "pretrain_seed": facts["pretrain_seed"],
        **{f"pretrain.{name}": seed for name, seed in of_sources.items()},
        "finetune_seed": facts["finetune_seed"],
        **{
            f"finetune.{name}": parameters[name]
            for name in SEEDS_OF_SOURCES
            if parameters.get(name) is not None
        },
    }


def _finding(name: str, shares: SeedSources) -> str:
    each = ", ".join(
        f"{readable(source.name, {})} {source.total:.0%} ({format_cell(source.total_ci, '.0%')})"
        for source in shares.sources
    )
    return (
        f"{readable(name, {})}: share of the variance with all other seeds held fixed: {each}; "
        f"{shares.num_runs} runs."
    )


def _table(by_set: dict[str, SeedSources]) -> Table:
    records: list[dict[str, Cell]] = [
        {
            "Set, metric, procedure": name,
            "Source": source.name,
            "Seeds": source.num_seeds,
            "Others fixed": source.total,
            "Interval": source.total_ci,
            "Alone": source.alone,
            "Interval, alone": source.alone_ci,
            "SD of the score": float(np.sqrt(shares.variance)),
            "Runs": shares.num_runs,
        }
        for name, shares in by_set.items()
        for source in shares.sources
    ]
    shown = ("Others fixed", "Interval", "Alone", "Interval, alone")
    return Table.from_records(records, dict.fromkeys(shown, ".0%") | {"SD of the score": ".4f"})


def _figure(shares: SeedSources) -> Figure:
    sources = shares.sources
    names = [readable(source.name, {}) for source in sources]
    with canvas(4.6 + width_of_names(names), 1.1 + 0.45 * len(sources)) as (figure, axes):
        for row, source in enumerate(sources):
            filled = source.total_ci.low > 0
            drawing.row(axes, row, source.total, source.total_ci, colour=COLOURS[0], filled=filled)
        drawing.finish_rows(axes, names, "share of the variance, others fixed (%)")
        axes.set_xlim(-0.03, 1.03)
        drawing.show_unit(axes.xaxis, PERCENT)
    return figure
