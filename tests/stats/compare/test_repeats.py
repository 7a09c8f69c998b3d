"""Logs of one model in order of time are repeats of its evaluation, and no seeds: they are never paired."""

import json
from pathlib import Path

import numpy as np
import pytest

from multiberts import stats
from multiberts.report.compare_command import compare_files
from multiberts.stats.errors import DataError


def write_logs(folder: Path, models: str = "ab", runs: int = 3, named: bool = False) -> None:
    """Writes logs of lm-evaluation-harness: each model some times, sampled at a temperature."""
    random = np.random.default_rng(0)
    for share, model in enumerate(models, 6):
        for run in range(runs):
            own = folder / f"org__{model}{f'-seed{run}' * named}"
            own.mkdir(parents=True, exist_ok=True)
            lines = [
                {"doc_id": doc, "doc": {"question": f"q{doc}"}, "metrics": ["acc"],
                 "acc": float(random.random() < share / 10)}
                for doc in range(40)
            ]  # fmt: skip
            path = own / f"samples_sums_2026-01-0{run + 1}T10-00-00.0.jsonl"
            path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("asked", [{}, {"design": "paired"}, {"design": "unpaired"}])
def test_repeats_are_unpaired_whatever_is_asked(asked: dict, tmp_path: Path) -> None:
    write_logs(tmp_path)
    a, b = (arm["score"].to_numpy() for arm in stats.read(tmp_path).values())
    result = stats.compare(tmp_path, **asked)
    # The arrays alone do not say that they are repeats.
    expected = stats.compare(a, b, design="unpaired")
    assert result.design == "unpaired" and "unpaired" not in result.intervals
    assert result.ci == expected.ci and result.p_value == expected.p_value
    assert result.base.repeats and not expected.base.repeats
    assert "no model was trained again" in result.methods()
    assert "trained again" not in expected.methods()
    assert stats.compare_arms(tmp_path, **asked).design == "unpaired"


def test_the_claim_is_about_evaluating_again(tmp_path: Path) -> None:
    write_logs(tmp_path / "repeats")
    text = compare_files(results=str(tmp_path / "repeats"))
    finding = text.partition("\n")[0]
    assert "Across 3 repeats against 3 repeats and 40 shared" in finding
    assert "over repeats and examples" in finding and "seed" not in finding
    assert finding.endswith("evaluating these models again, and not about training again.")
    assert "have no partners" in text and "share nothing in training" not in text
    alone = compare_files(results=str(tmp_path / "repeats/org__a"))
    assert "Across 3 repeats" in alone and "evaluating this model again" in alone
    write_logs(tmp_path / "seeds", named=True)
    text = compare_files(results=str(tmp_path / "seeds"))
    assert "Across 3 paired seeds" in text and "repeats" not in text


def test_repeats_of_three_models_are_ranked(tmp_path: Path) -> None:
    write_logs(tmp_path, "abc")
    assert "no model was trained again" in stats.compare_arms(tmp_path).methods()
    text = compare_files(results=str(tmp_path))
    assert "Among 3 arms with 3 repeats each" in text and "no ranking" not in text


def test_one_log_of_each_model_shows_nothing_of_repeats(tmp_path: Path) -> None:
    write_logs(tmp_path, runs=1)
    with pytest.raises(DataError, match=r"has one evaluation .*how evaluations vary; .*resample="):
        stats.compare(tmp_path, resample="both")
    assert stats.compare(tmp_path).design == "unpaired"
    text = compare_files(results=str(tmp_path))
    assert text.startswith("One run of each model: this is about these models on new examples")


def test_unlike_numbers_of_repeats_are_compared(tmp_path: Path) -> None:
    write_logs(tmp_path)
    next((tmp_path / "org__b").iterdir()).unlink()
    result = stats.compare(tmp_path)
    assert (len(result.base.seeds), len(result.experiment.seeds)) == (3, 2)
