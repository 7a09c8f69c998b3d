"""What paths say of arms, tasks and seeds: the usual layouts, built by pandas and NumPy."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts import stats
from multiberts.evaluate.readers.layout import SourceFile, source_files
from multiberts.evaluate.readers.rows import BY_NAME, NUMBERED
from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.readers.one_task import read_arms

SEEDS = (0, 3)
LABELS = np.array([1, 0, 0, 1, 1])


def answers(arm: str, seed: int) -> np.ndarray:
    """Answers that no other arm and seed has."""
    return (LABELS + (np.arange(5) == seed + (arm == "ours"))) % 2


def table(arm: str, seed: int) -> pd.DataFrame:
    ids = [f"q{number}" for number in range(5)]
    return pd.DataFrame({"id": ids, "prediction": answers(arm, seed), "label": LABELS})


def write(path: Path, frame: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)


@pytest.mark.parametrize(
    "name",
    [
        "{arm}_seed{seed}_predictions.csv", "{arm}/seed{seed}.csv", "{arm}/seed_{seed}/preds.csv",
        "{arm}-seed={seed}.csv", "2026-01-0{n}_10-22-33_{arm}_seed{seed}.csv", "{arm}_{seed}.csv",
        "all/runs/{arm}/seed{seed}.csv", "predictions_{arm}_seed{seed}.csv", "{arm}/{seed}.csv",
        "{arm}_seed{seed}.csv.gz",
    ],
)  # fmt: skip
def test_what_precedes_the_seed_is_the_arm_if_it_differs(name: str, tmp_path: Path) -> None:
    for arm in ("base", "ours"):
        for n, seed in enumerate(SEEDS, 1):
            write(tmp_path / name.format(arm=arm, seed=seed, n=n), table(arm, seed))
    arms = read_arms(str(tmp_path))
    assert {*arms} == {"base", "ours"}
    for arm, found in arms.items():
        assert found.seeds == [*SEEDS]
        assert found.values.tolist() == [answers(arm, seed).tolist() for seed in SEEDS]
        assert found.read.columns["arm"] == BY_NAME
        assert found.read.columns["seed"] == (
            BY_NAME if "seed{" in name.replace("_", "").replace("=", "") else NUMBERED
        )


@pytest.mark.parametrize(
    "name",
    [
        "{arm}/seed_{seed}/{task}.csv", "{arm}_seed{seed}_{task}.csv", "{arm}/{task}_seed{seed}.csv",
        "{task}/{arm}/seed{seed}.csv", "{task}_{arm}_{seed}.csv",
        "{arm}_seed{seed}/predict_results_{task}.csv",
    ],
)  # fmt: skip
def test_tasks_are_never_joined_as_examples(name: str, tmp_path: Path) -> None:
    """Two tasks of one size and without ids, which were concatenated."""
    for arm in ("base", "ours"):
        for seed in SEEDS:
            for task, labels in (("rte", LABELS), ("sst2", 1 - LABELS)):
                frame = table(arm, seed).drop(columns="id").assign(label=labels)
                write(tmp_path / name.format(arm=arm, seed=seed, task=task), frame)
    with pytest.raises(UserError, match=r"2 tasks \((rte, sst2|sst2, rte)\); .*--task=(rte|sst2)$"):
        read_arms(str(tmp_path))
    arms = read_arms(str(tmp_path), task="sst2")
    assert [*arms] == ["base", "ours"]
    for arm, found in arms.items():
        assert found.labels.tolist() == (1 - LABELS).tolist() and found.read.task == "sst2"
        assert found.values.tolist() == [answers(arm, seed).tolist() for seed in SEEDS]
        assert all("sst2" in file for file in found.read.files)


def test_names_after_the_seed_are_tasks_whatever_they_are(tmp_path: Path) -> None:
    for seed in SEEDS:
        for name in ("first", "second"):
            write(tmp_path / f"seed{seed}_{name}.csv", table(name, seed))
    with pytest.raises(
        UserError, match="2 tasks .first, second.; .*or let models' names come before"
    ):
        read_arms(str(tmp_path))
    assert read_arms(str(tmp_path), task="first")[""].seeds == [*SEEDS]


def test_files_without_a_task_beside_others_are_not_left_out(tmp_path: Path) -> None:
    """Their rows were dropped, and what was read named the files."""
    for seed in SEEDS:
        for name in ("", "_extra"):
            write(tmp_path / f"seed{seed}{name}.csv", table("base", seed))
    with pytest.raises(UserError, match="some files name no task, others extra; .*--task=extra"):
        read_arms(str(tmp_path))
    assert read_arms(str(tmp_path), task="extra")[""].seeds == [*SEEDS]


def test_a_task_is_known_by_its_whole_name_first(tmp_path: Path) -> None:
    """The refusal told people to give the name that they had given."""
    tasks = ["rte", "rte/dev", "mnli"]
    frames = [table("base", 0).assign(seed=0, task=task) for task in tasks]
    write(tmp_path / "all.csv", pd.concat(frames))
    for task in tasks:
        [found] = read_arms(str(tmp_path / "all.csv"), task=task).values()
        assert found.read.task == task and found.values.shape == (1, 5)


def test_several_runs_of_a_seed_are_its_runs(tmp_path: Path) -> None:
    for seed in SEEDS:
        for run in (1, 2):
            write(
                tmp_path / f"pretrain_seed{seed}" / f"finetune_seed{run}.csv", table("base", seed)
            )
    found = read_arms(str(tmp_path))[""]
    assert found.keys == [(0, 1), (0, 2), (3, 1), (3, 2)]


def test_a_shells_glob_names_the_seeds_of_arms(tmp_path: Path) -> None:
    paths = []
    for arm in ("ours", "base"):
        for seed in SEEDS:
            write(tmp_path / f"{arm}_seed{seed}" / "test.csv", table(arm, seed))
            paths.append(str(tmp_path / f"{arm}_seed{seed}"))
    assert [*read_arms(paths)] == ["ours", "base"]  # in the order of the paths
    assert [*stats.read(paths)] == ["ours", "base"]
    [found] = read_arms(paths[:2]).values()
    assert found.values.tolist() == [answers("ours", seed).tolist() for seed in SEEDS]


def test_files_beside_those_of_predictions_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in SEEDS:
        write(tmp_path / f"base_seed{seed}_predictions.csv", table("base", seed))
        for kind in ("metrics", "history"):
            write(
                tmp_path / f"base_seed{seed}_{kind}.csv",
                pd.DataFrame({"epoch": [1], "loss": [0.5]}),
            )
        (tmp_path / f"base_seed{seed}.pt").write_bytes(b"PK")
    assert read_arms(str(tmp_path))[""].seeds == [*SEEDS]
    told = capsys.readouterr().err
    assert "6 files" in told and told.count("\n") == 1
    assert re.search(r"\*\.pt \(2\), \*_history.csv \(2\), \*_metrics.csv \(2\)", told)
    (tmp_path / "base_seed3_predictions.csv").write_bytes(b"id,prediction\n\xe9,1\n")
    with pytest.raises(UserError, match=r"base_seed3_predictions.csv"):
        read_arms(str(tmp_path))


@pytest.mark.parametrize(
    "settings", [{"lr": 1e-5}, {"lr": 1e-5, "layers": [1, 2]}, {"model": {"layers": 2}, "lr": 1.0}]
)
def test_settings_of_the_same_name_are_left_out(
    settings: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in SEEDS:
        write(tmp_path / f"base_seed{seed}.csv", table("base", seed))
        (tmp_path / f"base_seed{seed}.json").write_text(json.dumps(settings))
    assert read_arms(str(tmp_path))[""].seeds == [*SEEDS]
    assert "2 files beside those of predictions left out: *.json (2)" in capsys.readouterr().err


@pytest.mark.parametrize("arms", [("base", "answers_first"), ("base", "loss_weighted")])
def test_words_in_names_of_models_leave_no_model_out(
    arms: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arm in arms:
        for seed in SEEDS:
            write(tmp_path / f"{arm}_seed{seed}.csv", table("base", seed))
    assert len(read_arms(str(tmp_path))) == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "name", ["{kind}_{arm}_seed{seed}.csv", "{kind}_{seed}.csv", "seed_{seed}/{kind}.csv"]
)
def test_the_kind_of_a_file_may_come_first(name: str, tmp_path: Path) -> None:
    for arm in ("base", "ours") if "{arm}" in name else ("",):
        for seed in SEEDS:
            write(tmp_path / name.format(kind="preds", arm=arm, seed=seed), table(arm, seed))
            metrics = pd.DataFrame({"epoch": [1], "loss": [0.5]})
            write(tmp_path / name.format(kind="metrics", arm=arm, seed=seed), metrics)
    arms = read_arms(str(tmp_path))
    assert [*arms] == (["base", "ours"] if "{arm}" in name else [""])
    assert all(found.seeds == [*SEEDS] for found in arms.values())


def test_two_files_of_one_arm_and_seed_are_refused(tmp_path: Path) -> None:
    for name in ("preds", "outputs"):
        write(tmp_path / f"base_seed0_{name}.csv", table("base", 0))
    with pytest.raises(
        UserError, match="base_seed0_outputs.csv and .*base_seed0_preds.csv both hold"
    ):
        read_arms(str(tmp_path))


@pytest.mark.parametrize("names", [("base", "ours"), ("bert_1", "bert_2")])
def test_files_with_a_column_of_seeds_are_arms(names: tuple[str, str], tmp_path: Path) -> None:
    """Without ids two models of one seed were concatenated, as if they had twice the examples."""
    for name in names:
        frames = [table(name, seed).drop(columns="id").assign(seed=seed) for seed in SEEDS]
        write(tmp_path / f"{name}.csv", pd.concat(frames))
    arms = read_arms(str(tmp_path))
    assert [*arms] == [*names]
    assert all(found.values.shape == (2, 5) for found in arms.values())


def test_parts_of_the_examples_are_one_arm(tmp_path: Path) -> None:
    whole = pd.concat([table("base", seed).assign(seed=seed) for seed in SEEDS])
    is_first = whole["id"].isin(["q0", "q1"])
    write(tmp_path / "part_0.csv", whole[is_first])
    write(tmp_path / "part_1.csv", whole[~is_first])
    found = read_arms(str(tmp_path))[""]
    assert found.values.shape == (2, 5) and found.seeds == [*SEEDS]


@pytest.mark.parametrize("models", [("bert", "bert"), ("small", "large")])
def test_names_of_files_and_a_column_of_models_together_name_arms(
    models: tuple[str, str], tmp_path: Path
) -> None:
    for arm, model in zip(("base", "ours"), models, strict=True):
        for seed in SEEDS:
            write(tmp_path / f"{arm}_seed{seed}.csv", table(arm, seed).assign(model=model))
    arms = [*read_arms(str(tmp_path))]
    assert arms == (["base", "ours"] if models[0] == models[1] else ["small", "large"])


def _of_scikit_learn(path: Path, arm: str, seed: int) -> None:
    np.savez(path, y_true=LABELS, y_pred=answers(arm, seed))


def _of_a_trainer(path: Path, arm: str, seed: int) -> None:
    np.savez(path, labels=LABELS, preds=answers(arm, seed))


@pytest.mark.parametrize("save", [_of_scikit_learn, _of_a_trainer])
def test_arrays_of_one_seed_each(save: Callable[[Path, str, int], None], tmp_path: Path) -> None:
    for arm in ("base", "ours"):
        for seed in SEEDS:
            save(tmp_path / f"{arm}_seed{seed}.npz", arm, seed)
    for arm, found in read_arms(str(tmp_path)).items():
        assert found.values.tolist() == [answers(arm, seed).tolist() for seed in SEEDS]
        assert found.labels.tolist() == LABELS.tolist() and found.seeds == [*SEEDS]
    alone = read_arms(str(tmp_path / "base_seed3.npz"))[""]
    assert alone.seeds == [3] and alone.values.shape == (1, 5)


def test_one_array_is_of_scores(tmp_path: Path) -> None:
    scores = np.stack([answers("base", seed) == LABELS for seed in SEEDS]).astype(float)
    np.save(tmp_path / "base.npy", scores)
    found = read_arms(str(tmp_path / "base.npy"))[""]
    assert found.kind == "score" and found.values.tolist() == scores.tolist()
    (tmp_path / "seeds").mkdir()
    for seed, row in zip(SEEDS, scores, strict=True):
        np.save(tmp_path / "seeds" / f"seed_{seed}.npy", row)
    found = read_arms(str(tmp_path / "seeds"))[""]
    assert found.seeds == [*SEEDS] and found.values.tolist() == scores.tolist()
    np.save(tmp_path / "seed0_preds.npy", answers("base", 0))
    with pytest.raises(UserError, match="no labels beside them; .*np.savez"):
        read_arms(str(tmp_path / "seed0_preds.npy"))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Object arrays"):
        read_arms(str(tmp_path / "objects.npy"))


def test_what_a_path_says(tmp_path: Path) -> None:
    path = tmp_path / "seed_7" / "rte.csv"
    write(path, table("base", 7))
    assert source_files([str(tmp_path)]) == [SourceFile(path, task="rte", seed=7)]


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint-{}/preds.csv", "results_v{}.csv", "fold_{}.csv", "step_{}.csv", "epoch_{}.csv",
        "gpt{}.csv", "layer_{}.csv",
    ],
)  # fmt: skip
def test_numbers_that_are_rarely_seeds_are_said(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (100, 200):
        write(tmp_path / name.format(seed), table("ours", seed))
    assert read_arms(str(tmp_path))[""].seeds == [100, 200]
    assert "are taken for seeds" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["run", "_run_", "_s", "-trial-"])
def test_words_before_a_number_are_not_of_the_arm(tmp_path: Path, word: str) -> None:
    for arm in ("base", "ours"):
        for seed in SEEDS:
            write(tmp_path / f"{arm}_{word}{seed}.csv", table(arm, seed))
    assert [*read_arms(str(tmp_path))] == ["base", "ours"]
