"""`multiberts sweep`: many fine-tuning runs in one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import gin
from absl import flags

from multiberts.finetune.finetuning import finetune
from multiberts.finetune.sweeping import sweep
from multiberts.finetune.tasks import registered_tasks
from multiberts.runs.command import EXIT_USER_ERROR, parse_gin, require_arguments, run_main
from multiberts.runs.errors import UserError
from multiberts.runs.gin_files import in_data_folder
from multiberts.runs.scopes import refuse_unknown_scopes, scoped_bindings


def main() -> None:
    """Runs `multiberts sweep`."""
    run_main(_main)


def _main(arguments: Sequence[str]) -> None:
    """Gathers what Gin binds to `sweep`, and to `finetune` in each task's scope."""
    if len(arguments) > 1:
        raise UserError(
            f"unexpected argument {arguments[1]!r}; give parameters as --gin_param='name = value'"
        )
    for function in (finetune, sweep):
        gin.external_configurable(function, name=function.__name__)
    parse_gin(flags.FLAGS.gin_file, flags.FLAGS.gin_param)
    given = dict(gin.get_bindings("sweep"))
    require_arguments(sweep, set(given))
    names = list(given["tasks"])
    # A file may say more tasks than are wanted now; what is neither is a slip.
    refuse_unknown_scopes({"finetune": {*names, *registered_tasks()}}, "sweep.tasks")
    given["tasks"] = {name: in_data_folder(scoped_bindings("finetune", name)) for name in names}
    failures = sweep(**given)
    if failures:
        print(f"{len(failures)} runs failed:", file=sys.stderr)
        for failure in failures:
            print(f"  {failure.run.path}: {failure.message}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR if all(f.is_user_error for f in failures) else 1)
