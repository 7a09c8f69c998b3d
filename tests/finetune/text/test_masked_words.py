"""Loss and answer on every masked word: against the evaluation during pre-training, and by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.finetune.finetuning import finetune
from multiberts.pretrain.batches.corpus_batches import EVALUATION_DATA_SEED, Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.runs.errors import UserError
from multiberts.tests.pretrain.conftest import arguments, corpus  # fixtures

__all__ = ["arguments", "corpus"]

SEQUENCES = 16
MASKS = {"num_sequences": SEQUENCES, "max_predictions_per_sequence": 5}


@pytest.fixture(scope="module")
def trained(
    corpus: Path, arguments: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A tiny run with its checkpoints before the first step, on the way and at the end."""
    run = tmp_path_factory.mktemp("trained") / "run"
    pretrain(
        **arguments(
            run, num_steps=60, checkpoint_steps=[0, 30], evaluation_corpus=str(corpus.parent / "held_out"),
            evaluation_batches=SEQUENCES // 8,
        )
    )  # fmt: skip
    return run


@pytest.fixture(scope="module")
def random_checkpoint(
    corpus: Path, arguments: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint of such a run's sizes, with weights that were never trained."""
    vocabulary = corpus / "vocab.txt"
    sizes = {**arguments(corpus)["model"], "vocab_size": len(vocabulary.read_text().splitlines())}
    config = BertConfig.from_mapping(sizes, "test")
    path = tmp_path_factory.mktemp("random") / "checkpoint"
    write_checkpoint(
        path, initial_parameters(config, 0), config, Vocabulary.open(vocabulary), {"step": 60}
    )
    return path


def asked(folder: Path, checkpoint: Path, corpus: Path, **options: Any) -> Path:
    run, data = folder / checkpoint.name, corpus.parent / "held_out"
    finetune(run_dir=str(run), checkpoint=str(checkpoint), task="masked_words", data_dir=str(data),
             options=MASKS | options, compile_step=False)  # fmt: skip
    return run


@pytest.mark.slow
def test_losses_are_those_of_the_evaluation_with_the_same_masks(
    trained: Path, corpus: Path, tmp_path: Path
) -> None:
    """The mean over masked words is what pre-training logged, at every checkpoint."""
    held_out = json.loads((corpus.parent / "held_out/corpus.json").read_text())
    for step in (0, 30, 60):
        record = json.loads((checkpoint_path(trained, step) / "checkpoint.json").read_text())
        run = asked(
            tmp_path, checkpoint_path(trained, step), corpus, mask_seed=held_out["instance_seed"]
        )
        found = read_predictions([run], "masked_words")
        logged = record["evaluation"]
        assert found["loss"].values.mean() == pytest.approx(
            logged["held_out_masked_lm_loss"], rel=1e-5
        )
        right = (found["prediction"] == found["label"]).values.mean()
        assert right == pytest.approx(logged["held_out_masked_lm_accuracy"], abs=1e-6)


@pytest.mark.slow
def test_checkpoints_answer_the_same_examples_and_learn_frequent_words_first(
    trained: Path, corpus: Path, tmp_path: Path
) -> None:
    """Twice in a sentence is "the", and each of 8 nouns a quarter as often."""
    runs = [asked(tmp_path, checkpoint_path(trained, step), corpus) for step in (0, 30, 60)]
    found = read_predictions(runs, "masked_words")
    assert found.sizes["run"] == 3 and found["step"].values.tolist() == [0, 30, 60]
    losses, words = found["loss"].values, found["word"].values
    assert (losses[-1].mean() < losses[0].mean()) and losses.min() > 0
    fell = losses[0] - losses[1]
    nouns = np.isin(words, ["cat", "dog", "house", "tree", "river", "king", "stone", "bird"])
    assert fell[words == "the"].mean() > fell[nouns].mean()


def test_the_masks_and_texts_are_those_of_the_corpus(
    random_checkpoint: Path, corpus: Path, tmp_path: Path
) -> None:
    found = read_predictions([asked(tmp_path, random_checkpoint, corpus)], "masked_words")
    masking = Masking(sequence_length=32, max_predictions_per_sequence=5)
    batches = Batches(
        corpus.parent / "held_out", masking, data_seed=EVALUATION_DATA_SEED, batch_size=SEQUENCES,
        mask_seed=0,
    )  # fmt: skip
    batch, instances = batches.batch(0), batches.instance_ids(0)
    wanted = {
        f"masked_words/{instance}.{position}": batches.vocabulary.pieces[piece]
        for instance, positions, pieces, weights in zip(
            instances, batch["masked_lm_positions"], batch["masked_lm_ids"],
            batch["masked_lm_weights"], strict=True,
        )
        for position, piece in zip(positions[weights > 0], pieces[weights > 0], strict=True)
    }  # fmt: skip
    names = found["example_id"].values.tolist()
    assert dict(zip(names, found["word"].values.tolist(), strict=True)) == wanted
    for name, text in zip(names, found["text"].values.tolist(), strict=True):
        assert text.split()[int(name.rpartition(".")[2])] == "[MASK]"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"num_sequences": 10**6}}, "num_sequences of task masked_words is 1000000, but"),
        ({"data_dir": None}, "task masked_words needs finetune.data_dir"),
        ({"data_dir": "nowhere"}, "nowhere is not a folder; give the directory of a prepared corpus"),
        ({"winogender_dir": "x"}, "task masked_words takes no winogender_dir"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(
    random_checkpoint: Path, corpus: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    given = {"data_dir": str(corpus.parent / "held_out"), "options": MASKS, **changes}
    with pytest.raises(UserError, match=reason):
        finetune(
            run_dir=str(tmp_path / "run"), checkpoint=str(random_checkpoint),
            task="masked_words", **given,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
