"""Which way scores are better: told, else by their name, else nothing is called better."""

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
    Word_Error_Rate cost_usd CER TER bits_per_byte negative_log_likelihood logLoss
    testLoss runtime mean_rank"""
MORE = """accuracy acc is_correct exact_match em f1 score bleu rougeL rouge_l rouge1 ROUGE-L ndcg@10 recall@5
    mean_reciprocal_rank rank_correlation neg_mean_squared_error neg_log_loss mAP pass@1 R2 win_rate
    success_rate log_likelihood eval/accuracy acc_norm bertscore BLEU-4 chrF F1Score vqa_score"""
UNKNOWN = "tokens resolved toxicity bias_of_x slope temperature num_generated_tokens value gpt-4"


@pytest.mark.parametrize(("names", "sense"), [(LESS, False), (MORE, True), (UNKNOWN, None)])
def test_names_tell_which_way_is_better(names: str, sense: bool | None) -> None:
    assert [name for name in names.split() if more_is_better(name) is not sense] == []


def test_the_names_of_metrics_tell_what_the_metrics_say() -> None:
    """But for a mean, a share and a slope, whose names say nothing of what they are of."""
    senses = {name: metric.higher_is_better for name, metric in METRICS.items()}
    senses |= {name: senses[ours] for name, ours in USUAL_NAMES.items()}
    told = {name: more_is_better(name) for name in senses}
    assert {name for name in senses if senses[name] != told[name]} == {"mean", "share"}
    assert told["slope"] is None


def test_the_name_of_a_model_is_no_name_of_scores(tmp_path: Path) -> None:
    right = np.random.default_rng(0).integers(0, 2, (40, 6))
    for name, sense in (("time_lstm", True), ("error", False), ("test_error", False)):
        names = [f"{name}_seed_{seed}" for seed in range(6)]
        table = pd.DataFrame(right, columns=names).reset_index(names="id")
        [(arm, data)] = stats.read(table).items()
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


def frames(name: str, factors: dict[str, float]) -> dict[str, pd.DataFrame]:
    """Five seeds and 120 examples of each arm, with scores in a column of this name."""
    keys = {"seed": np.repeat(range(5), 120), "id": [*range(120)] * 5}
    of_arms = enumerate(factors.items(), 1)
    return {
        arm: pd.DataFrame(keys | {name: np.random.default_rng(n).gamma(4, 25, 600) * factor})
        for n, (arm, factor) in of_arms
    }


PAIR = {"base": 1.0, "new": 0.8}


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
    for path, frame in zip(paths, frames(name, PAIR).values(), strict=True):
        frame.to_csv(path, index=False)
    text = compare_files(
        results=str(paths[0]), experiment=[str(paths[1])], score=name, margin=5.0, **flags
    )
    assert text.startswith(claim)
    assert ("new is not worse than base by 5 or more" in text) == ("better" in claim)
    assert ("Nothing is called better" in text) == claim.startswith("Mean")
    assert ("of which less is better" in text) == ("better" in claim)
    with pytest.raises(UserError, match="found --less_is_better and --more_is_better; give one"):
        compare_files(results=str(paths[0]), less_is_better=True, more_is_better=True)


def test_the_fastest_of_three_leads(tmp_path: Path) -> None:
    every = frames("latency_ms", {"slow": 2.0, "mid": 1.5, "fast": 1.0})
    table = pd.concat(frame.assign(model=arm) for arm, frame in every.items())
    result = stats.compare_arms(table.rename(columns={"latency_ms": "loss"}))
    assert [arm.name for arm in result.arms] == ["fast", "mid", "slow"]
    assert str(result).startswith("fast leads clearly") and result.higher_is_better is False
    arms = {arm: frame.set_index(["seed", "id"]).unstack() for arm, frame in every.items()}
    result = stats.compare_arms({arm: frame.to_numpy() for arm, frame in arms.items()})
    assert str(result).startswith("slow is clearly highest") and result.higher_is_better is None
    assert any("Nothing is called better" in note for note in result.notes)


def test_a_keyword_tells_it_and_a_metric_may_not_be_contradicted() -> None:
    base, new = (
        frame.latency.to_numpy().reshape(5, 120) for frame in frames("latency", PAIR).values()
    )
    assert "is better than" in str(stats.compare(base, new, less_is_better=True))
    assert "is worse than" in str(stats.compare(base, new, less_is_better=False))
    told = stats.compare(base > 99, new > 99, "accuracy", labels=np.ones(120))
    assert told.score.more_is_better and told.score.ends == (0, 1)
    with pytest.raises(DataError, match="but of accuracy more is; leave less_is_better or"):
        stats.compare(base > 99, new > 99, "accuracy", labels=np.ones(120), less_is_better=True)


def test_wrong_answers_are_no_right_ones() -> None:
    """Seeds without an error have not failed, and those with errors only have."""
    wrong = (np.random.default_rng(0).random((6, 200)) < 0.1).astype(int)
    wrong[1], wrong[4] = 0, 1
    table = pd.DataFrame(wrong.T).rename(columns=lambda seed: f"error_seed_{seed}")
    arm = stats.compare(table.reset_index(names="id"), design="single").base
    assert arm.failed_seeds == (4,)
    right = stats.compare(1 - wrong, design="single").base
    assert right.failed_seeds == (4,)


def test_the_best_of_losses_is_the_lowest(tmp_path: Path) -> None:
    losses = pd.DataFrame({"seed": range(6), "loss": np.random.default_rng(4).normal(0.8, 0.02, 6)})
    losses.to_csv(tmp_path / "losses.csv", index=False)
    asked = {"results": str(tmp_path / "losses.csv"), "published": 0.77, "of": "best:5"}
    text = reproduce_files(**asked)
    assert "within 0.706 to 0.807" in text and "p = 0.91" in text and "(lowest)" in text
    losses.rename(columns={"loss": "cross"}).to_csv(tmp_path / "losses.csv", index=False)
    with pytest.raises(UserError, match="neither the name of the scores nor a flag"):
        reproduce_files(**asked, score="cross")
    assert reproduce_files(**asked, score="cross", less_is_better=True).startswith(text[:99])


def test_a_mean_of_losses_and_accuracies_is_refused() -> None:
    first, second = (
        {name: stats.read(frame)[""] for name, frame in frames(column, PAIR).items()}
        for column in ("loss", "score")
    )
    tasks = {
        column: stats.TaskData(of_arms["base"], of_arms["new"], "mean")
        for column, of_arms in {"loss": first, "score": second}.items()
    }
    with pytest.raises(DataError, match="whose mean has no meaning; compare them one by one"):
        stats.compare_tasks(tasks)
