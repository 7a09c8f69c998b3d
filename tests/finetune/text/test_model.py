from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.finetune.packing import Shape
from multiberts.finetune.squad import task as squad_task
from multiberts.finetune.text import model as tested
from multiberts.finetune.training_options import TrainingOptions
from multiberts.tests.finetune.conftest import Make, in_transformers, opened_model
from multiberts.tests.finetune.squad.test_task import read_data, squad_content
from multiberts.tests.finetune.text.test_labels import TAGS, tag_rows, write


def opened(checkpoint: Path, folder: Path, length: int = 48, task: str = "pair") -> tuple[Any, Any]:
    return opened_model(checkpoint, task, data_dir=str(folder), sequence_length=length)


@pytest.mark.parametrize(
    ("kind", "shards"),
    [
        *[("pairs", 2), ("tags", 1), ("questions", 1)],
        *(pytest.param(*row, marks=pytest.mark.slow)
          for row in (("pairs", 1), ("tags", 2), ("questions", 2))),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("eager")
def test_a_packed_batch_gives_the_update_of_one_with_a_row_for_each(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path, monkeypatch: pytest.MonkeyPatch,
    kind: str, shards: int,
) -> None:  # fmt: skip
    """With dropout: every token keeps its bits, wherever it lies and however far its row is padded."""
    checkpoint, module, shape = make_checkpoint(), tested, Shape(10 // shards, 48, 4)
    if kind == "pairs":
        _, model = opened(checkpoint, pair_data)
    elif kind == "tags":
        write(tmp_path, tag_rows)
        given = {"data_dir": str(tmp_path), "sequence_length": 48}
        _, model = opened_model(checkpoint, "mine", TAGS, **given)
    else:  # some without an answer
        for split, number in (("train", 96), ("dev", 30)):
            content = squad_content(split, number, unanswerable=True)
            (tmp_path / f"{split}.json").write_text(json.dumps(content))
        _, model = read_data(tmp_path, checkpoint, "squad-v2.0")
        module, shape = squad_task, Shape(8 // shards, 60, 3)
    model.training = TrainingOptions(gradient_shards=shards)
    start, found = model.initial_parameters(0), []

    def updated(shapes: tuple[Shape, ...]) -> dict[str, np.ndarray]:
        monkeypatch.setattr(module, "packed_shapes", lambda *_: shapes)
        model.trainer.start(start)
        batch = model.batch(np.arange(20, 36))
        found.append(len(batch["input_ids"]))
        metrics = model.trainer.step(batch, 1e-2, 7)
        return {**model.trainer.parameters(), "loss": np.array(metrics["loss"])}

    whole, packed = updated(()), updated((shape,))
    assert found == [16, shape.rows * shards]
    assert max(np.abs(whole[name] - start[name]).max() for name in start) > 5e-3
    # A bias of all places' scores moves them alike: its gradient is rounding alone.
    for name in whole.keys() - ({"output_bias"} if kind == "questions" else set()):
        np.testing.assert_allclose(packed[name], whole[name], atol=2e-5, err_msg=name)
    if kind == "questions":
        return
    # The comparison sees a difference: with other labels the update is another one.
    labels = model.train.examples.labels
    labels[:] = np.where(labels < 0, labels, labels.max() - labels)
    other = updated((shape,))
    labels[:] = np.where(labels < 0, labels, labels.max() - labels)  # as the data are read once
    assert max(np.abs(other[name] - whole[name]).max() for name in start) > 1e-3


def test_predictions_on_training_rows_are_those_of_a_set_of_these_rows(
    make_checkpoint: Make, pair_data: Path
) -> None:
    """The training file given as dev gives the same scores, row by row."""
    _, model = opened(make_checkpoint(), pair_data)
    rows = np.array([5, 3, 90, 41])
    weights = model.initial_parameters(0)
    found = model.evaluate_rows(weights, rows)
    assert found.name == "held_out"
    assert list(found.example_ids) == [f"pair/train/{row}" for row in rows]

    (pair_data / "dev.tsv").write_text((pair_data / "train.tsv").read_text())
    _, model = opened(make_checkpoint(), pair_data)
    (everything,) = model.evaluate(weights)
    assert everything.scores is not None and everything.labels is not None
    np.testing.assert_allclose(found.scores, everything.scores[rows], atol=1e-5)
    assert list(found.labels) == everything.labels[rows].tolist()


def test_logits_equal_those_of_transformers(make_checkpoint: Make, pair_data: Path) -> None:
    """The same weights in BertForSequenceClassification, on its own tokenisation of the pairs."""
    transformers = pytest.importorskip("transformers")
    checkpoint, ours = opened(make_checkpoint(), pair_data, length=14)
    weights = ours.initial_parameters(0)
    (predicted,) = ours.evaluate(weights)
    theirs = in_transformers(
        "BertForSequenceClassification", "classifier", checkpoint.config, weights
    )
    tokenizer = transformers.BertTokenizerFast(vocab=str(checkpoint.vocabulary.where))
    examples = ours.evaluation[0].examples
    cut = {"truncation": "longest_first", "max_length": 14, "padding": True, "return_tensors": "pt"}
    encoded = tokenizer(examples.first_texts, examples.second_texts, **cut)
    expected = theirs(**encoded).logits.detach().numpy()
    np.testing.assert_allclose(predicted.scores, expected, atol=1e-5)


UNDISTURBED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def test_the_heads_first_weights_are_drawn_from_the_seed(
    make_checkpoint: Make, pair_data: Path
) -> None:
    read, model = opened(make_checkpoint(), pair_data)

    def weights(seed: int) -> dict[str, np.ndarray]:
        return model.initial_parameters(seed)

    first, again, other = weights(1), weights(1), weights(2)
    np.testing.assert_array_equal(first["output_weights"], again["output_weights"])
    assert (first["output_weights"] != other["output_weights"]).all()
    # The released code's: a normal distribution cut at two standard deviations.
    assert 0 < np.abs(first["output_weights"]).max() <= 2 * read.config.initializer_range
    assert not first["output_bias"].any()
    encoder = {name for name in read.parameters if name.startswith("bert/")}
    assert set(first) == {*encoder, "output_weights", "output_bias"}
    assert all(np.array_equal(first[name], read.parameters[name]) for name in encoder)


@pytest.mark.usefixtures("eager")
def test_the_pooled_output_is_dropped_in_training(make_checkpoint: Make, pair_data: Path) -> None:
    """Where the last layer norm gives a constant, the encoder's own dropout changes nothing."""

    def constant(parameters: dict) -> None:
        name = "bert/encoder/layer_0/output/LayerNorm"
        parameters[f"{name}/gamma"][:] = 0
        parameters[f"{name}/beta"][:] = np.linspace(-1, 1, 32)

    for sizes, drops in (({}, True), (UNDISTURBED, False)):
        _, model = opened(make_checkpoint(change=constant, **sizes), pair_data)
        weights = model.initial_parameters(0)
        (predicted,) = model.evaluate(weights)
        assert predicted.scores is not None
        np.testing.assert_allclose(predicted.scores, predicted.scores[:1].repeat(37, 0), atol=1e-6)
        losses = []
        for dropout_seed in (1, 2):
            model.trainer.start(weights)
            losses.append(
                float(model.trainer.step(model.batch(np.arange(16)), 1e-3, dropout_seed)["loss"])
            )
        assert (abs(losses[0] - losses[1]) > 1e-6) == drops


@pytest.mark.usefixtures("eager")
def test_a_regression_is_trained_on_squared_errors(make_checkpoint: Make, tmp_path: Path) -> None:
    """Both the loss and its gradient: for the bias, twice the mean of the errors."""
    words = ("red", "blue", "good", "bad")
    scores = [0.0, 1.25, 3.5, 5.0, 2.0, 4.75, 0.5, 3.0]
    header = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    )
    lines = [
        f"{n}\tg\tf\ty\t{n}\ts\ts\ta {words[n % 4]} cake.\tthe {words[n // 2]} tap.\t{score}"
        for n, score in enumerate(scores)
    ]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n")
    _, model = opened(make_checkpoint(**UNDISTURBED), tmp_path, task="STS-B")
    weights = model.initial_parameters(0)
    (predicted,) = model.evaluate(weights)
    errors = predicted.predictions - np.array(scores)
    model.trainer.start(weights)
    loss = model.trainer.step(model.batch(np.arange(8)), 0.0, 0)["loss"]
    assert float(loss) == pytest.approx(float((errors**2).mean()), rel=1e-5)
    shifted = {**weights, "output_bias": weights["output_bias"] + np.float32(0.5)}
    model.trainer.start(shifted)
    moved = model.trainer.step(model.batch(np.arange(8)), 0.0, 0)["loss"]
    # Quadratic in the bias: the change is gradient x step + step squared.
    assert float(moved - loss) == pytest.approx(2 * errors.mean() * 0.5 + 0.5**2, abs=1e-3)
