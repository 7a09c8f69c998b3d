"""Cures that work: people with files as they lie on disk give a command, and do what each refusal says.

Every attempt ends in the right answer, or in a refusal whose cause no flag can take away. To see all chains,
or those of some attempts:

    python tests/test_obeying.py [attempt ...]
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multiberts.tests.obeying import ANSWER, DEAD_END, REFUSAL, Attempt, Chain, faults_of, obey

ROOT = Path(__file__).resolve().parents[1]
SEEDS, EXAMPLES = range(5), range(40)
SKILL = {"base": 0.6, "new": 0.8, "third": 0.7}
ONE_RUN = "^One run of each model: this is about these models on new examples"
ONE_SCORE = "^Scores of whole runs: this is about new seeds on these examples"
Frames = Mapping[str, pd.DataFrame]
SLOW = pytest.mark.slow


def frame(
    arm: str = "base",
    seeds: Sequence[Any] = SEEDS,
    classes: Sequence[Any] = (0, 1),
    columns: Sequence[str] = ("seed", "id", "label", "prediction"),
) -> pd.DataFrame:
    """Predictions of an arm, one row per seed and example, under any names of columns."""
    draws = np.random.default_rng(len(arm))
    rows = []
    for seed in seeds:
        for example in EXAMPLES:
            label = example % len(classes)
            is_right = draws.random() < SKILL.get(arm, 0.7)
            answer = label if is_right else (label + 1) % len(classes)
            rows.append((seed, example, classes[label], classes[answer]))
    return pd.DataFrame(rows, columns=[*columns])


def scores(arm: str = "base", seeds: Sequence[Any] = SEEDS, name: str = "score") -> pd.DataFrame:
    whole = frame(arm, seeds)
    return whole[["seed", "id"]].assign(
        **{name: (whole["label"] == whole["prediction"]).astype(int)}
    )


def of_runs() -> pd.DataFrame:
    """One score per run, as tables of papers and exports of trackers have them."""
    draws = np.random.default_rng(0)
    rows = [
        (arm, seed, round(draws.normal(SKILL[arm], 0.02), 4))
        for arm in ("base", "new")
        for seed in SEEDS
    ]
    return pd.DataFrame(rows, columns=["model", "seed", "accuracy"])


def _many_runs() -> pd.DataFrame:
    scores = np.random.default_rng(1).normal(SKILL["base"], 0.02, 20).round(4)
    return pd.DataFrame({"model": "base", "seed": range(20), "accuracy": scores})


def of_tasks() -> pd.DataFrame:
    """Predictions of two models on three tasks, as one table of an experiment has them."""
    parts = [
        frame(arm).assign(model=arm, task=task)
        for task in ("rte", "mrpc", "own")
        for arm in ("base", "new")
    ]
    return pd.concat(parts, ignore_index=True)


def of_tracker() -> pd.DataFrame:
    """What a tracker of runs exports: a row per run, with names of its own."""
    whole = of_runs()
    return pd.DataFrame(
        {
            "Name": [f"run-{row}" for row in range(len(whole))], "State": "finished",
            "model_name_or_path": whole["model"], "seed": whole["seed"], "eval/acc": whole["accuracy"],
        }
    )  # fmt: skip


def two(**columns: Any) -> Any:
    """Writes base.csv and new.csv."""

    def write(folder: Path) -> None:
        for arm in ("base", "new"):
            frame(arm, **columns).to_csv(folder / f"{arm}.csv", index=False)

    return write


def written(frames: Mapping[str, Any]) -> Any:
    """Writes files of these names: tables as their endings say, texts and JSON as they are."""

    def write(folder: Path) -> None:
        for name, content in frames.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not isinstance(content, pd.DataFrame):
                path.write_text(content if isinstance(content, str) else json.dumps(content))
            elif ".json" in name:
                content.to_json(path, orient="records", lines=True)
            else:
                content.to_csv(path, index=False, sep="\t" if name.endswith("tsv") else ",")

    return write


def wide(arm: str, pattern: str, name: str = "prediction") -> dict[str, Any]:
    """One column per seed, under names with the seed in them."""
    return {pattern.format(seed): rows[name].tolist() for seed, rows in frame(arm).groupby("seed")}


def of_examples(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": [*EXAMPLES], "label": [n % 2 for n in EXAMPLES], **columns})


def _r_table(arm: str) -> pd.DataFrame:
    words = scores(arm, name="correct").replace({"correct": {0: "FALSE", 1: "TRUE"}})
    words.loc[3, "correct"] = "NA"
    return words


def _texts(arm: str, answers: Sequence[str], seeds: Sequence[int] = SEEDS) -> pd.DataFrame:
    return frame(arm, seeds, classes=answers)


def _lists(arm: str) -> pd.DataFrame:
    return frame(arm, classes=(["joy", "relief"], ["anger"], []))


def _commas(arm: str) -> pd.DataFrame:
    return frame(arm, classes=("joy, relief", "anger, fear"))


def _repaired_commas(folder: Path) -> None:
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text().replace(", ", "|"))


def _rounded(folder: Path) -> None:
    for arm in ("base", "new"):
        table = frame(arm)
        table["id"] = [f"{2.64184 + number // 4:.5f}E+17" for number in table["id"]]
        table.insert(2, "line", frame(arm)["id"])
        table.to_csv(folder / f"{arm}.csv", index=False)


def _probabilities(seeds: Sequence[int] = SEEDS) -> pd.DataFrame:
    table = frame("base", seeds)
    first = np.random.default_rng(0).random(len(table)).round(3)
    return table.drop(columns="prediction").assign(prob_0=first, prob_1=1 - first)


def _twice(folder: Path) -> None:
    table = frame("base")
    pd.concat([table, table[:5]]).to_csv(folder / "base.csv", index=False)
    frame("new").to_csv(folder / "new.csv", index=False)


def _without_copies(folder: Path) -> None:
    pd.read_csv(folder / "base.csv").drop_duplicates().to_csv(folder / "base.csv", index=False)


def _per_seed(pattern: str, arms: Sequence[str] = ("base", "new"), **further: Any) -> Any:
    """Writes a file for each arm and seed, such as `{arm}_seed{seed}.csv`, and others beside."""

    def write(folder: Path) -> None:
        for arm in arms:
            for seed, rows in frame(arm).groupby("seed"):
                path = folder / pattern.format(arm=arm, seed=seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                rows.drop(columns="seed").to_csv(path, index=False)
                for ending, text in further.items():
                    (path.parent / f"{arm}_seed{seed}_{ending}.csv").write_text(text)

    return write


def two_of(change: Any) -> Any:
    return written({f"{arm}.csv": change(frame(arm)) for arm in ("base", "new")})


def _parted(name: str, values: Sequence[Any] | None) -> Any:
    """Rows for each value of a column; None: two groups of examples."""
    return two_of(
        lambda table: (
            pd.concat([table.assign(**{name: value}) for value in values])
            if values
            else table.assign(**{name: np.where(table["id"] < 20, "women", "men")})
        )
    )


def _tasks(pattern: str, tasks: Sequence[str] = ("rte", "mrpc")) -> Any:
    def write(folder: Path) -> None:
        for arm in ("base", "new"):
            for task in tasks:
                for seed, rows in frame(f"{arm}{task[:1]}").groupby("seed"):
                    path = folder / pattern.format(arm=arm, seed=seed, task=task)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    rows.drop(columns="seed").to_csv(path, index=False)

    return write


def _apart(columns: Sequence[str], of_gold: Sequence[str], change: Any = lambda gold: gold) -> Any:
    """Writes submissions, a file per seed, and labels in a file of their own, in another order."""

    def write(folder: Path) -> None:
        for arm in ("base", "new"):
            for seed, rows in frame(arm).groupby("seed"):
                table = rows[["id", "prediction"]].set_axis([*columns], axis=1)
                written({f"{arm}/seed_{seed}/CoLA.tsv": table})(folder)
        gold = of_examples().set_axis([*of_gold], axis=1).sort_values(of_gold[1])
        written({"gold.tsv": change(gold)})(folder)

    return write


def _rewritten(folder: Path, change: Any) -> None:
    gold = pd.read_csv(folder / "gold.tsv", sep="\t")
    written({"gold.tsv": change(gold)})(folder)


def _arrays(folder: Path) -> None:
    for arm in ("base", "new"):
        for seed, rows in frame(arm).groupby("seed"):
            (folder / arm).mkdir(exist_ok=True)
            np.savez(
                folder / arm / f"seed_{seed}.npz",
                y_true=rows["label"].to_numpy(),
                y_pred=rows["prediction"].to_numpy(),
            )


def _sheet(folder: Path) -> None:
    """Writes what every .xlsx begins with: a zip file of these members."""
    import zipfile

    with zipfile.ZipFile(folder / "base.xlsx", "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        book.writestr("xl/workbook.xml", "<workbook/>")
    frame("new").to_csv(folder / "new.csv", index=False)


def _saved_as_csv(folder: Path) -> str:
    frame("base").to_csv(folder / "base.csv", index=False)
    return "compare base.csv new.csv"


def _samples(arm: str, seed: int, metrics: Mapping[str, Any], task: str = "cola") -> dict[str, str]:
    """A log of lm-evaluation-harness, as its docs/interface.md and api/task.py have it."""
    draws = np.random.default_rng(seed + len(arm))
    lines = []
    for example in EXAMPLES:
        gold = example % 2
        answer = gold if draws.random() < SKILL[arm] else 1 - gold
        line = {
            "doc_id": example, "doc": {"sentence": f"s {example}"}, "target": str(gold), "filter": "none",
            "metrics": [*metrics],
        }  # fmt: skip
        lines.append(line | {name: make(gold, answer) for name, make in metrics.items()})
    name = f"{arm}/seed_{seed}/samples_{task}_2024-05-01T10-00-0{seed}.000000.jsonl"
    return {name: "\n".join(map(json.dumps, lines)) + "\n"}


def _logs(metrics: Mapping[str, Any], tasks: Sequence[str] = ("cola",)) -> Any:
    files: dict[str, Any] = {}
    for arm in ("base", "new"):
        for seed in SEEDS:
            for task in tasks:
                files |= _samples(arm, seed, metrics, task)
    return written(files)


def _inspect(scores_of: Any, tasks: Sequence[str] = ("sums",)) -> Any:
    """Logs of Inspect in its JSON form (its page "Log Files")."""
    files: dict[str, Any] = {}
    for arm in ("base", "new"):
        for seed in range(3):
            for task in tasks:
                draws = np.random.default_rng(seed + len(arm))
                samples = [
                    {
                        "id": example, "epoch": 1, "input": f"{example}", "target": "x",
                        "scores": scores_of(task, example, float(draws.random() < SKILL[arm])),
                    }
                    for example in EXAMPLES
                ]  # fmt: skip
                files[f"{arm}/seed_{seed}/{task}.json"] = {
                    "version": 2, "status": "success", "samples": samples,
                    "eval": {"task": task, "model": f"mock/{arm}", "created": f"2026-01-0{seed + 1}"},
                }  # fmt: skip
    return written(files)


ATTEMPTS: dict[str, Attempt] = {
    # Columns.
    "numbers at the end of columns": Attempt(
        written({"t.csv": of_examples(**wide("base", "old_{}"), **wide("new", "new_{}"))}),
        "compare t.csv", "5 paired seeds", {"seed": "columns"},
    ),
    "seeds in the names of columns": Attempt(
        written({"t.csv": of_examples(**wide("base", "old_seed{}"), **wide("new", "new_seed{}"))}),
        "compare t.csv", "5 paired seeds",
    ),
    "a label for each seed": Attempt(
        written({"t.csv": pd.DataFrame({"id": [*EXAMPLES], **wide("new", "pred_seed{}"),
                                        **wide("new", "label_seed{}", "label")})}),
        "compare t.csv", "5 seeds",
    ),
    "probabilities of classes": Attempt(
        written({"t.csv": _probabilities()}), "compare t.csv --metric=auc", "AUC of t",
        {"prediction": "prob_1"},
    ),
    "probabilities of classes of one run": Attempt(
        written({"t.csv": _probabilities([0]).drop(columns="seed")}), "compare t.csv --metric=auc",
        "One run: .*AUC of t", {"prediction": "prob_1"},
    ),
    "headers of public scripts": Attempt(
        written({"t.csv": frame("new", columns=("seed", "id", "true_label", "predicted_label"))}),
        "compare t.csv", "5 seeds",
    ),
    "headers of others' own": Attempt(
        written({"t.csv": frame("new", columns=("who", "which", "truth_value", "guess"))}),
        "compare t.csv", "5 seeds",
        {"seed": "who", "prediction": "guess", "label": "truth_value", "example": "which"},
    ),
    "two columns of one name": Attempt(
        written({"t.csv": frame("new").assign(Label=7)}), "compare t.csv", "5 seeds",
        {"label": "label"},
    ),
    "correct is the label": Attempt(
        written({"t.csv": frame("new", [0], columns=("seed", "id", "correct", "prediction"))}),
        "compare t.csv --resample=examples", "1 seed", {"label": "correct"},
    ),
    "fractions": Attempt(
        written({"t.csv": frame("new").assign(prediction=np.linspace(0, 1, 200).round(3))}),
        "compare t.csv", "AUC", {"metric": "auc"},
    ),
    # Labels in a file of their own, as GLUE's submissions need them.
    "several tasks in one table": Attempt(
        written({"all.csv": of_tasks()}), "compare all.csv", "Across 3 tasks, 5 paired seeds"
    ),
    "several tasks by benchmark": Attempt(
        written({"all.csv": of_tasks().rename(columns={"task": "benchmark"})}),
        "compare all.csv",
        "mean of 3 tasks",
    ),
    "GLUE's metrics of a task that it lacks": Attempt(
        written({"all.csv": of_tasks()}), "compare all.csv --metric=glue", "mean of 3 tasks"
    ),
    "files by model, seed and task": Attempt(
        written(
            {
                f"runs/{arm}/seed_{seed}/{task}.csv": frame(arm, [seed]).drop(columns="seed")
                for arm in ("base", "new")
                for seed in SEEDS
                for task in ("rte", "mine")
            }
        ),
        "compare runs",
        "mean of 2 tasks",
    ),
    "scores on tasks in columns": Attempt(
        written(
            {"t.csv": of_runs().rename(columns={"accuracy": "RTE"}).assign(MRPC=of_runs()["accuracy"])}
        ),
        "compare t.csv",
        r"Scores of whole runs: .*(?s:.*)Across 2 tasks, 5 paired seeds",
    ),
    "a failed run in the scores": Attempt(
        written({"t.csv": of_runs().astype({"accuracy": object}).replace(
            {"accuracy": {of_runs()["accuracy"][1]: "failed"}})}),
        "compare t.csv", "4 paired seeds",
        repairs={"found 'failed' in column 'accuracy' .*leave the row out": lambda folder: pd.read_csv(
            folder / "t.csv").query("accuracy != 'failed'").to_csv(folder / "t.csv", index=False)},
    ),
    "one score of each model": Attempt(
        written({"t.csv": of_runs().groupby("model", as_index=False)["accuracy"].max()}),
        "compare t.csv", "found one score per model, from which no interval follows", ends=REFUSAL,
    ),
    "runs without numbers": Attempt(
        written({"t.csv": of_runs()[["model", "accuracy"]]}), "compare t.csv", "5 paired seeds",
        repairs={"; number the runs of each model in a column 'seed'": lambda folder: pd.read_csv(
            folder / "t.csv").assign(seed=[*SEEDS] * 2).to_csv(folder / "t.csv", index=False)},
    ),
    "export of a tracker": Attempt(
        written({"wandb.csv": of_tracker()}),
        "compare wandb.csv --score=eval/acc",
        "Scores of whole runs: .*new is better than base",
    ),
    "labels apart": Attempt(
        _apart(["index", "prediction"], ["index", "gold_label"]),
        "compare base new --labels=gold.tsv", "label = 'gold_label of gold.tsv'",
    ),
    "labels apart, by a flag": Attempt(
        _apart(["index", "prediction"], ["index", "label"]), "compare base new",
        "label = 'label of gold.tsv'", {"labels": "gold.tsv"},
    ),
    "labels apart under another name": Attempt(
        _apart(["index", "prediction"], ["index", "class"]), "compare base new --labels=gold.tsv",
        "label = 'class of gold.tsv'", {"label": "class"},
    ),
    "ids of labels under another name": Attempt(
        _apart(["index", "prediction"], ["nr", "label"]), "compare base new --labels=gold.tsv",
        "label = 'label of gold.tsv'", {},
        {"column 'index'": lambda folder: _rewritten(folder, lambda gold: gold.rename(
            columns={"nr": "index"}))},
    ),
    "labels of half of the examples": Attempt(
        _apart(["index", "prediction"], ["index", "label"], lambda gold: gold[::2]),
        "compare base new --labels=gold.tsv", "20 of 40 examples have none", ends=REFUSAL,
    ),
    "two labels for an id": Attempt(
        _apart(["index", "prediction"], ["index", "label"],
               lambda gold: pd.concat([gold, gold[:1].assign(label=1)])),
        "compare base new --labels=gold.tsv", "0.?, 1 for 0; keep one row", ends=REFUSAL,
    ),
    "scores beside labels apart": Attempt(
        written({**{f"{arm}.csv": scores(arm).assign(guess=frame(arm)["prediction"])
                    for arm in ("base", "new")}, "gold.tsv": of_examples()}),
        "compare base.csv new.csv --labels=gold.tsv", "label = 'label of gold.tsv'",
        {"prediction": "guess"},
    ),
    "an unknown metric": Attempt(two(), "compare base.csv new.csv --metric=acuracy", "5 paired"),
    "truth values of R": Attempt(
        written({f"{arm}.csv": _r_table(arm) for arm in ("base", "new")}),
        "compare base.csv new.csv", "5 paired seeds", {"missing": "omit"},
    ),
    "seeds as texts beside numbers": Attempt(
        written({"base.csv": frame("base"), "new.jsonl": frame("new", [*map(str, SEEDS)])}),
        "compare base.csv new.jsonl", "5 paired seeds",
    ),
    "seed_0 beside 0": Attempt(
        written({"base.csv": frame("base"), "new.csv": frame("new", [f"seed_{n}" for n in SEEDS])}),
        "compare base.csv new.csv", "5 paired seeds",
    ),
    "other seeds": Attempt(
        written({"base.csv": frame("base"), "new.csv": frame("new", range(10, 15))}),
        "compare base.csv new.csv", "5 seeds", {"design": "unpaired"},
    ),
    "many runs against few": Attempt(
        written({"t.csv": pd.concat([of_runs().query("model == 'new'"), _many_runs()])}),
        "compare t.csv", "base is worse.* 5 seeds against 20 seeds", {"design": "unpaired"},
    ),
    "many seeds against one": Attempt(
        written({"base.csv": frame(), "new.csv": frame("new", [0])}),
        "compare base.csv new.csv", "5 seeds against 1 seed", {"resample": "examples"},
    ),
    "sets of labels as lists": Attempt(
        written({f"{arm}.jsonl": _lists(arm) for arm in ("base", "new")}),
        "compare base.jsonl new.jsonl --metric=multilabel_f1_micro", "5 paired seeds",
    ),
    "sets of labels with commas": Attempt(
        written({f"{arm}.csv": _commas(arm) for arm in ("base", "new")}),
        "compare base.csv new.csv --metric=multilabel_f1_micro", "5 paired seeds", {},
        {"joy, relief": _repaired_commas},
    ),
    "no answer": Attempt(
        written({f"{arm}.csv": _texts(arm, ("the cat", "")) for arm in ("base", "new")}),
        "compare base.csv new.csv --metric=squad_f1", "5 paired seeds",
    ),
    "tags": Attempt(
        written({f"{arm}.csv": _texts(arm, ("B-PER I-PER O", "O B-LOC O")) for arm in SKILL}),
        "compare base.csv new.csv", "F1 of spans", {"metric": "span_f1"},
    ),
    "ids that a spreadsheet rounded": Attempt(
        _rounded, "compare base.csv new.csv", "5 paired seeds", {"example": "line"},
    ),
    "rows twice": Attempt(
        _twice, "compare base.csv new.csv", "5 paired seeds", {}, {"two rows of": _without_copies},
    ),
    "several runs of a seed": Attempt(
        written({"t.csv": pd.concat([frame("new").assign(fold=n) for n in (1, 2)])}),
        "compare t.csv", "5 seeds", {"run": "fold"},
    ),
    "predictions beside scores": Attempt(
        written({"base.csv": frame("base").assign(correct=scores("base")["score"]),
                 "new.csv": scores("new", name="correct")}),
        "compare base.csv new.csv", "5 paired seeds", {"score": "correct"},
    ),
    "a missing prediction": Attempt(
        written({"base.csv": frame("base"),
                 "new.csv": frame("new").astype({"prediction": float}).replace(
                     {"prediction": {1.0: np.nan}}).fillna({"prediction": 0}).assign(
                     prediction=lambda table: table["prediction"].where(table.index != 7))}),
        "compare base.csv new.csv", "5 paired seeds", {"missing": "omit"},
    ),
    "another column of slices": Attempt(
        two(), "compare base.csv new.csv --by=langauge", "5 paired seeds", {"by": "label"},
    ),
    "no labels": Attempt(
        written({f"{arm}.csv": frame(arm).rename(columns={"label": "right_answer"}) for arm in SKILL}),
        "compare base.csv new.csv --metric=accuracy", "5 paired seeds", {"label": "right_answer"},
    ),
    # Rows of several splits or epochs, groups and folds.
    "splits in a column": Attempt(
        _parted("dataset", ["train", "test"]), "compare base.csv new.csv --task=test", "40 shared examples"
    ),
    "epochs": Attempt(_parted("epoch", [1, 2]), "compare base.csv new.csv", "5 paired seeds"),
    "splits in the names of files": Attempt(
        _tasks("runs/{arm}/seed_{seed}/{task}.csv", ("train", "test")), "compare runs", "5 paired seeds"
    ),
    "a group of people": Attempt(
        _parted("group", None), "compare base.csv new.csv", "40 shared examples", {"arm": "none"}
    ),
    "slices of people": Attempt(
        _parted("group", None), "compare base.csv new.csv", "group +examples", {"by": "group"}
    ),
    "ids that continue from seed to seed": Attempt(
        two_of(lambda table: table.assign(id=table["id"] + 40 * table["seed"])),
        "compare base.csv new.csv", "5 paired seeds and 40 shared examples",
        repairs={"number the examples of each seed alike": two_of(pd.DataFrame)},
    ),
    "parts of a run": Attempt(
        two_of(lambda table: table[table["seed"] == table["id"] // 8]),
        "compare base.csv new.csv", "One run of each model.* 40 shared examples",
        repairs={"write the parts of a run .* under one seed": two_of(
            lambda table: table[table["seed"] == table["id"] // 8].assign(seed=0))},
    ),
    "scores of folds": Attempt(
        written({"t.csv": of_runs().rename(columns={"seed": "fold"})}), "compare t.csv --seed=fold",
        "folds and random splits share training data", ends=REFUSAL,
    ),
    # Paths.
    "a flat folder": Attempt(
        _per_seed("runs/{arm}_seed{seed}_predictions.csv", metrics="epoch,loss\n1,0.5\n"),
        "compare runs", "5 paired seeds",
    ),
    "a folder for each model": Attempt(
        _per_seed("runs/{arm}/seed{seed}.csv"), "compare runs", "5 paired seeds"
    ),
    "a task for each file": Attempt(
        _tasks("runs/{arm}/seed_{seed}/{task}.csv"), "compare runs", "5 paired seeds",
        {"task": "rte"},
    ),
    "a task for each file, given as two": Attempt(
        _tasks("{arm}/seed_{seed}/{task}.csv"), "compare base new", "5 paired seeds",
        {"task": "rte"},
    ),
    "tasks in one folder": Attempt(
        _tasks("{arm}/{task}_seed{seed}.csv"), "compare base new", "5 paired seeds",
        {"task": "rte"},
    ),
    "a glob of one arm": Attempt(
        _per_seed("{arm}_seed{seed}.csv", ["new"]), "compare new_seed*.csv", "5 seeds"
    ),
    "a glob of two arms": Attempt(
        _per_seed("{arm}_seed{seed}.csv"), "compare *_seed*.csv", "5 paired seeds"
    ),
    "arrays of scikit-learn's names": Attempt(_arrays, "compare base new", "5 paired seeds"),
    "a task of a file without tasks": Attempt(
        two(), "compare base.csv new.csv --task=rte", "5 paired seeds"
    ),
    "a table called JSON": Attempt(
        lambda folder: [frame(arm).to_csv(folder / f"{arm}.json", index=False) for arm in SKILL],
        "compare base.json new.json", "5 paired seeds",
    ),
    "a hint for spreadsheets": Attempt(
        written({f"{arm}.csv": "sep=;\n" + frame(arm).to_csv(index=False, sep=";") for arm in SKILL}),
        "compare base.csv new.csv", "5 paired seeds",
    ),
    "a spreadsheet": Attempt(
        _sheet, "compare base.xlsx new.csv", "5 paired seeds", {}, {"CSV": _saved_as_csv}
    ),
    "n-best lists": Attempt(
        written({"nbest_predictions.json": {"q1": [{"text": "a", "probability": 1.0, "start_logit": 1.5,
                                                           "end_logit": 2.5}]}}),
        "compare nbest_predictions.json", "nbest", ends=REFUSAL,
    ),
    "answers for SQuAD's scorer": Attempt(
        written({"predictions.json": {"q1": "the cat", "q2": ""}}), "compare predictions.json",
        "import", ends=REFUSAL,
    ),
    "GLUE's test predictions": Attempt(
        written({f"{arm}/seed_{seed}/predict_results_rte.txt":
                 "index\tprediction\n" + "".join(f"{n}\tentailment\n" for n in EXAMPLES)
                 for arm in ("base", "new") for seed in SEEDS}),
        "compare base new", "label", ends=REFUSAL,
    ),
    # Logs.
    "pairs of Matthews' correlation": Attempt(
        _logs({"mcc": lambda gold, answer: [gold, answer]}), "compare base new", "Matthews"
    ),
    "pairs beside accuracy": Attempt(
        _logs({"acc": lambda gold, answer: float(gold == answer), "f1": lambda *pair: [*pair]}),
        "compare base new --score=f1", "new is better than base: F1 ",
    ),
    "perplexity": Attempt(
        _logs({"word_perplexity": lambda *_: [-12.5, 7], "acc": lambda *pair: float(len({*pair}) == 1)}),
        "compare base new", "accuracy|mean|acc", {"score": "acc"},
    ),
    "a metric of the harness": Attempt(
        _logs({"acc": lambda *pair: float(len({*pair}) == 1)}), "compare base new --score=acc_norm",
        "5 paired", {"score": "acc"},
    ),
    "tasks of the harness": Attempt(
        _logs({"acc": lambda *pair: float(len({*pair}) == 1)}, ["rte", "boolq"]), "compare base new",
        "5 paired", {"task": "rte"},
    ),
    "a score with keys": Attempt(
        _inspect(lambda _, __, value: {"judge": {"value": {"fluency": value, "truth": 1.0}}}),
        "compare base new", "3 paired", {"score": "judge.fluency"},
    ),
    "unscored samples": Attempt(
        _inspect(lambda _, n, value: {"match": {"value": value}} if n != 3 else {}),
        "compare base new", "3 paired", {"missing": "omit"},
    ),
    "tasks of other scorers": Attempt(
        _inspect(lambda task, _, value: {"match" if task == "sums" else "model_graded": {"value": value}},
                 ["sums", "poems"]),
        "compare base new", "3 paired", {"task": "sums"},
    ),
    # Seeds and claims.
    "one run of each": Attempt(two(seeds=[0]), "compare base.csv new.csv", ONE_RUN),
    "one run of each, of other seeds": Attempt(
        written({"base.csv": frame("base", [3]), "new.csv": frame("new", [4])}),
        "compare base.csv new.csv", ONE_RUN,
    ),
    "one run of each, without seeds": Attempt(
        written({f"{arm}.csv": frame(arm, [0]).drop(columns="seed") for arm in SKILL}),
        "compare base.csv new.csv", ONE_RUN,
    ),
    "one run of each, without seeds and ids": Attempt(
        written({f"{arm}.csv": frame(arm, [0])[["label", "prediction"]] for arm in SKILL}),
        "compare base.csv new.csv", ONE_RUN,
    ),
    "one run of each, with a spread": Attempt(
        two(seeds=[0]), "compare base.csv new.csv --seed_sd=1.2", "spread of seeds is",
    ),
    "one run against five": Attempt(
        written({"base.csv": frame("base", [0]), "new.csv": frame("new")}),
        "compare base.csv new.csv", "about this one model base", {"design": "fixed_baseline"},
    ),
    "one run without seeds against five": Attempt(
        written({"base.csv": frame("base", [0]).drop(columns="seed"), "new.csv": frame("new")}),
        "compare base.csv new.csv", "examples", {"resample": "examples"},
    ),
    "two models of one run": Attempt(
        written({"t.csv": pd.concat([frame(arm, [0]).assign(model=arm) for arm in ("base", "new")])}),
        "compare t.csv", ONE_RUN,
    ),
    "three models of one run": Attempt(
        written({"t.csv": pd.concat([frame(arm, [0]).assign(model=arm) for arm in SKILL])}),
        "compare t.csv", rf"{ONE_RUN}(?s:.*)Among 3 arms with one run each",
    ),
    "runs without seeds in one folder": Attempt(
        written({f"runs/{arm}.csv": frame(arm, [0]).drop(columns="seed") for arm in ("base", "new")}),
        "compare runs", ONE_RUN, {}, {"each file": lambda _: "compare runs/base.csv runs/new.csv"},
    ),
    "scores of runs": Attempt(written({"t.csv": of_runs()}), "compare t.csv", ONE_SCORE),
    "scores of runs, a file each": Attempt(
        written({f"{arm}.csv": own.drop(columns="model") for arm, own in of_runs().groupby("model")}),
        "compare base.csv new.csv", ONE_SCORE,
    ),
    "scores of runs of other numbers": Attempt(
        written({"t.csv": of_runs()[:-2]}), "compare t.csv --design=unpaired", ONE_SCORE,
    ),
    "scores of runs and examples asked for": Attempt(
        written({"t.csv": of_runs()}), "compare t.csv --resample=both", ONE_SCORE,
        {"resample": "seeds"},
    ),
    "scores of runs with their mean": Attempt(
        written({"t.csv": pd.concat([of_runs().astype({"seed": str}), pd.DataFrame(
            [("base", "mean", 0.8)], columns=["model", "seed", "accuracy"])])}),
        "compare t.csv", ONE_SCORE, {},
        {"'mean' in column 'seed', row 11": lambda folder: of_runs().to_csv(folder / "t.csv", index=False)},
    ),
    "scores of runs, a column for each model": Attempt(
        written({"t.csv": of_runs().pivot(index="seed", columns="model", values="accuracy").reset_index()}),
        "compare t.csv", ONE_SCORE, {"arm": "columns"},
    ),
    "scores of runs, a column for each seed": Attempt(
        written({"t.csv": of_runs().pivot(index="model", columns="seed", values="accuracy").add_prefix(
            "seed_").reset_index()}),
        "compare t.csv", ONE_SCORE,
    ),
    "scores of runs, a column for each number": Attempt(
        written({"t.csv": of_runs().pivot(index="model", columns="seed", values="accuracy").reset_index()}),
        "compare t.csv", ONE_SCORE, {"seed": "columns"},
    ),
    "scores of runs under other names": Attempt(
        written({"t.csv": of_runs().set_axis(["Name", "rng", "val/acc"], axis=1)}), "compare t.csv",
        ONE_SCORE,
    ),
    "other names of all columns": Attempt(
        written({"t.csv": pd.concat([frame(arm, columns=("saat", "beispiel", "wahr", "antwort")).assign(
            netz=arm) for arm in ("base", "new")])}),
        "compare t.csv", "new is better than base: accuracy .* 5 paired seeds and 40 shared examples",
    ),
    "per cent beside shares": Attempt(
        written({"base.csv": scores("base").assign(score=lambda table: table["score"] * 100.0),
                 "new.csv": scores("new")}),
        "compare base.csv new.csv", "5 paired seeds", {},
        {"one scale": lambda folder: scores("base").to_csv(folder / "base.csv", index=False)},
    ),
    "hidden labels": Attempt(
        written({f"{arm}.csv": frame(arm).assign(label=-1) for arm in SKILL}),
        "compare base.csv new.csv --metric=accuracy", "labels are -1", ends=REFUSAL,
    ),
    "a path with an error": Attempt(
        two(), "compare bsae.csv new.csv", "bsae.csv does not exist", ends=REFUSAL
    ),
    "another base than there is": Attempt(
        two(), "compare base.csv new.csv --base=old", "base is worse than new", {"base": "new"}
    ),
    "a step of files": Attempt(two(), "compare base.csv new.csv --step=60", "5 paired seeds"),
    "losses beside predictions": Attempt(
        written({"t.csv": frame("new").assign(loss=0.5)}), "compare t.csv --metric=loss", "loss of t",
    ),
    "losses of another name": Attempt(
        written({"t.csv": frame("new").assign(nll=0.5)}), "compare t.csv --metric=loss", "loss of t",
        {"score": "nll"},
    ),
    "other names than arms": Attempt(
        two(), "compare base.csv new.csv --names=A", "5 paired seeds", {"names": "A,B"}
    ),
}  # fmt: skip

# No refusal stands in the way of these, so that no cure is obeyed, and they take long; weekly.
ANSWERED_AT_ONCE = {
    *("a flat folder", "a folder for each model", "a glob of two arms", "labels apart"),
    *("a task for each file", "a task for each file, given as two", "tasks in one folder"),
    *("files by model, seed and task", "several tasks by benchmark", "scores on tasks in columns"),
    *("tasks of the harness", "tasks of other scorers", "sets of labels as lists"),
    *("pairs beside accuracy", "pairs of Matthews' correlation"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[SLOW] * (each in ANSWERED_AT_ONCE)) for each in ATTEMPTS]
)
def test_a_person_who_does_what_is_said_gets_there(tmp_path: Path, name: str) -> None:
    attempt = ATTEMPTS[name]
    chain = obey(attempt, tmp_path / "folder")
    assert chain.outcome == attempt.ends, shown(name, chain)
    assert not (name in ANSWERED_AT_ONCE and chain.refusals), shown(name, chain)
    assert re.search(attempt.says, chain.text), shown(name, chain)
    assert not [fault for line in chain.refusals for fault in faults_of(line)], shown(name, chain)


def test_a_message_has_the_form_of_its_door() -> None:
    """Statistics raise in Python's words, which commands translate; readers in flags, which Python does."""
    of_commands = ("evaluate/", "report/", "papers/multiberts/reproduction.py")
    for path in (path for room in ("stats", "evaluate") for path in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        other = r"\b[a-z_]+='" if name.startswith(of_commands) else r"--[a-z]"
        for raised in ast.walk(ast.parse(path.read_text())):
            if isinstance(raised, ast.Raise):
                texts = [part.value for part in ast.walk(raised) if isinstance(part, ast.Constant)]
                message = "".join(text for text in texts if isinstance(text, str))
                assert not re.search(other, message), f"{name} line {raised.lineno}: {message}"


def shown(name: str, chain: Chain) -> str:
    lines = [f"{name}: {chain.outcome}", *(f"  error: {line}" for line in chain.refusals)]
    return "\n".join([*lines, f"  {chain.text[:300]}"])


def main(names: Sequence[str]) -> int:
    """Prints the chains of attempts (none named: of all), and how many ended how."""
    outcomes = []
    for name in names or ATTEMPTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                chain = obey(ATTEMPTS[name], Path(folder))
            except Exception as error:
                chain = Chain(DEAD_END, (), f"{type(error).__name__}: {error}")
        outcomes.append(chain.outcome)
        print(shown(name, chain))
    for outcome in (ANSWER, REFUSAL, DEAD_END):
        print(f"{outcome:<10} {outcomes.count(outcome)} of {len(outcomes)}")
    return int(DEAD_END in outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
