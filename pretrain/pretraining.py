"""Pre-training: one seed, from initialisation (or a checkpoint) to its last step."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.configuration import BertConfig
from runs.directory import RunDirectory
from runs.errors import UserError
from runs.files import PathLike, read_bytes

if TYPE_CHECKING:
    from bert.training import Trainer


def pretrain(
    *,
    run_dir: str,
    corpus: str,
    model: Mapping[str, Any],
    pretrain_seed: int,
    num_steps: int,
    checkpoint_steps: Sequence[int] = (),
    procedure: str = "base",
    data_seed: int | None = None,
    initial_checkpoint: str | None = None,
    batch_size: int = 256,
    sequence_length: int = 512,
    max_predictions_per_sequence: int = 80,
    masked_lm_probability: float = 0.15,
    learning_rate: float = 1e-4,
    warmup_steps: int = 10_000,
    weight_decay_rate: float = 0.01,
    gradient_shards: int = 32,
    save_state_every_steps: int = 1000,
    log_every_steps: int = 100,
    compile_step: bool = True,
) -> None:
    """Pre-trains one seed and writes `run_dir/checkpoints/step_<n>/` in the released format.

    The same call continues a run that was killed and does nothing to one that has finished. Step n
    uses batch(data_seed, n) and dropout(pretrain_seed, n), so the weights do not depend on where
    the run was interrupted.

    Args:
      run_dir: the run's directory.
      corpus: the directory that `python -m pretrain.prepare` made.
      model: fields of `bert_config.json` but `vocab_size`, which the corpus's vocabulary gives.
      pretrain_seed: of initialisation and dropout.
      num_steps: updates in all.
      checkpoint_steps: numbers of finished updates at which a checkpoint is kept; 0 is the
        initialisation. The last step is always kept.
      procedure: the name of this way of training, recorded in checkpoints (`base`, `cda_incr`).
      data_seed: of the order of the instances; None: the same as pretrain_seed, as in the release.
      initial_checkpoint: a checkpoint directory whose weights training starts from, with moments
        at zero; None: initialise from pretrain_seed.
      batch_size: sequences a step.
      sequence_length: pieces a sequence; at least that of the corpus's instances.
      max_predictions_per_sequence: masked pieces at the most.
      masked_lm_probability: share of pieces masked.
      learning_rate: peak of the schedule.
      warmup_steps: updates of linear warm-up.
      weight_decay_rate: for all but layer normalisation and biases.
      gradient_shards: parts of a batch whose gradients are clipped apart and then summed. The
        paper's 32 TPU cores; part of the recipe, whatever the machine.
      save_state_every_steps: how much work a kill may cost.
      log_every_steps: between lines of `metrics.jsonl`.
      compile_step: whether XLA compiles the step.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written.

    Reference: Sellam et al., 2022, section 2; Devlin et al., 2019, section 3.1 and appendix A.2.
    """
    order_seed = pretrain_seed if data_seed is None else data_seed
    kept_steps = sorted({int(step) for step in checkpoint_steps} | {num_steps})
    parameters: dict[str, Any] = {
        "model": dict(model),
        "pretrain_seed": pretrain_seed,
        "num_steps": num_steps,
        "checkpoint_steps": kept_steps,
        "procedure": procedure,
        "data_seed": order_seed,
        "batch_size": batch_size,
        "sequence_length": sequence_length,
        "max_predictions_per_sequence": max_predictions_per_sequence,
        "masked_lm_probability": masked_lm_probability,
        "learning_rate": learning_rate,
        "warmup_steps": warmup_steps,
        "weight_decay_rate": weight_decay_rate,
        "gradient_shards": gradient_shards,
    }
    inputs = {"corpus": corpus, "initial_checkpoint": initial_checkpoint}
    run = RunDirectory(run_dir, stage="pretrain", parameters=parameters, inputs=inputs)
    if run.done:
        return
    _check_arguments(parameters)

    from bert.tokenization import Tokenizer
    from pretrain.batches import pretraining_batch
    from pretrain.instances import InstanceTable
    from pretrain.token_store import TokenStore

    facts = _corpus_facts(Path(corpus))
    store, table = TokenStore(corpus), InstanceTable(corpus)
    vocabulary_path = Path(corpus) / "vocab.txt"
    tokenizer = Tokenizer(vocabulary_path)
    config = BertConfig.from_mapping(
        {**model, "vocab_size": tokenizer.size}, where="pretrain.model"
    )
    if sequence_length > config.max_position_embeddings:
        raise UserError(
            f"pretrain.sequence_length {sequence_length} exceeds the model's "
            f"{config.max_position_embeddings} positions; lower it or raise "
            "max_position_embeddings in pretrain.model"
        )
    if sequence_length < facts["sequence_length"]:
        raise UserError(
            f"pretrain.sequence_length {sequence_length} is shorter than the instances of {corpus} "
            f"({facts['sequence_length']}); raise it or prepare the corpus at that length"
        )
    if initial_checkpoint is not None:
        _check_same_model(initial_checkpoint, config, vocabulary_path)

    from bert.checkpoint import check_checkpoint, read_checkpoint, write_checkpoint
    from bert.initialization import initial_parameters
    from bert.optimization import learning_rate_schedule
    from bert.training import train

    start = None if initial_checkpoint is None else read_checkpoint(initial_checkpoint)

    def first_weights() -> Mapping[str, Any]:
        return initial_parameters(config, pretrain_seed) if start is None else start.parameters

    def batch_at(step: int) -> Mapping[str, Any]:
        return pretraining_batch(
            store,
            table,
            tokenizer=tokenizer,
            data_seed=order_seed,
            step=step,
            batch_size=batch_size,
            sequence_length=sequence_length,
            max_predictions_per_sequence=max_predictions_per_sequence,
            masked_lm_probability=masked_lm_probability,
            fresh_masks=facts["fresh_masks"],
            instance_seed=facts["instance_seed"],
        )

    def keep_checkpoint(step: int, trainer: Trainer) -> None:
        directory = checkpoint_path(run.path, step)
        if directory.exists():
            check_checkpoint(directory)
            return
        provenance = {
            "procedure": procedure,
            "pretrain_seed": pretrain_seed,
            "data_seed": order_seed,
            "step": step,
        }
        write_checkpoint(directory, trainer.parameters(), config, vocabulary_path, provenance)

    def learning_rate_at(step: int) -> float:
        return learning_rate_schedule(step, learning_rate, warmup_steps, num_steps)

    trainer = _trainer(config, gradient_shards, weight_decay_rate, compile_step)
    with run:
        train(
            trainer,
            directory=run.path,
            initial_parameters=first_weights,
            batch_at=batch_at,
            learning_rate_at=learning_rate_at,
            num_steps=num_steps,
            dropout_seed=pretrain_seed,
            save_state_every_steps=save_state_every_steps,
            log_every_steps=log_every_steps,
            at_steps=kept_steps,
            on_step=keep_checkpoint,
            description=f"{procedure} seed {pretrain_seed}",
        )
        outputs = [
            str(file.relative_to(run.path))
            for step in kept_steps
            for file in sorted(checkpoint_path(run.path, step).iterdir())
        ]
        run.finish(outputs)


def checkpoint_path(run_dir: PathLike, step: int) -> Path:
    """Where a pre-training run keeps the checkpoint of a step."""
    return Path(run_dir) / "checkpoints" / f"step_{step}"


def _corpus_facts(corpus: Path) -> dict[str, Any]:
    """What `corpus.json` says of the instances: length, seed, and whether masks are drawn afresh."""
    facts = json.loads(read_bytes(corpus / "corpus.json"))
    return {name: facts[name] for name in ("sequence_length", "fresh_masks", "instance_seed")}


@functools.lru_cache(maxsize=2)
def _trainer(
    config: BertConfig, gradient_shards: int, weight_decay_rate: float, compile_step: bool
) -> Trainer:
    """The compiled trainer, shared by all runs of the same model in this process."""
    from bert.heads import pretraining_loss
    from bert.training import Trainer

    def loss(parameters: Any, batch: Any, dropout_key: Any) -> Any:
        return pretraining_loss(parameters, config, batch, dropout_key)

    return Trainer(
        loss,
        gradient_shards=gradient_shards,
        weight_decay_rate=weight_decay_rate,
        compile_step=compile_step,
    )


def _check_arguments(parameters: Mapping[str, Any]) -> None:
    """Refuses numbers that cannot be meant."""
    num_steps = parameters["num_steps"]
    if num_steps < 1:
        raise UserError(f"pretrain.num_steps is {num_steps}; give at least 1")
    late = [step for step in parameters["checkpoint_steps"] if not 0 <= step <= num_steps]
    if late:
        raise UserError(
            f"pretrain.checkpoint_steps holds {late[0]}, outside 0..{num_steps}; keep it within "
            "pretrain.num_steps"
        )
    batch_size, shards = parameters["batch_size"], parameters["gradient_shards"]
    if batch_size < 1 or shards < 1 or batch_size % shards:
        raise UserError(
            f"pretrain.batch_size {batch_size} is no multiple of pretrain.gradient_shards {shards}; "
            "choose a shard count that divides it (the paper: 256 and 32)"
        )
    if not 0 <= parameters["warmup_steps"] <= num_steps:
        raise UserError(
            f"pretrain.warmup_steps {parameters['warmup_steps']} is outside 0..{num_steps}; lower it"
        )
    rate = parameters["learning_rate"]
    if not (math.isfinite(rate) and rate > 0):
        raise UserError(f"pretrain.learning_rate is {rate}; give a positive number such as 1e-4")


def _check_same_model(checkpoint: str, config: BertConfig, vocabulary_path: Path) -> None:
    """Refuses to continue a checkpoint of other sizes or with another vocabulary."""
    from bert.checkpoint import VOCABULARY, check_checkpoint

    found = check_checkpoint(checkpoint)
    if found != config:
        raise UserError(
            f"{checkpoint} has {found}, but pretrain.model with the corpus's vocabulary is {config}; "
            "give pretrain.model the checkpoint's sizes and prepare the corpus with its vocab.txt"
        )
    vocabulary = Path(checkpoint) / VOCABULARY
    if vocabulary.read_bytes() != vocabulary_path.read_bytes():
        raise UserError(
            f"{vocabulary} and {vocabulary_path} differ; prepare the corpus with the checkpoint's "
            "vocabulary"
        )
