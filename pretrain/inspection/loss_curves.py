"""Loss curves of runs by group, and the held-out accuracy of each group with its spread over seeds.

multiberts show results/seed_0 results/seed_1 --output_dir=results/curves
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.training.log import METRICS, read_metrics
from multiberts.pretrain.inspection.batch_view import RunRecord, read_run_record
from multiberts.runs.console import joined
from multiberts.runs.errors import UserError, counted
from multiberts.runs.figure_style import COLOURS, LINES, canvas, figure_bytes
from multiberts.runs.files import PathLike, check_output, write_atomically

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

    record: RunRecord
    training: np.ndarray
    held_out: np.ndarray


def curves(*, run_dirs: Sequence[PathLike], output_dir: PathLike = "curves") -> str:
    """Draws the loss curves of runs and sums up their held-out masked-word accuracy.

    Runs of one procedure, number of steps and corpus form a group: their mean and standard deviation are
    over the runs' seeds. Writes `loss.png` and `held_out.json` in `output_dir`.

    Returns:
      Text: for each group the accuracy of each run at the last step that its runs have in common, their
      mean, and the standard deviation between runs (n - 1); last where the picture is.
    """
    if len({Path(run_dir).resolve() for run_dir in run_dirs}) < len(run_dirs):
        raise UserError("a run is named twice; give each once, or its spread is too small")
    if not run_dirs:
        raise UserError("no run is named; give directories of pre-training runs")
    picture = Path(output_dir) / "loss.png"
    check_output(picture if picture.exists() else Path(output_dir) / "held_out.json")
    groups = _grouped([_read(run_dir) for run_dir in run_dirs])
    _draw(groups, Path(output_dir))
    lines = ["runs are grouped by procedure, number of steps and corpus"]
    summaries = {}
    for name, runs in groups.items():
        summaries[name], text = _summary(runs)
        lines += [f"{name}: {text[0]}", *text[1:]]
    write_atomically(Path(output_dir) / "held_out.json", json.dumps(summaries, indent=1) + "\n")
    return joined([*lines, f"{Path(output_dir) / 'loss.png'} has the curves"])


def _grouped(runs: Sequence[RunCurves]) -> dict[str, list[RunCurves]]:
    """Returns the runs by the name of their group, with the corpus if names would be equal otherwise."""
    by_key: dict[tuple[str, str], list[RunCurves]] = {}
    for run in runs:
        parameters = run.record.parameters
        steps = f", {parameters['num_steps']:,} steps" if "num_steps" in parameters else ""
        corpus, content = run.record.inputs.get("corpus", ("", ""))
        by_key.setdefault((f"{parameters['procedure']}{steps}", content), []).append(run)
    names = [name for name, _ in by_key]
    groups = {}
    for (name, _), members in by_key.items():
        corpus, _ = members[0].record.inputs.get("corpus", ("", ""))
        groups[f"{name}, corpus {corpus}" if names.count(name) > 1 else name] = members
    return groups


def _summary(runs: Sequence[RunCurves]) -> tuple[dict[str, Any], list[str]]:
    """Returns the held-out accuracies of a group at its last common step, as numbers and as lines.

    Without a common evaluation the lines have the loss on the text trained on, which the numbers leave out.
    """
    held_out, training = (
        _stacked([getattr(run, log) for run in runs]) for log in ("held_out", "training")
    )
    if held_out.size:
        summary, lines = _spread("held-out masked-word accuracy", runs, held_out[:, -1, [0, 2]])
    else:
        summary = {"step": None, "runs": {}}
        if not any("evaluation_corpus" in run.record.inputs for run in runs):
            reason = "no held-out text; pretrain takes it as --evaluation_corpus"
        else:
            reason = "no step with held-out evaluation" + " is common to all runs" * (len(runs) > 1)
        lines = [f"{counted(len(runs), 'run')} without a common logged step"]
        if training.size:
            lines = _spread("masked-word loss", runs, training[:, -1])[1]
        lines[0] += f" ({reason})"
    if all(len(run.training) == 1 for run in runs):
        logged, planned = runs[0].training[0, 0], runs[0].record.parameters.get("num_steps")
        cure = "train again with a smaller --log_every_steps, in a new --run_dir"
        cure = cure if logged == planned else "wait for the next one"
        lines.append(f"  one logged step, {logged:.0f}, so dots and no curve; {cure}")
    return summary, lines


def _spread(
    title: str, runs: Sequence[RunCurves], values_at_step: np.ndarray
) -> tuple[dict[str, Any], list[str]]:
    """Returns the value of each run, their mean and spread, from steps and values [runs, 2]."""
    step, values = int(values_at_step[0, 0]), values_at_step[:, 1]
    names = [run.record.name for run in runs]
    by_run = {
        f"{name} ({run.record.path})" if names.count(name) > 1 else name: float(value)
        for name, run, value in zip(names, runs, values, strict=True)
    }
    mean, low, high = (float(f(values)) for f in (np.mean, np.min, np.max))
    deviation = float(values.std(ddof=1)) if len(runs) > 1 else None
    width = max(map(len, by_run))
    lines = [
        f"{title} at step {step}",
        *(f"  {name:{width}}  {value:.4f}" for name, value in by_run.items()),
        f"  mean {mean:.4f}",
    ]
    if deviation is not None:
        lines[-1] += (
            f", standard deviation between {len(runs)} runs {deviation:.4f} "
            f"({deviation / mean if mean else math.nan:.1%} of the mean), range {low:.4f} to {high:.4f}"
        )
    summary = {"step": step, "runs": by_run, "mean": mean, "standard_deviation": deviation}
    return summary | {"lowest": low, "highest": high}, lines


def _stacked(logs: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the lines of the steps that all logs have, [logs, common steps, columns]."""
    steps = functools.reduce(np.intersect1d, [log[:, 0] for log in logs])
    return np.stack([log[np.isin(log[:, 0], steps)] for log in logs])


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
    return RunCurves(record, np.array(training, float), np.array(held_out, float).reshape(-1, 3))


def _draw(groups: Mapping[str, Sequence[RunCurves]], output_dir: Path) -> None:
    panels = [("Masked-word loss, text trained on", "nats per word", "training", 1)]
    if any(len(run.held_out) for runs in groups.values() for run in runs):
        panels += [
            ("Masked-word loss, held-out text", "nats per word", "held_out", 1),
            ("Masked-word accuracy, held-out text", "words right (%)", "held_out", 2),
        ]
    with canvas(4.5 * len(panels), 4.1, len(panels), squeeze=False) as (figure, [every]):
        for axes, (title, unit, log, column) in zip(every, panels, strict=True):
            scale = 100 if "%" in unit else 1
            for number, (name, runs) in enumerate(groups.items()):
                logs = [getattr(run, log)[:, [0, column]] for run in runs]
                longest = max(map(len, logs))
                logs = [_smoothed(each, -(-longest // _MOST_POINTS)) for each in logs]
                colour, line = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
                for steps, values in (each.T for each in logs):
                    dot = "." if len(steps) == 1 else ""  # a line of one point is invisible
                    axes.plot(
                        steps, scale * values, marker=dot, color=colour, linewidth=0.6, alpha=0.6
                    )
                common = _stacked(logs)
                if not common.size:
                    continue
                steps, values = common[0, :, 0], scale * common[:, :, 1]
                mean, label = values.mean(axis=0), f"{name} ({counted(len(runs), 'run')})"
                axes.plot(
                    steps, mean, marker="o" if len(steps) == 1 else "", color=colour, linewidth=1.8,
                    linestyle=line, label=label, markerfacecolor="none", markersize=9,
                )  # fmt: skip
                if len(runs) > 1:
                    spread = values.std(axis=0, ddof=1)
                    axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18,
                                      linewidth=8 if len(steps) == 1 else 0)  # fmt: skip
            axes.set_title(title)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_xlabel("step")
            axes.set_ylabel(unit)
        title = "thick: mean of the runs; band: one SD; thin: each run"
        figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower left", title=title,
                      alignment="left", title_fontsize=9)  # fmt: skip
    write_atomically(output_dir / "loss.png", figure_bytes(figure, "png"))


def _smoothed(curve: np.ndarray, size: int) -> np.ndarray:
    """Returns the means of every `size` lines [points, 2]."""
    parts = [curve[first : first + size] for first in range(0, len(curve), max(1, size))]
    return np.array([part.mean(axis=0) for part in parts]).reshape(-1, 2)


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
