"""The pairs of mentions that coreference is trained and evaluated on, from all its files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from multiberts.finetune.content import FileContent, tokenizer_of
from multiberts.finetune.coreference.conll import read_conll
from multiberts.finetune.coreference.gap import read_gap
from multiberts.finetune.coreference.mention_pairs import (
    MentionPairs,
    conll_pairs,
    gap_pairs,
    joined_pairs,
    winogender_pairs,
)
from multiberts.finetune.coreference.winogender_schemas import Sentence, read_winogender
from multiberts.runs.errors import UserError

_GAP_SUFFIXES = (".tsv", ".tsv.gz")


@dataclasses.dataclass(frozen=True, eq=False)
class CoreferencePairs:
    """Training and evaluation pairs; the same object for the same contents, a key for caches.

    Attributes:
      sets: `train`, and those of `dev`, `gap` and `winogender` that are evaluated.
      sentences: the Winogender sentences, two pairs each.
      percent_feminine: per occupation.
    """

    sets: dict[str, MentionPairs]
    sentences: list[Sentence]
    percent_feminine: dict[str, float]


@functools.lru_cache(maxsize=2)
def read_pairs(
    train: tuple[FileContent, ...],
    dev: tuple[FileContent, ...],
    winogender: tuple[FileContent, ...],
    vocabulary: FileContent,
    sequence_length: int,
    max_positions: int,
    max_negatives: int,
    every_two_mentions: bool,
) -> CoreferencePairs:
    """Reads everything.

    Args:
      train, dev: GAP files (`.tsv`, `.tsv.gz`) and CoNLL-2012 files (other names).
      winogender: the release's three files, or none.
      vocabulary: of the checkpoint.
      sequence_length: the most tokens of a window.
      max_positions: the most that the model takes.
      max_negatives: candidates of another entity kept for each mention in training.
      every_two_mentions: what is trained on; evaluation is on pronouns.

    Raises:
      UserError: bad data, none, or the same example twice; with file and line.
    """
    tokenizer = tokenizer_of(vocabulary)

    def pairs_of(file: FileContent, prefix: str, most: int | None, every_two: bool) -> MentionPairs:
        if file.path.name.endswith(_GAP_SUFFIXES):
            pairs = gap_pairs(read_gap(file.path), tokenizer, sequence_length, prefix)
        else:
            documents = read_conll(file.path)
            pairs = conll_pairs(
                documents, tokenizer, sequence_length, prefix, most, every_two_mentions=every_two
            )
        if pairs.left_out:
            counts = ", ".join(
                f"{number} {what}" for what, number in sorted(pairs.left_out.items())
            )
            print(f"{file.path}: {counts} (sequence_length {sequence_length})")
        return pairs

    parts = [pairs_of(file, "train", max_negatives, every_two_mentions) for file in train]
    sets = {"train": joined_pairs(parts)}
    _refuse_one_sided(train, sets["train"])
    for name, is_gap in (("dev", False), ("gap", True)):
        files = [file for file in dev if file.path.name.endswith(_GAP_SUFFIXES) == is_gap]
        if files:
            parts = [pairs_of(file, f"coreference/{name}", None, False) for file in files]
            sets[name] = joined_pairs(parts)
            _refuse_unusable(files, sets[name])
    sentences: list[Sentence] = []
    percent_feminine: dict[str, float] = {}
    if winogender:
        schemas = read_winogender(winogender[0].path.parent)
        sentences, percent_feminine = schemas.sentences, schemas.percent_feminine
        sets["winogender"] = winogender_pairs(
            sentences, tokenizer, max_positions, winogender[1].path
        )
    return CoreferencePairs(sets, sentences, percent_feminine)


def _refuse_one_sided(files: tuple[FileContent, ...], pairs: MentionPairs) -> None:
    if len(set(pairs.labels.tolist())) < 2:
        raise UserError(
            f"{files[0].path}: found {len(pairs.labels)} pairs of a pronoun and a mention, "
            f"{pairs.labels.sum()} of them coreferent, expected some of both kinds; give documents with "
            "gold mentions of pronouns and of what they mean, or a larger sequence_length"
        )


def _refuse_unusable(files: Sequence[FileContent], pairs: MentionPairs) -> None:
    """Refuses an evaluation set without pairs, or with the same pair twice."""
    names = ", ".join(str(file.path) for file in files[:3])
    if len(files) > 3:
        names += f" and {len(files) - 3} more"
    if not pairs.pair_ids:
        raise UserError(f"{names}: found no pair of a pronoun and a mention; give other dev_files")
    seen: set[str] = set()
    for identity in pairs.pair_ids:
        if identity in seen:
            raise UserError(
                f"{names}: example id {identity!r} appears twice, expected each document and example "
                "once; remove one of the files that share it"
            )
        seen.add(identity)
