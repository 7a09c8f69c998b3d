from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evaluate.predictions import read_predictions
from finetune.finetuning import finetune
from runs.errors import UserError

SMALL = {"sequence_length": 48, "num_hidden_units": 32, "compile_step": False}


def test_agreement_with_names_is_learned_on_a_frozen_encoder(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    coreference_data: Path,
    winogender_data: Path,
) -> None:
    run = tmp_path / "run"
    finetune(
        run_dir=str(run),
        checkpoint=str(make_checkpoint()),
        task="coreference",
        data_dir=str(coreference_data),
        winogender_dir=str(winogender_data),
        learning_rate=3e-3,
        num_epochs=40,
        batch_size=16,
        **SMALL,
    )
    dev = read_predictions([run], "dev")
    assert set(dev["label"].values) == {0, 1}
    # The nouns are new to the head: what it learned is which names agree with which pronouns.
    assert float((dev["prediction"] == dev["label"]).mean()) > 0.9
    assert dev["example_id"].values[0].startswith("coreference/dev/dev_0/000/")

    winogender = read_predictions([run], "winogender")
    assert winogender.sizes["example"] == 15
    assert winogender["example_id"].values[0] == "winogender/baker.guest.0.male"
    assert winogender["label"].values.tolist() == [0, 0, 1, 1, 0] * 3
    assert winogender["gender"].values.tolist() == (
        ["masculine"] * 5 + ["feminine"] * 5 + ["neutral"] * 5
    )
    assert winogender["percent_feminine"].values[4] == 3.5
    scores = winogender["scores"].values[0]
    chosen = np.where(scores[:, 0] >= scores[:, 1], 0, 1)
    assert winogender["prediction"].values[0].tolist() == chosen.tolist()
    assert winogender.attrs["metrics"] == ["accuracy", "bias_correlation", "bias_slope"]


def test_spans_are_first_last_and_mean_of_the_encoder_states(
    make_checkpoint: Callable[..., Path], winogender_data: Path
) -> None:
    """Recomputed sentence by sentence, unpadded, without buckets or batches."""
    from bert.checkpoint import read_checkpoint
    from bert.encoder import encode
    from bert.tokenization import Tokenizer
    from finetune.coreference import _encoder_predictor, _span_representations
    from finetune.mention_pairs import winogender_pairs
    from finetune.winogender import read_winogender

    checkpoint = read_checkpoint(make_checkpoint())
    tokenizer = Tokenizer(checkpoint.vocabulary_path)
    sentences = read_winogender(winogender_data).sentences
    pairs = winogender_pairs(sentences, tokenizer, 64, winogender_data)
    predictor = _encoder_predictor(checkpoint.config, False)
    found = _span_representations(pairs, predictor, checkpoint)
    for row, sentence in enumerate(sentences):
        ids = [tokenizer.cls_id, *tokenizer.encode(sentence.text), tokenizer.sep_id]
        inputs = np.array([ids], np.int32)
        states = np.asarray(
            encode(checkpoint.parameters, checkpoint.config, inputs, inputs * 0 + 1, inputs * 0)
        )[0]
        begin = 1 + len(tokenizer.encode(sentence.text[: sentence.participant[0]]))
        end = 1 + len(tokenizer.encode(sentence.text[: sentence.participant[1]]))
        tokens = states[begin:end]
        expected = np.concatenate([tokens[0], tokens[-1], tokens.mean(axis=0)])
        np.testing.assert_allclose(found[pairs.pairs[2 * row + 1, 1]], expected, atol=1e-5)


def test_runs_of_one_process_do_not_leak_into_each_other(
    tmp_path: Path, make_checkpoint: Callable[..., Path], coreference_data: Path
) -> None:
    """Encodings are kept between runs; each run's predictions are those it has alone."""
    from finetune import coreference

    checkpoints = [str(make_checkpoint(seed)) for seed in (0, 1)]

    def run(name: str, checkpoint: str, finetune_seed: int) -> bytes:
        finetune(
            run_dir=str(tmp_path / name),
            checkpoint=checkpoint,
            task="coreference",
            data_dir=str(coreference_data),
            finetune_seed=finetune_seed,
            learning_rate=1e-3,
            **SMALL,
        )
        return (tmp_path / name / "predictions" / "dev.tfrecord").read_bytes()

    cases = [(checkpoint, seed) for checkpoint in checkpoints for seed in (0, 1)]
    kept = [run(f"kept_{number}", *case) for number, case in enumerate(cases)]
    assert len(set(kept)) == 4
    for number, case in enumerate(cases):
        for cache in (coreference._encoded, coreference._read, coreference._engines):
            cache.cache_clear()
        assert run(f"alone_{number}", *case) == kept[number]


def test_gap_files_train_and_evaluate(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> None:
    header = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"
    rows = [
        f"x-{number}\tMary told John that {pronoun} was late.\t{pronoun}\t20\tMary\t0\t{a}\tJohn\t10\t{b}\tu"
        for number, (pronoun, a, b) in enumerate(
            [("she", "TRUE", "FALSE"), ("he", "FALSE", "TRUE")]
        )
    ]
    path = tmp_path / "gap.tsv"
    path.write_text("\n".join([header, *rows]) + "\n")
    run = tmp_path / "run"
    arguments = {
        "checkpoint": str(make_checkpoint()),
        "task": "coreference",
        "train_files": [str(path)],
        "learning_rate": 3e-3,
        "num_epochs": 100,
        "batch_size": 4,
        **SMALL,
    }
    finetune(run_dir=str(run), dev_files=[str(path)], **arguments)
    gap = read_predictions([run], "gap")
    assert gap["example_id"].values[0] == "coreference/gap/x-0/A"
    assert gap["label"].values.tolist() == [1, 0, 0, 1]
    assert gap["prediction"].values[0].tolist() == [1, 0, 0, 1]
    with pytest.raises(UserError, match="nothing to predict"):
        finetune(run_dir=str(tmp_path / "none"), **arguments)
    other = tmp_path / "copy.tsv"
    shutil.copy(path, other)
    with pytest.raises(UserError, match="'coreference/gap/x-0/A' appears twice"):
        finetune(run_dir=str(tmp_path / "none"), dev_files=[str(path), str(other)], **arguments)
    assert not (tmp_path / "none").exists()


def test_documents_without_pronouns_are_refused(
    tmp_path: Path, make_checkpoint: Callable[..., Path], coreference_data: Path
) -> None:
    file = coreference_data / "train.conll"
    file.write_text(file.read_text().replace("\tshe\t", "\tit\t").replace("\the\t", "\tit\t"))
    with pytest.raises(UserError, match=r"train\.conll: found 0 pairs of a pronoun and a mention"):
        finetune(
            run_dir=str(tmp_path / "run"),
            checkpoint=str(make_checkpoint()),
            task="coreference",
            data_dir=str(coreference_data),
            **SMALL,
        )
    assert not (tmp_path / "run").exists()


def test_sentences_longer_than_the_positions_are_refused(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    coreference_data: Path,
    winogender_data: Path,
) -> None:
    for name in ("templates.tsv", "all_sentences.tsv"):
        file = winogender_data / name
        file.write_text(file.read_text().replace(" late.", " late" + ", late" * 8 + "."))
    with pytest.raises(UserError, match=r"all_sentences\.tsv line 2: the sentence has 28 tokens"):
        finetune(
            run_dir=str(tmp_path / "run"),
            checkpoint=str(make_checkpoint(max_position_embeddings=24)),
            task="coreference",
            data_dir=str(coreference_data),
            winogender_dir=str(winogender_data),
            **{**SMALL, "sequence_length": 24},
        )
    assert not (tmp_path / "run").exists()
