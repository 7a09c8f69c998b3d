"""A corpus of three-word sentences and the arguments of a run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.randomness import generator
from multiberts.pretrain.corpus.token_store import (
    DOCUMENT_OFFSETS,
    SENTENCE_OFFSETS,
    TOKENS,
    TokenStore,
)

NOUNS = ["cat", "dog", "house", "tree", "river", "king", "stone", "bird"]
VERBS = ["sees", "finds", "likes", "leaves"]
MODEL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
    "max_position_embeddings": 32,
}  # fmt: skip

Arguments = Callable[..., dict[str, Any]]


def write_store(
    folder: Path, tokens: np.ndarray, sentence_lengths: Any, document_lengths: Any
) -> TokenStore:
    """Writes a store of these token ids; documents are as long as they have sentences."""
    np.save(folder / TOKENS, tokens.astype(np.uint16))
    for name, lengths in (
        (SENTENCE_OFFSETS, sentence_lengths),
        (DOCUMENT_OFFSETS, document_lengths),
    ):
        np.save(folder / name, np.cumsum([0, *lengths]).astype(np.int64))
    return TokenStore(folder)


def write_sentences(path: Path, text_seed: int, num_documents: int) -> None:
    """Writes documents of sentences such as "The cat sees the dog ."."""
    draw = generator("test corpus", text_seed)
    lines = []
    for _ in range(num_documents):
        for _ in range(int(draw.integers(4, 9))):
            subject, thing = draw.choice(NOUNS, 2)
            lines.append(f"The {subject} {draw.choice(VERBS)} the {thing} .")
        lines.append("")
    path.write_text("\n".join(lines))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small prepared corpus; beside it `held_out`, other text with the same vocabulary."""
    from multiberts.pretrain.corpus.preparation import prepare

    folder = tmp_path_factory.mktemp("corpus")
    sizes = {"prepared": (0, 40), "held_out": (1, 20)}
    for name, (text_seed, num_documents) in sizes.items():
        write_sentences(folder / f"{name}.txt", text_seed, num_documents)
        vocabulary = None if name == "prepared" else str(folder / "prepared" / "vocab.txt")
        sizes = {"vocabulary_size": 60, "sequence_length": 32, "dupe_factor": 2}
        text = {"sources": [str(folder / f"{name}.txt")], "source_format": "sentences"}
        prepare(run_dir=str(folder / name), **text, vocabulary=vocabulary, **sizes)
    return folder / "prepared"


@pytest.fixture(scope="session")
def arguments(corpus: Path) -> Arguments:
    """Arguments of `pretrain` for a tiny run: `arguments(run_dir, name=value, ...)`."""

    def made(run_dir: Path, **changes: Any) -> dict[str, Any]:
        return {
            "run_dir": str(run_dir),
            "corpus": str(corpus),
            "model": MODEL,
            "pretrain_seed": 3,
            "batch_size": 8,
            "sequence_length": 32,
            "max_predictions_per_sequence": 5,
            "learning_rate": 2e-3,
            "gradient_shards": 2,
            "warmup_steps": 0,
            # Compiling takes seconds: tests of what is compiled ask for it.
            "compile_step": False,
            **changes,
        }

    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of Dask with two workers."""
    from multiberts.tests.tools.dask_cluster import DaskCluster, keys_in_place

    with (
        DaskCluster(tmp_path_factory.mktemp("cluster"), have_nannies=False) as started,
        keys_in_place(started),
    ):
        yield started.address
