"""The model card that lies beside an exported checkpoint: `README.md` with YAML front matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.release_names import RELEASED_PROCEDURE, RELEASED_STEPS
from multiberts.bert.model.configuration import BertConfig

UNKNOWN = "unknown"

_MOST_SOURCES_LISTED = 20
# Told elsewhere on the card.
_TOLD_ELSEWHERE = ("procedure", "pretrain_seed", "data_seed", "model", "checkpoint_steps")


def model_card(
    config: BertConfig,
    provenance: Mapping[str, Any],
    *,
    num_parameters: int,
    has_heads: bool,
    layout: str,
    scores: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The text of a card. What is not known is said to be unknown.

    Args:
      config: the model's sizes.
      provenance: of the checkpoint: `procedure`, `pretrain_seed`, `data_seed`, `step`; and, where
        known, `training` (parameters by name), `corpus` (as in `corpus.json`), `evaluation`
        (measures on held-out text by name), `initialised`, `converted_from_hidden_act`.
      num_parameters: numbers in all variables.
      has_heads: whether the pre-training heads are there.
      layout: `tf1` or `hugging_face`, for the lines that load it.
      scores: rows as from `card_facts.read_scores`.

    Returns:
      Markdown with YAML front matter.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    environment.filters["shown"] = _shown
    training = provenance.get("training")
    return environment.get_template("model_card.md.j2").render(
        title=_title(provenance),
        provenance=provenance,
        config=config,
        num_parameters=num_parameters,
        has_heads=has_heads,
        layout=layout,
        scores=scores,
        # Facts of the release hold for what it released, not for runs of our own.
        is_released=provenance.get("procedure") == RELEASED_PROCEDURE and not training,
        released_steps=RELEASED_STEPS,
        training=_rows(training, _TOLD_ELSEWHERE),
        held_out=_rows(provenance.get("evaluation")),
        corpus=_corpus_rows(provenance.get("corpus")),
        sources=_sources(provenance.get("corpus")),
        initialised=provenance.get("initialised"),
        said_exact_gelu="converted_from_hidden_act" in provenance,
    )


def _title(provenance: Mapping[str, Any]) -> str:
    parts = [
        f"{word} {_shown(provenance[name])}"
        for word, name in (("seed", "pretrain_seed"), ("step", "step"))
        if provenance.get(name) is not None
    ]
    name = provenance.get("procedure") or "BERT"
    return f"{name}: {', '.join(parts)}" if parts else name


def _shown(value: Any) -> str:
    """A value for a table cell."""
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace("|", r"\|").replace("\n", " ")


def _rows(facts: Mapping[str, Any] | None, left_out: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Name and value of each fact that is one value; None is a setting here, not ignorance."""
    return [
        (name, "none" if value is None else _shown(value))
        for name, value in (facts or {}).items()
        if name not in left_out and not isinstance(value, (dict, list))
    ]


def _corpus_rows(corpus: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if not corpus:
        return []
    counts = corpus.get("counts")
    return _rows(counts if isinstance(counts, dict) else None) + _rows(corpus)


def _sources(corpus: Mapping[str, Any] | None) -> list[str]:
    """The files the text came from, the first of many."""
    listed = (corpus or {}).get("sources")
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
