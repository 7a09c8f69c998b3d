from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import Checkpoint, read_checkpoint
from multiberts.finetune.coreference import frozen_states as tested
from multiberts.finetune.coreference.frozen_states import (
    ENDPOINTS,
    MEAN,
    TOKENS,
    SpanStates,
    span_states,
)
from multiberts.finetune.coreference.mention_pairs import MentionPairs, winogender_pairs
from multiberts.finetune.coreference.winogender_schemas import Sentence, read_winogender
from multiberts.tests.finetune.conftest import Make


@pytest.fixture
def encoder(make_checkpoint: Make) -> Checkpoint:
    return read_checkpoint(make_checkpoint())


@pytest.fixture
def sentences(winogender_data: Path) -> list[Sentence]:
    return read_winogender(winogender_data).sentences


@pytest.fixture
def pairs(encoder: Checkpoint, sentences: list[Sentence], tmp_path: Path) -> MentionPairs:
    tokenizer = encoder.vocabulary
    return winogender_pairs(sentences, tokenizer, 64, tmp_path)


def states_of(pairs: MentionPairs, encoder: Checkpoint, kept: str, **folder) -> SpanStates:
    return span_states({"a": pairs}, encoder, kept, compile_step=False, **folder)["a"]


def test_states_are_those_of_each_sentence_alone(
    encoder: Checkpoint, sentences: list[Sentence], pairs: MentionPairs
) -> None:
    """Recomputed sentence by sentence, unpadded, without buckets or batches."""
    from multiberts.bert.model.encoder import encode

    endpoints, mean, tokens = (
        states_of(pairs, encoder, kept) for kept in (ENDPOINTS, MEAN, TOKENS)
    )
    tokenizer = encoder.vocabulary
    for row, sentence in enumerate(sentences):
        ids = [tokenizer.cls_id, *tokenizer.encode(sentence.text), tokenizer.sep_id]
        inputs = np.array([ids], np.int32)
        hidden = np.asarray(
            encode(encoder.parameters, encoder.config, inputs, inputs * 0 + 1, inputs * 0)
        )[0]
        begin = 1 + len(tokenizer.encode(sentence.text[: sentence.participant[0]]))
        end = 1 + len(tokenizer.encode(sentence.text[: sentence.participant[1]]))
        expected = hidden[begin:end]
        span = pairs.pairs[2 * row + 1, 1:]
        joined = np.concatenate([expected[0], expected[-1], expected.mean(axis=0)])
        np.testing.assert_allclose(endpoints.pooled(span)[0], joined, atol=1e-5)
        np.testing.assert_allclose(mean.pooled(span)[0], expected.mean(axis=0), atol=1e-5)
        padded, mask = tokens.tokens(span, 9)
        assert mask.tolist() == [[1.0] * (end - begin) + [0.0] * (9 - end + begin)]
        np.testing.assert_allclose(padded[0, : end - begin], expected, atol=1e-5)
        assert not padded[0, end - begin :].any()


def test_other_inputs_have_files_of_their_own(
    encoder: Checkpoint, pairs: MentionPairs, make_checkpoint: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "states"
    first = states_of(pairs, encoder, MEAN, folder=folder)
    other_encoder = read_checkpoint(make_checkpoint(1))
    other = states_of(pairs, other_encoder, MEAN, folder=folder)
    assert not np.array_equal(first.values, other.values)
    longest = int(np.argmax(pairs.spans[:, 2] - pairs.spans[:, 1]))
    pairs.spans[longest, 2] -= 1  # a shorter mention
    states_of(pairs, encoder, MEAN, folder=folder)
    assert sum(path.is_dir() for path in folder.iterdir()) == 3


def test_a_killed_encoding_is_made_again(
    encoder: Checkpoint, pairs: MentionPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "states"
    whole = tested._encoded

    def killed(*arguments):
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(tested, "_encoded", killed)
    with pytest.raises(KeyboardInterrupt):
        states_of(pairs, encoder, MEAN, folder=folder)
    assert not any(path.is_dir() for path in folder.iterdir())
    monkeypatch.setattr(tested, "_encoded", whole)
    states_of(pairs, encoder, MEAN, folder=folder)
