"""Commands in forks of one process that has imported what they import, which saves seconds per command.

preload()
process = fork_command(["prepare", "--run_dir=out"], folder, stdout, stderr)
process.join()
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path

from multiberts.runs.command_line.command import COMMANDS, main


def preload(modules: Sequence[str] = ()) -> None:
    """Imports what the commands import before they read anything.

    Args:
      modules: imported besides; of TensorFlow nothing may be used before a fork.
    """
    targets = [name for command in COMMANDS.values() for name in (command.target, command.report)]
    for target in filter(None, targets):
        module, _, function = target.partition(":")
        # A module with a `main` of its own defines flags, which other commands may define, too.
        if function != "main":
            importlib.import_module(f"multiberts.{module}")
    for module in modules:
        importlib.import_module(module)


def fork_command(
    arguments: Sequence[str],
    folder: Path,
    stdout: int,
    stderr: int,
    enter: Callable[[], object] | None = None,
) -> ForkProcess:
    """Starts `multiberts` in a fork of this process, with a session of its own.

    Args:
      arguments: the command's name and what follows it.
      folder: the working directory.
      stdout: file descriptor for what it prints; inherited, so the caller closes it.
      stderr: likewise.
      enter: called in the new process before the command.

    Returns:
      The process; its `exitcode` is the command's, or minus the signal that ended it.
    """

    def call() -> None:
        os.setsid()
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for opened, number in ((nothing, 0), (stdout, 1), (stderr, 2)):
            os.dup2(opened, number)
        if enter is not None:
            enter()
        main(arguments)

    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    return process
