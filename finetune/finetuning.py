"""Fine-tuning: from a checkpoint and a task's data to per-example predictions."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from multiberts.bert.checkpoint.checkpoint import INITIALISED, Checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.model.optimization import learning_rate_schedule
from multiberts.bert.randomness import hash_bits
from multiberts.bert.training.state import DeviceWeights, save_state, saved_step
from multiberts.bert.training.training_loop import Callbacks, Saving, Schedule, train
from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.evaluate.prediction_files.run_file import (
    RUN_FILE,
    check_set_names,
    evaluation_entry,
    files_of,
    set_at,
    write_run,
)
from multiberts.evaluate.prediction_files.text_file import write_texts
from multiberts.finetune.data_files import refuse_repeated_files
from multiberts.finetune.fine_tuned_model import MODEL, FineTunedModel, model_files
from multiberts.finetune.model import POOLER, EvaluationSet, TrainableModel
from multiberts.finetune.outputs import (
    STATE,
    Entries,
    facts_of_start,
    note_early,
    provenance,
    recorded,
    written_early,
)
from multiberts.finetune.rows import TrainingRows
from multiberts.finetune.settings import IDENTITY as IDENTITY
from multiberts.finetune.settings import (
    NAMED,
    FinetuningSettings,
    data_of,
    task_of,
    with_data,
)
from multiberts.runs.console import progress
from multiberts.runs.directory import RunDirectory
from multiberts.runs.files import remove
from multiberts.runs.identity import check_unchanged
from multiberts.runs.parameters import leaves, takes_fields_of
from multiberts.runs.preemption import preemption_notice

if TYPE_CHECKING:
    from multiberts.bert.training.engine import Trainer


@takes_fields_of(FinetuningSettings)
def finetune(settings: FinetuningSettings) -> None:
    """Fine-tunes a checkpoint on a task and writes its predictions on the evaluation sets.

    The same call resumes an interrupted run and does nothing if the run has finished. Order, head and
    dropout are functions of their seeds and the step, so the predictions do not depend on
    interruptions. On SIGTERM or SIGHUP it saves its state and exits.

    Outputs in run_dir: `predictions/<evaluation set>.tfrecord`, `texts/<evaluation set>.tfrecord.gz`,
    `run.json`, `metrics.jsonl`, and with `keep` the checkpoint `model`.

    Args:
      settings: the fields of `FinetuningSettings`.

    Raises:
      PreemptedError: SIGTERM or SIGHUP came; the state is saved.

    Reference: Sellam et al. 2022, sections 2.2 and 4; Devlin et al. 2019, appendix A.3; Webster et al.
    2020, section 4 (coreference); Zhong et al. 2021, appendix A (early and held-out predictions).
    """
    # The run's identity: a directory that holds another run's parameters is refused here, before any work.
    call = settings.call()
    task = task_of(call)
    settings.check_task(task)
    data = data_of(call)
    parameters, paths = with_data(*IDENTITY.of(call), data)
    inputs = IDENTITY.open(paths, settings.run_dir)
    run = RunDirectory(
        settings.run_dir, stage="finetune", parameters=parameters, inputs=inputs, call=call
    )
    if run.done:
        remove(run.path / STATE)  # the process may have been killed before it removed the state
        return

    # The data, checked before TensorFlow is imported, so that bad data is reported without those seconds.
    if settings.dataset is None:
        refuse_repeated_files(inputs)
    start = _same_weights(inputs.pop("checkpoint"), settings.checkpoint)
    model = data.read(start)
    check_unchanged(*leaves(inputs))
    model.compile_step = settings.compile_step
    rows, trained = None, None
    if task.trains:
        trained = cast("TrainableModel", model)
        rows = TrainingRows.of(trained.train_groups, settings)
        trained.training, trained.rows = settings.training_options(), rows.trained

    # The model before the first step. A run without training predicts with these weights.
    trainer = None if trained is None else trained.trainer
    first_weights = model.initial_parameters(settings.seed_of("head") if rows else 0)
    start = _as_recorded(start, settings, first_weights)
    step_of = rows.early_predictions(settings) if rows else {}
    last_epoch = rows.total_epochs(settings) if rows else 0
    predicted = model.evaluate
    if rows is not None and trained is not None:
        predicted = functools.partial(trained.predicted, held_out=rows.held_out)
    tuned = FineTunedModel.of(settings, task, model, start, sorted(step_of))

    def predict_early(step: int, trainer: Trainer) -> None:
        weights = trainer.parameters()
        for epochs, due in step_of.items():
            # A resumed run may pass steps whose predictions it has already written.
            if due == step and written_early(run.path, epochs) is None:
                entries = write_sets(run.path, predicted(weights), epochs=epochs)
                if tuned is not None:
                    tuned.offer(weights, entries, epochs)
                # Last, as noted predictions are not written again.
                note_early(run.path, epochs, entries)

    has_ended = (lambda: False) if tuned is None else tuned.has_lost_patience

    with preemption_notice() as should_stop, run, trainer or contextlib.nullcontext():
        if run.done:  # another process may have finished it since the check above
            return

        # Training.
        if rows is not None and trained is not None and trainer is not None:
            num_steps, learning_rate = rows.total_steps(settings), settings.learning_rate
            # Truncated, not rounded, as in google-research/bert's `run_classifier.py`.
            warmup_steps = int(num_steps * settings.warmup_proportion)
            train(
                trainer,
                Schedule(
                    num_steps=num_steps,
                    initial_parameters=lambda: first_weights,
                    batches_at=lambda steps: [trained.batch(rows.batch(step)) for step in steps],
                    learning_rate_at=lambda step: learning_rate_schedule(
                        step, learning_rate, warmup_steps, num_steps, settings.learning_rate_decay
                    ),
                    # Hashed, so that fine-tuning shares no dropout masks with the pre-training seed of
                    # the same number.
                    dropout_seed=int(hash_bits("finetune dropout", settings.seed_of("dropout"))),
                ),
                Saving(
                    directory=run.path,
                    save_state_every_steps=settings.save_state_every_steps,
                    log_every_steps=settings.log_every_steps,
                    tensorboard=settings.tensorboard,
                ),
                Callbacks(
                    at_steps={*step_of.values()},
                    on_step=predict_early,
                    should_stop=should_stop,
                    has_ended=has_ended,
                ),
                description=f"{settings.task} seed {settings.finetune_seed}",
            )
            # A run that is stopped while it predicts must not lose a long training.
            if (
                settings.save_state_every_steps <= num_steps
                and saved_step(run.path) < trainer.step_count
            ):
                save_state(trainer.state(), run.path)

        # Predictions of the last model, or of a better early one. If patience ended training, the last
        # model was already scored as an early one.
        early = [written_early(run.path, epochs) or {} for epochs in step_of]
        entries = {name: entry for each in early for name, entry in each.items()}
        weights = DeviceWeights(first_weights) if trainer is None else trainer.parameters()
        is_best = not has_ended()
        if is_best:
            last = write_sets(run.path, predicted(weights))
            is_best = tuned is None or tuned.offer(weights, last, last_epoch, is_last=True)
        if tuned is not None and not is_best:
            last = write_sets(run.path, predicted(tuned.read(weights)))
        entries |= last

        # `DONE` comes last: a directory without it is an unfinished run, which the same call resumes.
        record = {
            "task": settings.task,
            "evaluation_sets": entries,
            "learning_rate": settings.learning_rate if rows else 0.0,
            "finetune_seed": settings.finetune_seed if rows else 0,
            "num_train_examples": rows.used if rows else 0,
            **({"kept_model": {"directory": MODEL, "epochs": tuned.epochs()}} if tuned else {}),
            **provenance(start, facts_of_start(start), parameters, inputs=recorded(inputs)),
        }
        # After the predictions, whose checksums it lists.
        write_run(run.path, record)
        run.finish([RUN_FILE, *files_of(entries), *(model_files(run.path) if tuned else ())])
        remove(run.path / STATE)


def write_sets(
    run_dir: Path, evaluation_sets: Iterable[EvaluationSet], *, epochs: float | None = None
) -> Entries:
    """Writes predictions of a model during or after training.

    Args:
      epochs: epochs of training so far; None at the end.

    Returns:
      The entries of `evaluation_sets` in run.json, by name.

    Raises:
      UserError: sets have one name, or one that a file cannot have; nothing has been written.
    """
    entries: Entries = {}
    sets = list(evaluation_sets)
    check_set_names([predicted.name for predicted in sets])
    for predicted in sets:
        name = predicted.name if epochs is None else set_at(predicted.name, epochs)
        file = f"predictions/{name}.tfrecord"
        columns = ("example_ids", "labels", "predictions", "scores", "extras", "outputs")
        write_predictions(run_dir / file, **{name: getattr(predicted, name) for name in columns})
        entries[name] = evaluation_entry(
            run_dir,
            file,
            examples=len(predicted.example_ids),
            metrics=predicted.metrics,
            evaluation_set=None if epochs is None else predicted.name,
            epochs=epochs,
            texts=write_texts(run_dir, predicted.name, predicted.example_ids, predicted.texts)
            if predicted.texts
            else None,
        )
    return entries


# Consecutive runs of a process that start from the same weights, such as seeds of a sweep, read them once.
@functools.lru_cache(maxsize=1)
def _same_weights(start: Checkpoint, _name: str) -> Checkpoint:
    """Returns the previous call's checkpoint, if it is the same in the same place, with its weights."""
    return start


def _as_recorded(
    start: Checkpoint, settings: FinetuningSettings, first_weights: Iterable[str]
) -> Checkpoint:
    """Returns a checkpoint with the provenance that the run records; notes what a user may not expect."""
    recorded = copy.copy(start)  # with the weights that were read
    names = {name: getattr(settings, name) for name in NAMED}
    recorded.provenance = start.provenance | {
        name: value for name, value in names.items() if value is not None
    }
    if POOLER[0] in first_weights and POOLER[0] not in start.parameters:
        seed = settings.seed_of("head")
        recorded.provenance[INITIALISED] = {"finetune_seed": seed, "variables": sorted(POOLER)}
        progress(
            f"note: {start.directory} lacks the pooler ({POOLER[0]}), as models of masked words do: "
            f"finetune_seed {seed} initialises it like the head"
        )
    if earlier := start.provenance.get(FINE_TUNED):
        progress(
            f"{start.directory} was fine-tuned on {earlier['task'] or 'another task'}: training starts from "
            "its encoder, with a new head"
        )
    return recorded
