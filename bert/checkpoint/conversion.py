"""Conversion of a checkpoint from one layout to the other, with a model card."""

from __future__ import annotations

from pathlib import Path

from multiberts.bert.checkpoint import card
from multiberts.bert.checkpoint.checkpoint import (
    ALWAYS_KNOWN,
    read_checkpoint,
    same_bits,
    write_checkpoint,
)
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.release_names import (
    OWN_NAME_OF_RELEASED_PROCEDURE,
    RELEASED_PROCEDURE,
    release_name,
)
from multiberts.bert.model.configuration import Gelu
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike


def convert_checkpoint(
    source: PathLike,
    target: PathLike,
    layout: str,
    *,
    named_as_released: str | None = None,
    vocabulary: PathLike | None = None,
    corpus: PathLike | None = None,
    scores: PathLike | None = None,
    initialise_missing: int | None = None,
    gelu: Gelu | None = None,
) -> tuple[Path, bool]:
    """Writes a checkpoint in another (or the same) layout, bit for bit and atomically.

    Args:
      source: directory of a checkpoint in either layout, or its name.
      target: directory to make; it must not exist, unless it has the same checkpoint.
      layout: `tf1` or `hugging_face`; see `commands.convert_checkpoints` for the other arguments.

    Returns:
      The directory, and whether it was written; an existing directory is not changed, nor is its card.
    """
    checkpoint = read_checkpoint(
        source, vocabulary=vocabulary, initialise_missing=initialise_missing, gelu=gelu
    )
    provenance = {**card.facts_of_run(checkpoint.directory), **checkpoint.provenance}
    if corpus is not None:
        provenance["corpus"] = card.read_corpus_description(corpus)
    rows = card.read_scores(scores, provenance) if scores is not None else []
    directory = Path(target)
    if named_as_released is not None:
        facts = ("procedure", "pretrain_seed", "step")
        procedure, pretrain_seed, step = map(checkpoint.provenance.get, facts)
        if procedure not in (RELEASED_PROCEDURE, OWN_NAME_OF_RELEASED_PROCEDURE):
            raise UserError(
                f"{checkpoint.directory} is of procedure {procedure!r}; the release has names for "
                f"{OWN_NAME_OF_RELEASED_PROCEDURE!r} alone: convert it without --named_as_released"
            )
        if pretrain_seed is None or step is None:
            raise UserError(
                f"{checkpoint.directory} does not say its pretrain_seed and step; convert it without "
                "--named_as_released and name the directory yourself"
            )
        directory /= release_name(pretrain_seed, step if named_as_released == "step" else None)
    if directory.exists():
        # An identical target is accepted, so that an interrupted list can be resumed.
        cure = "choose another TARGET, or remove it"
        try:
            there = read_checkpoint(directory, need_finite=False)
        except UserError as error:
            raise UserError(f"{directory} exists already; {cure}") from error
        ours, theirs = checkpoint.variables, there.variables
        is_same = (
            (there.layout, there.config) == (layout, checkpoint.config)
            and there.vocabulary == checkpoint.vocabulary
            and all(
                there.provenance.get(name) == checkpoint.provenance.get(name)
                for name in (*ALWAYS_KNOWN, FINE_TUNED)
            )
            and ours.keys() == theirs.keys()
            and all(same_bits(values, theirs[name]) for name, values in ours.items())
        )
        if not is_same:
            raise UserError(f"{directory} exists already and holds something else; {cure}")
        return directory, False
    text = card.model_card(
        checkpoint.config,
        provenance,
        num_parameters=sum(values.size for values in checkpoint.variables.values()),
        has_heads=any(name.startswith("cls/") for name in checkpoint.parameters),
        layout=layout,
        scores=rows,
        lower_case=checkpoint.vocabulary.lower_case,
    )
    write_checkpoint(
        directory,
        checkpoint.variables,
        checkpoint.config,
        checkpoint.vocabulary,
        provenance,
        layout=layout,
        card=text,
    )
    return directory, True
