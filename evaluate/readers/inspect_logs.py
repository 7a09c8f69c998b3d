"""Reads per-example scores from the logs of Inspect (`.eval` archives and JSON)."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.harness_logs import (
    REWRITE,
    check_record,
    rows_of_log,
    texts_of,
)
from multiberts.evaluate.readers.rows import Rows
from multiberts.runs import console
from multiberts.runs.archives import Archive, open_archive
from multiberts.runs.errors import UserError, counted, listed
from multiberts.runs.files import open_unpacked, parse_json
from multiberts.runs.parameters import shortened

# Fields of a log, with their types.
_LOG_OF_INSPECT = {"eval": Mapping[str, Any], "samples": list[Mapping[str, Any]] | None}
_SAMPLE = {
    "id": int | str,
    "epoch": int | None,
    "scores": Mapping[str, Mapping[str, Any] | None] | None,
    "input": str | list[Any],
}
# Inspect's letters for correct, incorrect, partly correct and no answer, with the values of its metrics.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
# JSON logs begin with the facts of the evaluation; the samples after them may be gigabytes.
_HEADER_BYTES = 1 << 20


class UnfinishedLogError(UserError):
    """A log of an unfinished evaluation, which another log may have repeated."""


def by_inspect(path: Path) -> Mapping[str, Any] | None:
    """Reads a log with Inspect's reader, as the file format may change.

    Returns:
      The log in its JSON form; None if inspect_ai is not installed.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        return None
    try:
        log: Mapping[str, Any] = read_eval_log(str(path)).model_dump(mode="json")
    except Exception as error:  # the reader may raise any exception
        reason = " ".join(str(error).splitlines()[:3])
        raise UserError(f"{path}: inspect_ai cannot read it ({reason}); {REWRITE}") from error
    return log


def samples_of_archive(archive: Archive) -> dict[str, Any]:
    """Reads the members of an Inspect log into the JSON form."""
    samples = [
        _member(archive, name)
        for name in sorted(archive.names)
        if name.startswith("samples/") and name.endswith(".json")
    ]
    header = _member(archive, "header.json")
    if not isinstance(header, dict):
        raise UserError(f"{archive.path}, header.json, holds no fields by name; {REWRITE}")
    return {**header, "samples": samples}


def _member(archive: Archive, name: str) -> Any:
    return parse_json(archive.read(name), f"{archive.path}, {name},", REWRITE)


def inspect_rows(path: Path, log: Mapping[str, Any], names: ColumnNames, seed: int | None) -> Rows:
    """Reads a log of Inspect; epochs are runs of one seed (Inspect's page "Log Files")."""
    check_record(log, _LOG_OF_INSPECT, str(path))
    status = log.get("status", "success")
    if status != "success":
        error = log.get("error") or {}
        reason = f": {str(error['message']).splitlines()[0]}" if error.get("message") else ""
        raise UnfinishedLogError(
            f"{path}: the run ended with status {status!r}{reason}, expected a finished one; run the "
            "evaluation again"
        )
    samples = log["samples"] or []
    for number, sample in enumerate(samples, 1):
        check_record(sample, _SAMPLE, f"{path}, sample {number}")
    # Archives and Inspect's reader have different orders of samples.
    samples = sorted(samples, key=lambda sample: (sample.get("epoch") or 1, str(sample["id"])))
    values = [_values_of(sample) for sample in samples]
    scorers = list(dict.fromkeys(name for scores in values for name in scores))
    score = names.score or (scorers[0] if len(scorers) == 1 else None)
    if score not in scorers:
        raise UserError(
            f"{path}: found the scores {listed(scorers)}; name one with --score={scorers[0]}"
            if scorers
            else f"{path}: none of {counted(len(samples), 'sample')} has a score; run the evaluation again, "
            "or score its log (inspect score)"
        )
    _warn_of_errors(path, samples)
    is_graded = any(isinstance(scores.get(score), str) for scores in values)  # C for correct
    rows = rows_of_log(
        seed,
        {"example": "id", "run": "epoch", "score": str(score)},
        _facts_of_inspect(log["eval"]),
        task=task_of_log(path, log),
        run=[sample.get("epoch") or 1 for sample in samples],
        example=[sample["id"] for sample in samples],
        score=[_grade(path, scores.get(score)) for scores in values],
        **texts_of([sample["input"] for sample in samples]),
    )
    return replace(rows, read=replace(rows.read, more_is_better=is_graded or None))


def _values_of(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a sample by SCORER, or by SCORER.KEY for scorers with several values."""
    values: dict[str, Any] = {}
    for scorer, score in (sample.get("scores") or {}).items():
        value = (score or {}).get("value")
        if isinstance(value, Mapping):
            values |= {f"{scorer}.{key}": part for key, part in value.items()}
        elif score:
            values[scorer] = value
    return values


def _warn_of_errors(path: Path, samples: Sequence[Mapping[str, Any]]) -> None:
    errors = [sample["error"] for sample in samples if isinstance(sample.get("error"), Mapping)]
    if errors:
        lines = str(errors[0].get("message", "")).splitlines() or [""]
        console.warn(
            f"{path}: {len(errors)} of {counted(len(samples), 'sample')} ended in an error "
            f"({shortened(lines[0])}) and may have no score"
        )


def _facts_of_inspect(evaluation: Mapping[str, Any]) -> dict[str, str]:
    settings = {
        name: value
        for group in ("task_args", "model_args", "model_generate_config")
        for name, value in (evaluation.get(group) or {}).items()
        if value is not None and name != "seed"
    }
    facts = {
        "when": evaluation.get("created", ""),
        "model": evaluation.get("model", ""),
        **settings,
    }
    return {name: str(value) for name, value in facts.items()}


def _grade(path: Path, value: Any) -> float:
    """Returns the score of a value; NaN for a sample without a score."""
    if value is None:
        return math.nan
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, bool | int | float):
        return float(value)
    raise UserError(f"{path}: found the score {value!r}, expected a number or one of C, I, P and N")


# --- Before a log is read -------------------------------------------------------------------------


def facts_of_log(path: Path) -> tuple[str, str] | None:
    """Returns the task and the model from the beginning of a log; None for other files."""
    facts = None
    if path.suffix == ".eval":
        with open_archive(path) as archive:
            header = _member(archive, "header.json") if "header.json" in archive.names else None
        facts = header.get("eval") if isinstance(header, dict) else None
    elif path.name.removesuffix(".gz").endswith(".json"):
        start = ""
        with contextlib.suppress(OSError, UserError), open_unpacked(path) as file:
            start = file.read(_HEADER_BYTES).decode(errors="replace")
        match = re.search(r'"eval":\s*(?={)', start)
        with contextlib.suppress(ValueError):
            facts = json.JSONDecoder().raw_decode(start, match.end())[0] if match else None
    if not isinstance(facts, Mapping) or "task" not in facts:
        return None
    return task_of_log(path, {"eval": facts}), str(facts.get("model", ""))


def task_of_log(path: Path, log: Mapping[str, Any]) -> str:
    return str(log["eval"].get("task", path.stem))
