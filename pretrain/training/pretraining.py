"""Pre-training: one seed, from initialisation (or a checkpoint) to its last step."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from multiberts.bert.checkpoint.checkpoint import INITIALISED, Checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.training.state import remove_states, saved_step
from multiberts.bert.training.trainer import Trainer, Trainers, TrainerSettings
from multiberts.pretrain.training.checkpoints import (
    KeptCheckpoints,
    advice_for_another_run,
    check_initial_checkpoint,
    checkpoint_path,
    steps_before,
)
from multiberts.pretrain.training.settings import (
    IDENTITY,
    PretrainingSettings,
    check_settings,
    learning_rates,
)
from multiberts.pretrain.training.stall_watch import killed_without_steps
from multiberts.runs.directory import RunDirectory
from multiberts.runs.environment import JAX, engine
from multiberts.runs.errors import UserError, check_values
from multiberts.runs.parameters import takes_fields_of
from multiberts.runs.preemption import preemption_notice

# `checkpoint_path` is re-exported: other stages find the checkpoints with it.
__all__ = ["IDENTITY", "checkpoint_path", "pretrain"]

# Largest update (in operations) that is joined with others on a processor: there Python's overhead matters,
# and a block still ends within a second or two after a notice to stop.
_SHORT_STEP_OPERATIONS = 10**10


@takes_fields_of(PretrainingSettings)
def pretrain(settings: PretrainingSettings) -> None:
    """Pre-trains one seed and writes `run_dir/checkpoints/step_<n>/` in the released format.

    The same call resumes a killed run from its last `run_dir/state/`. A finished run, whose `state/` has
    been removed, is left unchanged. Step n uses batch(data_seed, mask_seed, n) and dropout(dropout_seed,
    n), so the weights do not depend on where the run was interrupted. On SIGTERM or SIGHUP the run finishes
    its step, saves its state and stops; the command then exits with status 75.

    Args:
      settings: the fields of `PretrainingSettings`.

    Raises:
      PreemptedError: SIGTERM or SIGHUP came; the state is saved.

    Reference: Sellam et al., 2022, section 2.1; Devlin et al., 2019, section 3.1 and appendix A.2.
    """
    check_settings(settings)
    parameters, inputs = IDENTITY.on_disk(vars(settings))
    run = RunDirectory(
        settings.run_dir,
        stage="pretrain",
        parameters=parameters,
        inputs=inputs,
        another=functools.partial(advice_for_another_run, settings.run_dir),
    )
    if run.done:
        remove_states(run.path)  # a kill may have prevented their removal
        return

    # The data, opened and checked against the model and the initial checkpoint.
    from multiberts.pretrain.batches.corpus_batches import Batches, steps_per_job
    from multiberts.pretrain.corpus.description import check_corpus
    from multiberts.pretrain.training.held_out_evaluation import evaluate_held_out, open_held_out

    batches = Batches(
        settings.corpus,
        settings.masking,
        data_seed=settings.seed_of("data"),
        batch_size=settings.batch_size,
        mask_seed=settings.mask_seed,
    )
    vocab_size = batches.vocabulary.size
    model = {"vocab_size": vocab_size, **settings.model}
    check_values("pretrain", (
        ("model['vocab_size']", model["vocab_size"], model["vocab_size"] == vocab_size,
         f"{vocab_size}, the size of the corpus's vocabulary, or no such field"),
        ("batch_size", settings.batch_size, settings.batch_size <= batches.num_instances,
         f"at most {batches.num_instances}, the instances of {settings.corpus}"),
    ))  # fmt: skip
    start = None
    if settings.initial_checkpoint is not None:
        start = Checkpoint.open(
            settings.initial_checkpoint, initialise_missing=settings.seed_of("initialisation")
        )
        # The initial checkpoint decides the form of GELU and the number of rows, also rows without a piece.
        model["vocab_size"] = start.config.vocab_size
        model.setdefault("hidden_act", start.config.hidden_act)
    config = BertConfig.from_mapping(model, where="pretrain.model")
    config.check_two_segments("pre-training", "leave it out of pretrain.model")
    if settings.sequence_length > config.max_position_embeddings:
        raise UserError(
            f"pretrain.sequence_length {settings.sequence_length} exceeds the model's "
            f"{config.max_position_embeddings} positions; lower it or raise "
            f"max_position_embeddings in pretrain.model{', from the first phase on' * (start is not None)}"
        )
    if start is not None:
        check_initial_checkpoint(start, config, batches.vocabulary)
    held_out = None
    if settings.evaluation_corpus is not None:
        held_out = open_held_out(
            settings.evaluation_corpus, settings.evaluation_batches, settings.masking, batches
        )
        check_corpus(settings.evaluation_corpus)
    corpus_facts = check_corpus(settings.corpus)

    from multiberts.bert.model.operations import model_flops_per_step

    flops = model_flops_per_step(
        config, settings.batch_size, settings.sequence_length, settings.max_predictions_per_sequence
    )
    with (
        preemption_notice() as should_stop,
        killed_without_steps(
            settings.max_seconds_without_step, "pretrain.max_seconds_without_step", should_stop
        ) as should_stop_after_step,
    ):
        # The trainer first, because devices must be opened before any other use of the engine.
        # On a processor TensorFlow makes long updates one by one.
        is_in_blocks = flops <= _SHORT_STEP_OPERATIONS or engine() == JAX
        trainer = _trainers(
            config,
            settings.compute_dtype,
            TrainerSettings(
                gradient_shards=settings.gradient_shards,
                weight_decay_rate=settings.weight_decay_rate,
                compile_step=settings.compile_step,
                devices=settings.devices,
                steps_per_dispatch=settings.steps_per_dispatch if is_in_blocks else 1,
            ),
        ).take()
        from multiberts.bert.model.initialization import initial_parameters
        from multiberts.bert.training.training_loop import Callbacks, Saving, Schedule, train

        # Checkpoints record no path, time or machine, so that equal runs have equal bytes.
        inherited = {}
        if start is not None:
            # Reading the weights completes the provenance, which is used below.
            start_weights = start.parameters
            inherited = {
                "parent": start.as_parent(),
                **{n: entry for n, entry in start.provenance.items() if n == INITIALISED},
            }
        of_checkpoint = ("procedure", "pretrain_seed", "data_seed")
        recorded_elsewhere = (*of_checkpoint, "model", "checkpoint_steps")
        checkpoints = KeptCheckpoints(
            run.path,
            settings.kept_steps,
            config=config,
            vocabulary=batches.vocabulary,
            provenance={
                **{name: parameters[name] for name in of_checkpoint},
                **inherited,
                "training": {
                    **{n: value for n, value in parameters.items() if n not in recorded_elsewhere},
                    **{f"{name}_sha256": run.identity_of(name) for name in run.inputs},
                },
                "corpus": corpus_facts,
                "engine": engine(),
            },
        )

        # Steps as functions of their number alone.
        treatment = settings.learning_rate_treatment
        schedule = Schedule(
            num_steps=settings.num_steps,
            initial_parameters=lambda: (
                initial_parameters(config, settings.seed_of("initialisation"))
                if start is None
                else start_weights
            ),
            batches_at=batches.batches,
            learning_rate_at=learning_rates(
                treatment=treatment,
                learning_rate=settings.learning_rate,
                warmup_steps=settings.warmup_steps,
                num_steps=settings.num_steps,
                steps_before=steps_before(start, treatment),
            ),
            dropout_seed=settings.seed_of("dropout"),
            batch_threads=settings.batch_threads,
            steps_per_job=steps_per_job(
                settings.batch_threads, settings.batch_size, settings.sequence_length
            ),
        )

        # Evaluation, checkpoints and the log between the steps.
        def evaluate_and_keep(step: int, trainer: Trainer) -> Mapping[str, float]:
            weights: Mapping[str, Any] = trainer.parameters()
            measured: Mapping[str, float] = {}
            if held_out is not None:
                measured = evaluate_held_out(
                    weights,
                    config,
                    held_out,
                    num_batches=settings.evaluation_batches,
                    compile_step=settings.compile_step,
                )
            checkpoints.write(step, weights, measured)
            return measured

        peak = trainer.devices.peak_flops_per_second(settings.compute_dtype)

        def speeds(steps_per_second: float) -> Mapping[str, float]:
            rates = {"sequences_per_second": round(steps_per_second * settings.batch_size, 3)}
            return rates | ({"mfu": round(steps_per_second * flops / peak, 5)} if peak else {})

        with run, trainer:
            checkpoints.check_before(saved_step(run.path))
            train(
                trainer,
                schedule,
                Saving(
                    directory=run.path,
                    save_state_every_steps=settings.save_state_every_steps,
                    save_state_every_seconds=settings.save_state_every_seconds,
                    log_every_steps=settings.log_every_steps,
                    tensorboard=settings.tensorboard,
                ),
                Callbacks(
                    at_steps=settings.evaluated_steps,
                    on_step=evaluate_and_keep,
                    describe_batch=lambda step: (
                        f"instances {' '.join(map(str, batches.instance_ids(step)))} of {batches.corpus}"
                    ),
                    speed_at=speeds,
                    should_stop=should_stop_after_step,
                ),
                description=f"{settings.procedure} seed {settings.pretrain_seed}",
            )
            run.finish(checkpoints.outputs())
            remove_states(run.path)


@functools.lru_cache(maxsize=2)
def _trainers(config: BertConfig, compute_dtype: str, settings: TrainerSettings) -> Trainers:
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.training.engine import new_trainer

    def loss(parameters: Any, batch: Any, dropout_key: Any, backend: Any) -> Any:
        return pretraining_loss(parameters, config, batch, dropout_key, compute_dtype, backend)

    return Trainers(lambda: new_trainer(loss, settings))
