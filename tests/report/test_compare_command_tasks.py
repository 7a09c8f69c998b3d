"""The command `compare` on several tasks: a row for each, and their mean; also in a report."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import sklearn.metrics

from multiberts import stats
from multiberts.evaluate.imports.importing import import_predictions
from multiberts.report.compare_command import compare_files
from multiberts.report.reporting import report
from multiberts.runs.errors import UserError

SIZES = {"CoLA": 60, "MRPC": 50, "RTE": 70}
SEEDS = range(4)
SKILL = {"base": 0.7, "new": 0.8}
FEW = {"n_resamples": 39}


def _predictions() -> pd.DataFrame:
    draws, parts = np.random.default_rng(3), []
    for task, size in SIZES.items():
        labels, hard = draws.integers(0, 2, size), draws.random(size)
        for arm, skill in SKILL.items():
            for seed in SEEDS:
                right = hard < skill + draws.normal(0, 0.1, size)
                names = {"task": task, "model": arm, "seed": seed, "id": range(size)}
                answers = np.where(right, labels, 1 - labels)
                parts.append(pd.DataFrame({**names, "label": labels, "prediction": answers}))
    return pd.concat(parts, ignore_index=True)


TABLE = _predictions()


def _scores(metric, **where):
    """The score of each seed by scikit-learn, [base, new] x seeds."""
    rows = TABLE[(TABLE[[*where]] == pd.Series(where)).all(axis=1)]
    scores = {
        key: metric(own["label"], own["prediction"]) for key, own in rows.groupby(["model", "seed"])
    }
    return np.array([[scores[arm, seed] for seed in SEEDS] for arm in SKILL])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("tasks")
    TABLE.to_csv(root / "all.csv", index=False)
    TABLE.rename(columns={"task": "benchmark"}).to_csv(root / "benchmark.csv", index=False)
    for arm, rows in TABLE.groupby("model"):
        rows.drop(columns="model").to_csv(root / f"{arm}.csv", index=False)
        for (task, seed), own in rows.groupby(["task", "seed"]):
            path = root / "folders" / arm / f"seed_{seed}" / f"{task}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            own[["id", "label", "prediction"]].to_csv(path, index=False)
    return root


def _answers(files, *names, **settings):
    first, *others = [str(files / name) for name in names]
    return json.loads(compare_files(results=first, experiment=others, json=True, **FEW, **settings))


@pytest.fixture(scope="module")
def whole(files):
    """The answers of the file with all."""
    return _answers(files, "all.csv")


def test_the_mean_over_tasks_gives_each_task_the_same_weight(files):
    """Over seeds alone it is Student's t of the seeds' means over tasks."""
    *tasks, mean = _answers(files, "all.csv", resample="seeds")
    of_seeds = np.mean(
        [_scores(sklearn.metrics.accuracy_score, task=task) for task in SIZES], axis=0
    )
    theirs = scipy.stats.ttest_rel(of_seeds[1], of_seeds[0])
    assert [item["evaluation_set"] for item in tasks] == [*SIZES]
    assert mean["evaluation_set"] == "mean of 3 tasks" and mean["tasks"] == [*SIZES]
    assert mean["estimate"] == pytest.approx(np.diff(of_seeds.mean(axis=1)).item())
    assert mean["p_value"] == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval()
    assert (mean["ci"]["low"], mean["ci"]["high"]) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("names", [("base.csv", "new.csv"), ("folders",), ("benchmark.csv",)])
def test_every_form_of_several_tasks_has_the_same_mean(files, whole, names):
    *tasks, mean = _answers(files, *names)
    *_, first = whole
    keys = ("estimate", "standard_error", "df", "p_value", "num_examples")
    assert [mean[key] for key in keys] == pytest.approx([first[key] for key in keys])
    assert len(tasks) == len(SIZES)
    family = stats.compare_tasks(*(str(files / name) for name in names), **FEW)
    assert family.macro_average.ci == pytest.approx((mean["ci"]["low"], mean["ci"]["high"]))
    assert [item.ci.low for item in family.comparisons.values()] == pytest.approx(
        [item["ci"]["low"] for item in tasks]
    )


def test_arms_of_several_tasks_have_the_names_that_their_data_carry(files):
    """As in `stats.compare`."""
    frames = [own.drop(columns="model") for _, own in TABLE.groupby("model")]
    for frame, name in zip(frames, ("RoBERTa", "Ours"), strict=True):
        frame.attrs["name"] = name
    paths = [str(files / name) for name in ("base.csv", "new.csv")]
    of_models = [own for _, own in TABLE.groupby("model")]
    alike = [frames[0], frames[0].copy()]
    forms = [
        (frames, ("RoBERTa", "Ours")), (paths, ("base", "new")), (of_models, ("base", "new")),
        (alike, ("base", "experiment")),
    ]  # fmt: skip
    for data, names in forms:
        mean = stats.compare_tasks(*data, **FEW).macro_average
        assert (mean.base.name, mean.experiment.name) == names


def test_tasks_of_glue_count_by_its_metrics(files):
    *rows, mean = _answers(files, "all.csv", metric="glue")
    accuracy, f1 = sklearn.metrics.accuracy_score, sklearn.metrics.f1_score
    expected = {
        ("CoLA", "matthews"): _scores(sklearn.metrics.matthews_corrcoef, task="CoLA"),
        ("MRPC", "accuracy"): _scores(accuracy, task="MRPC"),
        ("MRPC", "f1"): _scores(f1, task="MRPC"),
        ("RTE", "accuracy"): _scores(accuracy, task="RTE"),
    }
    found = {(row["evaluation_set"], row["metric"]): row["estimate"] for row in rows}
    assert found == {
        key: pytest.approx(np.diff(scores.mean(axis=1)).item()) for key, scores in expected.items()
    }
    weights = dict(zip(expected, (1 / 3, 1 / 6, 1 / 6, 1 / 3), strict=True))
    assert mean["estimate"] == pytest.approx(sum(weights[key] * found[key] for key in weights))
    named = _answers(files, "all.csv", metric="MRPC:accuracy+f1,CoLA:mcc,accuracy")
    assert named[-1]["estimate"] == pytest.approx(mean["estimate"])
    text = compare_files(results=str(files / "all.csv"), metric="glue", **FEW)
    assert text.startswith("new is better than base: mean score ")
    assert "Across 3 tasks, 4 paired seeds and 180 shared examples, " in text
    assert "mean of 3 tasks  mean score (%)" in text and "so it is about these tasks" in text


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        ("SST-2:f1,accuracy", "the task 'SST-2', expected one of CoLA, MRPC, RTE"),
        ("accuracy,f1", "expected one metric, or for each task its own: TASK:METRIC"),
        ("RTE:acuracy", "accuracy"),
        ("WNLI:f1,glue", "the task 'WNLI'"),
    ],
)
def test_metrics_of_tasks_that_are_not_there_are_refused(files, metric, line):
    with pytest.raises(UserError, match=line):
        _answers(files, "all.csv", metric=metric)


def test_one_task_may_have_two_metrics_and_needs_no_name(files):
    one = str(files / "all.csv")
    text = compare_files(results=one, task="RTE", metric="accuracy+f1", **FEW)
    assert re.search(r"new against base +accuracy \(%\)", text) and " F1 (%) " in text
    with pytest.raises(UserError, match="and one task; name its metric alone, --metric=f1"):
        compare_files(results=one, task="RTE", metric="RTE:f1", **FEW)


def test_metrics_without_a_common_scale_have_no_mean(files):
    text = compare_files(results=str(files / "all.csv"), metric="RTE:mae,accuracy", **FEW)
    assert "Note: No mean over tasks: found the metrics accuracy, mae, whose mean" in text


def test_a_model_that_lacks_a_task_is_compared_on_the_others(files, tmp_path):
    third = TABLE[TABLE["model"] == "new"].assign(model="third")
    rows = pd.concat([TABLE, third[third["task"] != "RTE"]])
    rows.to_csv(tmp_path / "all.csv", index=False)
    alone = compare_files(results=str(tmp_path / "all.csv"), **FEW)
    assert re.match("new .*by accuracy \\(mean of 3 tasks\\)", alone)
    assert "Note: Left out of the ranking by the mean: third." in alone
    assert re.search(r"^third +\d.* +- +\d", alone, re.MULTILINE)  # the scores by task
    text = compare_files(results=str(tmp_path / "all.csv"), base="base", **FEW)
    assert "third against base  mean of 2 tasks" in text
    assert "Note: Left out, as there are no predictions: third on RTE." in text
    with pytest.raises(UserError, match="nothing of third on RTE|found 3 arms"):
        stats.compare_tasks(rows)


def test_one_run_of_each_task_shows_new_examples_alone(files):
    rows = TABLE[TABLE["seed"] == 0]
    family = stats.compare_tasks(rows, **FEW)
    wide = rows.assign(right=rows["label"] == rows["prediction"]).pivot_table(
        index=["task", "id"], columns="model", values="right"
    )
    differences = (wide["new"] - wide["base"]).groupby("task")
    variance = (differences.var() / differences.size()).sum() / len(SIZES) ** 2
    assert family.macro_average.resample == "examples"
    assert family.macro_average.standard_error == pytest.approx(np.sqrt(variance))
    assert str(family).startswith("One run of each model: ")


def test_a_report_has_the_mean_of_its_tasks_and_opens_with_it(files, whole, tmp_path):
    """MRPC counts by accuracy and F1 there, as runs record them; here by the one that was imported."""
    import_predictions(
        run_dir=str(tmp_path / "runs"), layout="files", source=str(files / "all.csv")
    )
    report(run_dir=str(tmp_path / "report"), predictions=str(tmp_path / "runs"), **FEW)
    rows = pd.read_csv(tmp_path / "report" / "tables" / "comparisons.csv")
    *_, mean = whole
    assert rows["evaluation_set"].tolist() == [*SIZES, "mean of 3 tasks"]
    assert rows["estimate"].iloc[-1] == pytest.approx(abs(mean["estimate"]), abs=1e-12)
    page = (tmp_path / "report" / "index.html").read_text()
    assert (
        '<p class="answer">new is better than base: accuracy ' in page and "Across 3 tasks" in page
    )
    assert "figures/" in page and (tmp_path / "report" / "figures").glob("*-tasks.svg")


def test_slices_say_of_which_task_they_are(files):
    text = compare_files(results=str(files / "all.csv"), by="label", **FEW)
    tables = [line for line in text.splitlines() if ": label  examples" in line]
    assert [line.partition(":")[0] for line in tables] == [*SIZES]
    assert text.count("Note: Slices of fewer than") == 1


def test_ranks_are_those_of_the_arm_on_the_task(tmp_path):
    """All tasks had the ranks of the last one."""
    best = {"CoLA": "a", "RTE": "b"}
    draws, parts = np.random.default_rng(1), []
    for task, arm in [(task, arm) for task in best for arm in "abc"]:
        for seed in SEEDS:
            right = draws.random(200) < (0.95 if best[task] == arm else 0.5)
            names = {"task": task, "model": arm, "seed": seed}
            parts.append(pd.DataFrame({**names, "id": range(200), "score": right * 1}))
    pd.concat(parts).to_csv(tmp_path / "all.csv", index=False)
    records = json.loads(compare_files(results=str(tmp_path / "all.csv"), json=True, **FEW))
    ranks = {
        (record["evaluation_set"], record["base"]["name"]): record["base"].get("ranks")
        for record in records
        if record["experiment"] is None
    }
    assert ranks["CoLA", "a"] == [1, 1] and ranks["RTE", "b"] == [1, 1]
    assert ranks["CoLA", "b"] == ranks["RTE", "a"] == [2, 3]
    assert ranks["mean of 2 tasks", "c"] == [3, 3]


def test_models_are_ranked_by_their_mean_over_tasks(files, tmp_path):
    """Every difference is that of `compare_tasks` at Bonferroni's level for all pairs."""
    third = TABLE[TABLE["model"] == "new"].assign(model="third")
    flipped = np.random.default_rng(0).random(len(third)) < 0.3
    third["prediction"] = np.where(flipped, 1 - third["prediction"], third["prediction"])
    rows = pd.concat([TABLE, third])
    rows.to_csv(tmp_path / "all.csv", index=False)
    path, page = str(tmp_path / "all.csv"), tmp_path / "page.html"
    text = compare_files(results=path, html=str(page), **FEW)
    assert re.match(
        "new (leads clearly|comes first) by accuracy \\(mean of 3 tasks\\), with ", text
    )
    assert re.search(
        r"^arm +CoLA \(%\) +MRPC \(%\) +RTE \(%\) +mean of 3 tasks \(%\)", text, re.MULTILINE
    )
    order = [line.split()[1] for line in text.splitlines() if re.match(r"[123] +\w", line)]
    shown = page.read_text()
    every_two = shown[shown.index("Every two arms, mean of 3 tasks") :].partition("</details>")[0]
    for better, worse in itertools.combinations(order, 2):
        pair = pd.concat([rows[rows["model"] == worse], rows[rows["model"] == better]])
        mean = stats.compare_tasks(pair, confidence_level=1 - 0.05 / 3).macro_average
        assert mean.base.name == worse
        low, high = (f"{100 * end:.1f}".replace("-", "\N{MINUS SIGN}") for end in mean.ci)
        assert re.search(f"<td>{better}</td><td>{worse}</td>.*?{low} to {high}", every_two)
    few = rows[(rows["model"] != "third") | (rows["seed"] < 2)]
    few.to_csv(tmp_path / "few.csv", index=False)
    text = compare_files(results=str(tmp_path / "few.csv"), **FEW)
    assert "mean over tasks: the arms have different seeds; give --design=unpaired." in text
    assert text.startswith("CoLA: ")
    text = compare_files(results=str(tmp_path / "few.csv"), design="unpaired", **FEW)
    assert "by accuracy (mean of 3 tasks), with " in text


def test_several_tasks_are_not_pooled(files):
    for rows in (TABLE, TABLE.rename(columns={"task": "dataset"})):
        with pytest.raises(UserError, match=r"holds 3 tasks .*give all to stats\.compare_tasks"):
            stats.compare_arms(rows)
    with pytest.raises(UserError, match="holds 3 tasks"):
        stats.compare(str(files / "all.csv"))


def test_seeds_that_the_mean_leaves_out_are_said(files, tmp_path):
    """One seed of one task made the mean of all tasks one of single runs, without a word."""
    of_few = (TABLE["task"] == "RTE") & (TABLE["seed"] > 1)
    TABLE[~of_few].to_csv(tmp_path / "two.csv", index=False)
    text = compare_files(results=str(tmp_path / "two.csv"), **FEW)
    assert "leaves out seeds 2, 3 of CoLA, MRPC, which another task lacks" in text
    assert "Across 3 tasks, 2 paired seeds" in text
    of_one = (TABLE["task"] == "RTE") & (TABLE["seed"] > 0)
    TABLE[~of_one].to_csv(tmp_path / "one.csv", index=False)
    text = compare_files(results=str(tmp_path / "one.csv"), **FEW)
    assert "No mean over tasks: found one seed that all tasks have" in text
    assert "give --resample=examples and claim" in text
    with pytest.raises(UserError, match="one seed that all tasks have.*resample='examples'"):
        stats.compare_tasks(TABLE[~of_one], **FEW)
    answer = compare_files(results=str(tmp_path / "one.csv"), resample="examples", **FEW)
    assert "leaves out seeds 1, 2, 3 of CoLA, MRPC" in answer


def test_columns_named_after_tasks_are_scores_of_runs_alone(tmp_path):
    """Beside labels they are of models, by what these were trained on."""
    rows = TABLE[(TABLE["task"] == "RTE") & (TABLE["model"] == "new")]
    trained = rows.rename(columns={"prediction": "mnli"}).assign(snli=rows["label"])
    columns = ["seed", "id", "label", "mnli", "snli"]
    trained[columns].to_csv(tmp_path / "trained.csv", index=False)
    with pytest.raises(UserError, match="no column of predictions or scores .*'mnli', 'snli'"):
        compare_files(results=str(tmp_path / "trained.csv"), **FEW)
    names = {"model": ["a", "b"] * 3, "seed": [0, 0, 1, 1, 2, 2]}
    of_runs = pd.DataFrame({**names, "RTE": np.arange(6.0), "CoLA": np.arange(6.0) ** 2})
    of_runs.to_csv(tmp_path / "runs.csv", index=False)
    *tasks, mean = json.loads(compare_files(results=str(tmp_path / "runs.csv"), json=True, **FEW))
    assert [item["evaluation_set"] for item in tasks] == ["RTE", "CoLA"]
    assert mean["estimate"] == pytest.approx((1 + (1 - 0 + 9 - 4 + 25 - 16) / 3) / 2)
