from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.scoring import scores_of
from multiberts.finetune import finetuning
from multiberts.finetune.fine_tuned_model import MODEL_FILES
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError
from multiberts.tests.checkpoint_command import checkpoint_command
from multiberts.tests.finetune.conftest import Make, Refuse

SMALL = {"batch_size": 16, "num_epochs": 3, "sequence_length": 32, "learning_rate": 2e-3}


def files_of(run: Path) -> dict[str, bytes]:
    """What a finished run consists of, without its log and the paths in its configuration."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("metrics.jsonl", "config.gin", "LOCK")
    }


@pytest.fixture
def train(fine_tune: Make, pair_data: Path) -> Make:
    """Trains pairs into a folder of this name."""
    return lambda name, **settings: fine_tune("pair", pair_data, name, **settings)


def test_the_last_model_predicts_as_the_run_did(
    train: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, kept = train("plain"), train("kept", keep="last")
    assert not (plain / "model").exists()
    predictions = "predictions/dev.tfrecord"
    assert (plain / predictions).read_bytes() == (kept / predictions).read_bytes()
    assert set(json.loads((kept / "DONE").read_text())["outputs"]) >= set(MODEL_FILES)
    model = read_checkpoint(kept / "model")
    assert model.head["output_weights"].shape == (2, 32)
    assert model.provenance["procedure"] == "base+pair"
    assert model.provenance["parent"]["procedure"] == "base"
    record = model.provenance["finetuned"]
    assert record["head"]["labels"] == ["entailment", "not_entailment"]
    assert (record["epochs"], record["sequence_length"], record["do_lower_case"]) == (3, 32, True)
    capsys.readouterr()
    assert checkpoint_command("inspect", str(kept / "model")) == 0
    text = capsys.readouterr().out
    assert "fine-tuned     on pair, 3 epochs: classification, entailment, not_entailment" in text
    assert "output_weights" in text and "match checkpoint.json" in text


def test_a_missing_pooler_is_drawn_said_and_recorded(
    train: Make, make_checkpoint: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """As transformers.BertForMaskedLM has none; the head of tags reads none."""

    def without_pooler(parameters: dict[str, np.ndarray]) -> None:
        for part in ("kernel", "bias"):
            del parameters[f"bert/pooler/dense/{part}"]

    given = {"checkpoint": make_checkpoint(4, without_pooler), "keep": "last", "num_epochs": 1}
    given["learning_rate"] = 1e-30  # the pooler stays as it was drawn
    drawn_values = []
    for seed in (1, 2):
        run = train(f"run_{seed}", finetune_seed=seed, **given)
        said = rf"lacks the pooler \(bert/pooler/dense/kernel\), .*: finetune_seed {seed} initialises it"
        assert re.search(said, capsys.readouterr().err)
        drawn = {
            "finetune_seed": seed,
            "variables": ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"],
        }
        assert read_checkpoint(run / "model").provenance["initialised"] == drawn
        assert json.loads((run / "run.json").read_text())["initialised"] == drawn
        drawn_values.append(read_checkpoint(run / "model").parameters["bert/pooler/dense/kernel"])
    one, other = drawn_values
    # Drawn as the head, with initializer_range .1 cut at two deviations.
    assert not np.array_equal(one, other)
    assert np.abs(one).max() <= 0.2 and abs(one.std() - 0.088) < 0.01


def test_the_best_model_is_that_of_the_best_score(train: Make) -> None:
    """Here accuracy rises with training, so the worst by it is an early model."""
    run = train("run", num_epochs=12, prediction_epochs=[1, 2, 4, 8], keep="best")
    scores = {
        epochs: scores_of(run, name)["accuracy"]
        for epochs, name in ((1, "dev@1"), (2, "dev@2"), (4, "dev@4"), (8, "dev@8"))
    }
    best = read_checkpoint(run / "model").provenance["finetuned"]["epochs"]
    final = scores_of(run, "dev")["accuracy"]
    assert final == max([*scores.values(), final])
    # The first of equally good ones.
    first = next((epochs for epochs, score in scores.items() if score == final), 12)
    assert best == first
    assert json.loads((run / "run.json").read_text())["kept_model"]["epochs"] == best


def test_steps_are_evaluated_as_epochs_are(train: Make) -> None:
    """96 examples in batches of 16: epochs of six steps."""
    by_steps = train("steps", num_epochs=2, keep="best", evaluate_every_steps=4)
    by_epochs = train("epochs", num_epochs=2, keep="best", prediction_epochs=[2 / 3, 4 / 3])
    found = {run: json.loads((run / "run.json").read_text()) for run in (by_steps, by_epochs)}
    names = {"dev@0.6667", "dev@1.333", "dev"}
    assert all(set(content["evaluation_sets"]) == names for content in found.values())
    for name in sorted(names):
        one, other = (content["evaluation_sets"][name]["sha256"] for content in found.values())
        assert one == other
    kept = [read_checkpoint(run / "model") for run in found]
    one, other = ({**model.parameters, **model.head} for model in kept)
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert kept[0].provenance["finetuned"]["epochs"] == kept[1].provenance["finetuned"]["epochs"]
    assert found[by_steps]["parameters"]["evaluate_every_steps"] == 4


def test_patience_ends_training_and_a_stopped_run_resumes_to_the_same_bytes(
    tmp_path: Path, train: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a learning rate of almost nothing no score is better than the first."""
    given = {
        "num_epochs": 6, "prediction_epochs": [1, 2, 3, 4, 5], "keep": "best", "patience": 2,
        "learning_rate": 1e-9, "save_state_every_steps": 4,
    }  # fmt: skip
    whole, stopped = train("whole", **given), tmp_path / "stopped"
    sets = json.loads((whole / "run.json").read_text())["evaluation_sets"]
    assert set(sets) == {"dev@1", "dev@2", "dev@3", "dev"}
    assert read_checkpoint(whole / "model").provenance["finetuned"]["epochs"] == 1
    first, dev = read_predictions([whole], "dev@1"), read_predictions([whole], "dev")
    np.testing.assert_array_equal(first["scores"], dev["scores"])
    for steps in (3, 4, 5, 2):  # ends in step 18, when two epochs were no better than the first
        calls = iter(range(1000))

        @contextlib.contextmanager
        def notice(
            calls: Iterator[int] = calls, steps: int = steps
        ) -> Iterator[Callable[[], bool]]:
            yield lambda: next(calls) >= steps

        with monkeypatch.context() as patch, pytest.raises(PreemptedError):
            patch.setattr(finetuning, "preemption_notice", notice)
            train("stopped", **given)
    train("stopped", **given)
    assert files_of(stopped) == files_of(whole)


def test_training_starts_from_a_kept_model(
    tmp_path: Path, train: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    first, plain = train("first", keep="last"), train("plain")
    capsys.readouterr()
    # Where the Hub's cache would have it.
    cached = tmp_path / "models--me--mine" / "snapshots" / "5f0a"
    shutil.copytree(first / "model", cached)
    second = train("second", checkpoint=cached)
    assert (
        "was fine-tuned on pair: training starts from its encoder, with a new head"
        in capsys.readouterr().err
    )
    content = json.loads((second / "run.json").read_text())
    assert content["checkpoint"]["name"] == "me/mine@5f0a"
    assert (content["procedure"], content["pretrain_seed"]) == ("base+pair", 0)
    assert content["parent"]["procedure"] == "base"
    predictions = "predictions/dev.tfrecord"
    assert (plain / predictions).read_bytes() != (second / predictions).read_bytes()
    # The same directory cannot be taken for a run that starts elsewhere.
    with pytest.raises(UserError, match=r"other parameters: finetune.checkpoint"):
        train("second")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"keep": "best"}, "there are no finetune.prediction_epochs"),
        ({"keep_metric": "accuracy"}, "counts with keep = 'best' only"),
        ({"keep": "last", "patience": 2}, "finetune.patience is 2, which counts with keep = 'best' only"),
        ({"keep": "best", "prediction_epochs": [1], "keep_set": "test"},
         "keep_set is 'test', but the sets of task pair with labels are: dev"),
        ({"keep": "best", "prediction_epochs": [1], "keep_metric": "acuracy"}, "did you mean accuracy"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(
    refused: Refuse, pair_data: Path, change: dict[str, Any], line: str
) -> None:
    assert line in refused("pair", pair_data, **change)


def test_a_probe_trains_nothing_that_could_be_kept(refused: Refuse, winogender_data: Path) -> None:
    line = refused("pronoun_probe", winogender_dir=str(winogender_data), keep="last")
    assert "task pronoun_probe trains nothing" in line
