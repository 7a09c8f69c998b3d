"""Reads per-example scores from the logs of Inspect (`.eval` archives and JSON)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from multiberts.runs.archives import Archive
from multiberts.runs.errors import UserError
from multiberts.runs.files import parse_json

# Fields that are read from a log, with their types.
_LOG_OF_INSPECT = {"eval": Mapping[str, Any], "samples": list[Mapping[str, Any]] | None}
_SAMPLE = {
    "id": int | str,
    "epoch": int | None,
    "scores": Mapping[str, Mapping[str, Any] | None] | None,
    "input": str | list[Any],
}
# Inspect's letters for correct, incorrect, partly correct and no answer, as its metrics count them.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


class UnfinishedLogError(UserError):
    """A log whose evaluation did not end: an attempt that another log may have repeated."""


def by_inspect(path: Path) -> Mapping[str, Any] | None:
    """Reads a log of Inspect with its own reader, as the form of its files may change.

    Returns:
      The log as its JSON form has it; None where inspect_ai is not installed.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        return None
    try:
        log: Mapping[str, Any] = read_eval_log(str(path)).model_dump(mode="json")
    except Exception as error:  # whatever its maintainers let it raise
        reason = " ".join(str(error).splitlines()[:3])
        raise UserError(f"{path}: inspect_ai cannot read it ({reason}); {REWRITE}") from error
    return log


def samples_of_archive(archive: Archive) -> dict[str, Any]:
    """Reads the members of an Inspect log as the JSON form has them."""
    cure = "write the log anew"
    read: Callable[[str], Any] = lambda name: parse_json(  # noqa: E731
        archive.read(name), f"{archive.path}, {name},", cure
    )
    samples = [
        read(name)
        for name in sorted(archive.names)
        if name.startswith("samples/") and name.endswith(".json")
    ]
    header = read("header.json")
    if not isinstance(header, dict):
        raise UserError(f"{archive.path}, header.json, holds no fields by name; {cure}")
    return {**header, "samples": samples}


def is_inspect_log(content: Any) -> bool:
    return isinstance(content, Mapping) and {"eval", "samples"} <= set(content)


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
    # The members of an archive have an order of their own, and so does Inspect's reader.
    samples = sorted(samples, key=lambda sample: (sample.get("epoch") or 1, str(sample["id"])))
    scorers = list(dict.fromkeys(name for sample in samples for name in sample.get("scores") or {}))
    scorer = names.score or (scorers[0] if len(scorers) == 1 else None)
    if scorer not in scorers:
        raise UserError(
            f"{path}: found the scorers {', '.join(scorers) or 'none'}; name one with --score"
        )
    scored = [sample for sample in samples if (sample.get("scores") or {}).get(scorer)]
    if len(scored) < len(samples):
        raise UserError(
            f"{path}: {len(samples) - len(scored)} of {len(samples)} samples have no score; run the "
            "evaluation to its end"
        )
    return rows_of_log(
        path,
        seed,
        {"example": "id", "run": "epoch", "score": str(scorer)},
        _facts_of_inspect(log["eval"]),
        task=str(log["eval"].get("task", path.stem)),
        run=[sample.get("epoch") or 1 for sample in scored],
        example=[sample["id"] for sample in scored],
        score=[_grade(path, sample["scores"][scorer].get("value")) for sample in scored],
        **texts_of([sample["input"] for sample in scored]),
    )


def _facts_of_inspect(own: Mapping[str, Any]) -> dict[str, str]:
    """Returns when a log began, its model, and the settings that distinguish it from others."""
    settings = {
        name: value
        for group in ("task_args", "model_args", "model_generate_config")
        for name, value in (own.get(group) or {}).items()
        if value is not None and name != "seed"
    }
    facts = {"when": own.get("created", ""), "model": own.get("model", ""), **settings}
    return {name: str(value) for name, value in facts.items()}


def _grade(path: Path, value: Any) -> float:
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, bool | int | float):
        return float(value)
    raise UserError(f"{path}: found the score {value!r}, expected a number or one of C, I, P and N")
