"""The command `python -m pretrain.show_batch`: parses flags and Gin, and calls the function."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

import pretrain.show_batch
from pretrain.show_batch import show_batch
from runs.command import run_main
from runs.errors import UserError

_RUN_DIR = flags.DEFINE_string("run_dir", None, "Directory of a pre-training run.")
_STEP = flags.DEFINE_integer("step", None, "The step, from 1.")
_ROWS = flags.DEFINE_integer("rows", 4, "Sequences to spell out; 0 for all.", lower_bound=0)
_CORPUS = flags.DEFINE_string("corpus", None, "Where the corpus lies, if it was moved.")
_CHECKPOINT = flags.DEFINE_string(
    "initial_checkpoint", None, "Where the checkpoint lies that it went on from, if moved."
)

# What --help shows: usage stands with the function.
__doc__ = pretrain.show_batch.__doc__


def _main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1 or _RUN_DIR.value is None or _STEP.value is None:
        raise UserError("give --run_dir=<directory> and --step=<number>, and nothing but flags")
    shown = show_batch(
        run_dir=_RUN_DIR.value,
        step=_STEP.value,
        rows=_ROWS.value or None,
        corpus=_CORPUS.value,
        initial_checkpoint=_CHECKPOINT.value,
    )
    print(shown)


if __name__ == "__main__":
    run_main(_main)
