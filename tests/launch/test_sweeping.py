from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gin
import pandas as pd
import pytest

from multiberts.evaluate.prediction_files.parquet import export
from multiberts.finetune.finetuning import finetune
from multiberts.launch.sweeping import sweep, sweep_plan
from multiberts.runs.command_line.gin_files import bindings_of, in_data_folder, parse_gin
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.stats.report.compare_command import compare_files
from multiberts.stats.report.reporting import describe_report, report
from multiberts.stats.report.selection import learning_rates
from multiberts.stats.report.verification import verify
from multiberts.tests import warm

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"batch_size": 16, "num_epochs": 1, "sequence_length": 32, "compile_step": False}


def outputs(root: Path) -> dict[str, bytes]:
    """All that decides or is the result, by path; the logs have speeds in them."""
    kept = ("DONE", "run.json", "*.tfrecord")
    return {
        str(path.relative_to(root)): path.read_bytes()
        for pattern in kept
        for path in sorted(root.rglob(pattern))
    }


def arguments(root: Path, checkpoints: list[Path], data: Path) -> dict:
    return {
        "root": str(root),
        "checkpoints": [str(path) for path in checkpoints],
        "tasks": {"pair": {"data_dir": str(data), **SMALL}},
        "learning_rates": [1e-3, 2e-3],
        "finetune_seeds": [0, 3],
    }


def test_runs_of_a_sweep_are_those_of_single_calls_to_the_byte(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path, winogender_data: Path
) -> None:
    checkpoints = [make_checkpoint(0), make_checkpoint(1)]
    given = arguments(tmp_path / "sweep", checkpoints, pair_data)
    given["tasks"]["pronoun_probe"] = {"winogender_dir": str(winogender_data)}
    assert sweep(**given) == []
    for path in checkpoints:
        for rate in (1e-3, 2e-3):
            for seed in (0, 3):
                finetune(
                    run_dir=str(tmp_path / f"single/pair/{path.name}/lr_{rate:g}-ft_seed_{seed}"),
                    checkpoint=str(path),
                    task="pair",
                    data_dir=str(pair_data),
                    learning_rate=rate,
                    finetune_seed=seed,
                    **SMALL,
                )
        finetune(
            run_dir=str(tmp_path / f"single/pronoun_probe/{path.name}/run"),
            checkpoint=str(path),
            task="pronoun_probe",
            winogender_dir=str(winogender_data),
        )
    assert len(outputs(tmp_path / "single")) == 3 * 10
    assert outputs(tmp_path / "sweep") == outputs(tmp_path / "single")


@pytest.mark.slow
def test_workers_make_the_same_bytes(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    given = arguments(tmp_path / "one", [make_checkpoint()], pair_data)
    assert sweep(**given) == []
    assert sweep(**{**given, "root": str(tmp_path / "two")}, workers=2) == []
    made = {name for name in outputs(tmp_path / "one") if name.endswith("DONE")}
    assert len(made) == 4
    assert outputs(tmp_path / "two") == outputs(tmp_path / "one")
    # Each run was carried out by a worker of its own.
    assert len(list((tmp_path / "two" / "logs").iterdir())) == 4


def test_data_and_weights_are_read_once(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path, monkeypatch
) -> None:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.finetune.text.readers import TableReader

    reads: list[str] = []
    weights = vars(Checkpoint)["_weights"]
    read_weights, read_texts = weights.func, TableReader.__call__

    def reading(self):
        reads.append(self.directory.name)
        return read_weights(self)

    def reading_texts(self, files, name):
        reads.append(name)
        return read_texts(self, files, name)

    monkeypatch.setattr(weights, "func", reading)
    monkeypatch.setattr(TableReader, "__call__", reading_texts)
    paths = [make_checkpoint(5), make_checkpoint(6)]
    assert sweep(**arguments(tmp_path / "sweep", paths, pair_data)) == []
    assert sorted(reads) == ["checkpoint_5", "checkpoint_6", "dev", "train"]


def test_finished_runs_are_left_alone_and_missing_ones_made(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    given = arguments(tmp_path / "sweep", [make_checkpoint()], pair_data)
    sweep(**{**given, "finetune_seeds": [3]})
    first = outputs(tmp_path / "sweep")
    times = {path: (tmp_path / "sweep" / path).stat().st_mtime_ns for path in first}
    sweep(**given)
    both = outputs(tmp_path / "sweep")
    assert len(both) == 2 * len(first) == 12
    assert all((tmp_path / "sweep" / path).stat().st_mtime_ns == at for path, at in times.items())


def test_a_run_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path, capsys
) -> None:
    def spoil(parameters: dict) -> None:
        parameters["bert/pooler/dense/bias"][:] = float("nan")

    bad = make_checkpoint(1, change=spoil)
    given = arguments(tmp_path / "sweep", [bad, make_checkpoint(0)], pair_data)
    failures = sweep(**{**given, "learning_rates": [1e-3]})
    assert [failure.run.path for failure in failures] == [
        f"pair/checkpoint_1/lr_0.001-ft_seed_{seed}" for seed in (0, 3)
    ]
    assert all("NaN or infinite" in failure.message for failure in failures)
    assert all(failure.is_user_error for failure in failures)
    done = sorted(path.parent.name for path in (tmp_path / "sweep").rglob("DONE"))
    assert done == ["lr_0.001-ft_seed_0", "lr_0.001-ft_seed_3"]
    assert "failed: pair/checkpoint_1/lr_0.001-ft_seed_0" in capsys.readouterr().err


def test_names_say_the_run_of_a_checkpoint_and_the_fold(
    make_checkpoint: Callable[..., Path], tmp_path: Path, winogender_data: Path
) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("")
    place = tmp_path / "seed_4-ab12cd34/checkpoints/step_600"
    place.parent.mkdir(parents=True)
    make_checkpoint().rename(place)
    runs = sweep_plan(
        checkpoints=[str(place)],
        tasks={
            "RTE": {"data_dir": str(tmp_path)},
            "pronoun_probe": {"winogender_dir": str(winogender_data)},
        },
        learning_rates={"RTE": [3e-5]},
        finetune_seeds=[2],
        held_out_folds={"RTE": [None, 0]},
    )
    assert [run.path for run in runs] == [
        "RTE/seed_4-ab12cd34-step_600/lr_3e-05-ft_seed_2",
        "RTE/seed_4-ab12cd34-step_600/lr_3e-05-ft_seed_2-fold_0",
        "pronoun_probe/seed_4-ab12cd34-step_600/run",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rates": []}, "sweep.learning_rates of pair is empty"),
        ({"finetune_seeds": [1, 1]}, "sweep.finetune_seeds has 1 twice"),
        ({"tasks": ["sums"]}, "task 'sums' is unknown"),
        ({"tasks": {"pair": {"finetune_seed": 3}}}, "pair/finetune.finetune_seed is set"),
        (
            {"tasks": {"pair": {"stride": 3}}},
            "pair checkpoint_0 learning rate 0.001 seed 0: .*'stride'",
        ),
        ({"checkpoints": ["nowhere"]}, "nowhere does not exist"),
        (
            {"learning_rates": {"RTE": [1e-5]}},
            "sweep.learning_rates .*RTE",
        ),
        ({"tasks": {"pair": {"data_dir": "nowhere"}}}, "nowhere has no table named train"),
        ({"held_out_folds": {"RTE": [0]}}, "sweep.held_out_folds names RTE"),
        ({"held_out_folds": {"pair": []}}, "sweep.held_out_folds of pair is empty"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    pair_data: Path,
    changes: dict,
    message: str,
) -> None:
    given = arguments(tmp_path / "sweep", [make_checkpoint()], pair_data)
    with pytest.raises(UserError, match=message):
        sweep(**{**given, **changes})
    assert not (tmp_path / "sweep").exists()


def command(root: Path, checkpoint: Path, data: Path) -> list[str]:
    """Each run takes a while; `RTE` stands for the scopes of a file that has more than is wanted."""
    bindings = {
        "sweep.root": str(root),
        "sweep.checkpoints": [str(checkpoint)],
        "sweep.tasks": ["pair"],
        "sweep.learning_rates": [1e-3],
        "sweep.finetune_seeds": [0, 1, 2],
        **{f"finetune.{name}": value for name, value in SMALL.items()},
        "finetune.num_epochs": 30,
        "finetune.save_state_every_steps": 20,
        "pair/finetune.data_dir": str(data),
        "RTE/finetune.data_dir": "elsewhere",
    }
    flags = [f"--gin_param={name} = {value!r}" for name, value in bindings.items()]
    return ["sweep", *flags]


@pytest.mark.slow
@pytest.mark.parametrize("notice", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_anywhere_the_same_command_ends_in_the_same_bytes(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path, notice: signal.Signals
) -> None:
    checkpoint, root = make_checkpoint(), tmp_path / "sweep"
    whole = arguments(tmp_path / "whole", [checkpoint], pair_data)
    whole["tasks"]["pair"]["num_epochs"] = 30
    sweep(**{**whole, "learning_rates": [1e-3], "finetune_seeds": [0, 1, 2]})
    process = warm.Process(
        warm.COMMAND, [command(root, checkpoint, pair_data)], kind=warm.TENSORFLOW
    )
    state = root / "pair" / checkpoint.name / "lr_0.001-ft_seed_1/state"
    while process.poll() is None and not list(state.glob("step_*.npz")):
        time.sleep(0.005)
    os.kill(process.pid, notice)
    _, messages = process.communicate()
    expected = -signal.SIGKILL if notice == signal.SIGKILL else EXIT_PREEMPTED
    assert process.returncode == expected, messages
    assert len(list(root.rglob("DONE"))) == 1
    again = warm.run(command(root, checkpoint, pair_data), kind=warm.TENSORFLOW)
    assert again.returncode == 0, again.stderr
    # The finished run is not made again, so its line is not there.
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["[2/3]", "[3/3]"]
    assert outputs(root) == outputs(tmp_path / "whole")


def test_a_slip_in_a_scope_is_refused_by_the_command(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    flags = command(tmp_path / "sweep", make_checkpoint(), pair_data)
    result = warm.run([*flags, "--gin_param=pairs/finetune.num_epochs = 2"])
    assert result.returncode == 2
    assert result.stderr.startswith("error: pairs/finetune.num_epochs is set")
    assert len(result.stderr.splitlines()) == 1


def plan_of_configuration(config: str, checkpoint: str, data: str) -> tuple[int, dict]:
    """How many runs a configuration plans, and the parameters of the first."""
    gin.external_configurable(finetune, name="finetune")
    gin.external_configurable(sweep, name="sweep")
    parse_gin([config], [f"CHECKPOINTS = [{checkpoint!r}]", f"DATA = {data!r}", "ROOT = 'root'"])
    bindings = dict(gin.get_bindings("sweep"))
    assert bindings.pop("root") == "root"
    tasks = {name: bindings_of("finetune", name) for name in bindings["tasks"]}
    bindings["tasks"] = in_data_folder(tasks)
    plan = sweep_plan(**bindings)
    return len(plan), dict(plan[0].parameters)


@pytest.mark.parametrize(
    ("name", "runs", "arguments"),
    [
        ("sweep", 3 * 4 * 5, {"num_epochs": 3, "batch_size": 32}),
        ("zhong2021", 3 * 5 * 2, {"num_epochs": 4, "prediction_epochs": [3, 3.3333, 3.6667]}),
    ],
)
def test_configurations_plan_the_papers_runs(
    tmp_path: Path, make_checkpoint: Callable[..., Path], name: str, runs: int, arguments: dict
) -> None:
    config = str(ROOT / f"configs/finetune/{name}.gin")
    for task in ("RTE", "MRPC", "CoLA", "SST-2", "QQP", "QNLI", "MNLI"):
        data = tmp_path / "data" / "glue" / task
        data.mkdir(parents=True)
        for split in ("train", "dev", "dev_matched", "dev_mismatched"):
            (data / f"{split}.tsv").write_text("")
    # Gin's configuration is one per process.
    count, first = warm.call(
        "launch.test_sweeping:plan_of_configuration",
        config,
        str(make_checkpoint()),
        str(tmp_path / "data"),
    )
    assert count == runs
    assert arguments.items() <= first.items()
    assert first["sequence_length"] == 128


def test_checkpoints_without_a_known_seed_are_arms_and_not_one(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    """As those of Hugging Face: a sweep over two of them compares two, by their fine-tuning seeds."""
    checkpoints = [_published(make_checkpoint(seed), tmp_path / f"model_{seed}") for seed in (0, 1)]
    root = tmp_path / "sweep"
    given = arguments(root, checkpoints, pair_data) | {"learning_rates": [1e-3]}
    assert sweep(**given) == []
    with pytest.raises(UserError, match=r"run\.json has no pretrain_seed, .*--seeds=finetune"):
        compare_files(results=str(root))
    [answer] = json.loads(compare_files(results=str(root), seeds="finetune", json=True))
    assert answer["base"]["name"] == "model_0" and answer["experiment"]["name"] == "model_1"
    assert answer["base"]["seeds"] == answer["experiment"]["seeds"] == [0, 3]
    alone = json.loads(
        compare_files(results=str(root / "pair/model_1"), seeds="finetune", json=True)
    )
    assert alone[0]["estimate"] == answer["experiment"]["estimate"]


def test_unlike_checkpoints_of_one_seed_are_named(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    pair_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two procedures that recorded the same name, seed and step: their runs are not of one."""
    first = make_checkpoint(0).rename(tmp_path / "first")
    second = make_checkpoint(0, change=_more).rename(tmp_path / "second")
    root = tmp_path / "sweep"
    given = arguments(root, [first, second], pair_data) | {"learning_rates": [1e-3]}
    assert sweep(**given) == []
    [answer] = json.loads(compare_files(results=str(root), seeds="finetune", json=True))
    assert [answer[role]["name"] for role in ("base", "experiment")] == ["first", "second"]
    capsys.readouterr()
    compare_files(results=str(root))
    assert "are of 2 checkpoints (first, second) with unlike weights" in capsys.readouterr().err


def test_published_checkpoints_and_their_fine_tuning_seeds_need_no_settings(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    pair_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two without a seed, two rates: the best of each are compared, as the exported predictions say."""
    checkpoints = [_published(make_checkpoint(seed), tmp_path / f"org-{seed}") for seed in (0, 1)]
    root = tmp_path / "sweep"
    assert sweep(**arguments(root, checkpoints, pair_data)) == []
    best = []
    for name in ("org-0", "org-1"):
        export(predictions=str(root / "pair" / name), path=str(tmp_path / f"{name}.csv"))
        table = pd.read_csv(tmp_path / f"{name}.csv")
        right = (table["prediction"] == table["label"]).groupby(table["learning_rate"])
        best.append(right.mean().max())
    [answer] = json.loads(compare_files(results=str(root), seeds="finetune", json=True))
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
    assert verify(page=str(tmp_path / "report/index.html"), runs=[str(root)]) == 0


def test_pre_training_runs_in_a_folder_are_named_by_what_they_record(
    tmp_path: Path, make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    made = make_checkpoint()
    for procedure in ("news", "books"):
        for seed in (0, 1):
            for step in (5, 10):
                run = tmp_path / f"corpora/{procedure}-{seed}/checkpoints/step_{step}"
                shutil.copytree(made, run)
                _record(run, procedure=procedure, pretrain_seed=seed, step=step)
    given = arguments(tmp_path / "sweep", [tmp_path / "corpora"], pair_data)
    del given["root"]
    given |= {"learning_rates": [1e-3], "finetune_seeds": [0]}

    def names(**more: Any) -> list[str]:
        return [run.path.split("/")[1] for run in sweep_plan(**given, **more)]

    last = [f"{name}-seed_{seed}-step_10" for name in ("books", "news") for seed in (0, 1)]
    assert names() == last
    assert names(steps=[10]) == last and len(names(steps=["all"])) == 8
    assert names(steps=[5])[0] == "books-seed_0-step_5"
    with pytest.raises(UserError, match="books, seed 0 has no step 7, only 5, 10; .*--steps"):
        names(steps=[7])
    shutil.rmtree(tmp_path / "corpora/news-1/checkpoints/step_10")
    with pytest.raises(UserError, match="news, seed 1 has no step 10, only 5; finish its"):
        names()
    given["checkpoints"] = [str(made)]
    with pytest.raises(UserError, match="steps chooses in folders of pre-training runs"):
        names(steps=[5])


def _published(checkpoint: Path, place: Path) -> Path:
    """A checkpoint of others, which records nothing of its training."""
    _record(checkpoint, **dict.fromkeys(("procedure", "pretrain_seed", "data_seed", "step")))
    return checkpoint.rename(place)


def _record(checkpoint: Path, **facts: Any) -> None:
    file = checkpoint / "checkpoint.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


def _more(parameters: dict) -> None:
    for values in parameters.values():
        values += 0.01
