"""Pre-training: one seed, from initialisation (or a checkpoint) to its last step."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bert.configuration import BertConfig
from pretrain.learning_rates import CONTINUE, RESTART, check_treatment, learning_rates
from runs.directory import RunDirectory
from runs.errors import UserError
from runs.files import PathLike
from runs.preemption import preemption_notice

if TYPE_CHECKING:
    from bert.checkpoint import Checkpoint
    from bert.training import Trainer
    from pretrain.corpus_batches import CorpusBatches


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
    whole_word_masks: bool = False,
    learning_rate: float = 1e-4,
    warmup_steps: int = 10_000,
    weight_decay_rate: float = 0.01,
    gradient_shards: int = 32,
    save_state_every_steps: int = 1000,
    log_every_steps: int = 100,
    learning_rate_treatment: str = "restart",
    evaluation_corpus: str | None = None,
    evaluate_every_steps: int | None = None,
    evaluation_batches: int = 16,
    keep_last_states: int = 2,
    spike_threshold: float | None = None,
    tensorboard: bool = True,
    compile_step: bool = True,
    compute_dtype: str = "float32",
    devices: int | Literal["auto"] = 1,
) -> None:
    """Pre-trains one seed and writes `run_dir/checkpoints/step_<n>/` in the released format.

    The same call continues a run that was killed and does nothing to one that has finished. Step n
    uses batch(data_seed, n) and dropout(pretrain_seed, n), so the weights do not depend on where
    the run was interrupted. On SIGTERM the run finishes its step, saves its state and stops; the
    command then exits with status 75.

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
      whole_word_masks: whether the pieces of a word are masked together.
      learning_rate: peak of the schedule.
      warmup_steps: updates of linear warm-up.
      weight_decay_rate: for all but layer normalisation and biases.
      gradient_shards: parts of a batch whose gradients are clipped apart and then summed. The
        paper's 32 TPU cores; part of the recipe, whatever the machine.
      save_state_every_steps: how much work a kill may cost.
      log_every_steps: between lines of `metrics.jsonl`.
      learning_rate_treatment: with an initial checkpoint: `restart` (a schedule of its own, as from
        scratch), `constant` (after the warm-up) or `continue` (the decay of one run of the
        checkpoint's step + num_steps updates); see `pretrain.learning_rates`.
      evaluation_corpus: a corpus of held-out text, prepared with this corpus's vocabulary, on which
        masked words and next sentences are measured at every kept checkpoint and every
        evaluate_every_steps; into `metrics.jsonl` and the kept checkpoint's `checkpoint.json`.
      evaluate_every_steps: between further evaluations; None: at kept checkpoints only.
      evaluation_batches: batches of an evaluation, the same every time and for all seeds.
      keep_last_states: how many saved states are kept to go on from.
      spike_threshold: stops the run when a step's loss exceeds the mean of the last ten logged ones
        by more than this; None: only when it is not finite.
      tensorboard: whether to write the log to `run_dir/tensorboard` too.
      compile_step: whether XLA compiles the step.
      compute_dtype: `float32` or `bfloat16`, of the products in training; weights, optimiser and
        losses are float32 with both, and so is held-out evaluation.
      devices: how many share a step, in all processes: a number, or `auto` for all accelerators. It
        changes no more than the rounding of one sum.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written. While it runs: the disk
        is full, or training has diverged; what was saved before is kept.
      PreemptedError: SIGTERM came; the state is saved.

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
    inputs: dict[str, Any] = {"corpus": corpus, "initial_checkpoint": initial_checkpoint}
    # Stated where they matter, so that directories made before they existed stay valid.
    if whole_word_masks:
        parameters["whole_word_masks"] = True
    if compute_dtype != "float32":
        parameters["compute_dtype"] = compute_dtype
    if initial_checkpoint is not None and learning_rate_treatment != RESTART:
        parameters["learning_rate_treatment"] = learning_rate_treatment
    if evaluation_corpus is not None:
        parameters["evaluation_batches"] = evaluation_batches
        inputs["evaluation_corpus"] = evaluation_corpus
    run = RunDirectory(run_dir, stage="pretrain", parameters=parameters, inputs=inputs)
    if run.done:
        return
    _check_arguments(parameters)
    _check_safety(keep_last_states, save_state_every_steps, log_every_steps, evaluate_every_steps)
    check_treatment(learning_rate_treatment, initial_checkpoint is not None)

    from pretrain.corpus_batches import OF_BATCHES, CorpusBatches

    reading = {name: parameters[name] for name in OF_BATCHES if name in parameters}
    batches = CorpusBatches(corpus, data_seed=order_seed, **reading)
    vocabulary_path = batches.vocabulary_path
    config = BertConfig.from_mapping(
        {**model, "vocab_size": batches.tokenizer.size}, where="pretrain.model"
    )
    if sequence_length > config.max_position_embeddings:
        raise UserError(
            f"pretrain.sequence_length {sequence_length} exceeds the model's "
            f"{config.max_position_embeddings} positions; lower it or raise "
            "max_position_embeddings in pretrain.model"
        )
    if initial_checkpoint is not None:
        _check_same_model(initial_checkpoint, config, vocabulary_path)
    held_out = None
    if evaluation_corpus is not None:
        held_out = _held_out_batches(evaluation_corpus, evaluation_batches, reading, batches)

    with preemption_notice() as should_stop:
        from bert.checkpoint import read_checkpoint, write_checkpoint
        from bert.flops import model_flops_per_step
        from bert.initialization import initial_parameters
        from bert.training_loop import saved_step, train

        # First: devices are opened before anything else of TensorFlow's runs.
        trainer = _trainer(
            config, gradient_shards, weight_decay_rate, compile_step, compute_dtype, devices
        )
        start = None if initial_checkpoint is None else read_checkpoint(initial_checkpoint)
        learning_rate_at = learning_rates(
            treatment=learning_rate_treatment,
            learning_rate=learning_rate,
            warmup_steps=warmup_steps,
            num_steps=num_steps,
            steps_before=_steps_before(start, learning_rate_treatment, initial_checkpoint),
        )

        def first_weights() -> Mapping[str, Any]:
            return initial_parameters(config, pretrain_seed) if start is None else start.parameters

        def evaluate_and_keep(step: int, trainer: Trainer) -> Mapping[str, float]:
            if not trainer.is_chief:
                return {}
            weights, measured = trainer.parameters(), {}
            if held_out is not None:
                from pretrain.held_out import evaluate_held_out

                measured = evaluate_held_out(
                    weights,
                    config,
                    held_out,
                    num_batches=evaluation_batches,
                    compile_step=compile_step,
                )
            if step in kept_steps and not checkpoint_path(run.path, step).exists():
                provenance: dict[str, Any] = {
                    "procedure": procedure,
                    "pretrain_seed": pretrain_seed,
                    "data_seed": order_seed,
                    "step": step,
                }
                if measured:
                    provenance["evaluation"] = measured
                directory = checkpoint_path(run.path, step)
                with _clear_write_errors(directory):
                    write_checkpoint(directory, weights, config, vocabulary_path, provenance)
            return measured

        flops = model_flops_per_step(
            config, batch_size, sequence_length, max_predictions_per_sequence
        )

        def speed_at(steps_per_second: float) -> Mapping[str, float]:
            speed = {"sequences_per_second": round(steps_per_second * batch_size, 3)}
            peak = trainer.peak_flops_per_second(compute_dtype)
            if peak:
                speed["mfu"] = round(steps_per_second * flops / peak, 5)
            return speed

        # Of several processes that train together, one owns the directory.
        with run if trainer.is_chief else contextlib.nullcontext():
            resumed_at = saved_step(run.path)
            if resumed_at:
                _check_kept(run.path, [step for step in kept_steps if step <= resumed_at])
            evaluated = (
                range(0, num_steps, evaluate_every_steps)
                if held_out is not None and evaluate_every_steps
                else ()
            )
            train(
                trainer,
                directory=run.path,
                initial_parameters=first_weights,
                batch_at=batches.batch,
                learning_rate_at=learning_rate_at,
                num_steps=num_steps,
                dropout_seed=pretrain_seed,
                save_state_every_steps=save_state_every_steps,
                log_every_steps=log_every_steps,
                at_steps={*kept_steps, *evaluated},
                on_step=evaluate_and_keep,
                description=f"{procedure} seed {pretrain_seed}",
                keep_last_states=keep_last_states,
                spike_threshold=spike_threshold,
                describe_batch=lambda step: _instances(batches, step),
                speed_at=speed_at,
                should_stop=should_stop,
                tensorboard=tensorboard,
            )
            if not trainer.is_chief:
                return
            outputs = [
                str(file.relative_to(run.path))
                for step in kept_steps
                for file in sorted(checkpoint_path(run.path, step).iterdir())
            ]
            run.finish(outputs)


def checkpoint_path(run_dir: PathLike, step: int) -> Path:
    """Where a pre-training run keeps the checkpoint of a step."""
    return Path(run_dir) / "checkpoints" / f"step_{step}"


@functools.lru_cache(maxsize=2)
def _trainer(
    config: BertConfig,
    gradient_shards: int,
    weight_decay_rate: float,
    compile_step: bool,
    compute_dtype: str,
    devices: int | Literal["auto"],
) -> Trainer:
    """The compiled trainer, shared by all runs of the same model in this process."""
    from bert.heads import pretraining_loss
    from bert.training import Trainer

    def loss(parameters: Any, batch: Any, dropout_key: Any) -> Any:
        return pretraining_loss(parameters, config, batch, dropout_key, compute_dtype)

    return Trainer(
        loss,
        gradient_shards=gradient_shards,
        weight_decay_rate=weight_decay_rate,
        compile_step=compile_step,
        devices=devices,
    )


@contextlib.contextmanager
def _clear_write_errors(directory: Path) -> Iterator[None]:
    """Turns TensorFlow's errors of writing into ours."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise UserError(
            f"cannot write {directory}: {error.message}; free some space or choose another run_dir, "
            "then run the same command again: it goes on from the last saved state"
        ) from error


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
    compute_dtype = parameters.get("compute_dtype", "float32")
    if compute_dtype not in ("float32", "bfloat16"):
        raise UserError(
            f"pretrain.compute_dtype is {compute_dtype!r}; give 'float32' or 'bfloat16'"
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


def _check_safety(
    keep_last_states: int,
    save_state_every_steps: int,
    log_every_steps: int,
    evaluate_every_steps: int | None,
) -> None:
    """Refuses numbers of the parameters that change no weights."""
    for name, value in {
        "keep_last_states": keep_last_states,
        "save_state_every_steps": save_state_every_steps,
        "log_every_steps": log_every_steps,
        "evaluate_every_steps": evaluate_every_steps,
    }.items():
        if value is not None and value < 1:
            raise UserError(f"pretrain.{name} is {value}; give at least 1")


def _held_out_batches(
    corpus: str, num_batches: int, reading: Mapping[str, Any], trained: CorpusBatches
) -> CorpusBatches:
    """The batches of the held-out corpus.

    Raises:
      UserError: another vocabulary, or fewer instances than asked for.
    """
    from pretrain.corpus_batches import EVALUATION_DATA_SEED, CorpusBatches

    batches = CorpusBatches(corpus, data_seed=EVALUATION_DATA_SEED, **reading)
    if batches.vocabulary_path.read_bytes() != trained.vocabulary_path.read_bytes():
        raise UserError(
            f"{batches.vocabulary_path} and {trained.vocabulary_path} differ; prepare the held-out "
            "corpus with prepare.vocabulary set to the latter"
        )
    most = len(batches.table) // batches.batch_size
    if not 1 <= num_batches <= most:
        raise UserError(
            f"pretrain.evaluation_batches is {num_batches}, but {corpus} has {len(batches.table)} "
            f"instances, {most} batches of {batches.batch_size}; give 1 to {most}, or more text"
        )
    return batches


def _steps_before(start: Checkpoint | None, treatment: str, name: str | None) -> int:
    """The updates that the initial checkpoint has had, where the treatment asks for them."""
    if start is None or treatment != CONTINUE:
        return 0
    step = start.provenance["step"]
    if step is None:
        raise UserError(
            f"{name} does not say its step, which pretrain.learning_rate_treatment 'continue' needs; "
            "choose 'restart' or 'constant'"
        )
    return int(step)


def _check_kept(run_dir: Path, steps: Sequence[int]) -> None:
    """Refuses to go on where a checkpoint of the past was lost, which could not be made again."""
    from bert.checkpoint import check_checkpoint

    for step in steps:
        directory = checkpoint_path(run_dir, step)
        if not directory.exists():
            raise UserError(
                f"{directory} is missing, but {run_dir / 'state'} is past that step; put it back, or "
                f"remove {run_dir / 'state'} to train from the start"
            )
        check_checkpoint(directory)


def _instances(batches: CorpusBatches, step: int) -> str:
    ids = " ".join(str(number) for number in batches.instance_ids(step))
    return f"instances {ids} of {batches.corpus}"
