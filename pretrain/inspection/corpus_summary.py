"""Summary of a corpus: sizes, lengths, share of random next, masks.

    multiberts show results/corpus

The files are compared with their checksums first.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from multiberts.bert.vocabulary import VOCABULARY, Vocabulary
from multiberts.pretrain.batches.masking import number_of_predictions
from multiberts.pretrain.corpus.description import check_corpus
from multiberts.pretrain.corpus.instances import NUM_SPECIAL_TOKENS, InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore, unknown_share
from multiberts.pretrain.training.settings import PretrainingSettings
from multiberts.runs.console import joined
from multiberts.runs.files import PathLike

_ROWS_AT_ONCE = 1 << 20


def describe(*, run_dir: PathLike) -> str:
    """Sums up a corpus, with as many masks as the recipe has.

    Args:
      run_dir: the corpus, a directory that `prepare` made.

    Returns:
      Text: the directory, then a line a fact.
    """
    facts = check_corpus(run_dir)
    store, table = TokenStore(run_dir), InstanceTable(run_dir)
    sentences = np.diff(store.sentence_offsets)
    documents = np.diff(store.sentence_offsets[store.document_offsets])
    unknown = unknown_share(store, Vocabulary.open(Path(run_dir) / VOCABULARY).unk_id)

    # Instances of each length and of each number of masks, a part at a time: [longest + 1].
    lengths = np.zeros(facts["sequence_length"] + 1, np.int64)
    random_next = 0
    for first in range(0, len(table), _ROWS_AT_ONCE):
        part = np.asarray(table.rows[first : first + _ROWS_AT_ONCE])
        length = part["a_length"].astype(np.int64) + part["b_length"] + NUM_SPECIAL_TOKENS
        lengths += np.bincount(length, minlength=lengths.size)
        random_next += int(part["is_random_next"].sum())
    masks = np.bincount(
        number_of_predictions(np.arange(lengths.size), PretrainingSettings.masked_lm_probability),
        weights=lengths,
    )
    total, counts = len(table), facts["counts"]
    mean_length, mean_masks = (
        float(numbers @ np.arange(numbers.size)) / total for numbers in (lengths, masks)
    )
    rows = [
        ("documents", f"{store.num_documents:,}"),
        (
            "sentences",
            f"{store.num_sentences:,} (tokens: mean {store.num_tokens / store.num_sentences:.1f}, longest "
            f"{sentences.max():,})",
        ),
        (
            "tokens",
            f"{store.num_tokens:,} (per document: mean {store.num_tokens / store.num_documents:.1f}, "
            f"longest {documents.max():,}), {unknown:.3%} [UNK]",
        ),
        ("pieces", f"{counts['pieces']:,}"),
        (
            "instances",
            f"{total:,} of up to {facts['sequence_length']} tokens (mean {mean_length:.1f}, "
            f"{lengths[-1] / total:.1%} full)",
        ),
        ("random next", f"{random_next / total:.1%} of the instances"),
        (
            "masks",
            f"{mean_masks:.1f} per sequence, at most {masks.size - 1} (in {int(masks[-1]):,} sequences); "
            f"{'drawn afresh' if facts['fresh_masks'] else 'kept with the instance'}",
        ),
    ]
    if "short_targets" in counts:
        passes = store.num_documents * (facts["dupe_factor"] or 1)
        share = counts["short_targets"] / passes
        rows.append(("short targets", f"{share:.1%} of the {passes:,} passes over documents"))
    for name in filter(counts.get, ("pronouns", "nouns", "names")):
        share = counts[f"swapped_{name}"] / counts[name]
        rows.append((name, f"{counts[name]:,}, {share:.1%} of them swapped"))
    return joined([str(run_dir), *(f"  {name:<14}{value}" for name, value in rows)])
