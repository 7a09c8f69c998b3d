"""Lists the names that parameters take: the command `list`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.finetune.task import registered_tasks
from multiberts.stats.presentation.metric_names import metric_meaning

_ROOT = Path(__file__).resolve().parents[1]


def list_names(*, kind: Literal["tasks", "metrics", "configs"]) -> str:
    """Lists tasks with their options, metrics with their meaning, or Gin files with their first line.

    Args:
      kind: what to list.

    Returns:
      One line per name.

    Example:
      >>> list_names(kind="metrics").splitlines()[0].split(maxsplit=1)
      ['accuracy', 'Share of examples whose prediction is right.']
    """
    if kind == "tasks":
        names = {
            name: ", ".join(f"{option}={value!r}" for option, value in task.options.items())
            for name, task in registered_tasks().items()
        }
    elif kind == "metrics":
        names = {name: metric_meaning(name) for name in [*METRICS, *OCCUPATION_MEASURES]}
    else:
        names = {
            str(path.relative_to(_ROOT)): path.read_text(encoding="utf-8")
            .partition("\n")[0]
            .strip("# ")
            for path in sorted((_ROOT / "configs").rglob("*.gin"))
        }
    width = max(map(len, names)) + 2
    return "\n".join(f"{name:<{width}}{text}".rstrip() for name, text in names.items())
