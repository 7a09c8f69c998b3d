"""Options of training beside the recipe: what each does to the weights, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.finetune.finetuning import finetune
from multiberts.finetune.settings import IDENTITY, FinetuningSettings
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import Make

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {
    "batch_size": 16, "num_epochs": 1, "sequence_length": 32, "compile_step": False,
    "learning_rate": 2e-3, "task": "pair", "keep": "last",
}  # fmt: skip


@pytest.fixture
def trained(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path
) -> Callable[..., dict[str, np.ndarray]]:
    """Trains for some steps with these options and returns how far each variable moved."""

    def run(name: str, num_layers: int = 2, **options: Any) -> dict[str, np.ndarray]:
        start = make_checkpoint(num_layers, num_hidden_layers=num_layers)
        finetune(run_dir=str(tmp_path / name), checkpoint=str(start), data_dir=str(pair_data),
                 **{**SMALL, "max_steps": 3, **options})  # fmt: skip
        model, before = read_checkpoint(tmp_path / name / "model"), read_checkpoint(start)
        return {
            name: values - before.parameters[name]
            for name, values in model.parameters.items()
            if name in before.parameters
        }

    return run


@pytest.mark.usefixtures("eager")
def test_frozen_layers_stay_bit_for_bit(trained: Callable[..., dict[str, np.ndarray]]) -> None:
    """Alone trains two layers, of which one is frozen."""
    moved = trained("frozen", frozen_layers=1)
    still = {name for name, change in moved.items() if not change.any()}
    frozen = ("bert/embeddings/", "bert/encoder/layer_0/")
    assert still == {name for name in moved if name.startswith(frozen)}
    assert not any(name.startswith(frozen) for name in moved.keys() - still)


@pytest.mark.usefixtures("eager")
def test_layers_below_move_less(trained: Callable[..., dict[str, np.ndarray]]) -> None:
    """The first update has the learning rate 0; one of Adam is the rate times a function of the gradient."""
    given: dict[str, Any] = {"max_steps": 2, "warmup_proportion": 0.5, "num_layers": 1}
    plain, decayed = trained("plain", **given), trained("decayed", layer_decay=0.5, **given)
    depths = {"bert/embeddings/word_embeddings": 2, "bert/encoder/layer_0/output/dense/kernel": 1,
              "bert/pooler/dense/kernel": 0}  # fmt: skip
    for name, depth in depths.items():
        assert np.abs(plain[name]).max() > 1e-5
        np.testing.assert_allclose(decayed[name], plain[name] * 0.5**depth, atol=3e-8)


@pytest.mark.usefixtures("eager")
def test_the_log_has_the_rates_of_the_schedule_and_adam_its_own_settings(
    trained: Callable[..., dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """The first update of Adam without correction is rate x (1 - beta_1) g / (sqrt(1 - beta_2) |g| + eps)."""
    given = {"max_steps": 1, "warmup_proportion": 0.0, "learning_rate": 1e-4}
    given |= {"learning_rate_decay": "constant", "num_layers": 1}
    name, moved = "bert/pooler/dense/bias", {}  # not decayed
    for run, beta_2 in (("usual", 0.999), ("other", 0.996)):
        moved[run] = trained(run, **given, adam_beta_2=beta_2, adam_epsilon=1e-12)[name]
    expected = 1e-4 * 0.1 / 0.001**0.5
    assert np.abs(moved["usual"]).max() == pytest.approx(expected, rel=1e-2)
    np.testing.assert_allclose(moved["usual"], moved["other"] * 2, rtol=1e-2, atol=1e-8)
    trained("cosine", 1, log_every_steps=1, learning_rate_decay="cosine", warmup_proportion=0.0,
            adam_beta_2=0.996, adam_epsilon=1e-12)  # fmt: skip
    lines = (tmp_path / "cosine" / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["learning_rate"] for line in lines]
    np.testing.assert_allclose(rates, [2e-3, 1.5e-3, 0.5e-3])


@pytest.mark.slow
def test_what_a_run_of_one_shard_of_two_devices_and_of_the_options_records(
    trained: Callable[..., dict[str, np.ndarray]], tmp_path: Path
) -> None:
    whole, shards = trained("whole"), trained("shards", gradient_shards=2, tensorboard=True)
    rounded = trained("rounded", compute_dtype="bfloat16")
    name = "bert/pooler/dense/kernel"
    assert all(np.abs(moved[name]).max() > 0 for moved in (whole, shards, rounded))
    assert not np.array_equal(whole[name], shards[name])
    assert not np.array_equal(whole[name], rounded[name])
    assert [*(tmp_path / "shards" / "tensorboard").iterdir()]
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    assert '"step": 3' in lines[-1]


@pytest.mark.slow  # two processes, as the parts of a CPU are made before JAX starts
def test_two_devices_end_where_one_does(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path
) -> None:
    """In the same bytes."""
    pytest.importorskip("jax", reason="needs JAX: the extra jax")
    start, found, scores = make_checkpoint(), {}, {}
    for devices in (1, 2):
        run = tmp_path / f"on_{devices}"
        call = {**SMALL, "run_dir": run, "checkpoint": start, "data_dir": pair_data, "num_epochs": 2,
                "gradient_shards": 2, "devices": devices}  # fmt: skip
        flags = [f"--{name}={value}" for name, value in call.items()]
        subprocess.run([sys.executable, "-m", "multiberts.finetune", "--engine=jax", *flags], cwd=ROOT,
                       check=True)  # fmt: skip
        model = read_checkpoint(run / "model")
        found[devices] = {**model.parameters, **model.head}
        scores[devices] = read_predictions([run], "dev")["scores"].values
    one, two = found[1], found[2]
    before = read_checkpoint(start).parameters
    assert one.keys() == two.keys()
    assert max(np.abs(before[name] - one[name]).max() for name in before if name in one) > 1e-2
    assert [name for name in one if one[name].tobytes() != two[name].tobytes()] == []
    assert scores[1].tobytes() == scores[2].tobytes()


def test_what_changes_numbers_identifies_a_run_and_devices_do_not() -> None:
    given = FinetuningSettings(run_dir="r", checkpoint="c", task="pair", data_dir="d")
    assert given.training_options() == RECIPE == TrainingOptions()

    def identity(**changed: Any) -> dict[str, Any]:
        return IDENTITY.of(dataclasses.replace(given, **changed).call())[0]

    assert identity(devices=2, tensorboard=True) == identity()
    options: dict[str, Any] = {
        "frozen_layers": 0, "layer_decay": 0.9, "max_steps": 5, "learning_rate_decay": "cosine",
        "evaluate_every_steps": 5, "adam_beta_1": 0.8, "adam_beta_2": 0.98, "adam_epsilon": 1e-8,
    }  # fmt: skip
    for changed in ({name: value} for name, value in options.items()):
        assert identity(**changed) == identity() | changed != identity()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frozen_layers": 3}, "finetune.frozen_layers is 3, but the checkpoint has 2 layers"),
        ({"gradient_shards": 5}, "batch_size is 16, expected a multiple of finetune.gradient_shards, 5"),
        ({"prediction_epochs": [0.9], "max_steps": 1}, "but finetune.max_steps is 1"),
        ({"evaluate_every_steps": 6}, "evaluate_every_steps is 6, but training has 3 steps"),
        ({"evaluate_every_steps": 1, "num_epochs": 2000, "max_steps": None},
         "evaluate_every_steps is 1, so that some of 11999 predictions"),
        ({"devices": 64, "gradient_shards": 1}, "devices is 64, but the engine tensorflow trains on one"),
    ],
)  # fmt: skip
def test_what_is_not_fit_is_refused_in_one_line(
    trained: Callable[..., dict[str, np.ndarray]], tmp_path: Path, options: dict[str, Any], message: str
) -> None:  # fmt: skip
    with pytest.raises(UserError) as refused:
        trained("run", **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()
