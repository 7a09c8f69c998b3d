"""Facts for a model card: the run a checkpoint lies in, and its scores. Nothing is guessed."""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.runs.directory import CONFIG, fingerprint
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes, read_lines

CORPUS_DESCRIPTION = "corpus.json"

_WHOSE = ("procedure", "pretrain_seed", "data_seed", "step")
_WHAT = ("task", "evaluation_set", "metric", "learning_rate")


def facts_of_run(checkpoint_directory: PathLike) -> dict[str, Any]:
    """What the pre-training run says that a checkpoint lies in, if it lies in one.

    Args:
      checkpoint_directory: `<run>/checkpoints/step_<n>`, or anything else.

    Returns:
      `training`: the run's parameters by name; `corpus`: the content of `corpus.json`, if the
      corpus is where the run found it and has not changed. Either may be absent.
    """
    config = Path(checkpoint_directory).resolve().parent.parent / CONFIG
    if not config.is_file():
        return {}
    training: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for number, line in enumerate(read_lines(config), start=1):
        binding, _, rest = line.partition(" = ")
        if not binding.startswith("pretrain."):
            continue
        name = binding.removeprefix("pretrain.")
        literal, is_input, content = rest.rpartition("  # holds ")
        try:
            value = ast.literal_eval(literal if is_input else rest)
        except (ValueError, SyntaxError) as error:
            raise UserError(
                f"{config} line {number}: {rest!r} is no Python literal; the file was edited: "
                "restore it"
            ) from error
        if not is_input:
            training[name] = value
        elif name == "corpus":
            facts |= _corpus_at(value, content)
        else:  # such as the checkpoint that training went on from
            training[f"{name}_sha256"] = content
    if training:
        facts["training"] = training
    return facts


def read_corpus_description(path: PathLike) -> dict[str, Any]:
    """The facts of a corpus from its `corpus.json` (or the directory that holds one).

    Raises:
      UserError: missing, or not JSON.
    """
    path = Path(path)
    if path.is_dir():
        path = path / CORPUS_DESCRIPTION
    content = _read_json(path)
    if not isinstance(content, dict):
        raise UserError(
            f"{path} holds no facts by name; give the corpus.json of pretrain.corpus.preparation"
        )
    return content


def read_scores(path: PathLike, provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The scores of one checkpoint, averaged over runs.

    Args:
      path: `scores.csv` of `python -m evaluate`, any CSV or JSON list of rows with at least
        `metric` and `score`, or a JSON object of scores by metric. Rows that name another
        procedure, seed or step are left out.
      provenance: of the checkpoint.

    Returns:
      Rows with `task`, `evaluation_set`, `metric`, `learning_rate` (None where not said), `runs`,
      `mean`, `lowest` and `highest`.

    Raises:
      UserError: the file cannot be read, a score is no number, or none is of this checkpoint.
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for where, row in _rows(Path(path)):
        if any(
            row.get(name) not in (None, "") and str(row[name]) != str(provenance.get(name))
            for name in _WHOSE
        ):
            continue
        groups.setdefault(tuple(row.get(name) for name in _WHAT), []).append(_score(where, row))
    if not groups:
        whose = ", ".join(f"{name} {provenance.get(name)}" for name in _WHOSE)
        raise UserError(f"{path} holds no score of this checkpoint ({whose}); give its own scores")
    return [
        {
            **dict(zip(_WHAT, what, strict=True)),
            "runs": len(values),
            "mean": statistics.fmean(values),
            "lowest": min(values),
            "highest": max(values),
        }
        for what, values in groups.items()
    ]


def _corpus_at(path: str, content: str) -> dict[str, Any]:
    try:
        if fingerprint(path) == content:
            return {"corpus": read_corpus_description(path)}
    except UserError:
        # Moved, removed or made anew: what the run saw is then not known.
        pass
    return {}


def _rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Every row with the place it stands at, for messages."""
    if path.suffix != ".json":
        reader = csv.DictReader(io.StringIO("\n".join(read_lines(path))))
        return [(f"{path} line {number}", row) for number, row in enumerate(reader, start=2)]
    content = _read_json(path)
    if isinstance(content, dict):
        content = [{"metric": name, "score": value} for name, value in content.items()]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise UserError(f"{path} holds neither rows nor scores by metric; see --help for the form")
    return [(f"{path} row {number}", row) for number, row in enumerate(content, start=1)]


def _score(where: str, row: Mapping[str, Any]) -> float:
    for name in ("metric", "score"):
        if row.get(name) in (None, ""):
            raise UserError(f"{where} has no {name}; expected the columns metric and score")
    try:
        value = float(row["score"])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where}: the score is {row['score']!r}, expected a number; correct it")
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not JSON ({error}); correct it") from error
