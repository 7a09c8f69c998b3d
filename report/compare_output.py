"""The output of the command `compare` as text and JSON, with a line on the input data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multiberts.evaluate.readers.rows import POOLED, ArmTable, described
from multiberts.report.evidence import ComparedArms, names_of_rows
from multiberts.report.presentation import planning, ranking_words, words
from multiberts.report.presentation.comparison_tables import (
    arms_table,
    difference_records,
    scores_by_task,
    summary_table,
    unclear_beyond_zero,
)
from multiberts.report.presentation.formats import NONE
from multiberts.report.presentation.reported import (
    ReportedComparison,
    against_base,
    means_of,
    tally,
)
from multiberts.report.presentation.table_writer import Table
from multiberts.runs import console
from multiberts.runs.errors import counted
from multiberts.stats.compare.checks import are_repeats
from multiberts.stats.compare.result import Comparison, arms_of
from multiberts.stats.score import metric_name

_MOST_TOLD = 5
_MOST_TASKS = 8  # listed with their numbers of examples


def what_was_read(
    tasks: Mapping[str, Mapping[str, ArmTable]], compared: ComparedArms, base: str, task: str | None
) -> str:
    """Returns one line on the columns, files, sizes and left-out data.

    Args:
      tasks: table by task and arm.
    """
    columns = _grouped(
        (task, _grouped((name, _columns(table)) for name, table in arms.items()))
        for task, arms in tasks.items()
    )
    every = [table for arms in tasks.values() for table in arms.values()]
    reads = [table.read for table in every]
    files = [*dict.fromkeys(file for read in reads for file in read.files or ())]
    more = f" and {len(files) - 4} more files" if len(files) > 4 else ""
    sizes = _sizes(tasks)
    unused = dict.fromkeys(name for read in reads for name in read.unused)
    left_out = [f"column {name!r}" for name in unused]
    for item in compared.comparisons:
        for arm in arms_of(item):
            if arm.left_out:
                seeds = ", ".join(map(str, arm.left_out))
                left_out.append(f"{counted(len(arm.left_out), 'seed')} of {arm.name} ({seeds})")
    rows = [item for item in compared.comparisons if not item.tasks]
    measured = dict.fromkeys(item.metric for item in rows)
    scores = sorted({read.columns["score"] for read in reads if "score" in read.columns})
    of_column = (
        f" of {' and '.join(map(repr, scores))}"
        if {*measured} & {"mean", "share"} and scores
        else ""
    )
    if any(item.score.more_is_better is False for item in rows) and of_column:
        of_column += " (lower is better)"
    named = " and ".join(sorted({read.task for read in reads if read.task}))
    called = f"task {task or named or f'not named ({Path(base).name})'}"
    if len(tasks) > 1:
        called = counted(len(tasks), "task")
    return (
        f"{columns}; from {', '.join(files[:4]) or base}{more}; {sizes}; metric "
        f"{', '.join(map(metric_name, measured))}{of_column}, {called}; "
        f"left out: {', '.join(dict.fromkeys(left_out)) or 'nothing'}."
    )


def _columns(table: ArmTable) -> str:
    text = described(table.read.columns) or "runs of multiberts finetune, by their run.json"
    return text + f", {table.read.chosen}" * bool(table.read.chosen)


def _grouped(texts: Iterable[tuple[str, str]]) -> str:
    """Returns the text if all arms or tasks have the same, else each text with their names."""
    alike: dict[str, dict[str, None]] = {}
    for name, text in texts:
        alike.setdefault(text, {})[name] = None
    return "; ".join(
        f"{', '.join(names)}: {text}" if len(alike) > 1 else text for text, names in alike.items()
    )


def _sizes(tasks: Mapping[str, Mapping[str, ArmTable]]) -> str:
    """Returns the numbers of examples, seeds and runs of each arm, by task if they differ."""
    by_task = {}
    for task, arms in tasks.items():
        runs = {
            name: f"{counted(len(table.seeds), 'repeat' if are_repeats(table) else 'seed')}, "
            f"{counted(len(table.keys), 'run')}"
            for name, table in arms.items()
        }
        examples = {name: counted(table.values.shape[1], "example") for name, table in arms.items()}
        by_task[task] = examples, runs
    if len(tasks) > 1 and all(len({*examples.values()}) == 1 for examples, _ in by_task.values()):
        runs_of = [_grouped(runs.items()) for _, runs in by_task.values()]
        if len({*runs_of}) == 1:
            counts = [
                f"{next(iter(sizes.values()))} of {task}" for task, (sizes, _) in by_task.items()
            ]
            more = f" and {len(counts) - _MOST_TASKS} more tasks" * (len(counts) > _MOST_TASKS)
            return f"{', '.join(counts[:_MOST_TASKS])}{more}; {runs_of[0]} each"
    lines = []
    for task, (examples, runs) in by_task.items():
        sizes = {name: f"{examples[name]}, {runs[name]}" for name in runs}
        is_each = len(sizes) > 1 and len({*sizes.values()}) == 1
        lines.append(f"{task}: " * bool(task) + _grouped(sizes.items()) + " each" * is_each)
    return "; ".join(lines)


def as_json(compared: ComparedArms, read: str) -> str:
    """Returns all numbers and the line on the data as JSON, with the keys of `Comparison.to_dict`."""
    records: list[dict[str, Any]] = [item.to_dict() for item in compared.comparisons]
    for record, item in zip(records, compared.items, strict=True):
        record["p_holm"] = item.adjusted
        record |= {answer.key: answer.record() for answer in item.answers}
        about = words.claim(arms_of(item.comparison), item.comparison.resample)
        record["read"] = f"{about} {read}".lstrip()
        of_set = [each for each in compared.rankings if each.name == item.comparison.evaluation_set]
        rankings = [each for each in of_set if len(of_set) == 1 or each.metric == record["metric"]]
        for arm in rankings[0].arms if rankings else ():
            for role in ("base", "experiment"):
                if record[role] and record[role]["name"] == arm.name:
                    ranks = [arm.rank_low, arm.rank_high]
                    record[role] |= {"ranks": ranks, "groups": list(arm.groups)}
    records += [record for each in compared.without_base for record in difference_records(each)]
    return json.dumps(records, indent=2, default=str)


def as_text(compared: ComparedArms, read: str) -> str:
    """Returns the findings, a table, the interval to report, needed seeds or examples, and warnings.

    `-v` adds the chance that one seed misleads, the gain of twice the seeds, and limits.
    """
    items = compared.comparisons
    means = means_of(compared.items)
    told, passed_over = told_in_words(compared.items)
    if means:
        told = means
        passed_over = f"Task by task, corrected for their number (Holm): {tally(compared.items)}."
    claims = {words.claim(arms_of(item), item.resample) for item in items}
    about = claims.pop() if len(claims) == 1 and len(items) > 1 else ""  # written once
    table = _table(compared.items)
    warned: dict[str, dict[str, None]] = {}
    for reported in compared.items:
        for text in words.warnings(reported.comparison, len(items) == 1):
            warned.setdefault(text, {})[reported.comparison.evaluation_set] = None
    # One sentence each is enough for many arms.
    are_many = len({item.experiment.name for item in items if item.experiment}) > 1
    findings = (
        _short(reported)
        if are_many
        else reported.finding(pairing=False).removeprefix(about).lstrip()
        for reported in told
    )
    parts = [against_base(compared.items), "\n".join(findings)]
    if table is not None:
        shown = [table.aligned(), *filter(None, [unclear_beyond_zero(compared.items)])]
        # Show the table first if there are many comparisons.
        if means:
            parts += [*shown, passed_over if means[0].adjusted is not None else ""]
        else:
            parts = [*shown, *parts, passed_over] if passed_over else [*parts, *shown]
    if compared.rankings and not (means and means[0].comparison.experiment):
        about = words.claim(compared.rankings[0].arms, compared.rankings[0].resample)
        parts = [*_many_arms(compared, about, table)]
    further = tables_of_answers(compared)
    parts = [about, *parts, *(shown_table.aligned() for shown_table in further)]
    parts += dict.fromkeys(f"Note: {shown_table.note}" for shown_table in further)
    if not (are_many or compared.rankings):
        parts += _advice(told, items, is_one_of_many=len(items) > 1 and len(means) != 1)
    pooled = [text for text in warned if text.endswith(POOLED)]
    parts += _last(
        compared, {text: sets for text, sets in warned.items() if text not in pooled}, read
    )
    return " ".join([*pooled, "\n\n".join(part for part in parts if part)])


def _advice(
    told: Sequence[ReportedComparison], items: Sequence[Comparison], *, is_one_of_many: bool
) -> Iterator[str]:
    """Yields the intervals to report, and the seeds or examples needed."""
    has_several = len({reported.comparison.metric for reported in told}) > 1
    names = (
        reported.comparison.name + f", {metric_name(reported.comparison.metric)}" * has_several
        for reported in told
    )
    leads = [f"{name}: " * is_one_of_many for name in names]
    reports = [words.interval_to_report(reported.comparison) for reported in told]
    yield from (lead + text for lead, text in zip(leads, reports, strict=True) if text)
    limits = [*filter(None, dict.fromkeys(map(words.unseen_failures, items)))]
    for lead, reported in zip(leads, told, strict=True):
        item = reported.comparison
        needs = [planning.what_is_needed(item, reported.adjusted, reported.answers)]
        if console.is_verbose():
            needs = planning.needs_in_words(item, reported.adjusted, reported.answers)
        yield from (lead + text for text in needs if text and text not in limits)
    if console.is_verbose():
        yield from limits


def _short(row: ReportedComparison) -> str:
    """Returns a sentence on a comparison, and those of its answers, for a list of many arms."""
    answers = (text for each in row.answers for text in each.summary() or each.sentences()[:1])
    return " ".join([words.lead(row.comparison, row.adjusted), *answers])


def _last(
    compared: ComparedArms, warned: Mapping[str, Mapping[str, None]], read: str
) -> Iterator[str]:
    """Yields the notes, and the line on the data.

    Args:
      warned: evaluation sets concerned, by warning.
    """
    sets = {item.evaluation_set for item in compared.comparisons}
    yield from (f"Note: {text}" for text in compared.unranked)
    for text, concerned in warned.items():
        where = f" This concerns {', '.join(concerned)}." if len(concerned) < len(sets) else ""
        yield f"Note: {text}{where}"
    yield f"Read: {read}"


def _many_arms(compared: ComparedArms, about: str, table: Table | None) -> Iterator[str]:
    """Yields who leads and the ranking, then scores by task or comparisons with the base."""
    ranking, *others = compared.rankings
    is_mean = any(
        item.tasks and item.evaluation_set == ranking.name for item in compared.comparisons
    )
    where = f"{ranking.name}: " if others and not is_mean else ""
    yield where + ranking_words.ranking_finding(ranking).removeprefix(about).lstrip()
    yield arms_table(ranking).aligned()
    if console.is_verbose():
        yield f"Note: {ranking_words.ranking_notes(ranking)[0]}"
        yield from dict.fromkeys(map(words.unseen_failures, compared.comparisons))
    if compared.comparisons[0].experiment is None:
        if others:
            yield scores_by_task(compared.comparisons, ranking).aligned()
            firsts = [
                ranking_words.ranking_lead(each).removeprefix(about).lstrip() for each in others
            ]
            yield "\n".join(
                f"{each.name}: {text}"
                for each, text in zip(others[:_MOST_TOLD], firsts, strict=False)
            )
        return
    told, passed_over = told_in_words(compared.items)
    if table is not None:
        yield table.aligned()
        yield unclear_beyond_zero(compared.items)
    yield against_base(compared.items)
    yield "\n".join(map(_short, told[:_MOST_TOLD]))
    yield passed_over


def _table(items: Sequence[ReportedComparison]) -> Table | None:
    """Returns the summary without columns of one value; None for arms alone on one task."""
    table = summary_table(items)
    alone = all(reported.adjusted is None for reported in items)
    is_one_set = len({reported.comparison.evaluation_set for reported in items}) == 1
    if alone and is_one_set:
        return None
    left_out = {"Set"} if is_one_set else set()
    if not is_one_set and len({reported.comparison.name for reported in items}) == 1:
        left_out.add("Compared")
    if alone:
        left_out |= {*table.columns[3:]} - {"Base"}
    shown = [column for column, name in enumerate(table.columns) if name not in left_out]
    names = {"Set": "Task"} | ({"Base": "Score"} if alone else {})
    return Table(
        [names.get(table.columns[column], table.columns[column]) for column in shown],
        [[row[column] for column in shown] for row in table.rows],
    )


def tables_of_answers(compared: ComparedArms) -> list[Table]:
    """Returns the tables of all answers; with several comparisons the first heading names the comparison."""
    names = names_of_rows(compared.comparisons)
    tables = []
    for name, reported in zip(names, compared.items, strict=True):
        for table in filter(None, (answer.table() for answer in reported.answers)):
            first, *others = table.columns
            lead = f"{name}: " if len(names) > 1 else ""
            tables.append(replace(table, columns=[lead + first, *others]))
    return tables


def told_in_words(items: Sequence[ReportedComparison]) -> tuple[Sequence[ReportedComparison], str]:
    """Chooses the comparisons to describe in sentences, and summarises the others."""
    if len(items) <= _MOST_TOLD:
        return items, ""
    clear = [
        item
        for item in items
        if item.result not in ("not clear", NONE) or any(answer.claims for answer in item.answers)
    ]
    first = sorted(clear, key=lambda item: item.adjusted if item.adjusted is not None else 1.0)
    told = [item for item in clear if item in first[:_MOST_TOLD]]
    if not clear:
        return [], f"None of {len(items)} comparisons is clear."
    which = f"the {len(told)} with the smallest p are" if len(told) < len(clear) else "they are"
    return told, f"{len(clear)} of {len(items)} comparisons are clear; {which} told above in words."
