"""The numbers of a pre-training run: which of them make it the run it is, and which cannot be meant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from multiberts.bert.model.configuration import BertConfig
from multiberts.pretrain.training.learning_rate_schedule import RESTART
from multiberts.runs.errors import UserError

_COUNTS = (
    "num_steps", "batch_size", "sequence_length", "max_predictions_per_sequence",
    "gradient_shards", "keep_last_states", "save_state_every_steps", "log_every_steps",
    "evaluate_every_steps", "evaluation_batches",
)  # fmt: skip
_SEEDS = ("pretrain_seed", "data_seed")
_COMPUTE_DTYPES = ("float32", "bfloat16")


def identity(arguments: Mapping[str, Any], kept_steps: Sequence[int]) -> dict[str, Any]:
    """The parameters that a run's numbers depend on, beside what its inputs hold.

    Args:
      arguments: of `pretrain`.
      kept_steps: whose checkpoints are kept, the last included.

    Returns:
      Parameters by name, as `runs.directory.RunDirectory` takes them. Those that came with time are
      stated only where they matter, so that directories made before they existed stay valid.
    """
    always = (
        "pretrain_seed", "num_steps", "procedure", "data_seed", "batch_size", "sequence_length",
        "max_predictions_per_sequence", "masked_lm_probability", "learning_rate", "warmup_steps",
        "weight_decay_rate", "gradient_shards",
    )  # fmt: skip
    parameters = {name: arguments[name] for name in always}
    parameters["model"] = dict(arguments["model"])
    parameters["checkpoint_steps"] = list(kept_steps)
    if arguments["whole_word_masks"]:
        parameters["whole_word_masks"] = True
    if arguments["compute_dtype"] != "float32":
        parameters["compute_dtype"] = arguments["compute_dtype"]
    if (
        arguments["initial_checkpoint"] is not None
        and arguments["learning_rate_treatment"] != RESTART
    ):
        parameters["learning_rate_treatment"] = arguments["learning_rate_treatment"]
    if arguments["evaluation_corpus"] is not None:
        parameters["evaluation_batches"] = arguments["evaluation_batches"]
    return parameters


def check_numbers(arguments: Mapping[str, Any], kept_steps: Sequence[int]) -> None:
    """Refuses numbers that cannot be meant.

    Args:
      arguments: of `pretrain`.
      kept_steps: whose checkpoints are kept, the last included.

    Raises:
      UserError: naming the parameter, what was found and what may be given.
    """
    _check_whole_numbers(arguments)
    num_steps, batch_size = arguments["num_steps"], arguments["batch_size"]
    outside = [
        step for step in kept_steps if not isinstance(step, int) or not 0 <= step <= num_steps
    ]
    if outside:
        raise UserError(
            f"pretrain.checkpoint_steps holds {outside[0]}, expected whole numbers in 0..{num_steps}; "
            "keep them within pretrain.num_steps"
        )
    shards = arguments["gradient_shards"]
    if batch_size % shards:
        raise UserError(
            f"pretrain.batch_size {batch_size} is no multiple of pretrain.gradient_shards {shards}; "
            "choose a shard count that divides it (the paper: 256 and 32)"
        )
    warmup_steps = arguments["warmup_steps"]
    if not 0 <= warmup_steps <= num_steps:
        raise UserError(f"pretrain.warmup_steps {warmup_steps} is outside 0..{num_steps}; lower it")
    _check_rates(arguments)
    if arguments["compute_dtype"] not in _COMPUTE_DTYPES:
        raise UserError(
            f"pretrain.compute_dtype is {arguments['compute_dtype']!r}; give "
            f"{' or '.join(map(repr, _COMPUTE_DTYPES))}"
        )


def check_positions(sequence_length: int, config: BertConfig) -> None:
    """Refuses sequences that are longer than the model.

    Raises:
      UserError: there are fewer positions than pieces in a sequence.
    """
    if sequence_length > config.max_position_embeddings:
        raise UserError(
            f"pretrain.sequence_length {sequence_length} exceeds the model's "
            f"{config.max_position_embeddings} positions; lower it or raise "
            "max_position_embeddings in pretrain.model"
        )


def _check_whole_numbers(arguments: Mapping[str, Any]) -> None:
    for name in (*_COUNTS, *_SEEDS, "warmup_steps"):
        value = arguments[name]
        if name in ("evaluate_every_steps", "data_seed") and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"pretrain.{name} is {value!r}; give a whole number")
        if name in _COUNTS and value < 1:
            raise UserError(f"pretrain.{name} is {value}; give at least 1")


def _check_rates(arguments: Mapping[str, Any]) -> None:
    rate, decay = arguments["learning_rate"], arguments["weight_decay_rate"]
    if not (math.isfinite(rate) and rate > 0):
        raise UserError(f"pretrain.learning_rate is {rate}; give a positive number such as 1e-4")
    if not (math.isfinite(decay) and decay >= 0):
        raise UserError(f"pretrain.weight_decay_rate is {decay}; give 0 or more, such as 0.01")
    probability = arguments["masked_lm_probability"]
    if not 0 < probability < 1:
        raise UserError(
            f"pretrain.masked_lm_probability is {probability}; give a share between 0 and 1, such as "
            "0.15"
        )
    threshold = arguments["spike_threshold"]
    if threshold is not None and not threshold > 0:
        raise UserError(
            f"pretrain.spike_threshold is {threshold}; give a rise of the loss above 0, or None"
        )
