"""Reads per-example scores from logs of lm-evaluation-harness and HELM."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.other_kinds import NoPredictionsError
from multiberts.evaluate.readers.rows import BY_NAME, TEXT_NAMES, ReadAs, Rows
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import check_fields, parse_json, read_bytes
from multiberts.runs.parameters import shortened

# Fields of each kind of log, with their types.
_LINE_OF_LM_EVAL = {"doc_id": int | str, "filter": str | None, "metrics": list[str] | None}
_INSTANCE_OF_HELM = {
    "instance_id": str,
    "train_trial_index": int | None,
    "stats": list[Mapping[str, Any]],
}
_STATISTIC = {"name": Mapping[str, Any], "mean": float | None}


class _Input(TypedDict):
    text: str


class _Instance(TypedDict):
    id: str
    input: _Input


class _State(TypedDict):
    """One entry of HELM's `scenario_state.json`."""

    instance: _Instance


REWRITE = "write it again with the same program"


def lm_eval_rows(
    path: Path, lines: Sequence[Mapping[str, Any]], names: ColumnNames, seed: int | None
) -> Rows:
    """Reads `samples_<task>_<time>.jsonl` of lm-evaluation-harness (its docs/interface.md).

    A line has `doc_id`, `doc`, `target`, `filter`, `metrics` and one value per metric.
    """
    for number, line in enumerate(lines, 1):
        check_record(line, _LINE_OF_LM_EVAL, f"{path}, sample {number}")
    filters = list(dict.fromkeys(line.get("filter") or "none" for line in lines))
    metrics = lines[0].get("metrics") or ["acc"]
    metric, _, wanted = (names.score or metrics[0]).partition(",")
    if metric not in lines[0]:
        raise UserError(
            f"{path}: found no metric {metric!r}, only {listed(metrics)}; name one with "
            f"--score={metrics[0]}"
        )
    if not wanted and len(filters) == 1:
        wanted = filters[0]
    if wanted not in filters:
        problem = f": found no filter {wanted!r}, only" if wanted else " holds the filters"
        raise UserError(
            f"{path}{problem} {listed(filters)}; choose one with --score={metric},{filters[0]}"
        )
    chosen = [line for line in lines if (line.get("filter") or "none") == wanted]
    read_as = {"example": "doc_id", "score": metric}
    columns: dict[str, Sequence[Any]]
    if _are_pairs(metric, chosen):
        golds, predictions = zip(*(line[metric] for line in chosen), strict=True)
        columns = {"prediction": predictions, "label": golds}
        read_as |= {"prediction": f"{metric}[1]", "label": f"{metric}[0]"}
    elif _are_scores(metric, chosen):
        columns = {"score": [float(line[metric]) for line in chosen]}
    else:
        raise _no_scores(path, metric, chosen)
    rows = rows_of_log(
        seed,
        read_as,
        {"when": "".join(_TIME.findall(path.stem))},
        task=task_of_samples(path),
        example=[line["doc_id"] for line in chosen],
        **columns,
        doc_hash=[line.get("doc_hash") or _digest(line.get("doc")) for line in chosen],
        target=[_digest(line.get("target")) for line in chosen],
        **texts_of([line.get("doc") for line in chosen]),
    )
    return replace(
        rows, read=replace(rows.read, logged_metric="" if "score" in columns else metric)
    )


# Scores of all examples together, logged as (gold, predicted): lm_eval/api/task.py, process_results ...
_OF_CLASSES = ("f1", "mcc")
# ... or as a log-likelihood, usually with a number of words or bytes.
_OF_LIKELIHOODS = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")


def _are_pairs(metric: str, lines: Sequence[Mapping[str, Any]]) -> bool:
    values = [line.get(metric) for line in lines]
    return metric in _OF_CLASSES and all(
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(part, bool | int | str) for part in value)
        for value in values
    )


def _are_scores(metric: str, lines: Sequence[Mapping[str, Any]]) -> bool:
    values = [line.get(metric) for line in lines]
    is_score = all(isinstance(value, bool | int | float) for value in values)
    return is_score and metric not in _OF_LIKELIHOODS


def _no_scores(path: Path, metric: str, lines: Sequence[Mapping[str, Any]]) -> UserError:
    others = [
        name
        for name in lines[0].get("metrics") or ()
        if _are_pairs(name, lines) or _are_scores(name, lines)
    ]
    cure = (
        f"name another metric with --score={others[0]}"
        if others
        else "evaluate again with a metric that scores each example, such as acc"
    )
    if metric in _OF_LIKELIHOODS:
        reason = f"{metric}, a score of all texts together that is logged as log-likelihoods"
    else:
        values = [line.get(metric) for line in lines]
        wrong = next(value for value in values if not isinstance(value, bool | int | float))
        reason = f"{metric} {shortened(wrong)}, which is not a score of one example"
    kind = NoPredictionsError if metric in _OF_LIKELIHOODS and not others else UserError
    return kind(f"{path}: found {reason}; {cure}")


def _digest(value: Any) -> str:
    """Returns a short text or a hash of a document or target, for comparison between models."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) < 40 else hashlib.sha256(text.encode()).hexdigest()


def task_of_samples(path: Path) -> str:
    """Returns the task of a file `samples_<task>_<date>T<time>.jsonl`; older files have no time."""
    return _TIME.sub("", path.stem.removeprefix("samples_"))


_TIME = re.compile(r"_\d{4}-\d\d-\d\dT[\d\-.:]+$")


def check_record(values: Any, kinds: Mapping[str, Any], where: str) -> None:
    """Refuses a record with missing fields or wrong types."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: found {shortened(values)}, expected fields by name; {REWRITE}")
    check_fields(values, kinds, where, REWRITE)


def texts_of(docs: Sequence[Any]) -> dict[str, list[str]]:
    """Returns texts for readers to recognise examples: columns of all documents, or each document as JSON."""
    names = [
        name
        for name in TEXT_NAMES
        if all(isinstance(doc, Mapping) and isinstance(doc.get(name), str) for doc in docs)
    ]
    if names:
        return {name: [doc[name] for doc in docs] for name in names}
    whole = [doc if isinstance(doc, str) else json.dumps(doc, ensure_ascii=False) for doc in docs]
    return {"text": whole}


def helm_rows(path: Path, names: ColumnNames, seed: int | None) -> Rows:
    """Reads `per_instance_stats.json` of a HELM run, without perturbed instances."""
    if seed is None:
        raise UserError(
            f"{path} is of one model; give a folder with one folder per seed, named by its "
            "seed, such as seed_0"
        )
    entries = []
    content = parse_json(read_bytes(path, REWRITE), str(path), REWRITE)
    if not isinstance(content, list):
        raise UserError(f"{path}: found {shortened(content)}, expected a list; {REWRITE}")
    for number, entry in enumerate(content, 1):
        where = f"{path}, instance {number}"
        check_record(entry, _INSTANCE_OF_HELM, where)
        for statistic in entry["stats"]:
            check_record(statistic, _STATISTIC, where)
            check_record(statistic["name"], {"name": str}, where)
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
    metrics = list(dict.fromkeys(name for table in tables for name in table))
    of_all = [name for name in metrics if all(name in table for table in tables)]
    score = names.score or next(
        (name for name in ("exact_match", "quasi_exact_match") if name in metrics), ""
    )
    if score not in of_all:
        cure = f"name one of these with --score={of_all[0]}" if of_all else REWRITE
        raise UserError(
            f"{path}: found no {score or 'exact_match'} that all instances have, only "
            f"{listed(of_all) or 'nothing'}; {cure}"
        )
    task, model = facts_of_helm(path)
    return rows_of_log(
        seed,
        {"example": "instance_id", "run": "train_trial_index", "score": score},
        {"when": "", "model": model},
        task=task,
        run=[entry.get("train_trial_index") or 0 for entry in entries],
        example=[entry["instance_id"] for entry in entries],
        score=[float(table[score]) for table in tables],
        **_helm_texts(path.with_name("scenario_state.json"), entries),
    )


def facts_of_helm(path: Path) -> tuple[str, str]:
    """Returns the task and the model of a run from its folder's name.

    Examples:
      >>> facts_of_helm(Path("runs/seed_1/mmlu:subject=law,model=org_m/per_instance_stats.json"))
      ('mmlu:subject=law', 'org_m')
    """
    scenario, _, settings = path.parent.name.partition(":")
    of_model = re.compile(r"model(_deployment)?=")
    parts = [part for part in settings.split(",") if part and not of_model.match(part)]
    models = [part for part in settings.split(",") if part.startswith("model=")]
    task = f"{scenario}:{','.join(parts)}" if parts else scenario
    return task, models[0].removeprefix("model=") if models else ""


def _helm_texts(path: Path, entries: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    if not path.is_file():
        return {}
    content = parse_json(read_bytes(path, REWRITE), str(path), REWRITE)
    check_record(content, {"request_states": list[_State]}, str(path))
    texts = {
        state["instance"]["id"]: state["instance"]["input"]["text"]
        for state in content["request_states"]
    }
    lacking = [entry["instance_id"] for entry in entries if entry["instance_id"] not in texts]
    if lacking:
        raise UserError(f"{path} lacks the instance {lacking[0]} of the run; {REWRITE}")
    return {"text": [texts[entry["instance_id"]] for entry in entries]}


def rows_of_log(
    seed: int | None,
    names: Mapping[str, str],
    log: Mapping[str, str],
    **columns: Any,
) -> Rows:
    """Returns the rows of a log; `log` has its time, model and settings, which distinguish logs."""
    import pandas

    frame = pandas.DataFrame(columns)
    frame["seed"] = seed
    of_roles = {"task", "seed", "run", "example", "prediction", "score", "label"}
    roles, further = (
        frame[[name for name in frame if (name in of_roles) is is_role]]
        for is_role in (True, False)
    )
    read = {"seed": BY_NAME, **{role: names[role] for role in names if role in columns}}
    return Rows(roles, further, ReadAs(columns=read), log=log)
