"""Writes a prepared corpus as TFRecords of the original's layout, for programs that read those.

    python -m pretrain.export_records --gin_param='export_records.corpus = "corpus"' \\
        --gin_param='export_records.run_dir = "records"'
"""

from __future__ import annotations

import itertools
from pathlib import Path

from pretrain.describe import check_corpus
from pretrain.original_format import KIND, VOCABULARY, instances_in_turn, write_records
from runs.directory import RunDirectory
from runs.errors import UserError
from runs.files import write_atomically


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
    parameters = {
        "num_files": num_files,
        "max_predictions_per_sequence": max_predictions_per_sequence,
        "masked_lm_probability": masked_lm_probability,
        "whole_word_masks": whole_word_masks,
    }
    run = RunDirectory(
        run_dir, stage="export_records", parameters=parameters, inputs={"corpus": corpus}
    )
    if run.done:
        return
    facts = check_corpus(corpus)
    if facts.get("kind") == KIND:
        raise UserError(f"{corpus} was imported from TFRecords; use those")
    batches = instances_in_turn(
        corpus,
        max_predictions_per_sequence=max_predictions_per_sequence,
        masked_lm_probability=masked_lm_probability,
        whole_word_masks=whole_word_masks,
        sequence_length=facts["sequence_length"],
        instance_seed=facts["instance_seed"],
    )
    names = [f"instances-{file:05d}-of-{num_files:05d}.tfrecord" for file in range(num_files)]
    left = facts["counts"]["instances"]
    with run:
        rows = ({name: batch[name][row : row + 1] for name in batch} for batch in batches
                for row in range(len(batch["input_ids"])))  # fmt: skip
        for file, name in enumerate(names):
            share = left // (num_files - file)
            write_records(run.path / name, itertools.islice(rows, share))
            left -= share
        write_atomically(run.path / VOCABULARY, (Path(corpus) / VOCABULARY).read_bytes())
        run.finish([*names, VOCABULARY])


if __name__ == "__main__":
    from runs.command import run_command

    run_command(export_records)
