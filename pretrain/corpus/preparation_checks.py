"""Which values of `prepare`'s parameters have a meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from multiberts.pretrain.corpus.documents import FILE_FORMATS
from multiberts.pretrain.corpus.instances import NUM_SPECIAL_TOKENS
from multiberts.pretrain.corpus.token_store import LARGEST_VOCABULARY
from multiberts.runs.errors import UserError

SOURCE_FORMATS = (*FILE_FORMATS, "tfds", "store")

# Two tokens beside [CLS] and both [SEP]: one for A, one for B.
_SHORTEST_SEQUENCE = NUM_SPECIAL_TOKENS + 2
_LONGEST_SEQUENCE = np.iinfo(np.int16).max


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuses values that have no meaning, naming the first.

    Args:
      parameters: those arguments of `prepare` that its outputs depend on; the switches of
        counterfactual nouns and names where one of them is set.

    Raises:
      UserError: naming parameter, value and what was expected.
    """
    source_format = parameters["source_format"]
    size, length = parameters["vocabulary_size"], parameters["sequence_length"]
    passes, probability = parameters["dupe_factor"], parameters["short_sequence_probability"]
    seed = parameters["counterfactual_seed"]
    swaps_more = "counterfactual_nouns" in parameters
    _refuse_first(
        {
            "source_format": (
                source_format,
                source_format in SOURCE_FORMATS,
                f"one of {', '.join(SOURCE_FORMATS)}",
            ),
            "sequence_length": (
                length,
                _SHORTEST_SEQUENCE <= length <= _LONGEST_SEQUENCE,
                f"{_SHORTEST_SEQUENCE} to {_LONGEST_SEQUENCE}",
            ),
            "dupe_factor": (passes, passes is None or passes >= 1, "at least 1, or None"),
            "short_sequence_probability": (probability, 0 <= probability <= 1, "0 to 1"),
            "vocabulary_size": (
                size,
                size is None or size <= LARGEST_VOCABULARY,
                f"at most {LARGEST_VOCABULARY}",
            ),
            "counterfactual_seed": (
                seed,
                seed is not None or not swaps_more,
                "a number, as counterfactual_nouns or counterfactual_names is set",
            ),
        }
    )


def check_machinery(
    num_workers: int | None,
    shard_bytes: int,
    runner: str | None,
    pipeline_options: Sequence[str],
) -> None:
    """Refuses values without meaning of the arguments that do not change what is written.

    Args:
      num_workers, shard_bytes, runner, pipeline_options: as in `prepare`.

    Raises:
      UserError: as `check_parameters`.
    """
    _refuse_first(
        {
            "num_workers": (
                num_workers,
                num_workers is None or num_workers >= 1,
                "at least 1, or None",
            ),
            "shard_bytes": (shard_bytes, shard_bytes >= 1, "at least 1"),
            "pipeline_options": (
                pipeline_options,
                runner is not None or not pipeline_options,
                "none without --runner, which names Beam's runner",
            ),
        }
    )


def _refuse_first(values: Mapping[str, tuple[Any, bool, str]]) -> None:
    """Refuses the first parameter that is not valid: its value, whether it is, what was expected."""
    for name, (value, is_valid, expected) in values.items():
        if not is_valid:
            raise UserError(f"prepare.{name} is {value!r}, expected {expected}; change it")
