"""Logs of lm-evaluation-harness: metrics of whole sets are computed from pairs, or refused by their name."""

import json
from pathlib import Path

import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from multiberts import stats
from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.reading import read_rows
from multiberts.runs.errors import UserError
from multiberts.stats.report.own_predictions import compare_files

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
    [answer] = json.loads(compare_files(base=str(tmp_path), score=score, json=True))
    of_seeds = [expected(GOLD, PREDICTED[seed]) for seed in PREDICTED]
    assert answer["base"]["seed_scores"] == pytest.approx(of_seeds)
    if score is None:
        assert stats.compare(tmp_path).estimate == pytest.approx(sum(of_seeds) / 2)


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
