r"""Holds out whole documents of a text, for evaluation on unseen text.

multiberts holdout --gin_param='hold_out.run_dir = "text"' \
        --gin_param='hold_out.sources = ["text.txt.gz"]' \
        --gin_param='hold_out.source_format = "wikiextractor"'
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from multiberts.bert.randomness import hash_bits, uniform
from multiberts.pretrain.corpus.documents import (
    FILE_FORMATS,
    FileFormat,
    name_sources,
    one_or_all,
    read_documents,
)
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError, check_values
from multiberts.runs.files import replaced
from multiberts.runs.identity import check_unchanged
from multiberts.runs.parameters import Range, Seed

TRAINED = "trained.txt"
HELD_OUT = "held_out.txt"


def hold_out(
    *,
    run_dir: str,
    sources: Sequence[str],
    source_format: FileFormat | list[str],
    text_field: str = "text",
    share: Annotated[float, Range(above=0, below=1)] = 0.05,
    hold_out_seed: Seed = 0,
) -> None:
    """Writes `trained.txt` and `held_out.txt`, both for `prepare` with source_format `sentences`.

    Documents stay whole and in order; their numbers and the seed alone decide which are held out.

    Args:
      run_dir: directory of the outputs.
      sources: text files or patterns, as for `prepare`.
      source_format: their layout, one of the file formats of `prepare`; a list: one per source.
      text_field: name of the text field of `jsonl`.
      share: share of documents to hold out.
      hold_out_seed: seed of the choice.
    """
    pieces = name_sources(sources, source_format, "hold_out")
    formats = {source_format} if isinstance(source_format, str) else set(source_format)
    expected = f"one of {', '.join(FILE_FORMATS)}, or a list of these"
    is_known = formats.issubset(FILE_FORMATS)
    check_values("hold_out", [("source_format", source_format, is_known, expected)])
    parameters = {
        "source_format": one_or_all([piece.source_format for piece in pieces]),
        "text_field": text_field,
        "share": share,
        "hold_out_seed": hold_out_seed,
    }
    inputs = {"sources": [piece.source for piece in pieces]}
    run = RunDirectory(run_dir, stage="hold_out", parameters=parameters, inputs=inputs)
    if run.done:
        return
    count = sum(1 for _ in read_documents(pieces, text_field))
    is_held_out = uniform(hash_bits("hold out", hold_out_seed, np.arange(count))) < share
    if not 2 <= is_held_out.sum() <= count - 2:
        raise UserError(
            f"hold_out.share {share} of {count} documents holds out {is_held_out.sum()}, expected at "
            "least two on each side; change it or give more documents"
        )
    with run:
        with contextlib.ExitStack() as stack:
            handles = [
                stack.enter_context(
                    open(stack.enter_context(replaced(run.path / name)), "w", encoding="utf-8")
                )
                for name in (TRAINED, HELD_OUT)
            ]
            for number, sentences in enumerate(read_documents(pieces, text_field)):
                handles[int(is_held_out[number])].write("\n".join([*sentences, "", ""]))
        check_unchanged(*run.inputs["sources"])
        run.finish([TRAINED, HELD_OUT])
