"""Curves of groups of runs, and the spread of their held-out accuracy."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from multiberts.pretrain.inspection.loss_curves import curves
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import COLOURS
from multiberts.tests.tools import warm

ACCURACIES = {0: [0.1, 0.30, 0.40], 1: [0.1, 0.32, 0.44], 2: [0.1, 0.31, 0.39, 0.45]}


def _write_run(
    run: Path, seed: int, accuracies: list[float], procedure: str = "base", corpus: str = "c"
) -> Path:
    run.mkdir(parents=True)
    (run / "config.gin").write_text(
        "# Frozen by the stage `pretrain`.\n"
        f"pretrain.data_seed = {seed}\npretrain.pretrain_seed = {seed}\n"
        f"pretrain.procedure = '{procedure}'\npretrain.num_steps = 310\n"
        f"pretrain.corpus = '{corpus}'  # holds {corpus}\n"
    )
    lines = [{"step": step, "loss": 9 - step / 100, "masked_lm_loss": 8 - step / 100}
             for step in range(10, 310, 10)]  # fmt: skip
    lines += [
        {"step": 100 * number, "held_out_masked_lm_loss": 8.0 - number,
         "held_out_masked_lm_accuracy": accuracy}
        for number, accuracy in enumerate(accuracies)
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text + '{"step": 310, "lo')  # being written
    return run


def colours_of(pixels: np.ndarray) -> set[str]:
    """Returns the colours of an image, as `COLOURS` has them."""
    values = np.rint(255 * pixels[..., :3].astype(float)).astype(int).reshape(-1, 3)
    return {f"#{number:06X}" for number in np.unique(values @ [1 << 16, 1 << 8, 1])}


@pytest.fixture
def run_dirs(tmp_path: Path) -> list[Path]:
    return [_write_run(tmp_path / f"seed_{seed}", seed, a) for seed, a in ACCURACIES.items()]


def test_spread_at_the_last_common_step(run_dirs: list[Path], tmp_path: Path) -> None:
    text = curves(run_dirs=run_dirs, output_dir=tmp_path / "out")
    last = [0.40, 0.44, 0.39]
    [(group, summary)] = json.loads((tmp_path / "out" / "held_out.json").read_text()).items()
    assert group == "base, 310 steps"
    assert summary["step"] == 200
    assert summary["runs"] == dict(zip([f"base seed {n}" for n in range(3)], last, strict=True))
    assert summary["mean"] == pytest.approx(statistics.mean(last))
    assert summary["standard_deviation"] == pytest.approx(statistics.stdev(last))
    assert "mean 0.4100, standard deviation between 3 runs 0.0265" in text
    assert "range 0.3900 to 0.4400" in text
    assert text.endswith(f"{tmp_path / 'out' / 'loss.png'} has the curves")


def test_the_figure_is_the_same_each_time(run_dirs: list[Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        curves(run_dirs=run_dirs, output_dir=tmp_path / name)
    one, two = ((tmp_path / name / "loss.png").read_bytes() for name in ("one", "two"))
    assert one == two and one.startswith(b"\x89PNG")
    assert b"Matplotlib" not in one
    shown = colours_of(imread(tmp_path / "one" / "loss.png"))
    assert COLOURS[0] in shown and not set(COLOURS[1:6]) & shown  # one colour per group


def test_runs_of_another_procedure_or_corpus_have_their_own_mean(
    run_dirs: list[Path], tmp_path: Path
) -> None:
    others = [
        _write_run(tmp_path / f"{procedure}{seed}", seed, [0.1, 0.2, accuracy], procedure, corpus)
        for procedure, corpus, accuracy in (("base", "swapped", 0.6), ("cda", "swapped", 0.8))
        for seed in range(2)
    ]
    text = curves(run_dirs=[*run_dirs, *others], output_dir=tmp_path / "out")
    groups = json.loads((tmp_path / "out" / "held_out.json").read_text())
    means = {name: pytest.approx(summary["mean"]) for name, summary in groups.items()}
    assert means == {
        "base, 310 steps, corpus c": 0.41, "base, 310 steps, corpus swapped": 0.6,
        "cda, 310 steps": 0.8,
    }  # fmt: skip
    assert "runs are grouped by procedure, number of steps and corpus" in text
    shown = colours_of(imread(tmp_path / "out" / "loss.png"))
    assert set(COLOURS[:3]) <= shown and not set(COLOURS[3:6]) & shown


def test_without_held_out_text_there_is_one_panel(run_dirs: list[Path], tmp_path: Path) -> None:
    curves(run_dirs=run_dirs, output_dir=tmp_path / "both")
    for run_dir in run_dirs:
        log = run_dir / "metrics.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if "held_out" not in line))
    curves(run_dirs=run_dirs, output_dir=tmp_path / "one")
    one, both = (imread(tmp_path / name / "loss.png").shape for name in ("one", "both"))
    assert (3 * one[1], one[0]) == (both[1], both[0])


def test_one_logged_step_shows_as_dots_and_its_loss_is_printed(
    run_dirs: list[Path], tmp_path: Path
) -> None:
    for seed, run_dir in enumerate(run_dirs):
        line = {"step": 310, "masked_lm_loss": 3.0 + seed}
        (run_dir / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    text = curves(run_dirs=run_dirs, output_dir=tmp_path / "out")
    assert "masked-word loss at step 310 (no held-out text; " in text and "mean 4.0000" in text
    assert "one logged step, 310, so dots and no curve; train again with a smaller" in text
    pixels = imread(tmp_path / "out" / "loss.png")
    assert COLOURS[0] in colours_of(pixels[: int(0.75 * len(pixels))])  # above the legend


def test_runs_of_one_name_stay_apart(run_dirs: list[Path], tmp_path: Path) -> None:
    longer = _write_run(tmp_path / "longer", 0, [0.1, 0.2, 0.3])
    curves(run_dirs=[*run_dirs, longer], output_dir=tmp_path / "out")
    [summary] = json.loads((tmp_path / "out" / "held_out.json").read_text()).values()
    first = f"base seed 0 ({run_dirs[0]})"
    assert summary["runs"] == {
        first: 0.40, "base seed 1": 0.44, "base seed 2": 0.39, f"base seed 0 ({longer})": 0.3
    }  # fmt: skip


def test_refusals(run_dirs: list[Path], tmp_path: Path) -> None:
    half = _write_run(tmp_path / "half", 0, [])
    (half / "metrics.jsonl").write_text('{"step": 99, "held_out_masked_lm_loss": 2.0}\n')
    (run_dirs[0] / "metrics.jsonl").unlink()
    for given, message in (
        ([tmp_path], r"has no config\.gin; give the directory of a pre-training"),
        (run_dirs, "has logged no loss yet"),
        ([], "no run is named"),
        ([run_dirs[1], run_dirs[2], run_dirs[1]], "a run is named twice"),
        ([half], "has at step 99 one of held_out_masked_lm_loss and"),
    ):
        with pytest.raises(UserError, match=message):
            curves(run_dirs=given, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command(run_dirs: list[Path], tmp_path: Path) -> None:
    """Of one run, which has no spread."""
    done = warm.run(["show", str(run_dirs[0]), f"--output_dir={tmp_path / 'out'}"])
    assert done.returncode == 0, done.stderr
    assert "held-out masked-word accuracy at step 200" in done.stdout
    assert "mean 0.4000" in done.stdout and "deviation" not in done.stdout
