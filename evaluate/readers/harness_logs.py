"""Reads per-example scores from the logs of evaluation programs: lm-evaluation-harness, Inspect, HELM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    import pandas

# Inspect's letters for correct, incorrect, partly correct and no answer, as its metrics count them.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def lm_eval_frame(
    path: Path, lines: Sequence[Mapping[str, Any]], names: ColumnNames, seed: int | None
) -> pandas.DataFrame:
    """Reads `samples_<task>_<time>.jsonl` of lm-evaluation-harness (its docs/interface.md).

    A line has `doc_id`, `doc`, `target`, `filter`, `metrics` and one value per metric.
    """
    filters = list(dict.fromkeys(line.get("filter", "none") for line in lines))
    metrics = lines[0].get("metrics") or ["acc"]
    metric, _, wanted = (names.score or metrics[0]).partition(",")
    if metric not in lines[0]:
        raise UserError(
            f"{path}: found no metric {metric!r}, only {', '.join(metrics)}; name one with --score"
        )
    if not wanted and len(filters) > 1:
        raise UserError(
            f"{path} holds the filters {', '.join(filters)}; choose one with "
            f"--score={metric},{filters[0]}"
        )
    wanted = wanted or filters[0]
    if wanted not in filters:
        raise UserError(f"{path}: found no filter {wanted!r}, only {', '.join(filters)}")
    chosen = [line for line in lines if line.get("filter", "none") == wanted]
    # samples_<task>_<date>T<time>.jsonl, and older files without a time.
    task = path.stem.removeprefix("samples_")
    head, _, tail = task.rpartition("_")
    return _frame(
        path,
        seed,
        task=head if head and tail[:4].isdigit() and "T" in tail else task,
        example=[line["doc_id"] for line in chosen],
        score=[float(line[metric]) for line in chosen],
        text=[_text(line.get("doc"), line.get("arguments")) for line in chosen],
    )


def _text(doc: Any, arguments: Any) -> str:
    """Returns what a reader recognises an example by."""
    if isinstance(doc, Mapping):
        for name in ("question", "query", "sentence", "text", "ctx", "premise", "input", "prompt"):
            if isinstance(doc.get(name), str):
                return str(doc[name])
    return json.dumps(doc if doc is not None else arguments, ensure_ascii=False)


def is_inspect_log(content: Any) -> bool:
    """Returns whether parsed JSON is a log of Inspect."""
    return isinstance(content, Mapping) and {"eval", "samples"} <= set(content)


def inspect_frame(
    path: Path, log: Mapping[str, Any], names: ColumnNames, seed: int | None
) -> pandas.DataFrame:
    """Reads a log of Inspect; epochs are runs of one seed (Inspect's page "Log Files")."""
    samples = log["samples"] or []
    scorers = list(dict.fromkeys(name for sample in samples for name in sample.get("scores") or {}))
    scorer = names.score or (scorers[0] if len(scorers) == 1 else None)
    if scorer not in scorers:
        raise UserError(
            f"{path}: found the scorers {', '.join(scorers) or 'none'}; name one with --score"
        )
    scored = [sample for sample in samples if scorer in (sample.get("scores") or {})]
    if len(scored) < len(samples):
        raise UserError(
            f"{path}: {len(samples) - len(scored)} of {len(samples)} samples have no score; run the "
            "evaluation to its end"
        )
    return _frame(
        path,
        seed,
        task=str(log["eval"].get("task", path.stem)),
        run=[sample.get("epoch", 1) for sample in scored],
        example=[sample["id"] for sample in scored],
        score=[_grade(path, sample["scores"][scorer]["value"]) for sample in scored],
        text=[
            sample["input"] if isinstance(sample["input"], str) else json.dumps(sample["input"])
            for sample in scored
        ],
    )


def _grade(path: Path, value: Any) -> float:
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, bool | int | float):
        return float(value)
    raise UserError(f"{path}: found the score {value!r}, expected a number or one of C, I, P and N")


def helm_frame(path: Path, names: ColumnNames, seed: int | None) -> pandas.DataFrame:
    """Reads `per_instance_stats.json` of a HELM run; perturbed instances are left out."""
    entries = [
        entry
        for entry in json.loads(path.read_text(encoding="utf-8"))
        if entry.get("perturbation") is None
    ]
    tables = [
        {stat["name"]["name"]: stat["mean"] for stat in entry["stats"] if "mean" in stat}
        for entry in entries
    ]
    known = list(dict.fromkeys(name for table in tables for name in table))
    score = names.score or next(
        (name for name in ("exact_match", "quasi_exact_match") if name in known), ""
    )
    if any(score not in table for table in tables) or not tables:
        raise UserError(
            f"{path}: found the statistics {', '.join(known[:20]) or 'none'}; name one that all "
            "instances have with --score"
        )
    return _frame(
        path,
        seed,
        task=path.parent.name.partition(":")[0],
        run=[entry.get("train_trial_index", 0) for entry in entries],
        example=[entry["instance_id"] for entry in entries],
        score=[float(table[score]) for table in tables],
    )


def _frame(path: Path, seed: int | None, **columns: Any) -> pandas.DataFrame:
    import pandas

    if seed is None:
        raise UserError(
            f"{path} is of one model; give a folder with one folder per seed, whose names hold the "
            "seed, such as seed_0"
        )
    frame = pandas.DataFrame(columns)
    frame["seed"] = seed
    return frame
