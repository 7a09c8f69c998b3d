"""Summary of a corpus: sizes, lengths, share of random next, masks.

    multiberts describe --corpus=results/corpus

The files are compared with their checksums first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from multiberts.bert.vocabulary import VOCABULARY, Vocabulary
from multiberts.pretrain.batches.masking import number_of_predictions
from multiberts.pretrain.corpus.description import check_corpus
from multiberts.pretrain.corpus.instances import NUM_SPECIAL_TOKENS, InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore, unknown_share
from multiberts.runs.files import PathLike
from multiberts.runs.parameters import Range

_ROWS_AT_ONCE = 1 << 20


class CorpusStatistics(NamedTuple):
    """Statistics of a prepared corpus.

    Attributes:
      longest_sentence, longest_document: in tokens.
      unknown_share: of tokens that are [UNK].
      random_next: instances whose B is random.
      lengths: number of instances of each length, the three special tokens included, [longest + 1].
      predictions: number of instances with each number of masked tokens, [longest + 1].
    """

    documents: int
    sentences: int
    tokens: int
    longest_sentence: int
    longest_document: int
    unknown_share: float
    random_next: int
    lengths: np.ndarray
    predictions: np.ndarray


def describe_run(*, run_dir: PathLike) -> str:
    """Returns what `describe` says of the corpus that `prepare` made in `run_dir`."""
    return describe(corpus=run_dir)


def describe(
    *, corpus: PathLike, masked_lm_probability: Annotated[float, Range(above=0, below=1)] = 0.15
) -> str:
    """Sums up a corpus.

    Args:
      corpus: directory that `prepare` made.
      masked_lm_probability: share of tokens to predict.

    Returns:
      Text: the directory, then a line a fact.
    """
    facts = check_corpus(corpus)
    statistics = corpus_statistics(
        corpus,
        sequence_length=facts["sequence_length"],
        masked_lm_probability=masked_lm_probability,
    )
    rows = _rows(statistics, facts)
    return "\n".join([str(corpus), *(f"  {name:<14}{value}" for name, value in rows)])


def corpus_statistics(
    corpus: PathLike, *, sequence_length: int, masked_lm_probability: float = 0.15
) -> CorpusStatistics:
    """Reads a corpus once, a part at a time."""
    store, table = TokenStore(corpus), InstanceTable(corpus)
    sentences = np.diff(store.sentence_offsets)
    documents = np.diff(store.sentence_offsets[store.document_offsets])
    lengths = np.zeros(sequence_length + 1, np.int64)
    random_next = 0
    for first in range(0, len(table), _ROWS_AT_ONCE):
        rows = np.asarray(table.rows[first : first + _ROWS_AT_ONCE])
        length = rows["a_length"].astype(np.int64) + rows["b_length"] + NUM_SPECIAL_TOKENS
        lengths += np.bincount(length, minlength=lengths.size)
        random_next += int(rows["is_random_next"].sum())
    predictions = np.bincount(
        number_of_predictions(np.arange(lengths.size), masked_lm_probability), weights=lengths
    )
    return CorpusStatistics(
        documents=store.num_documents,
        sentences=store.num_sentences,
        tokens=store.num_tokens,
        longest_sentence=int(sentences.max()),
        longest_document=int(documents.max()),
        unknown_share=unknown_share(store, Vocabulary.open(Path(corpus) / VOCABULARY).unk_id),
        random_next=random_next,
        lengths=lengths,
        predictions=predictions.astype(np.int64),
    )


def _rows(statistics: CorpusStatistics, facts: dict[str, Any]) -> list[tuple[str, str]]:
    counts, tokens = facts["counts"], statistics.tokens
    lengths, predictions = statistics.lengths, statistics.predictions
    total = lengths.sum()
    mean_length, mean_masks = (
        float(found @ np.arange(found.size)) / total for found in (lengths, predictions)
    )
    masks = "drawn afresh" if facts["fresh_masks"] else "kept with the instance"
    rows = [
        ("documents", f"{statistics.documents:,}"),
        (
            "sentences",
            f"{statistics.sentences:,} (tokens: mean {tokens / statistics.sentences:.1f}, longest "
            f"{statistics.longest_sentence:,})",
        ),
        (
            "tokens",
            f"{tokens:,} (per document: mean {tokens / statistics.documents:.1f}, longest "
            f"{statistics.longest_document:,}), {statistics.unknown_share:.3%} [UNK]",
        ),
        ("pieces", f"{counts['pieces']:,}"),
        (
            "instances",
            f"{total:,} of up to {facts['sequence_length']} tokens (mean {mean_length:.1f}, "
            f"{lengths[-1] / total:.1%} full)",
        ),
        ("random next", f"{statistics.random_next / total:.1%} of the instances"),
        (
            "masks",
            f"{mean_masks:.1f} per sequence, at most {predictions.size - 1} (in "
            f"{int(predictions[-1]):,} sequences); {masks}",
        ),
    ]
    if "short_targets" in counts:
        passes = statistics.documents * (facts["dupe_factor"] or 1)
        share = counts["short_targets"] / passes
        rows.append(("short targets", f"{share:.1%} of the {passes:,} passes over documents"))
    for name in ("pronouns", "nouns", "names"):
        if counts.get(name):
            swapped = counts[f"swapped_{name}"]
            rows.append((name, f"{counts[name]:,}, {swapped / counts[name]:.1%} of them swapped"))
    return rows
