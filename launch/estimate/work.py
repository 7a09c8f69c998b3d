"""Counts the operations, examples and bytes of runs from their parameters alone.

Reference for the operations: `bert.model.operations`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.model.configuration import BertConfig, num_parameters
from multiberts.bert.model.operations import model_flops_per_step
from multiberts.bert.training.state import KEPT_STATES
from multiberts.finetune.settings import task_of
from multiberts.launch.plan.planned_run import Output, PlannedRun, kept_steps, vocabulary_size
from multiberts.runs.errors import UserError

# Numbers of training and predicted examples assumed for tasks that do not state them.
OTHER_EXAMPLES = (5_000, 1_000)

_BERT_BASE = BertConfig(vocab_size=30522)
_BYTES_OF_FLOAT = 4
# Weights and two moments of Adam.
_FLOATS_OF_STATE = 3


@dataclass(frozen=True)
class Work:
    """The work of a run.

    Attributes:
      steps: number of updates; 0 if nothing is trained.
    """

    flops: float = 0.0
    seconds: float = 0.0
    steps: int = 0
    bytes: float = 0.0
    assumed: tuple[str, ...] = ()


def pretraining_work(run: PlannedRun) -> Work:
    """Returns the work of a run of stage `pretrain`."""
    parameters = run.parameters
    config, is_known = pretrained_model(run)
    shape = (
        config,
        parameters["batch_size"],
        parameters["sequence_length"],
        parameters["max_predictions_per_sequence"],
    )
    step = model_flops_per_step(*shape)
    steps = parameters["num_steps"]
    checkpoints = len(kept_steps(run))
    evaluations = 0
    if parameters.get("evaluation_corpus") is not None:
        every = parameters.get("evaluate_every_steps")
        evaluations = checkpoints + (steps // every if every else 0)
    forward = model_flops_per_step(*shape, trained=False)
    states = _FLOATS_OF_STATE * KEPT_STATES
    return Work(
        flops=steps * step + evaluations * parameters["evaluation_batches"] * forward,
        steps=steps,
        bytes=_BYTES_OF_FLOAT * num_parameters(config) * (checkpoints + states),
        assumed=() if is_known else ("the vocabulary has 30,522 word pieces",),
    )


def finetuning_work(
    run: PlannedRun, bytes_per_prediction: float, examples: tuple[int, int] | None = None
) -> Work:
    """Returns the work of a run of stage `finetune`.

    Args:
      bytes_per_prediction: bytes of an example in the prediction file.
      examples: numbers of training and predicted examples that a run of the same task recorded; None: as in
        the data set's release.
    """
    parameters = run.parameters
    task = task_of(parameters)
    config, is_known = finetuned_model(run)
    assumed: tuple[str, ...] = () if is_known else ("the checkpoint is BERT base",)
    data = parameters.get("data_dir")
    if not examples and isinstance(data, Output) and data.run.stage == "make_world":
        # A planned world states the numbers of a task's examples.
        train, dev = (
            data.run.parameters.get(f"num_{part}_{data.inside}") for part in ("train", "dev")
        )
        examples = None if train is None or dev is None else (train, dev)
    if examples is None and task.num_train_examples is None:
        assumed += (f"{task.name} has {OTHER_EXAMPLES[0]:,} examples",)
    train, predicted = examples or (
        OTHER_EXAMPLES[0] if task.num_train_examples is None else task.num_train_examples,
        OTHER_EXAMPLES[1] if task.num_dev_examples is None else task.num_dev_examples,
    )
    most = parameters["max_train_examples"]
    if most is not None:
        train = min(train, most)
    length = min(parameters["sequence_length"], config.max_position_embeddings)
    forward = model_flops_per_step(config, 1, length, trained=False)
    batch = parameters["batch_size"]
    written = predicted * bytes_per_prediction
    if task.frozen_encoder:
        flops = (train + predicted) * forward
        return Work(flops=flops, bytes=written, assumed=assumed)
    steps = int(train * parameters["num_epochs"] / batch)
    flops = steps * model_flops_per_step(config, batch, length) + predicted * forward
    return Work(flops=flops, steps=steps, bytes=written, assumed=assumed)


@functools.lru_cache(maxsize=4096)
def pretrained_model(run: PlannedRun) -> tuple[BertConfig, bool]:
    """Returns the model of a pre-training run, and whether the size of its vocabulary is known."""
    size = vocabulary_size(run.parameters.get("corpus"))
    model = dict(run.parameters["model"])
    config = BertConfig.from_mapping({**model, "vocab_size": size or 30522}, run.name)
    return config, size is not None


def finetuned_model(run: PlannedRun) -> tuple[BertConfig, bool]:
    """Returns the model that a run fine-tunes, and True; BERT base and False if it is not known."""
    checkpoint = run.parameters["checkpoint"]
    if isinstance(checkpoint, Output):
        return pretrained_model(checkpoint.run)
    return _model_in(checkpoint)


@functools.lru_cache(maxsize=4096)
def _model_in(name: str) -> tuple[BertConfig, bool]:
    try:
        return Checkpoint.open(name).config, True
    except UserError:  # the stage will refuse it
        return _BERT_BASE, False


def shape_of(run: PlannedRun) -> tuple[Any, ...]:
    """Key of runs that take equally long, per step (pre-training) or as a whole."""
    parameters = (run.parameters.get(name) for name in _SHAPES.get(run.stage, ()))
    plain = (int, float, str, type(None))
    values = [value if isinstance(value, plain) else repr(value) for value in parameters]
    if run.stage in ("pretrain", "finetune"):
        model = pretrained_model if run.stage == "pretrain" else finetuned_model
        return run.stage, model(run)[0], *values
    if run.stage in ("score", "report", "paper"):
        return run.stage, len(run.parents)  # the number of runs that it reads
    return run.stage, *values


_SHAPES = {
    "make_world": ("num_documents",),
    "prepare": ("sources", "sequence_length", "dupe_factor"),
    "pretrain": (
        "batch_size",
        "sequence_length",
        "max_predictions_per_sequence",
        "compute_dtype",
        "compile_step",
        "devices",
    ),
    "finetune": ("task", "batch_size", "sequence_length", "num_epochs", "max_train_examples"),
}
