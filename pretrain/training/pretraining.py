"""Pre-training: one seed, from initialisation (or a checkpoint) to its last step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.training.state import remove_states, saved_step
from multiberts.pretrain.training.checkpoints import (
    KeptCheckpoints,
    check_initial_checkpoint,
    checkpoint_path,
    read_initial_checkpoint,
    steps_before,
)
from multiberts.pretrain.training.settings import (
    IDENTITY,
    PretrainingSettings,
    check_positions,
    check_settings,
    learning_rates,
)
from multiberts.runs.directory import RunDirectory
from multiberts.runs.environment import JAX, engine
from multiberts.runs.errors import check_values
from multiberts.runs.parameters import takes_fields_of
from multiberts.runs.preemption import preemption_notice

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import Trainer, TrainerSettings
    from multiberts.bert.training.training_loop import Callbacks, Schedule
    from multiberts.pretrain.batches.corpus_batches import Batches

# `checkpoint_path` is where others look for what this stage makes.
__all__ = ["IDENTITY", "checkpoint_path", "pretrain"]

# Operations of an update up to which Python's share on a processor is worth saving, and blocks of
# them still end within a second or two of a notice to stop.
_SHORT_STEP_OPERATIONS = 10**10


@takes_fields_of(PretrainingSettings)
def pretrain(settings: PretrainingSettings) -> None:
    """Pre-trains one seed and writes `run_dir/checkpoints/step_<n>/` in the released format.

    The same call resumes a run that was killed, from its last `run_dir/state/`, and does nothing to
    one that has finished, whose `state/` is removed. Step n
    uses batch(data_seed, mask_seed, n) and dropout(dropout_seed, n), so the weights do not depend on where
    the run was interrupted. On SIGTERM or SIGHUP the run finishes its step, saves its state and stops; the
    command then exits with status 75.

    Args:
      settings: the fields of `PretrainingSettings`.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written. While it runs: the disk
        is full, or training has diverged; what was saved before is kept.
      PreemptedError: SIGTERM or SIGHUP came; the state is saved.

    Reference: Sellam et al., 2022, section 2; Devlin et al., 2019, section 3.1 and appendix A.2.
    """
    check_settings(settings)
    parameters, inputs = IDENTITY.of(vars(settings))
    run = RunDirectory(settings.run_dir, stage="pretrain", parameters=parameters, inputs=inputs)
    if run.done:
        remove_states(run.path)  # a kill may have come before they were removed
        return
    data = _open_data(settings)
    with preemption_notice() as should_stop:
        # First: devices are opened before anything else of the engine's runs.
        trainer = _trainer(
            data.config, settings.compute_dtype, _trainer_settings(settings, data.config)
        )
        start = None
        if settings.initial_checkpoint is not None:
            start = read_initial_checkpoint(settings.initial_checkpoint)
        kept = _kept_checkpoints(settings, run, data, start)

        from multiberts.bert.training.training_loop import Saving, train

        with run:
            kept.check_before(saved_step(run.path))
            train(
                trainer,
                _schedule(settings, data, start),
                Saving(
                    directory=run.path,
                    save_state_every_steps=settings.save_state_every_steps,
                    save_state_every_seconds=settings.save_state_every_seconds,
                    log_every_steps=settings.log_every_steps,
                    tensorboard=settings.tensorboard,
                ),
                _callbacks(settings, data, kept, trainer, should_stop),
                description=f"{settings.procedure} seed {settings.pretrain_seed}",
            )
            run.finish(kept.outputs())
            remove_states(run.path)


@dataclass(frozen=True)
class _Data:
    """Data that a run trains and is evaluated on, opened and checked.

    Attributes:
      config: the model's sizes, with the corpus's vocabulary.
      held_out: batches of the held-out corpus, if there is one.
      facts: what the corpus records of itself.
    """

    batches: Batches
    config: BertConfig
    held_out: Batches | None
    facts: Mapping[str, Any]


def _open_data(settings: PretrainingSettings) -> _Data:
    """Opens the corpora and checks them against the model and the initial checkpoint."""
    from multiberts.pretrain.batches.corpus_batches import Batches
    from multiberts.pretrain.corpus.description import check_corpus
    from multiberts.pretrain.training.held_out_evaluation import open_held_out

    batches = Batches(
        settings.corpus,
        settings.masking,
        data_seed=settings.seed_of("data"),
        batch_size=settings.batch_size,
        mask_seed=settings.mask_seed,
    )
    vocab_size = batches.tokenizer.size
    check_values(
        "pretrain",
        (
            (
                "model['vocab_size']",
                settings.model.get("vocab_size"),
                settings.model.get("vocab_size", vocab_size) == vocab_size,
                f"{vocab_size}, the size of the corpus's vocabulary, or no such field",
            ),
            (
                "batch_size",
                settings.batch_size,
                settings.batch_size <= batches.num_instances,
                f"at most {batches.num_instances}, the instances of {settings.corpus}",
            ),
        ),
    )
    config = BertConfig.from_mapping(
        {**settings.model, "vocab_size": vocab_size}, where="pretrain.model"
    )
    check_positions(settings.sequence_length, config)
    if settings.initial_checkpoint is not None:
        check_initial_checkpoint(settings.initial_checkpoint, config, batches.vocabulary_path)
    held_out = None
    if settings.evaluation_corpus is not None:
        held_out = open_held_out(
            settings.evaluation_corpus, settings.evaluation_batches, settings.masking, batches
        )
        check_corpus(settings.evaluation_corpus)
    return _Data(batches, config, held_out, check_corpus(settings.corpus))


def _kept_checkpoints(
    settings: PretrainingSettings, run: RunDirectory, data: _Data, start: Checkpoint | None
) -> KeptCheckpoints:
    """Returns the checkpoints of the run, which record its parameters: no path, time or machine."""
    from multiberts.bert.checkpoint.checkpoint import ancestor

    parent = start and ancestor(start.provenance, run.fingerprints["initial_checkpoint"])
    parameters = IDENTITY.of(vars(settings))[0]
    of_checkpoint = ("procedure", "pretrain_seed", "data_seed")
    recorded_elsewhere = (*of_checkpoint, "model", "checkpoint_steps")
    return KeptCheckpoints(
        run.path,
        settings.kept_steps,
        config=data.config,
        vocabulary_path=data.batches.vocabulary_path,
        provenance={
            **{name: parameters[name] for name in of_checkpoint},
            **({"parent": parent} if parent else {}),
            "training": {
                **{n: value for n, value in parameters.items() if n not in recorded_elsewhere},
                **{f"{name}_sha256": content for name, content in run.fingerprints.items()},
            },
            "corpus": data.facts,
            "engine": engine(),
        },
    )


def _schedule(settings: PretrainingSettings, data: _Data, start: Checkpoint | None) -> Schedule:
    """Returns what each step does, from the initialisation or the initial checkpoint on."""
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.bert.training.training_loop import Schedule
    from multiberts.pretrain.batches.corpus_batches import steps_per_job

    treatment = settings.learning_rate_treatment
    return Schedule(
        num_steps=settings.num_steps,
        initial_parameters=lambda: (
            initial_parameters(data.config, settings.seed_of("initialisation"))
            if start is None
            else start.parameters
        ),
        batches_at=data.batches.batches,
        learning_rate_at=learning_rates(
            treatment=treatment,
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup_steps,
            num_steps=settings.num_steps,
            steps_before=steps_before(start, treatment, settings.initial_checkpoint),
        ),
        dropout_seed=settings.seed_of("dropout"),
        batch_threads=settings.batch_threads,
        steps_per_job=steps_per_job(
            settings.batch_threads, settings.batch_size, settings.sequence_length
        ),
    )


def _callbacks(
    settings: PretrainingSettings,
    data: _Data,
    kept: KeptCheckpoints,
    trainer: Trainer,
    should_stop: Callable[[], bool],
) -> Callbacks:
    """Returns what the loop calls: evaluation and checkpoints, and what it logs and watches."""
    from multiberts.bert.training.training_loop import Callbacks

    return Callbacks(
        at_steps=settings.evaluated_steps,
        on_step=functools.partial(_evaluate_and_keep, settings, data, kept),
        describe_batch=lambda step: (
            f"instances {' '.join(map(str, data.batches.instance_ids(step)))} of {data.batches.corpus}"
        ),
        speed_at=_speeds(settings, data.config, trainer),
        should_stop=should_stop,
    )


def _evaluate_and_keep(
    settings: PretrainingSettings, data: _Data, kept: KeptCheckpoints, step: int, trainer: Trainer
) -> Mapping[str, float]:
    """Evaluates on held-out text, if there is any, and writes the checkpoint, if it is to be kept."""
    from multiberts.pretrain.training.held_out_evaluation import evaluate_held_out

    weights: Mapping[str, Any] = trainer.parameters()
    measured: Mapping[str, float] = {}
    if data.held_out is not None:
        measured = evaluate_held_out(
            weights,
            data.config,
            data.held_out,
            num_batches=settings.evaluation_batches,
            compile_step=settings.compile_step,
        )
    kept.write(step, weights, measured)
    return measured


def _speeds(
    settings: PretrainingSettings, config: BertConfig, trainer: Trainer
) -> Callable[[float], Mapping[str, float]]:
    """Returns what gives, from updates per second, sequences per second and the share of the peak."""
    batch_size, flops = settings.batch_size, _step_operations(settings, config)
    peak = trainer.devices.peak_flops_per_second(settings.compute_dtype)

    def at(steps_per_second: float) -> Mapping[str, float]:
        speeds = {"sequences_per_second": round(steps_per_second * batch_size, 3)}
        if peak:
            speeds["mfu"] = round(steps_per_second * flops / peak, 5)
        return speeds

    return at


def _step_operations(settings: PretrainingSettings, config: BertConfig) -> int:
    from multiberts.bert.model.operations import model_flops_per_step

    return model_flops_per_step(
        config,
        settings.batch_size,
        settings.sequence_length,
        settings.max_predictions_per_sequence,
    )


def _trainer_settings(settings: PretrainingSettings, config: BertConfig) -> TrainerSettings:
    from multiberts.bert.training.engine import TrainerSettings

    # TensorFlow, on a processor, makes long updates one by one.
    is_short = _step_operations(settings, config) <= _SHORT_STEP_OPERATIONS
    return TrainerSettings(
        gradient_shards=settings.gradient_shards,
        weight_decay_rate=settings.weight_decay_rate,
        compile_step=settings.compile_step,
        devices=settings.devices,
        steps_per_dispatch=settings.steps_per_dispatch if is_short or engine() == JAX else 1,
    )


@functools.lru_cache(maxsize=2)
def _trainer(config: BertConfig, compute_dtype: str, settings: TrainerSettings) -> Trainer:
    """Returns the compiled trainer, shared by all runs of the same model in this process."""
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.training.engine import new_trainer

    def loss(parameters: Any, batch: Any, dropout_key: Any, backend: Any) -> Any:
        return pretraining_loss(parameters, config, batch, dropout_key, compute_dtype, backend)

    return new_trainer(loss, settings)
