"""Pre-training: one seed, from initialisation (or a checkpoint) to its last step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from multiberts.bert.model.configuration import BertConfig
from multiberts.pretrain.training.initial_checkpoint import (
    check_initial_checkpoint,
    read_initial_checkpoint,
    steps_before,
)
from multiberts.pretrain.training.kept_checkpoints import KeptCheckpoints, checkpoint_path
from multiberts.pretrain.training.learning_rate_schedule import check_treatment, learning_rates
from multiberts.pretrain.training.recipe import check_numbers, check_positions, identity
from multiberts.runs.directory import RunDirectory
from multiberts.runs.preemption import preemption_notice

if TYPE_CHECKING:
    from multiberts.bert.training.engine import Trainer
    from multiberts.pretrain.batches.corpus_batches import Batches

# `checkpoint_path` is where others look for what this stage makes.
__all__ = ["checkpoint_path", "pretrain"]

# Arguments that change no number, but must be the same in processes that train together.
_IN_STEP = (
    "compile_step",
    "save_state_every_steps",
    "log_every_steps",
    "evaluate_every_steps",
    "spike_threshold",
)


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
        checkpoint's step + num_steps updates); see `pretrain.training.learning_rate_schedule`.
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
    arguments: dict[str, Any] = {
        **locals(),
        "data_seed": pretrain_seed if data_seed is None else data_seed,
    }
    kept_steps = sorted({*checkpoint_steps, num_steps})
    check_numbers(arguments, kept_steps)
    check_treatment(learning_rate_treatment, initial_checkpoint is not None)
    parameters = identity(arguments, kept_steps)
    run = RunDirectory(
        run_dir,
        stage="pretrain",
        parameters=parameters,
        inputs={
            "corpus": corpus,
            "initial_checkpoint": initial_checkpoint,
            "evaluation_corpus": evaluation_corpus,
        },
    )
    if run.done:
        return

    from multiberts.pretrain.batches.corpus_batches import OF_BATCHES, open_batches
    from multiberts.pretrain.corpus.description import check_corpus
    from multiberts.pretrain.training.held_out_evaluation import evaluate_held_out, open_held_out

    reading = {name: arguments[name] for name in OF_BATCHES}
    batches = open_batches(corpus, data_seed=arguments["data_seed"], **reading)
    config = BertConfig.from_mapping(
        {**model, "vocab_size": batches.tokenizer.size}, where="pretrain.model"
    )
    check_positions(sequence_length, config)
    if initial_checkpoint is not None:
        check_initial_checkpoint(initial_checkpoint, config, batches.vocabulary_path)
    held_out = None
    if evaluation_corpus is not None:
        held_out = open_held_out(evaluation_corpus, evaluation_batches, reading, batches)
        check_corpus(evaluation_corpus)
    corpus_facts = check_corpus(corpus)

    with preemption_notice() as should_stop:
        from multiberts.bert.model.initialization import initial_parameters
        from multiberts.bert.training.loop import train
        from multiberts.bert.training.state import saved_step

        # First: devices are opened before anything else of TensorFlow's runs.
        trainer = _trainer(
            config, gradient_shards, weight_decay_rate, compile_step, compute_dtype, devices
        )
        processes = trainer.processes
        processes.check_equal(
            {**parameters, **run.fingerprints, **{name: arguments[name] for name in _IN_STEP}},
            "start all processes with the same arguments",
        )
        start = None if initial_checkpoint is None else read_initial_checkpoint(initial_checkpoint)
        kept = KeptCheckpoints(
            run.path,
            kept_steps,
            config=config,
            vocabulary_path=batches.vocabulary_path,
            provenance={
                **{name: parameters[name] for name in ("procedure", "pretrain_seed", "data_seed")},
                "training": _facts_of_training(parameters, run.fingerprints),
                "corpus": corpus_facts,
            },
        )

        def evaluate_and_keep(step: int, trainer: Trainer) -> Mapping[str, float]:
            if not processes.is_chief:
                return {}
            weights, measured = trainer.parameters(), {}
            if held_out is not None:
                measured = evaluate_held_out(
                    weights,
                    config,
                    held_out,
                    num_batches=evaluation_batches,
                    compile_step=compile_step,
                )
            kept.write(step, weights, measured)
            return measured

        evaluated: Sequence[int] = ()
        if held_out is not None and evaluate_every_steps is not None:
            evaluated = range(0, num_steps, evaluate_every_steps)
        # Of several processes that train together, one owns the directory.
        with run if processes.is_chief else contextlib.nullcontext():
            if processes.is_chief:
                kept.check_before(saved_step(run.path))
            train(
                trainer,
                directory=run.path,
                initial_parameters=lambda: (
                    initial_parameters(config, pretrain_seed) if start is None else start.parameters
                ),
                batch_at=batches.batch,
                learning_rate_at=learning_rates(
                    treatment=learning_rate_treatment,
                    learning_rate=learning_rate,
                    warmup_steps=warmup_steps,
                    num_steps=num_steps,
                    steps_before=steps_before(start, learning_rate_treatment, initial_checkpoint),
                ),
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
                speed_at=_speeds(trainer, config, arguments),
                should_stop=should_stop,
                tensorboard=tensorboard,
            )
            if processes.is_chief:
                run.finish(kept.outputs())
        processes.part()


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
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.training.engine import Trainer

    def loss(parameters: Any, batch: Any, dropout_key: Any) -> Any:
        return pretraining_loss(parameters, config, batch, dropout_key, compute_dtype)

    return Trainer(
        loss,
        gradient_shards=gradient_shards,
        weight_decay_rate=weight_decay_rate,
        compile_step=compile_step,
        devices=devices,
    )


def _facts_of_training(
    parameters: Mapping[str, Any], fingerprints: Mapping[str, str]
) -> dict[str, Any]:
    """What a checkpoint records of its run: no path, no time and no machine."""
    told_elsewhere = ("procedure", "pretrain_seed", "data_seed", "model", "checkpoint_steps")
    return {
        **{name: value for name, value in parameters.items() if name not in told_elsewhere},
        **{f"{name}_sha256": content for name, content in fingerprints.items()},
    }


def _speeds(
    trainer: Trainer, config: BertConfig, arguments: Mapping[str, Any]
) -> Callable[[float], Mapping[str, float]]:
    """Sequences a second and the share of the devices' peak, from the updates a second."""
    from multiberts.bert.model.operations import model_flops_per_step

    batch_size = arguments["batch_size"]
    flops = model_flops_per_step(
        config, batch_size, arguments["sequence_length"], arguments["max_predictions_per_sequence"]
    )
    peak = trainer.peak_flops_per_second(arguments["compute_dtype"])

    def at(steps_per_second: float) -> Mapping[str, float]:
        speeds = {"sequences_per_second": round(steps_per_second * batch_size, 3)}
        if peak:
            speeds["mfu"] = round(steps_per_second * flops / peak, 5)
        return speeds

    return at


def _instances(batches: Batches, step: int) -> str:
    ids = " ".join(str(number) for number in batches.instance_ids(step))
    return f"instances {ids} of {batches.corpus}"
