"""The command `python -m pretrain.describe`: parses flags and Gin, and calls the function."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

import pretrain.describe
from pretrain.describe import describe
from runs.command import run_main
from runs.errors import UserError

_CORPUS = flags.DEFINE_string("corpus", None, "Directory of a corpus.")
_PROBABILITY = flags.DEFINE_float(
    "masked_lm_probability", 0.15, "Share of tokens to predict, for the count of masks."
)

# What --help shows: usage stands with the function.
__doc__ = pretrain.describe.__doc__


def _main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1 or _CORPUS.value is None:
        raise UserError("give --corpus=<directory>, and nothing but flags")
    print(describe(corpus=_CORPUS.value, masked_lm_probability=_PROBABILITY.value))


if __name__ == "__main__":
    run_main(_main)
