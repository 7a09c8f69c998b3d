"""The answer of the command `compare`, as text and as JSON, and what was read for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.evaluate.readers.columns import described
from multiberts.evaluate.readers.rows import ArmTable, ReadAs
from multiberts.runs import console
from multiberts.runs.errors import counted
from multiberts.stats.compare.checks import are_repeats
from multiberts.stats.formats import NONE, Cell, with_decimals
from multiberts.stats.metric_names import metric_name, score_format
from multiberts.stats.presentation import words
from multiberts.stats.presentation.comparison_tables import (
    metric_decimals,
    unclear_beyond_zero,
)
from multiberts.stats.presentation.reported import ReportedComparison
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.report.evidence import ComparedArms

_MOST_TOLD = 5


def what_was_read(
    tables: Mapping[str, ArmTable], compared: ComparedArms, base: str, task: str | None
) -> str:
    """Returns one line on what was read as what, from which files, and what was left out."""
    alike: dict[str, list[str]] = {}
    for name, table in tables.items():
        text = described(table.read.columns) or "runs of multiberts finetune, by their run.json"
        text += f", {table.read.chosen}" * bool(table.read.chosen)
        alike.setdefault(text, []).append(name)
    columns = "; ".join(
        f"{', '.join(names)}: {text}" if len(alike) > 1 else text for text, names in alike.items()
    )
    reads = [table.read for table in tables.values()]
    files = [*dict.fromkeys(file for read in reads for file in read.files or ())]
    more = f" and {len(files) - 4} more files" if len(files) > 4 else ""
    by_size: dict[str, list[str]] = {}
    for name, table in tables.items():
        numbers = {
            "example": table.values.shape[1],
            "repeat" if are_repeats(table) else "seed": len(table.seeds),
            "run": len(table.keys),
        }
        size = ", ".join(counted(number, what) for what, number in numbers.items())
        by_size.setdefault(size, []).append(name)
    sizes = "; ".join(
        f"{', '.join(names)}: {size}" if len(by_size) > 1 else size + " each" * (len(tables) > 1)
        for size, names in by_size.items()
    )
    unused = dict.fromkeys(name for read in reads for name in read.unused)
    left_out = [f"column {name!r}" for name in unused]
    for item in compared.comparisons:
        for arm in (item.base, item.experiment):
            if arm is not None and arm.left_out:
                seeds = ", ".join(map(str, arm.left_out))
                left_out.append(f"{counted(len(arm.left_out), 'seed')} of {arm.name} ({seeds})")
    measured = compared.comparisons[0].metric
    scores = sorted({read.columns["score"] for read in reads if "score" in read.columns})
    of_column = (
        f" of {' and '.join(map(repr, scores))}" if measured in ("mean", "share") and scores else ""
    )
    return (
        f"{columns}; from {', '.join(files[:4]) or base}{more}; {sizes}; metric "
        f"{metric_name(measured)}{of_column}, task {_task_of(reads, base, task)}; "
        f"left out: {', '.join(dict.fromkeys(left_out)) or 'nothing'}."
    )


def _task_of(reads: Sequence[ReadAs], base: str, task: str | None) -> str:
    named = {read.task for read in reads if read.task}
    return task or " and ".join(sorted(named)) or f"not named ({Path(base).name})"


def as_json(compared: ComparedArms, read: str) -> str:
    """Returns every number, and what was read, as JSON, with the keys of `Comparison.to_dict`."""
    records: list[dict[str, Any]] = [item.to_dict() for item in compared.comparisons]
    ranked = {arm.name: arm for ranking in compared.rankings for arm in ranking.arms}
    for record, item in zip(records, compared.items, strict=True):
        record["p_holm"] = item.adjusted
        record |= {answer.key: answer.record() for answer in item.answers}
        record["read"] = read
        for role in ("base", "experiment") if ranked else ():
            arm = ranked[record[role]["name"]]
            record[role] |= {"ranks": [arm.rank_low, arm.rank_high], "groups": list(arm.groups)}
    return json.dumps(records, indent=2, default=str)


def as_text(compared: ComparedArms, read: str) -> str:
    """Returns the findings, a table, which interval to report, what more would be needed, and warnings.

    With `-v`, it has the chance that one seed misleads, gains of twice the seeds, and limits, too.
    """
    items, is_long = compared.comparisons, console.is_verbose()
    told, passed_over = told_in_words(compared.items)
    findings = [one.finding(pairing=False) for one in told]
    metric, level = items[0].metric, f"{items[0].confidence_level:.0%} CI"  # one of all items
    decimals = metric_decimals(items)[metric]
    records: list[dict[str, Cell]] = [
        {
            "Compared": item.name, "Base": item.base.estimate,
            "Experiment": item.experiment.estimate, "Difference": item.estimate, level: item.ci,
            "p": item.p_value, "p (Holm)": one.adjusted,
            "Result": one.result,
        }
        for item, one in zip(items, compared.items, strict=True)
        if item.experiment is not None
    ]  # fmt: skip
    formats = {
        **dict.fromkeys(("Base", "Experiment"), with_decimals(score_format(metric), decimals)),
        **dict.fromkeys(("Difference", level), with_decimals(score_format(metric, True), decimals)),
        **dict.fromkeys(("p", "p (Holm)"), "p"),
    }
    table = Table.from_records(records, formats) if records else None
    warned = dict.fromkeys(
        text
        for one in compared.items
        for text in words.warnings(one.comparison, len(items) == 1, one.answers)
    )
    parts = ["\n".join(findings)]
    if table is not None:
        shown = [table.aligned(), *filter(None, [unclear_beyond_zero(compared.items)])]
        # The table of many comparisons is what a reader looks for first.
        parts = [*shown, *parts, passed_over] if passed_over else [*parts, *shown]
    for shown_table in tables_of_answers(compared.items):
        parts += [shown_table.aligned(), f"Note: {shown_table.note}"]
    for ranking in compared.rankings:
        parts += [words.ranking_finding(ranking), ranking.table().aligned()]
        parts += [f"Note: {text}" for text in words.ranking_notes(ranking)[:1] if is_long]
    reports = {one.comparison.name: words.interval_to_report(one.comparison) for one in told}
    parts += [
        f"{name}: {text}" if len(items) > 1 else text for name, text in reports.items() if text
    ]
    limits = [*filter(None, dict.fromkeys(map(words.unseen_failures, items)))]
    for one in told:
        item = one.comparison
        name = f"{item.name}: " if len(items) > 1 else ""
        needs = [words.what_is_needed(item, one.adjusted, one.answers)]
        if is_long:
            needs = words.needs_in_words(item, one.adjusted, one.answers)
        parts += [name + text for text in needs if text and text not in limits]
    parts += limits if is_long else []
    parts += [f"Note: {text}" for text in compared.unranked]
    parts += [f"Note: {text}" for text in warned]
    parts.append(f"Read: {read}")
    return "\n\n".join(part for part in parts if part)


def tables_of_answers(items: Sequence[ReportedComparison]) -> list[Table]:
    """Returns the tables of all answers, in the order of the comparisons."""
    return [*filter(None, (answer.table() for one in items for answer in one.answers))]


def told_in_words(
    items: Sequence[ReportedComparison],
) -> tuple[Sequence[ReportedComparison], str]:
    """Chooses the comparisons that have sentences of their own, and says which have not.

    All of a few; of many, those with a result, at most as many as of a few.
    """
    if len(items) <= _MOST_TOLD:
        return items, ""
    clear = [
        one
        for one in items
        if one.result not in ("not clear", NONE) or any(answer.claims for answer in one.answers)
    ]
    first = sorted(clear, key=lambda one: one.adjusted if one.adjusted is not None else 1.0)
    told = [one for one in clear if one in first[:_MOST_TOLD]]
    if not clear:
        return [], f"None of {len(items)} comparisons is clear."
    which = f"the {len(told)} with the smallest p are" if len(told) < len(clear) else "they are"
    return told, f"{len(clear)} of {len(items)} comparisons are clear; {which} told above in words."
