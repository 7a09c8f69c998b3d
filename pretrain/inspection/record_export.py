r"""Writes a prepared corpus as TFRecords of the original's layout, for programs that read those.

    multiberts export-records --gin_param='export_records.corpus = "corpus"' \
        --gin_param='export_records.run_dir = "records"'

Masks are those that belong to the instances.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from multiberts.bert.randomness import permuted_index
from multiberts.bert.tokenization import Tokenizer
from multiberts.pretrain.batches.masking import Masking, masked_features
from multiberts.pretrain.batches.original_format import write_records
from multiberts.pretrain.corpus.description import IMPORTED, VOCABULARY, check_corpus
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically

_AT_ONCE = 256


def export_records(
    *,
    run_dir: str,
    corpus: str,
    num_files: int = 10,
    max_predictions_per_sequence: int = 20,
    masked_lm_probability: float = 0.15,
    whole_word_masks: bool = False,
) -> None:
    """Writes every instance of a corpus with its masks; a second run touches nothing.

    Masks are those that belong to the instances, and with `fresh_masks` the ones that would. Stopped
    and started again, it writes the files that are missing.

    Args:
      run_dir: directory of the outputs: `instances-00000-of-00010.tfrecord` and so on, `vocab.txt`.
      corpus: directory that `prepare` made.
      num_files: files that the instances are spread over.
      max_predictions_per_sequence: most masked tokens in a sequence.
      masked_lm_probability: share of tokens to predict.
      whole_word_masks: whether the pieces of a word are masked together.

    Raises:
      UserError: the corpus is missing or damaged; nothing is written.
    """
    if num_files < 1:
        raise UserError(f"export_records.num_files is {num_files}; give at least 1")
    masks = {
        "max_predictions_per_sequence": max_predictions_per_sequence,
        "masked_lm_probability": masked_lm_probability,
        "whole_word_masks": whole_word_masks,
    }
    parameters = {"num_files": num_files, **masks}
    run = RunDirectory(
        run_dir, stage="export_records", parameters=parameters, inputs={"corpus": corpus}
    )
    if run.done:
        return
    facts = check_corpus(corpus)
    if facts.get("kind") == IMPORTED:
        raise UserError(f"{corpus} was imported from TFRecords; use those")
    total = facts["counts"]["instances"]
    if num_files > total:
        raise UserError(
            f"export_records.num_files is {num_files}, but {corpus} has {total} instances; lower it"
        )
    names = [f"instances-{file:05d}-of-{num_files:05d}.tfrecord" for file in range(num_files)]
    masking = Masking.of({"sequence_length": facts["sequence_length"], **masks})
    ends = [total * file // num_files for file in range(num_files + 1)]
    with run:
        for name, places in zip(names, itertools.pairwise(ends), strict=True):
            if (run.path / name).exists():
                continue  # whole, of a run that was stopped
            instances = _instances_in_turn(
                corpus,
                range(*places),
                masking,
                instance_seed=facts["instance_seed"],
                tokenizer=Tokenizer(Path(corpus) / VOCABULARY),
            )
            write_records(run.path / name, instances)
        write_atomically(run.path / VOCABULARY, (Path(corpus) / VOCABULARY).read_bytes())
        run.finish([*names, VOCABULARY])


def _instances_in_turn(
    corpus: str, places: range, masking: Masking, *, instance_seed: int, tokenizer: Tokenizer
) -> Iterator[dict[str, np.ndarray]]:
    """Yields instances of a corpus with the masks that belong to them, some at a time.

    Their order is a keyed permutation of `instance_seed`, as the original shuffles before it writes.

    Args:
      corpus: directory that `prepare` made.
      places: in that order.
      masking: how instances become sequences.
      instance_seed: that of the corpus.
      tokenizer: that of the corpus.
    """
    store, table = TokenStore(corpus), InstanceTable(corpus)
    for first in range(places.start, places.stop, _AT_ONCE):
        place = np.arange(first, min(first + _AT_ONCE, places.stop))
        instance = permuted_index(place, len(table), "export", instance_seed)
        mask_key = ("masks", instance_seed, instance[:, None])
        yield masked_features(store, table.rows[instance], mask_key, masking, tokenizer)
