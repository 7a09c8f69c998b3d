"""`multiberts sweep`: runs of checkpoints, tasks, rates and seeds, as single calls make them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multiberts.evaluate.exporting import export
from multiberts.finetune.finetuning import finetune
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import stage_function
from multiberts.report.compare_command import compare_files
from multiberts.report.reporting import describe_report, report
from multiberts.report.selection import learning_rates
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.launch.paper_inputs import write_data
from multiberts.tests.tools import warm

SMALL = {"batch_size": 16, "num_epochs": 1, "sequence_length": 32, "compile_step": False}


def command(root: Path, checkpoints: list[Path], data: Path, **more: Any) -> list[str]:
    settings = {
        "root": root, "tasks": "pair",
        "checkpoints": ",".join(map(str, checkpoints)),
        "data_dir": data, "learning_rates": "1e-3,2e-3", "finetune_seeds": "0,3", "workers": 1,
        **SMALL, **more,
    }  # fmt: skip
    return ["sweep", *(f"--{name}={value}" for name, value in settings.items())]


def sweep(*given: Any, **more: Any) -> None:
    done = warm.run(command(*given, **more), kind=warm.TENSORFLOW)
    assert done.returncode == 0, done.stderr


def outputs(root: Path) -> dict[str, bytes]:
    """Records and predictions by path, without the hashes in it; the logs have speeds in them."""
    return {
        re.sub(r"-[0-9a-f]{8}/", "/", str(path.relative_to(root))): path.read_bytes()
        for pattern in ("DONE", "run.json", "*.tfrecord")
        for path in sorted(root.rglob(pattern))
        if "scores" not in path.parts[-2]
    }


@pytest.mark.slow
def test_runs_of_a_sweep_are_those_of_single_calls_to_the_byte(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    checkpoints = [make_checkpoint(0), make_checkpoint(1)]
    for workers in (1, 2):
        sweep(tmp_path / f"sweep_{workers}", checkpoints, pair_data, workers=workers)
    for path in checkpoints:
        record = json.loads((path / "checkpoint.json").read_text())
        name = "{procedure}-seed_{pretrain_seed}-step_{step}".format(**record)
        for rate in (1e-3, 2e-3):
            for seed in (0, 3):
                run_dir = tmp_path / f"single/pair/{name}/lr_{rate:g}-ft_seed_{seed}"
                given = {"checkpoint": str(path), "task": "pair", "data_dir": str(pair_data)}
                changed = {"learning_rate": rate, "finetune_seed": seed, **SMALL}
                finetune(run_dir=str(run_dir), **given, **changed)
    single = outputs(tmp_path / "single")
    assert len(single) == 3 * 8
    for workers in (1, 2):
        assert outputs(tmp_path / f"sweep_{workers}" / "finetune") == single


@pytest.mark.slow
@pytest.mark.parametrize("notice", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_anywhere_the_same_command_ends_in_the_same_bytes(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path, notice: signal.Signals
) -> None:
    checkpoint, root = make_checkpoint(), tmp_path / "sweep"
    long = {
        "num_epochs": 30, "save_state_every_steps": 20, "learning_rates": "1e-3",
        "finetune_seeds": "0,1,2", "gin_param": "RTE/finetune.data_dir = 'elsewhere'",
    }  # fmt: skip
    sweep(tmp_path / "whole", [checkpoint], pair_data, **long)
    process = warm.Process(
        warm.COMMAND, [command(root, [checkpoint], pair_data, **long)], kind=warm.TENSORFLOW
    )
    while process.poll() is None and not list(root.rglob("lr_0.001-ft_seed_1*/state/step_*.npz")):
        time.sleep(0.005)
    os.kill(process.pid, notice)
    _, messages = process.communicate()
    expected = -signal.SIGKILL if notice == signal.SIGKILL else EXIT_PREEMPTED
    assert process.returncode == expected, messages
    made = {path: path.stat().st_mtime_ns for path in root.rglob("DONE")}
    assert len(made) == 1
    sweep(root, [checkpoint], pair_data, **long)
    assert made.items() <= {path: path.stat().st_mtime_ns for path in root.rglob("DONE")}.items()
    assert outputs(root) == outputs(tmp_path / "whole")


@pytest.mark.slow
def test_published_checkpoints_and_their_fine_tuning_seeds_need_no_settings(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    pair_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two without a seed, two rates: the best of each are compared, as the exported predictions say."""
    checkpoints = []
    for seed in (0, 1):
        checkpoint = make_checkpoint(seed)
        file = checkpoint / "checkpoint.json"
        nothing = dict.fromkeys(("procedure", "pretrain_seed", "data_seed", "step"))
        file.write_text(json.dumps(json.loads(file.read_text()) | nothing))
        checkpoints.append(checkpoint.rename(tmp_path / f"org-{seed}"))
    root = tmp_path / "sweep"
    sweep(root, checkpoints, pair_data)
    with pytest.raises(UserError, match=r"run\.json has no pretrain_seed, .*--seeds=finetune"):
        compare_files(results=str(root))
    best = []
    for name in ("org-0", "org-1"):
        folder = root / "finetune/pair" / name
        export(predictions=str(folder), path=str(tmp_path / f"{name}.csv"))
        table = pd.read_csv(tmp_path / f"{name}.csv")
        right = (table["prediction"] == table["label"]).groupby(table["learning_rate"])
        best.append(right.mean().max())
    [answer] = json.loads(compare_files(results=str(root), seeds="finetune", json=True))
    assert answer["base"]["seeds"] == answer["experiment"]["seeds"] == [0, 3]
    assert answer["base"]["estimate"] == pytest.approx(best[0])
    assert answer["experiment"]["estimate"] == pytest.approx(best[1])
    assert "of 0.001, 0.002 (the best mean over runs on the development set" in answer["read"]
    capsys.readouterr()
    learning_rates(predictions=str(root), seeds="finetune")
    printed = capsys.readouterr().out
    assert "pair, org-0: accuracy on dev" in printed and printed.count("<- best") == 2
    report(run_dir=str(tmp_path / "report"), predictions=str(root), n_resamples=100)
    said = "org-1 is compared with org-0, the first by name; over paired fine-tuning seeds"
    assert said in (tmp_path / "report/index.html").read_text()
    assert said in describe_report(str(tmp_path / "report"))
    [row] = pd.read_csv(tmp_path / "report/tables/comparisons.csv").to_dict("records")
    assert row["estimate"] == pytest.approx(best[1] - best[0])
    report(run_dir=str(tmp_path / "again"), predictions=str(root), n_resamples=100)
    pages = [(tmp_path / name / "index.html").read_bytes() for name in ("report", "again")]
    assert pages[0] == pages[1]


def test_unlike_checkpoints_of_one_seed_need_names(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    pair_data: Path,
) -> None:
    """Two procedures that recorded the same name, seed and step: their runs are not of one.

    In this process, as workers would import TensorFlow again: the slow tests have real ones.
    """
    first = make_checkpoint(0).rename(tmp_path / "first")
    second = make_checkpoint(0, change=_more).rename(tmp_path / "second")
    root = tmp_path / "sweep"
    refused = warm.run(command(root, [first, second], pair_data))
    assert refused.returncode == 2 and "leave one out, or, if they differ" in refused.stderr
    names, tasks = (
        {"first": str(first), "second": str(second)},
        {"data_dir": str(pair_data), **SMALL},
    )
    experiment = Experiment(
        checkpoints=names, tasks={"pair": tasks}, learning_rates=[1e-3], finetune_seeds=[0]
    )
    for run in make_plan(experiment):
        stage_function(run.stage)(**run.arguments(root))
    answer = json.loads(compare_files(results=str(root), json=True))
    assert [answer[0][role]["name"] for role in ("base", "experiment")] == ["first", "second"]


@pytest.mark.parametrize(
    ("name", "runs", "changes"),
    [("sweep", 3 * 4 * 5, ["--num_epochs=3"]), ("zhong2021", 3 * 3 * 5 * 2, [])],
)
def test_configurations_plan_the_papers_runs(
    tmp_path: Path, make_checkpoint: Callable[..., Path], name: str, runs: int, changes: list[str]
) -> None:
    write_data(tmp_path / "data")
    for place in (
        "snli_1.0/snli_1.0_test.jsonl", "twitter/Twitter_URL_Corpus_test.txt",
        "StressTests/Negation/negation_matched.jsonl",
    ):  # fmt: skip
        file = tmp_path / "data" / place
        file.parent.mkdir(parents=True)
        file.write_text("")
    flags = [
        f"--gin_file=configs/finetune/{name}.gin", f"--checkpoints={make_checkpoint()}",
        f"--root={tmp_path / 'root'}", f"--gin_param=DATA = {str(tmp_path / 'data')!r}",
    ]  # fmt: skip
    done = warm.run(["launch", "plan", *flags])
    assert done.returncode == 0, done.stderr
    assert f"\n{tmp_path / 'root'}: {runs + 1} runs, 0 done\n" in done.stdout


def _more(parameters: dict) -> None:
    for values in parameters.values():
        values += 0.01
