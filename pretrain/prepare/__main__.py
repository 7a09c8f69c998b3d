"""The command `python -m pretrain.prepare`: parses flags and Gin, and calls the function."""

from __future__ import annotations

import functools
from typing import Any

from absl import flags

import pretrain.prepare
from pretrain.describe import describe
from pretrain.prepare import prepare
from runs.command import run_command

flags.DEFINE_string(
    "runner",
    None,
    "Apache Beam runner, as DirectRunner; without it, processes of this machine.",
)
flags.DEFINE_multi_string(
    "pipeline_option", [], "Option of the Beam pipeline, as --region=...; may be repeated."
)

# What --help shows: usage stands with the function.
__doc__ = pretrain.prepare.__doc__


@functools.wraps(prepare)
def command(**bindings: Any) -> None:
    """Adds what the command line says of the runner, and tells what was made."""
    if flags.FLAGS.runner is not None:
        bindings["runner"] = flags.FLAGS.runner
    if flags.FLAGS.pipeline_option:
        bindings["pipeline_options"] = flags.FLAGS.pipeline_option
    prepare(**bindings)
    print(describe(corpus=bindings["run_dir"]))


if __name__ == "__main__":
    run_command(command)
