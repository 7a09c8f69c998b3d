"""Parameters of `prepare`: their checks, and those that identify the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multiberts.pretrain.corpus.counterfactual import Swapper
from multiberts.pretrain.corpus.documents import FILE_FORMATS, check_sources, expand_sources
from multiberts.pretrain.corpus.instances import NUM_SPECIAL_TOKENS
from multiberts.pretrain.corpus.shards import DEFAULT_SHARD_BYTES, Text
from multiberts.pretrain.corpus.token_store import LARGEST_VOCABULARY
from multiberts.runs.errors import check_values
from multiberts.runs.identity import Identity, Values

SOURCE_FORMATS = (*FILE_FORMATS, "tfds", "store")

# Two tokens besides [CLS] and both [SEP]: one for A, one for B.
_SHORTEST_SEQUENCE = NUM_SPECIAL_TOKENS + 2
_LONGEST_SEQUENCE = np.iinfo(np.int16).max


@dataclass(frozen=True, kw_only=True)
class PreparationSettings:
    """What `prepare` takes.

    Attributes:
      run_dir: directory of the outputs.
      sources: text files, UTF-8, plain or `.gz`, or patterns such as `wiki/**/wiki_*`; of format
        `tfds` names of datasets (`wikipedia/20230601.en`, with `:split` if it is not `train`); of
        `store` directories that this function made, with one vocabulary.
      source_format: `sentences` (one per line, blank line between documents), `blank_lines`
        (likewise, but not cut into sentences), `raw` (one document per file), `wikiextractor`,
        `jsonl` (one JSON object per line), `tfds`, `store`.
      text_field: of `jsonl` and `tfds`, the field or feature that holds the text.
      datasets_dir: of `tfds`, where prepared datasets lie; None: where the library keeps them.
      vocabulary: a `vocab.txt` to copy; without it one is learned from the text (of `store`:
        that of the stores is kept).
      vocabulary_size: number of pieces to learn; without effect where `vocabulary` is given.
      sequence_length: longest sequence, [CLS] and both [SEP] included.
      dupe_factor: passes over the text, each with other instances and masks, as the original
        does. None: one pass, and masks that are drawn afresh each time an instance is met.
      short_sequence_probability: share of (document, pass) pairs with a short target length.
      instance_seed: seed of instances and of masks that belong to them.
      counterfactual_seed: if given, swaps gendered pronouns with probability one half; the seed
        of those draws.
      counterfactual_nouns: whether gendered nouns are swapped as well.
      counterfactual_names: whether given names are swapped as well.
      num_workers: worker processes; None: one per core. Neither this nor what follows changes what
        is written.
      shard_bytes: approximate amount of text in a shard.
      runner: None: worker processes of this machine; else Apache Beam's runner of that name
        (`DirectRunner`, `FlinkRunner`, `SparkRunner`, `DataflowRunner`), as --runner.
      pipeline_options: further options of the Beam pipeline, such as `--region=...`, as
        --pipeline_option.
    """

    run_dir: str
    sources: list[str]
    source_format: str
    text_field: str = "text"
    datasets_dir: str | None = None
    vocabulary: str | None = None
    vocabulary_size: int = 30522
    sequence_length: int = 128
    dupe_factor: int | None = 10
    short_sequence_probability: float = 0.1
    instance_seed: int = 0
    counterfactual_seed: int | None = None
    counterfactual_nouns: bool = False
    counterfactual_names: bool = False
    num_workers: int | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    runner: str | None = None
    pipeline_options: Sequence[str] = ()

    @property
    def passes(self) -> int:
        """Passes over the text."""
        return 1 if self.dupe_factor is None else self.dupe_factor

    @property
    def text(self) -> Text:
        """Returns how the documents of the sources are read."""
        swapper = None
        if self.counterfactual_seed is not None:
            swapper = Swapper(
                self.counterfactual_seed,
                nouns=self.counterfactual_nouns,
                names=self.counterfactual_names,
            )
        return Text(self.source_format, self.text_field, self.datasets_dir, swapper)


def _settle(parameters: Values, inputs: Values) -> None:
    """Leaves out what has no effect; names of datasets count as names."""
    source_format = parameters["source_format"]
    if inputs["vocabulary"] or source_format == "store":
        parameters["vocabulary_size"] = None
    swaps_more = parameters["counterfactual_nouns"] or parameters["counterfactual_names"]
    # Stated last and where they matter, so that directories made before they existed stay valid.
    for name, matters in (
        ("text_field", source_format in ("jsonl", "tfds")),
        ("counterfactual_nouns", swaps_more),
        ("counterfactual_names", swaps_more),
    ):
        value = parameters.pop(name)
        if matters:
            parameters[name] = value
    if source_format == "tfds":
        parameters["sources"] = inputs.pop("sources")


def _find_files(arguments: Mapping[str, Any], inputs: Values) -> None:
    """Replaces patterns by the files that fit them."""
    if "sources" in inputs and arguments["source_format"] != "store":
        inputs["sources"] = [
            found
            for source in inputs["sources"]
            for found in (expand_sources([source]) if isinstance(source, str) else [source])
        ]


IDENTITY = Identity(
    inputs=("sources", "vocabulary"),
    places=("datasets_dir",),
    speed=("num_workers", "shard_bytes", "runner", "pipeline_options"),
    settle=_settle,
    find_files=_find_files,
)


def check_settings(settings: PreparationSettings) -> None:
    """Refuses values that have no meaning, naming the first.

    Raises:
      UserError: naming parameter, value and what is expected.
    """
    check_sources(settings.sources, "prepare.sources")
    size, length = IDENTITY.of(vars(settings))[0]["vocabulary_size"], settings.sequence_length
    probability, seed = settings.short_sequence_probability, settings.counterfactual_seed
    swaps_more = settings.counterfactual_nouns or settings.counterfactual_names
    workers, options = settings.num_workers, settings.pipeline_options
    check_values(
        "prepare",
        (
            (
                "source_format",
                settings.source_format,
                settings.source_format in SOURCE_FORMATS,
                f"one of {', '.join(SOURCE_FORMATS)}",
            ),
            (
                "sequence_length",
                length,
                _SHORTEST_SEQUENCE <= length <= _LONGEST_SEQUENCE,
                f"{_SHORTEST_SEQUENCE} to {_LONGEST_SEQUENCE}",
            ),
            ("dupe_factor", settings.dupe_factor, settings.passes >= 1, "at least 1, or None"),
            ("short_sequence_probability", probability, 0 <= probability <= 1, "0 to 1"),
            (
                "vocabulary_size",
                size,
                size is None or size <= LARGEST_VOCABULARY,
                f"at most {LARGEST_VOCABULARY}",
            ),
            (
                "counterfactual_seed",
                seed,
                seed is not None or not swaps_more,
                "a number, as counterfactual_nouns or counterfactual_names is set",
            ),
            ("num_workers", workers, workers is None or workers >= 1, "at least 1, or None"),
            ("shard_bytes", settings.shard_bytes, settings.shard_bytes >= 1, "at least 1"),
            (
                "pipeline_options",
                options,
                settings.runner is not None or not options,
                "none without --runner, which names Beam's runner",
            ),
        ),
    )
