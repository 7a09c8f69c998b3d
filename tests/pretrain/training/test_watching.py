"""What a run tells while it trains: held-out evaluation, TensorBoard, and when it stops itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.training.engine import Trainer
from multiberts.bert.training.log import read_metrics
from multiberts.pretrain.batches.corpus_batches import EVALUATION_DATA_SEED, Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.training import held_out_evaluation
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.runs.environment import TENSORFLOW, engine
from multiberts.runs.errors import UserError
from multiberts.tests.pretrain.training.breaking_off import pretrain_until

Arguments = Callable[..., dict[str, Any]]
MASKING = Masking(sequence_length=32, max_predictions_per_sequence=5)
HELD_OUT = {
    f"held_out_{task}_{measure}"
    for task in ("masked_lm", "next_sentence")
    for measure in ("loss", "accuracy")
}
# Updates in blocks, which end where something is told or kept.
SHORT = {
    "num_steps": 40, "checkpoint_steps": [0, 20], "save_state_every_steps": 10,
    "log_every_steps": 5, "evaluate_every_steps": 15, "evaluation_batches": 3,
    "compile_step": True, "steps_per_dispatch": 4, "gradient_shards": 1,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def blocks_without_xla() -> Iterator[None]:
    """TensorFlow's own programs are as good here, and XLA takes ten seconds to compile a block.

    Tests of `bert.training` compile blocks, and those of predictions a forward pass.
    """
    with pytest.MonkeyPatch.context() as patch:
        predictor = held_out_evaluation._predictor
        patch.setattr(
            held_out_evaluation,
            "_predictor",
            lambda config, _compile_step: predictor(config, False),
        )
        if engine() == TENSORFLOW:
            from multiberts.bert.training.tensorflow_trainer import TensorFlowTrainer

            real = TensorFlowTrainer._compile
            patch.setattr(
                TensorFlowTrainer,
                "_compile",
                lambda self, updated, _compile_step: real(self, updated, False),
            )
        yield


@pytest.fixture
def held_out(corpus: Path) -> str:
    return str(corpus.parent / "held_out")


def test_evaluation_is_recorded_and_changes_no_weight(
    arguments: Arguments, held_out: str, tmp_path: Path
) -> None:
    """The only comparison of what a run records with a product over all words by itself."""
    run, without = tmp_path / "run", tmp_path / "without"
    pretrain(**arguments(run, **SHORT, evaluation_corpus=held_out))
    lines = read_metrics(run / "metrics.jsonl")
    evaluated = {line["step"]: line for line in lines if line.keys() >= HELD_OUT}
    assert sorted(evaluated) == [0, 15, 20, 30, 40]
    assert evaluated[40]["held_out_masked_lm_loss"] < evaluated[0]["held_out_masked_lm_loss"]

    # The same by one product over all words and pairs, without compiling, from the checkpoint.
    checkpoint = read_checkpoint(checkpoint_path(run, 20))
    batches = Batches(held_out, MASKING, data_seed=EVALUATION_DATA_SEED, batch_size=24)
    _, whole = pretraining_loss(checkpoint.parameters, checkpoint.config, batches.batch(0), None)
    recorded = json.loads((checkpoint_path(run, 20) / "checkpoint.json").read_text())["evaluation"]
    assert recorded == {name: evaluated[20][name] for name in HELD_OUT}
    for name in HELD_OUT:
        expected = float(whole[name.removeprefix("held_out_")])
        assert recorded[name] == pytest.approx(expected, abs=2e-5)

    pretrain(**arguments(without, **SHORT, tensorboard=False))
    assert not (without / "tensorboard").exists()
    one, other = (read_checkpoint(checkpoint_path(each, 40)).parameters for each in (run, without))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    lines = read_metrics(without / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(5, 41, 5))
    for line in lines:
        assert line["sequences_per_second"] == pytest.approx(8 * line["steps_per_second"], abs=0.01)
        # The peak of a CPU is not known.
        assert "mfu" not in line or 0 < line["mfu"] < 1


@pytest.mark.slow
def test_bfloat16_stays_near(arguments: Arguments, tmp_path: Path) -> None:
    def losses(name: str, **changes: Any) -> list[float]:
        call = arguments(tmp_path / name, num_steps=5, log_every_steps=1, compile_step=False)
        pretrain(**{**call, **changes})
        return [line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl")]

    one, near = losses("one"), losses("bfloat16", compute_dtype="bfloat16")
    assert near != one
    assert near == pytest.approx(one, rel=0.02)


def _scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_tensorboard_shows_every_step_once_after_a_resumption(
    arguments: Arguments, held_out: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    call = arguments(run, **SHORT, evaluation_corpus=held_out)
    pretrain_until(28, call)
    assert [step for step, _ in _scalars(run)["training/loss"]] == [5, 10, 15, 20, 25]
    pretrain(**call)
    shown = _scalars(run)
    lines = read_metrics(run / "metrics.jsonl")
    for tag, name in [
        ("training/loss", "loss"),
        ("training/learning_rate", "learning_rate"),
        ("held_out/masked_lm_accuracy", "held_out_masked_lm_accuracy"),
    ]:
        expected = [(line["step"], pytest.approx(line[name])) for line in lines if name in line]
        assert shown[tag] == expected
    assert [step for step, _ in shown["training/loss"]] == list(range(5, 41, 5))
    assert [step for step, _ in shown["held_out/masked_lm_accuracy"]] == [0, 15, 20, 30, 40]


def _with_losses(patch: pytest.MonkeyPatch, changed: dict[int, float]) -> None:
    """Makes training report other losses after some numbers of updates."""
    real = Trainer.steps

    def reporting(self: Trainer, *given: Any) -> Any:
        before = self.step_count
        metrics = {name: np.array(values) for name, values in real(self, *given).items()}
        for step, loss in changed.items():
            if before < step <= self.step_count:
                np.atleast_1d(metrics["loss"])[step - before - 1] = loss
        return metrics

    patch.setattr(Trainer, "steps", reporting)


def test_loss_that_is_not_finite_stops_the_run(
    arguments: Arguments, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step and its instances are named, and no state from it on is kept."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        _with_losses(patch, {23: float("nan")})
        with pytest.raises(UserError) as stopped:
            pretrain(**arguments(run, **SHORT))
    batches = Batches(corpus, MASKING, data_seed=3, batch_size=8)
    ids = " ".join(str(number) for number in batches.instance_ids(22))
    message = str(stopped.value)
    assert message.startswith("step 23: training is not finite (loss nan, ")
    assert message.endswith(f"its batch: instances {ids} of {corpus}")
    assert sorted(path.stem for path in (run / "state").iterdir()) == ["step_10", "step_20"]
    assert checkpoint_path(run, 20).exists()
    pretrain(**arguments(run, **SHORT))  # where it was an accident of the machine
    assert checkpoint_path(run, 40).exists()


def test_learning_rate_far_too_high_stops_the_run(arguments: Arguments, tmp_path: Path) -> None:
    """A real divergence, not a made one."""
    message = r"step \d+: training is not finite \(loss nan, .*instances"
    with pytest.raises(UserError, match=message):
        pretrain(**arguments(tmp_path / "run", **SHORT, learning_rate=1e30))
