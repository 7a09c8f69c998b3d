from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import read_run
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import SIZES, Make


def word_row(vocabulary: Path, word: str) -> int:
    return vocabulary.read_text().splitlines().index(word)


@pytest.fixture
def probe(fine_tune: Make, winogender_data: Path) -> Make:
    """Asks a checkpoint; returns the run."""
    given = {"winogender_dir": str(winogender_data), "finetune_seed": 3}
    return lambda checkpoint: fine_tune("pronoun_probe", checkpoint=checkpoint, **given)


def test_probability_follows_the_output_bias(
    probe: Make, make_checkpoint: Make, vocabulary: Path
) -> None:
    """With equal embeddings of she and he only their output biases tell them apart."""
    she, he = word_row(vocabulary, "she"), word_row(vocabulary, "he")

    def change(parameters: dict) -> None:
        embeddings = parameters["bert/embeddings/word_embeddings"]
        embeddings[she] = embeddings[he]
        parameters["cls/predictions/output_bias"][[she, he]] = np.log([0.6, 0.2])

    run = probe(make_checkpoint(change=change))
    dataset = read_predictions([run], "pronoun_probe")
    # One nominative template means its occupation: that of the baker.
    assert dataset["example_id"].values.tolist() == ["pronoun_probe/baker.guest.0"]
    assert dataset["prediction"].values[0] == pytest.approx(0.75, abs=1e-6)
    assert dataset["label"].values == pytest.approx(0.605)
    assert dataset["occupation"].values.tolist() == ["baker"]
    content = read_run(run)
    assert (content["learning_rate"], content["finetune_seed"]) == (0.0, 0)
    assert dataset.attrs["metrics"] == ["probe_slope", "probe_correlation"]


def test_the_pronoun_itself_is_masked(probe: Make, make_checkpoint: Make, vocabulary: Path) -> None:
    """The probability is that of the masked-LM head at [MASK] in the written sentence."""
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint
    from multiberts.bert.model.encoder import encode
    from multiberts.bert.model.heads import masked_lm_logits
    from multiberts.bert.vocabulary import Vocabulary

    path = make_checkpoint()
    checkpoint, tokenizer = read_checkpoint(path), Vocabulary.open(vocabulary)
    before, after = map(tokenizer.encode, ("The baker told the guest that", "was late."))
    written = [tokenizer.cls_id, *before, tokenizer.mask_id, *after, tokenizer.sep_id]
    ids = np.array([written], np.int32)
    place = np.argwhere(ids == tokenizer.mask_id)[:, 1:].astype(np.int32)
    sequence = encode(checkpoint.parameters, checkpoint.config, ids, ids * 0 + 1, ids * 0)
    logits = np.asarray(masked_lm_logits(checkpoint.parameters, checkpoint.config, sequence, place))
    odds = np.exp(logits[0, 0, tokenizer.id_of("she")] - logits[0, 0, tokenizer.id_of("he")])
    run = probe(path)
    prediction = read_predictions([run], "pronoun_probe")["prediction"].values[0, 0]
    assert prediction == pytest.approx(odds / (1 + odds), abs=1e-5)
    assert abs(prediction - 0.5) > 1e-4


def test_a_sentence_that_is_padded_beyond_the_positions_is_refused(
    probe: Make, tmp_path: Path, make_checkpoint: Make
) -> None:
    with pytest.raises(
        UserError, match="has 12 tokens, padded to 16, but the checkpoint has 13 positions"
    ):
        probe(make_checkpoint(max_position_embeddings=13))
    assert not (tmp_path / "run").exists()


def test_release_has_47_nominative_templates_of_occupations(
    shared_data: Path, tmp_path: Path
) -> None:
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
    from multiberts.bert.model.configuration import BertConfig
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.bert.vocabulary import Vocabulary
    from multiberts.finetune.coreference.pronoun_probe import PronounProbeData

    released = Vocabulary.open(shared_data / "bert" / "vocab.txt")
    config = BertConfig(vocab_size=30522, **SIZES)
    write_checkpoint(tmp_path / "model", initial_parameters(config, 0), config, released, {})
    model = PronounProbeData(shared_data / "winogender").read(read_checkpoint(tmp_path / "model"))
    assert len(model.example_ids) == len(set(model.example_ids)) == 47


def test_vocabulary_without_the_pronouns_is_refused(
    probe: Make, tmp_path: Path, make_checkpoint: Make, vocabulary: Path
) -> None:
    vocabulary.write_text(vocabulary.read_text().replace("\nshe\n", "\nsheep\n"))
    with pytest.raises(UserError, match=r"vocab\.txt has no piece 'she'"):
        probe(make_checkpoint())
    assert not (tmp_path / "run").exists()
