r"""Sets whole documents of a text aside, to measure on what was not trained on.

    multiberts hold-out --gin_param='hold_out.run_dir = "text"' \
        --gin_param='hold_out.sources = ["text.txt.gz"]' \
        --gin_param='hold_out.source_format = "wikiextractor"'

Documents stay whole and in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from multiberts.bert.randomness import hash_bits, uniform
from multiberts.pretrain.corpus.documents import (
    FILE_FORMATS,
    check_sources,
    expand_sources,
    read_documents,
)
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError, check_values
from multiberts.runs.files import replaced

TRAINED = "trained.txt"
HELD_OUT = "held_out.txt"


def hold_out(
    *,
    run_dir: str,
    sources: Sequence[str],
    source_format: str,
    text_field: str = "text",
    share: float = 0.05,
    hold_out_seed: int = 0,
) -> None:
    """Writes `trained.txt` and `held_out.txt`, both for `prepare` with source_format `sentences`.

    Documents stay whole and in order. Which are held out depends on their numbers and the seed
    alone.

    Args:
      run_dir: directory of the outputs.
      sources: text files or patterns, as for `prepare`.
      source_format: their layout, one of the file formats of `prepare`.
      text_field: of `jsonl`, the field that holds the text.
      share: of the documents that are held out.
      hold_out_seed: of the choice.

    Raises:
      UserError: a source or a parameter cannot be used, or one side would have less than two
        documents; nothing is written.
    """
    check_sources(sources, "hold_out.sources")
    known = source_format in FILE_FORMATS
    check_values(
        "hold_out",
        (
            ("source_format", source_format, known, f"one of {', '.join(FILE_FORMATS)}"),
            ("share", share, 0 < share < 1, "more than 0 and less than 1"),
        ),
    )
    parameters = {
        "source_format": source_format,
        "text_field": text_field,
        "share": share,
        "hold_out_seed": hold_out_seed,
    }
    files = expand_sources(sources)
    run = RunDirectory(run_dir, stage="hold_out", parameters=parameters, inputs={"sources": files})
    if run.done:
        return
    count = sum(1 for _ in read_documents(files, source_format, text_field))
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
            for number, sentences in enumerate(read_documents(files, source_format, text_field)):
                handles[int(is_held_out[number])].write("\n".join([*sentences, "", ""]))
        run.finish([TRAINED, HELD_OUT])
