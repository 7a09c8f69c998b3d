"""Loss curves of several runs in one figure, and their held-out accuracy with the spread of seeds.

multiberts show results/seed_0 results/seed_1 --output_dir=results/curves
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.training.log import METRICS, read_metrics
from multiberts.pretrain.inspection.batch_view import read_run_record
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import COLOURS, LINES, canvas, figure_bytes
from multiberts.runs.files import PathLike, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HELD_OUT_LOSS = "held_out_masked_lm_loss"
HELD_OUT_ACCURACY = "held_out_masked_lm_accuracy"
TRAINING_LOSS = "masked_lm_loss"

# Points of the smoothed training loss; single steps are too noisy to compare.
_MOST_POINTS = 100


@dataclasses.dataclass(frozen=True)
class RunCurves:
    """Curves of one run, from its log.

    Attributes:
      training: steps and masked-word losses on the batches trained on, float64 [lines, 2].
      held_out: steps, losses and accuracies on held-out text, float64 [evaluations, 3].
    """

    name: str
    training: np.ndarray
    held_out: np.ndarray


def curves(*, run_dirs: Sequence[PathLike], output_dir: PathLike = "curves") -> str:
    """Draws the loss curves of runs and sums up their held-out masked-word accuracy.

    Writes `loss.png` and `held_out.json` in `output_dir`.

    Args:
      run_dirs: pre-training runs, finished or not.
      output_dir: folder for the files.

    Returns:
      Text: the accuracy of each run at the last step that all have, their mean, and the standard
      deviation between runs (n - 1) with its share of the mean; last where the picture is.
    """
    runs = [_read(run_dir) for run_dir in run_dirs]
    # Several runs may share a name, such as those of two lengths of training: it gets the directory.
    names = [run.name for run in runs]
    runs = [
        dataclasses.replace(run, name=f"{run.name} ({run_dir})")
        if names.count(run.name) > 1
        else run
        for run, run_dir in zip(runs, run_dirs, strict=True)
    ]
    if len({Path(run_dir).resolve() for run_dir in run_dirs}) < len(run_dirs):
        raise UserError("a run is named twice; give each once, or its spread is too small")
    if not runs:
        raise UserError("no run is named; give directories of pre-training runs")
    _draw(runs, Path(output_dir))

    # Held-out accuracy at the last step that all runs have.
    common = set.intersection(*({int(step) for step in run.held_out[:, 0]} for run in runs))
    summary: dict[str, Any] = {"step": None, "runs": {}}
    lines = ["no step with held-out evaluation is common to all runs"]
    if common:
        step = max(common)
        by_run = {run.name: float(run.held_out[run.held_out[:, 0] == step][0, 2]) for run in runs}
        accuracies = np.array([*by_run.values()])
        mean, low, high = (float(f(accuracies)) for f in (np.mean, np.min, np.max))
        deviation = float(accuracies.std(ddof=1)) if len(runs) > 1 else None
        summary = {"step": step, "runs": by_run, "mean": mean, "standard_deviation": deviation}
        summary |= {"lowest": low, "highest": high}
        width = max(map(len, by_run))
        lines = [
            f"held-out masked-word accuracy at step {step}",
            *(f"  {name:{width}}  {value:.4f}" for name, value in by_run.items()),
            f"mean {mean:.4f}",
        ]
        if deviation is not None:
            lines[-1] += (
                f", standard deviation between {len(runs)} runs {deviation:.4f} "
                f"({deviation / mean if mean else math.nan:.1%} of the mean), range {low:.4f} to {high:.4f}"
            )
    write_atomically(Path(output_dir) / "held_out.json", json.dumps(summary, indent=1) + "\n")
    return "\n".join([*lines, f"{Path(output_dir) / 'loss.png'} has the curves"])


def _read(run_dir: PathLike) -> RunCurves:
    record = read_run_record(run_dir)
    training, held_out = [], []
    for line in read_metrics(Path(run_dir) / METRICS):
        if TRAINING_LOSS in line:
            training.append((line["step"], line[TRAINING_LOSS]))
        found = [line[name] for name in (HELD_OUT_LOSS, HELD_OUT_ACCURACY) if name in line]
        if len(found) == 1:
            raise UserError(
                f"{Path(run_dir) / METRICS} has at step {line['step']} one of {HELD_OUT_LOSS} and "
                f"{HELD_OUT_ACCURACY}, expected both; put the line back, or train again"
            )
        if found:
            held_out.append((line["step"], *found))
    if not training:
        raise UserError(f"{run_dir} has logged no loss yet; wait for its first line in {METRICS}")
    return RunCurves(
        record.name, np.array(training, float), np.array(held_out, float).reshape(-1, 3)
    )


def _draw(runs: Sequence[RunCurves], output_dir: Path) -> None:
    held_out = any(len(run.held_out) for run in runs)
    panels = 2 if held_out else 1
    with canvas(4.5 * panels, 3.8, columns=panels, squeeze=False) as (figure, [axes]):
        for number, run in enumerate(runs):
            style = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": LINES[number % len(LINES)],
            }
            steps, losses = _smoothed(run.training)
            width = {"linewidth": 1.0, "alpha": 0.6} if held_out else {"linewidth": 1.4}
            axes[0].plot(steps, losses, **width, **style)
            if held_out:
                axes[0].plot(run.held_out[:, 0], run.held_out[:, 1], linewidth=1.8, **style)
                axes[1].plot(run.held_out[:, 0], run.held_out[:, 2], linewidth=1.8, **style)
            axes[-1].lines[-1].set_label(run.name)
        shown = " (thin: trained on, thick: held out)" if held_out else " on the text trained on"
        _label(axes[0], f"Masked-word loss{shown}", "nats per word")
        if held_out:
            _label(axes[1], "Held-out masked-word accuracy", "share of words")
        axes[-1].legend()
    write_atomically(output_dir / "loss.png", figure_bytes(figure, "png"))


def _label(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylabel(unit)


def _smoothed(curve: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of neighbouring lines, so that a curve has a readable number: steps, values [points]."""
    parts = np.array_split(curve, min(_MOST_POINTS, len(curve)))
    means = np.array([part.mean(axis=0) for part in parts])
    return means[:, 0], means[:, 1]


def describe_training(run_dir: PathLike) -> str:
    """Returns the outputs and the last metrics of a finished pre-training run, for the terminal."""
    lines = read_metrics(Path(run_dir) / METRICS)
    last: dict[str, Any] = {}
    for line in lines:
        last |= line
    names = {
        TRAINING_LOSS: "masked-word loss",
        "masked_lm_accuracy": "masked words right",
        "next_sentence_accuracy": "next sentences right",
        HELD_OUT_LOSS: "held-out loss",
        HELD_OUT_ACCURACY: "held-out masked words right",
    }
    steps = sorted(
        int(path.name.removeprefix("step_")) for path in Path(run_dir, "checkpoints").glob("step_*")
    )
    shown = [f"  {text:<28}{last[name]:.3f}" for name, text in names.items() if name in last]
    return "\n".join(
        [f"{run_dir}", *shown, f"  {'checkpoints at steps':<28}{', '.join(map(str, steps))}"]
    )
