"""Reads per-example scores from the logs of evaluation programs: lm-evaluation-harness, Inspect, HELM."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.rows import BY_NAME, TEXT_NAMES, ReadAs, Rows
from multiberts.runs.errors import UserError
from multiberts.runs.files import check_fields, parse_json, read_bytes
from multiberts.runs.parameters import shortened

# Fields that are read from each kind of log, with their types.
_LINE_OF_LM_EVAL = {"doc_id": int | str, "filter": str | None, "metrics": list[str] | None}
_LOG_OF_INSPECT = {"eval": Mapping[str, Any], "samples": list[Mapping[str, Any]] | None}
_SAMPLE = {
    "id": int | str,
    "epoch": int | None,
    "scores": Mapping[str, Mapping[str, Any] | None] | None,
    "input": str | list[Any],
}
_INSTANCE_OF_HELM = {
    "instance_id": str,
    "train_trial_index": int | None,
    "stats": list[Mapping[str, Any]],
}
_STATISTIC = {"name": Mapping[str, Any], "mean": float | None}


class UnfinishedLogError(UserError):
    """A log whose evaluation did not end: an attempt that another log may have repeated."""


class _Input(TypedDict):
    text: str


class _Instance(TypedDict):
    id: str
    input: _Input


class _State(TypedDict):
    """One entry of HELM's `scenario_state.json`."""

    instance: _Instance


_CURE = "let the program that wrote it write it anew"

# Inspect's letters for correct, incorrect, partly correct and no answer, as its metrics count them.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def lm_eval_rows(
    path: Path, lines: Sequence[Mapping[str, Any]], names: ColumnNames, seed: int | None
) -> Rows:
    """Reads `samples_<task>_<time>.jsonl` of lm-evaluation-harness (its docs/interface.md).

    A line has `doc_id`, `doc`, `target`, `filter`, `metrics` and one value per metric.
    """
    for number, line in enumerate(lines, 1):
        _check(line, _LINE_OF_LM_EVAL, f"{path}, sample {number}")
    filters = list(dict.fromkeys(line.get("filter") or "none" for line in lines))
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
    chosen = [line for line in lines if (line.get("filter") or "none") == wanted]
    return _rows(
        path,
        seed,
        {"example": "doc_id", "score": metric},
        {"when": "".join(_TIME.findall(path.stem))},
        task=task_of_samples(path),
        example=[line["doc_id"] for line in chosen],
        score=[_number(path, metric, line.get(metric)) for line in chosen],
        doc_hash=[line.get("doc_hash") or _digest(line.get("doc")) for line in chosen],
        target=[_digest(line.get("target")) for line in chosen],
        **_texts([line.get("doc") for line in chosen]),
    )


def _digest(value: Any) -> str:
    """Returns what of a document or target is compared between models: itself where it is short."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) < 40 else hashlib.sha256(text.encode()).hexdigest()


def task_of_samples(path: Path) -> str:
    """Returns the task of a file `samples_<task>_<date>T<time>.jsonl`; older ones have no time."""
    return _TIME.sub("", path.stem.removeprefix("samples_"))


_TIME = re.compile(r"_\d{4}-\d\d-\d\dT[\d\-.:]+$")


def _check(values: Any, kinds: Mapping[str, Any], where: str) -> None:
    """Refuses a record whose fields are missing or of other types."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: found {shortened(values)}, expected fields by name; {_CURE}")
    check_fields(values, kinds, where, _CURE)


def _number(path: Path, metric: str, value: Any) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    raise UserError(
        f"{path}: found {metric} {value!r}, which is not a score of one example; name another metric "
        "with --score"
    )


def _texts(docs: Sequence[Any]) -> dict[str, list[str]]:
    """Returns what a reader recognises examples by: columns that all have, or each example as JSON."""
    names = [
        name
        for name in TEXT_NAMES
        if all(isinstance(doc, Mapping) and isinstance(doc.get(name), str) for doc in docs)
    ]
    if names:
        return {name: [doc[name] for doc in docs] for name in names}
    whole = [doc if isinstance(doc, str) else json.dumps(doc, ensure_ascii=False) for doc in docs]
    return {"text": whole}


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
        raise UserError(f"{path}: inspect_ai cannot read it ({reason}); {_CURE}") from error
    return log


def is_inspect_log(content: Any) -> bool:
    return isinstance(content, Mapping) and {"eval", "samples"} <= set(content)


def inspect_rows(path: Path, log: Mapping[str, Any], names: ColumnNames, seed: int | None) -> Rows:
    """Reads a log of Inspect; epochs are runs of one seed (Inspect's page "Log Files")."""
    _check(log, _LOG_OF_INSPECT, str(path))
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
        _check(sample, _SAMPLE, f"{path}, sample {number}")
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
    return _rows(
        path,
        seed,
        {"example": "id", "run": "epoch", "score": str(scorer)},
        _facts_of_inspect(log["eval"]),
        task=str(log["eval"].get("task", path.stem)),
        run=[sample.get("epoch") or 1 for sample in scored],
        example=[sample["id"] for sample in scored],
        score=[_grade(path, sample["scores"][scorer].get("value")) for sample in scored],
        **_texts([sample["input"] for sample in scored]),
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


def helm_rows(path: Path, names: ColumnNames, seed: int | None) -> Rows:
    """Reads `per_instance_stats.json` of a HELM run; perturbed instances are left out."""
    entries = []
    for number, entry in enumerate(_list_in(path), 1):
        where = f"{path}, instance {number}"
        _check(entry, _INSTANCE_OF_HELM, where)
        for statistic in entry["stats"]:
            _check(statistic, _STATISTIC, where)
            _check(statistic["name"], {"name": str}, where)
        if entry.get("perturbation") is None:
            entries.append(entry)
    tables = [
        {
            stat["name"]["name"]: stat["mean"]
            for stat in entry["stats"]
            if stat.get("mean") is not None
        }
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
    return _rows(
        path,
        seed,
        {"example": "instance_id", "run": "train_trial_index", "score": score},
        None,
        task=path.parent.name.partition(":")[0],
        run=[entry.get("train_trial_index") or 0 for entry in entries],
        example=[entry["instance_id"] for entry in entries],
        score=[float(table[score]) for table in tables],
        **_helm_texts(path.with_name("scenario_state.json"), entries),
    )


def _list_in(path: Path) -> list[Any]:
    content = parse_json(read_bytes(path, _CURE), str(path), _CURE)
    if not isinstance(content, list):
        raise UserError(f"{path}: found {shortened(content)}, expected a list; {_CURE}")
    return content


def _helm_texts(path: Path, entries: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Returns the texts of the instances, where the run's `scenario_state.json` is there."""
    if not path.is_file():
        return {}
    content = parse_json(read_bytes(path, _CURE), str(path), _CURE)
    _check(content, {"request_states": list[_State]}, str(path))
    texts = {
        state["instance"]["id"]: state["instance"]["input"]["text"]
        for state in content["request_states"]
    }
    lacking = [entry["instance_id"] for entry in entries if entry["instance_id"] not in texts]
    if lacking:
        raise UserError(f"{path} lacks the instance {lacking[0]} of the run; {_CURE}")
    return {"text": [texts[entry["instance_id"]] for entry in entries]}


def _rows(
    path: Path,
    seed: int | None,
    names: Mapping[str, str],
    log: Mapping[str, str] | None,
    **columns: Any,
) -> Rows:
    """Returns the scores of a log; `log` has what orders and distinguishes several without a seed."""
    import pandas

    if seed is None and log is None:
        raise UserError(
            f"{path} is of one model; give a folder with one folder per seed, whose names hold the "
            "seed, such as seed_0"
        )
    frame = pandas.DataFrame(columns)
    frame["seed"] = seed
    of_roles = {"task", "seed", "run", "example", "score"}
    roles, further = (
        frame[[name for name in frame if (name in of_roles) is is_role]]
        for is_role in (True, False)
    )
    read = {"seed": BY_NAME, **{role: names[role] for role in names if role in columns}}
    return Rows(roles, further, ReadAs(columns=read), log=log)
