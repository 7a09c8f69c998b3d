"""Logs of lm-evaluation-harness: metrics of whole sets are computed from pairs, or refused by their name."""

import json
from pathlib import Path

import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from multiberts import stats
from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.reading import read_tasks
from multiberts.evaluate.readers.rows import BY_TIME
from multiberts.report.compare_command import compare_files
from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.readers.one_task import read_arms, read_rows

GOLD = [0, 1, 1, 0, 1, 1, 0, 1]
PREDICTED = {1: [0, 1, 1, 1, 1, 0, 0, 1], 2: [1, 1, 1, 0, 1, 0, 0, 0]}


def write_log(folder: Path, task: str, values: dict[str, list]) -> None:
    """Writes samples as the harness does: one value of every metric for each document."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "doc_id": number, "doc": {"sentence": f"s{number}"}, "target": "", "filter": "none",
            "metrics": [*values], **{name: column[number] for name, column in values.items()},
        }
        for number in range(len(next(iter(values.values()))))
    ]  # fmt: skip
    name = f"samples_{task}_2026-01-01T10-00-00.000001.jsonl"
    (folder / name).write_text("\n".join(map(json.dumps, lines)))


def pairs(seed: int) -> list[list[int]]:
    return [[gold, predicted] for gold, predicted in zip(GOLD, PREDICTED[seed], strict=True)]


@pytest.mark.parametrize(
    ("metrics", "score", "expected"),
    [
        (["mcc"], None, matthews_corrcoef),
        (["acc", "mcc"], "mcc", matthews_corrcoef),
        (["acc", "f1"], "f1", f1_score),
    ],
)
def test_pairs_of_gold_and_predicted_give_the_metric_itself(
    metrics: list[str], score: str | None, expected, tmp_path: Path
) -> None:
    for seed in PREDICTED:
        right = [float(gold == predicted) for gold, predicted in pairs(seed)]
        values = {name: right if name == "acc" else pairs(seed) for name in metrics}
        write_log(tmp_path / f"org__bert-seed{seed}", "cola", values)
    [answer] = json.loads(compare_files(results=str(tmp_path), score=score, json=True))
    of_seeds = [expected(GOLD, PREDICTED[seed]) for seed in PREDICTED]
    assert answer["base"]["seed_scores"] == pytest.approx(of_seeds)
    if score is None:
        assert stats.compare(tmp_path).estimate == pytest.approx(sum(of_seeds) / 2)


@pytest.mark.parametrize(
    ("metric", "own"),
    [
        ("mcc", [-0.2182178902359924, -0.5241424183609591]),
        ("f1", [0.25, 0.11764705882352941]),
        ("acc", [0.4, 0.25]),
    ],
)
def test_the_metrics_of_the_harness_are_its_own_numbers(metric: str, own: list[float]) -> None:
    """Samples as lm-evaluation-harness 0.4.13 wrote them, and what its results_*.json said of them."""
    found = stats.compare(*_read_pairs(metric), design="single")
    assert found.base.seed_scores == pytest.approx(own)
    with pytest.raises(UserError, match="found word_perplexity, a score of all texts together"):
        read_arms(str(PAIRS), task="sums_rolling")


PAIRS = Path(__file__).parents[2] / "samples/lm_eval/pairs"


def _read_pairs(metric: str) -> list:
    return [*stats.read(PAIRS, task="sums_pairs", score=metric).values()]


def test_scores_of_all_texts_together_are_refused_by_their_name(tmp_path: Path) -> None:
    likelihoods = [-1.5] * 8
    write_log(tmp_path / "m-seed1", "lambada", {"perplexity": likelihoods, "acc": [1.0] * 8})
    with pytest.raises(UserError, match=r"found perplexity, .*--score=acc$"):
        read_rows(str(tmp_path))
    assert read_rows(str(tmp_path), ColumnNames(score="acc")).roles["score"].eq(1.0).all()
    write_log(tmp_path / "m-seed1", "wikitext", {"word_perplexity": [[-1.5, 9]] * 8})
    with pytest.raises(UserError, match="found word_perplexity, .*; evaluate again .* acc$"):
        read_rows(str(tmp_path), task="wikitext")
    write_log(tmp_path / "m-seed1", "bbq", {"amb": [[1, 0]] * 8, "f1": pairs(1)})
    with pytest.raises(UserError, match=r"found amb \[1, 0\], .*--score=f1$"):
        read_rows(str(tmp_path), task="bbq")


def test_models_whose_names_end_in_a_number_are_not_seeds(tmp_path: Path) -> None:
    for model in ("Llama-2", "Llama-3"):
        for day in (1, 2):
            folder = tmp_path / f"meta-llama__{model}"
            write_log(folder, "sums", {"acc": [float(day == number) for number in range(8)]})
            log = folder / "samples_sums_2026-01-01T10-00-00.000001.jsonl"
            log.rename(folder / f"samples_sums_2026-02-0{day}T10-00-00.000001.jsonl")
    arms = read_arms(str(tmp_path))
    assert {name: arm.seeds for name, arm in arms.items()} == {
        "meta-llama__Llama-2": [1, 2], "meta-llama__Llama-3": [1, 2],
    }  # fmt: skip
    assert {arm.read.columns["seed"] for arm in arms.values()} == {BY_TIME}


def write_helm(folder: Path, shift: int = 0) -> None:
    folder.mkdir(parents=True)
    entries = [
        {
            "instance_id": f"id{number}", "train_trial_index": 0,
            "stats": [{"name": {"name": "exact_match"}, "mean": (number + shift) % 2}],
        }
        for number in range(3)
    ]  # fmt: skip
    (folder / "per_instance_stats.json").write_text(json.dumps(entries))


def test_runs_of_helm_name_their_task_and_their_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        for subject, models in (("law", "ab"), ("logic", "a")):
            for model in models:
                run = f"mmlu:subject={subject},method=joint,model=org_{model}"
                write_helm(tmp_path / f"seed_{seed}" / run, shift=model == "b")
    with pytest.raises(UserError, match=r"2 tasks .*--task=mmlu:subject=law,method=joint$"):
        read_arms(str(tmp_path))
    capsys.readouterr()
    arms = read_arms(str(tmp_path), task="mmlu:subject=law,method=joint")
    means = {name: (arm.seeds, arm.values.mean()) for name, arm in arms.items()}
    assert means == {
        "org_a": ([1, 2], pytest.approx(1 / 3)),
        "org_b": ([1, 2], pytest.approx(2 / 3)),
    }
    assert capsys.readouterr().err == ""
    for part in ("mmlu:subject=logic,method=joint", "subject=logic,method=joint"):
        assert [*read_arms(str(tmp_path), task=part)] == [""]
    assert "left out org_b, without a log of mmlu:subject=logic" in capsys.readouterr().err


def test_tasks_of_unlike_metrics_are_read_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in "ab":
        for seed in PREDICTED:
            folder = tmp_path / f"org__{model}-seed{seed}"
            write_log(folder, "cola", {"mcc": pairs(seed)})
            if model == "a":
                write_log(folder, "sst2", {"acc": [1.0] * 8})
    with pytest.raises(UserError, match=r"2 tasks \(cola, sst2\); .*--task=cola$"):
        read_arms(str(tmp_path))
    capsys.readouterr()
    assert [*read_arms(str(tmp_path), task="cola")] == ["org__a", "org__b"]
    assert capsys.readouterr().err == ""
    assert [*read_arms(str(tmp_path), task="sst2")] == [""]
    assert "left out org__b, without a log of sst2" in capsys.readouterr().err
    tasks = read_tasks(str(tmp_path), ColumnNames(), may_name=True)
    assert {name: rows.read.logged_metric for name, rows in tasks.items()} == {
        "cola": "mcc", "sst2": "",
    }  # fmt: skip
    assert "score" not in tasks["cola"].roles and "label" not in tasks["sst2"].roles
