"""The command `python -m pretrain.curves`: parses flags and Gin, and calls the function."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

import pretrain.curves
from pretrain.curves import curves
from runs.command import run_main

_RUN_DIRS = flags.DEFINE_list("run_dirs", [], "Directories of runs, separated by commas.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "curves", "Where figure and numbers go.")

# What --help shows: usage stands with the function.
__doc__ = pretrain.curves.__doc__


def _main(arguments: Sequence[str]) -> None:
    # What a shell's wildcard gives after the flag counts as well.
    print(curves(run_dirs=[*_RUN_DIRS.value, *arguments[1:]], output_dir=_OUTPUT_DIR.value))


if __name__ == "__main__":
    run_main(_main)
