"""A module of a stranger with a task, which notes that it was imported."""

from __future__ import annotations

from pathlib import Path

TASK = "weather"
_CODE = f"""\
import dataclasses, pathlib
from multiberts.finetune.text.user_tasks import TASKS as OURS
pathlib.Path(__file__).with_name('was_imported').touch()
pair = next(task for task in OURS if task.name == 'pair')
TASKS = (dataclasses.replace(pair, name={TASK!r}),)
"""


def write_stranger(path: Path) -> Path:
    """Writes the module, and returns the file that is there once it was imported."""
    path.write_text(_CODE)
    return path.with_name("was_imported")
