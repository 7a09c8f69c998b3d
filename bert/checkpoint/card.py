"""The model card of an exported checkpoint (`README.md` with YAML front matter), and its facts.

Facts come from the checkpoint's run and from its scores. Unknown facts are not guessed.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import ALWAYS_KNOWN
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED, fine_tuned_line
from multiberts.bert.checkpoint.hugging_face import architecture_of
from multiberts.bert.checkpoint.release_names import RELEASED_PROCEDURE, RELEASED_STEPS
from multiberts.bert.model.configuration import BertConfig
from multiberts.runs.directory import CONFIG, read_config
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes, read_json_fields
from multiberts.runs.identity import opened
from multiberts.runs.tables import read_rows

CORPUS_DESCRIPTION = "corpus.json"
UNKNOWN = "unknown"

_MOST_SOURCES_LISTED = 20
# Listed elsewhere on the card.
_LISTED_ELSEWHERE = ("procedure", "pretrain_seed", "data_seed", "model", "checkpoint_steps")
_PIPELINES = {
    "BertForSequenceClassification": "text-classification",
    "BertForTokenClassification": "token-classification",
    "BertForQuestionAnswering": "question-answering",
}
_WHAT = ("task", "evaluation_set", "metric", "learning_rate")


def model_card(
    config: BertConfig,
    provenance: Mapping[str, Any],
    *,
    num_parameters: int,
    has_heads: bool,
    layout: str,
    scores: Sequence[Mapping[str, Any]] = (),
    lower_case: bool = True,
) -> str:
    """Returns the text of a model card. Unknown facts are marked as unknown.

    Args:
      provenance: provenance of the `Checkpoint`, see `facts_of_run` for facts of the run.
      has_heads: whether the checkpoint has the pre-training heads.
      layout: `tf1` or `hugging_face`, for the example code that loads it.
      lower_case: false for a cased model.

    Returns:
      Markdown with YAML front matter.
    """
    import jinja2

    name = provenance.get("procedure") or "BERT"
    parts = [
        f"{word} {_shown(provenance[fact])}"
        for word, fact in (("seed", "pretrain_seed"), ("step", "step"))
        if provenance.get(fact) is not None
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    environment.filters["shown"] = _shown
    training, fine_tuned = provenance.get("training"), provenance.get(FINE_TUNED)
    corpus = provenance.get("corpus") or {}
    architecture = architecture_of(fine_tuned) if layout == "hugging_face" else None
    return environment.get_template("model_card.md.j2").render(
        title=f"{name}: {', '.join(parts)}" if parts else name,
        provenance=provenance,
        config=config,
        num_parameters=num_parameters,
        has_heads=has_heads,
        layout=layout,
        scores=scores,
        lower_case=lower_case,
        # Facts of the release apply to released models only, not to our own runs.
        is_released=provenance.get("procedure") == RELEASED_PROCEDURE and not training,
        architecture=architecture,
        pipeline_tag=_PIPELINES.get(str(architecture), "fill-mask" if fine_tuned is None else None),
        fine_tuned=fine_tuned
        and [
            ("task and head", fine_tuned_line(fine_tuned)),
            ("procedure of the encoder", _shown((provenance.get("parent") or {}).get("procedure"))),
            *_rows(fine_tuned, ("task", "epochs")),
        ],
        released_steps=RELEASED_STEPS,
        training=_rows(training, _LISTED_ELSEWHERE),
        held_out=_rows(provenance.get("evaluation")),
        corpus=_rows(corpus.get("counts")) + _rows(corpus),
        sources=_sources(corpus.get("sources")),
        initialised=provenance.get("initialised"),
    )


def _shown(value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace("|", r"\|").replace("\n", " ")


def _rows(facts: Any, left_out: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Returns name and value of each scalar fact; None is a valid setting."""
    return [
        (name, "none" if value is None else _shown(value))
        for name, value in (facts.items() if isinstance(facts, Mapping) else ())
        if name not in left_out and not isinstance(value, (dict, list))
    ]


def _sources(listed: Any) -> list[str]:
    """Returns the source files of the text, or the first few of many."""
    if not isinstance(listed, list):
        return []
    lines = [
        f"`{source['file']}`" + (f" (SHA-256 `{source['sha256']}`)" if "sha256" in source else "")
        if isinstance(source, dict) and "file" in source
        else f"`{source}`"
        for source in listed[:_MOST_SOURCES_LISTED]
    ]
    more = len(listed) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def facts_of_run(checkpoint_directory: PathLike) -> dict[str, Any]:
    """Reads the facts of the pre-training run that contains a checkpoint, if any.

    Args:
      checkpoint_directory: `<run>/checkpoints/step_<n>`, or anything else.

    Returns:
      `training`: the run's parameters by name; `corpus`: the content of `corpus.json`, if the corpus was
      neither moved nor changed since the run. Either may be absent.
    """
    config = Path(checkpoint_directory).resolve().parent.parent / CONFIG
    if not config.is_file():
        return {}
    training: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for binding, value, content in read_config(config):
        name = binding.removeprefix("pretrain.")
        if name == binding:
            continue
        if content is None:
            training[name] = value
        elif name == "corpus":
            # The corpus of the run is unknown if it was moved, removed or rebuilt.
            with contextlib.suppress(UserError):
                if opened(value).identity == content:
                    facts["corpus"] = read_corpus_description(value)
        else:  # such as the initial checkpoint
            training[f"{name}_sha256"] = content
    if training:
        facts["training"] = training
    return facts


def read_corpus_description(path: PathLike) -> dict[str, Any]:
    """Reads the facts of a corpus from its `corpus.json`, or from the directory of that file."""
    path = Path(path)
    if path.is_dir():
        path = path / CORPUS_DESCRIPTION
    return read_json_fields(path)


def read_scores(path: PathLike, provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads the scores of one checkpoint, averaged over runs.

    Args:
      path: `scores.csv` of `multiberts evaluate`, any CSV or JSON list of rows with at least
        `metric` and `score`, or a JSON object of scores by metric. Rows of another procedure, seed or step
        are left out.

    Returns:
      Rows with `task`, `evaluation_set`, `metric`, `learning_rate` (None where not given), `runs`,
      `mean`, `lowest` and `highest`.
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for where, row in _score_rows(Path(path)):
        if any(
            row.get(name) not in (None, "") and str(row[name]) != str(provenance.get(name))
            for name in ALWAYS_KNOWN
        ):
            continue
        for name in ("metric", "score"):
            if row.get(name) in (None, ""):
                raise UserError(f"{where} has no {name}; expected the columns metric and score")
        try:
            value = float(row["score"])
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise UserError(
                f"{where}: the score is {row['score']!r}, expected a number; correct it"
            )
        groups.setdefault(tuple(row.get(name) for name in _WHAT), []).append(value)
    if not groups:
        whose = ", ".join(f"{name} {provenance.get(name)}" for name in ALWAYS_KNOWN)
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


def _score_rows(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns every row with its position in the file, for messages."""
    if path.suffix != ".json":
        columns, cure = ("metric", "score"), "see --help for the form"
        return [(row.where, row) for row in read_rows(path, columns, separator=",", cure=cure)]
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}); correct it") from error
    if isinstance(content, dict):
        content = [{"metric": name, "score": value} for name, value in content.items()]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise UserError(f"{path} holds neither rows nor scores by metric; see --help for the form")
    return [(f"{path} row {number}", row) for number, row in enumerate(content, start=1)]
