"""Whether lower scores are better: by flag, else by their name, else nothing is called better."""

import ast
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts import stats
from multiberts.evaluate.metrics.register import METRICS, USUAL_NAMES
from multiberts.evaluate.readers.rows import more_is_better
from multiberts.report.compare_command import compare_files
from multiberts.report.reproduce_command import reproduce_files
from multiberts.runs.errors import UserError
from multiberts.stats.errors import DataError

ROOT = Path(stats.__path__[0]).parent
LESS = """latency_ms test_loss wer mae RMSE error ece brier_score log_loss time_s rank nll val/loss eval_loss
    perplexity word_perplexity cross_entropy error_rate top1_error response_time MSE mean_squared_error
    Word_Error_Rate cost_usd CER bits_per_byte negative_log_likelihood logLoss testLoss runtime mean_rank"""
MORE = """accuracy acc is_correct exact_match em f1 score bleu rougeL rouge_l rouge1 ROUGE-L ndcg@10 recall@5
    mean_reciprocal_rank rank_correlation neg_mean_squared_error neg_log_loss mAP pass@1 R2 win_rate
    log_likelihood eval/accuracy acc_norm bertscore BLEU-4 chrF F1Score vqa_score"""
UNKNOWN = """tokens resolved toxicity bias_of_x slope temperature num_generated_tokens value gpt-4
    accuracy_std loss_improvement WER-reduction accuracyDrop latency_saved f1_gap mse_variance error_diff"""


@pytest.mark.parametrize(("names", "sense"), [(LESS, False), (MORE, True), (UNKNOWN, None)])
def test_names_tell_which_way_is_better(names: str, sense: bool | None) -> None:
    assert [name for name in names.split() if more_is_better(name) is not sense] == []
    of_metrics = {name: metric.higher_is_better for name, metric in METRICS.items()}
    of_metrics |= {name: of_metrics[ours] for name, ours in USUAL_NAMES.items()}
    others = {name for name, own in of_metrics.items() if more_is_better(name) != own}
    assert others == {"mean", "share"}  # say nothing of what they are of


def test_the_name_of_a_model_is_no_name_of_scores() -> None:
    right = np.random.default_rng(0).integers(0, 2, (40, 6))
    for name, sense in (("time_lstm", True), ("error", False), ("test_error", False)):
        table = pd.DataFrame(right).rename(columns=lambda seed, name=name: f"{name}_seed_{seed}")
        [(arm, data)] = stats.read(table.reset_index(names="id")).items()
        assert data.columns["score"] == f"{name}_seed_0 ... {name}_seed_5"
        assert arm == (name if sense else "")
        assert stats.compare(data, design="single").score.more_is_better is sense


def test_nobody_but_the_score_asks_a_metric_which_way_or_where_it_ends() -> None:
    """Eight places asked by the metric's name, so that the mean of a latency was better the higher it was."""
    asked = {
        path.relative_to(ROOT).as_posix()
        for room in ("stats", "report", "papers")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("higher_is_better", "bounds")
    }
    assert asked == {"stats/score.py"}


def scores(number: int, factor: float) -> np.ndarray:
    """Scores of an arm [seeds, examples]."""
    return np.random.default_rng(number).gamma(4, 25, (5, 120)) * factor


PAIR = {"base": scores(1, 1.0), "new": scores(2, 0.8)}


def frames(name: str, arms: dict[str, np.ndarray] = PAIR) -> dict[str, pd.DataFrame]:
    """Tables of arms, with the scores in a column of this name."""
    keys = {"seed": np.repeat(range(5), 120), "id": [*range(120)] * 5}
    return {arm: pd.DataFrame(keys | {name: own.ravel()}) for arm, own in arms.items()}


@pytest.mark.parametrize(
    ("name", "flags", "claim"),
    [
        ("latency_ms", {}, "new is better than base: mean 77.9 against 97.1"),
        ("latency_ms", {"more_is_better": True}, "new is worse than base"),
        ("tokens", {}, "Mean of new is lower than that of base"),
        ("tokens", {"less_is_better": True}, "new is better than base"),
    ],
)
def test_a_latency_that_falls_is_better(tmp_path: Path, name: str, flags: dict, claim: str) -> None:
    paths = [tmp_path / "base.csv", tmp_path / "new.csv"]
    for path, frame in zip(paths, frames(name).values(), strict=True):
        frame.to_csv(path, index=False)
    files = {"results": str(paths[0]), "experiment": [str(paths[1])]}
    text = compare_files(**files, score=name, margin=5.0, **flags)
    assert text.startswith(claim)
    assert ("new is not worse than base by 5 or more" in text) == ("better" in claim)
    assert ("Nothing is called better" in text) == claim.startswith("Mean")
    assert ("(lower is better)" in text) == ("better" in claim)
    with pytest.raises(UserError, match="found --less_is_better and --more_is_better; give one"):
        compare_files(**files, less_is_better=True, more_is_better=True)


def test_losses_are_taken_wherever_they_are(tmp_path: Path) -> None:
    """Beside predictions, alone, and in a column of scores; a Series keeps its name."""
    loss = pd.concat(frame.assign(model=arm) for arm, frame in frames("loss").items())
    answers, path = loss.assign(prediction=1, label=loss["id"] % 2), str(tmp_path / "a.csv")
    forms = [
        (answers, {"metric": "loss"}), (answers, {"score": "loss"}), (loss, {}),
        (loss.rename(columns={"loss": "score"}), {"metric": "loss"}),
    ]  # fmt: skip
    for frame, flags in forms:
        frame.to_csv(path, index=False)
        text = compare_files(results=path, **flags)
        assert text.startswith("new is better than base: loss 77.9 against 97.1")
    answers.drop(columns="loss").to_csv(path, index=False)
    with pytest.raises(UserError, match="found predictions and no loss of each .*score='COLUMN'"):
        compare_files(results=path, metric="loss")
    series = [
        frame.set_index(["seed", "id"])["wait_time"] for frame in frames("wait_time").values()
    ]
    assert stats.compare(*series).score.more_is_better is False


def test_the_fastest_of_three_leads() -> None:
    every = {"slow": scores(1, 2.0), "mid": scores(2, 1.5), "fast": scores(3, 1.0)}
    table = pd.concat(frame.assign(model=arm) for arm, frame in frames("loss", every).items())
    result = stats.compare_arms(table)
    assert [(arm.name, arm.rank_low, arm.rank_high) for arm in result.arms] == [
        ("fast", 1, 1), ("mid", 2, 2), ("slow", 3, 3)]  # fmt: skip
    assert str(result).startswith("fast leads clearly") and result.higher_is_better is False
    result = stats.compare_arms(every)
    assert str(result).startswith("slow is clearly highest") and result.higher_is_better is None
    assert any("Nothing is called better" in note for note in result.notes)


def test_a_keyword_tells_it_and_a_metric_may_not_be_contradicted() -> None:
    base, new = PAIR.values()
    for less, way in ((True, "better"), (False, "worse")):
        assert f"is {way} than" in str(stats.compare(base, new, less_is_better=less))
    told = stats.compare(base > 99, new > 99, "accuracy", labels=np.ones(120))
    assert told.score.more_is_better and told.score.ends == (0, 1)
    with pytest.raises(DataError, match="for accuracy higher is better; leave less_is_better or"):
        stats.compare(base > 99, new > 99, "accuracy", labels=np.ones(120), less_is_better=True)


def test_wrong_answers_are_no_right_ones() -> None:
    """Seeds without an error have not failed, and those with errors only have."""
    wrong = (np.random.default_rng(0).random((6, 200)) < 0.1).astype(int)
    wrong[1], wrong[4] = 0, 1
    table = pd.DataFrame(wrong.T).rename(columns=lambda seed: f"error_seed_{seed}")
    for data in (table.reset_index(names="id"), 1 - wrong):
        assert stats.compare(data, design="single").base.failed_seeds == (4,)


def test_the_best_of_losses_is_the_lowest(tmp_path: Path) -> None:
    losses = pd.DataFrame({"seed": range(6), "loss": np.random.default_rng(4).normal(0.8, 0.02, 6)})
    losses.to_csv(tmp_path / "losses.csv", index=False)
    asked = {"results": str(tmp_path / "losses.csv"), "published": 0.77, "of": "best:5"}
    text = reproduce_files(**asked)
    assert "within 0.706 to 0.807" in text and "p = 0.91" in text and "(lowest)" in text
    losses.rename(columns={"loss": "cross"}).to_csv(tmp_path / "losses.csv", index=False)
    with pytest.raises(UserError, match="it is unknown whether higher or lower"):
        reproduce_files(**asked, score="cross")
    assert reproduce_files(**asked, score="cross", less_is_better=True).startswith(text[:99])


def test_a_mean_of_losses_and_accuracies_is_refused() -> None:
    tasks = {
        name: stats.TaskData(frames(name)["base"], frames(name)["new"], "mean")
        for name in ("loss", "score")
    }
    with pytest.raises(DataError, match="so their mean has no meaning; compare them one by one"):
        stats.compare_tasks(tasks)
