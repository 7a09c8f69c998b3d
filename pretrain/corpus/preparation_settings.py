"""Parameters of `prepare`: their checks, and those that identify the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args

import numpy as np

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus.counterfactual import Swapper, Unit
from multiberts.pretrain.corpus.documents import FILE_FORMATS, FileFormat, expand_source
from multiberts.pretrain.corpus.instances import NUM_SPECIAL_TOKENS
from multiberts.pretrain.corpus.shards import Text
from multiberts.pretrain.corpus.token_store import LARGEST_VOCABULARY
from multiberts.runs.errors import check_values
from multiberts.runs.identity import Identity, Values, opened
from multiberts.runs.parameters import PositiveInt, Range, Seed, Share

OtherFormat = Literal["tfds", "store"]
SOURCE_FORMATS = (*FILE_FORMATS, *get_args(OtherFormat))

# Two tokens besides [CLS] and both [SEP]: one for A, one for B.
_SHORTEST_SEQUENCE = NUM_SPECIAL_TOKENS + 2
_LONGEST_SEQUENCE = np.iinfo(np.int16).max


@dataclass(frozen=True, kw_only=True)
class PreparationSettings:
    """Settings of `prepare`.

    Attributes:
      run_dir: directory of the outputs.
      sources: text files in UTF-8, plain or `.gz`, or patterns such as `wiki/**/wiki_*`; for format `tfds`
        names of datasets (`wikipedia/20230601.en`, with `:split` if it is not `train`); for `store`
        directories that this function made, with one vocabulary.
      source_format: `sentences` (one per line, blank line between documents), `blank_lines` (blank line
        between documents, text not split into sentences), `raw` (one document per file), `wikiextractor`,
        `jsonl` (one JSON object per line), `tfds`, `store`; or a list of file formats, one per source. All
        formats but the first and the last are split at sentence-final marks of any script.
      text_field: field (`jsonl`) or feature (`tfds`) that holds the text.
      datasets_dir: folder of prepared datasets for `tfds`; None: the library's default.
      vocabulary: a `vocab.txt` or `tokenizer.json`; None: learn one from the text (for `store`: take the
        stores' vocabulary).
      cased: whether text keeps its capitals and accents. A given vocabulary of a cased model says so itself,
        by its capitals or by the tokeniser's files beside it.
      vocabulary_size: number of pieces to learn; ignored if `vocabulary` is given.
      sequence_length: maximum length of a sequence, including [CLS] and both [SEP].
      dupe_factor: number of passes over the text, each with other instances and masks, as in the original.
        None: one pass, with new masks each time an instance is used.
      short_sequence_probability: share of (document, pass) pairs with a short target length.
      instance_seed: seed of instances and their masks.
      max_unknown_share: maximum share of [UNK] tokens; with more, the vocabulary is probably of another
        language, or cased.
      counterfactual_seed: seed of swapping gendered pronouns; None: do not swap.
      counterfactual_nouns: whether to swap gendered nouns, too.
      counterfactual_names: whether to swap given names, too.
      counterfactual_unit: unit of one draw: each `pronoun`, all pronouns of a `sentence`, or of a `document`.
      counterfactual_probability: probability of a swap per draw.
      counterfactual_copies: whether to add the swapped document after the original one, rather than replace
        it.
      num_workers: number of worker processes; None: one per core. Changes only the speed, like `scheduler`.
      scheduler: address of a Dask scheduler such as `tls://10.0.0.7:8786`, whose workers see the same files
        at the same paths (docs/clusters.md); None: worker processes on this machine.
    """

    run_dir: str
    sources: list[str]
    source_format: FileFormat | OtherFormat | list[str]
    text_field: str = "text"
    datasets_dir: str | None = None
    vocabulary: str | None = None
    cased: bool = False
    vocabulary_size: Annotated[
        int, Range(least=len(SPECIAL_TOKENS) + 1, most=LARGEST_VOCABULARY)
    ] = 30522
    sequence_length: Annotated[int, Range(least=_SHORTEST_SEQUENCE, most=_LONGEST_SEQUENCE)] = 128
    dupe_factor: PositiveInt | None = 10
    short_sequence_probability: Share = 0.1
    instance_seed: Seed = 0
    max_unknown_share: Share = 0.2
    counterfactual_seed: Seed | None = None
    counterfactual_nouns: bool = False
    counterfactual_names: bool = False
    counterfactual_unit: Unit = "pronoun"
    counterfactual_probability: Share = 0.5
    counterfactual_copies: bool = False
    num_workers: PositiveInt | None = None
    scheduler: str | None = None

    @property
    def passes(self) -> int:
        return 1 if self.dupe_factor is None else self.dupe_factor

    @property
    def text(self) -> Text:
        swapper = None
        if self.counterfactual_seed is not None:
            swapper = Swapper(
                self.counterfactual_seed,
                self.counterfactual_probability,
                nouns=self.counterfactual_nouns,
                names=self.counterfactual_names,
                unit=self.counterfactual_unit,
                copies=self.counterfactual_copies,
            )
        return Text(self.text_field, self.datasets_dir, swapper)


def _settle(parameters: Values, inputs: Values) -> None:
    """Leaves out what has no effect; names of datasets count as names."""
    given = parameters["source_format"]
    formats = {given} if isinstance(given, str) else set(given)
    if len(formats) == 1:
        (parameters["source_format"],) = formats
    if inputs["vocabulary"] or "store" in formats:
        parameters["vocabulary_size"] = None
    if not formats & {"jsonl", "tfds"}:
        del parameters["text_field"]
    if "tfds" in formats:
        parameters["sources"] = inputs.pop("sources")


def _find_files(
    arguments: Mapping[str, Any], parameters: Values, inputs: Values, _: Any
) -> tuple[Values, Values]:
    """Replaces patterns by the files that fit them."""
    if "sources" not in inputs or "store" in arguments["source_format"]:
        return parameters, inputs
    files = [expand_source(each) if isinstance(each, str) else [each] for each in inputs["sources"]]
    return parameters, {**inputs, "sources": [file for found in files for file in found]}


IDENTITY = Identity(
    inputs={"sources": opened, "vocabulary": Vocabulary.open},
    places=("datasets_dir",),
    speed=("num_workers", "scheduler", "max_unknown_share"),
    settings=PreparationSettings,
    settle=_settle,
    find_files=_find_files,
)


def check_settings(settings: PreparationSettings) -> None:
    """Refuses values that do not go together, naming the first."""
    formats = settings.source_format
    kinds = {formats} if isinstance(formats, str) else set(formats)
    seed = settings.counterfactual_seed
    # Without the seed the others have no effect.
    changed = [
        setting.name
        for setting in fields(settings)
        if setting.name.startswith("counterfactual_")
        and getattr(settings, setting.name) != setting.default
    ]
    paths = [settings.run_dir, *(settings.sources if kinds.issubset(FILE_FORMATS) else ())]
    relative = [path for path in paths if not os.path.isabs(path)]
    are_known = kinds.issubset(FILE_FORMATS if len(kinds) > 1 else SOURCE_FORMATS)
    check_values("prepare", (
        ("counterfactual_seed", seed, seed is not None or not changed,
         f"a number, as {', '.join(changed)} is set"),
        ("run_dir" if relative[:1] == [settings.run_dir] else "sources", relative[0] if relative else "",
         settings.scheduler is None or not relative,
         "an absolute path, as the workers of --scheduler start in folders of their own"),
        ("source_format", formats, are_known,
         f"one of {', '.join(SOURCE_FORMATS)}, or a list of the formats of files (prepare "
         "datasets and files apart with one vocabulary, then both together as stores)"),
    ))  # fmt: skip
