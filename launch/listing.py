"""Lists the names that parameters take: the command `list`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from multiberts.evaluate.metrics.register import METRICS, USUAL_NAMES
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.report.presentation.formats import metric_meaning

_ROOT = Path(__file__).resolve().parents[1]


def list_names(*, kind: Literal["tasks", "metrics", "configs"]) -> str:
    """Lists tasks with their options, metrics with their meaning, or Gin files with their first line.

    Args:
      kind: what to list.

    Returns:
      One line per name; metrics grouped by their input.

    Examples:
      >>> list_names(kind="metrics").splitlines()[1].split(maxsplit=1)
      ['accuracy', 'Share of examples whose prediction is right. Also acc.']
    """
    if kind == "tasks":
        from multiberts.finetune.task import registered_tasks

        names = {
            name: ", ".join(f"{option}={value!r}" for option, value in task.options.items())
            for name, task in registered_tasks().items()
        }
    elif kind == "metrics":
        return _metrics_by_input()
    else:
        names = {
            str(path.relative_to(_ROOT)): path.read_text(encoding="utf-8")
            .partition("\n")[0]
            .strip("# ")
            for path in sorted((_ROOT / "configs").rglob("*.gin"))
        }
    width = max(map(len, names)) + 2
    return "\n".join(f"{name:<{width}}{text}".rstrip() for name, text in names.items())


# Headings, by the input of a metric.
_INPUTS = {
    "prediction": "Classes or numbers",
    "positive_score": "Scores of class 1",
    "scores": "Probabilities of classes",
    "text": "Texts, spans and sets of labels",
    "loss": "Losses of examples",
}


def _metrics_by_input() -> str:
    groups: dict[str, list[str]] = {title: [] for title in _INPUTS.values()}
    for name, metric in METRICS.items():
        groups[_INPUTS[metric.uses]].append(name)
    groups["Winogender, by occupation"] = [*OCCUPATION_MEASURES]
    width = max(len(name) for names in groups.values() for name in names) + 2
    lines = []
    for title, names in groups.items():
        lines += ["", f"{title}:"]
        for name in names:
            usual = ", ".join(usual for usual, metric in USUAL_NAMES.items() if metric == name)
            also = f" Also {usual}." if usual else ""
            lines.append(f"  {name:<{width}}{metric_meaning(name)}{also}".rstrip())
    return "\n".join(lines[1:])
