"""Fine-tuning: from a checkpoint and a task's data to per-example predictions."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multiberts.bert.checkpoint.checkpoint import (
    INITIALISED,
    Checkpoint,
    read_checkpoint,
)
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.randomness import hash_bits
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.evaluate.prediction_files.run_file import (
    RUN_FILE,
    evaluation_entry,
    files_of,
    set_at,
    write_run,
)
from multiberts.evaluate.prediction_files.text_file import write_texts
from multiberts.finetune.checkpoint_heads import POOLER
from multiberts.finetune.data_files import FileContent, refuse_repeated_files
from multiberts.finetune.kept_model import MODEL, KeptModel, model_files
from multiberts.finetune.outputs import STATE, Entries, note_early, provenance, written_early
from multiberts.finetune.rows import TrainingRows
from multiberts.finetune.settings import IDENTITY as IDENTITY
from multiberts.finetune.settings import FinetuningSettings, family_of, run_parameters, task_of
from multiberts.finetune.task import HELD_OUT, EvaluationSet, Learner
from multiberts.finetune.training_options import RECIPE
from multiberts.runs.console import progress
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove
from multiberts.runs.parameters import takes_fields_of
from multiberts.runs.preemption import preemption_notice

if TYPE_CHECKING:
    from multiberts.bert.training.engine import Trainer


@takes_fields_of(FinetuningSettings)
def finetune(settings: FinetuningSettings) -> None:
    """Fine-tunes a checkpoint on a task and writes its predictions on the evaluation sets.

    The same call resumes a run that was killed and does nothing to one that has finished. Order,
    head and dropout are functions of their seeds and the step, so the predictions do not depend on
    where the run was interrupted. On SIGTERM or SIGHUP it saves its state and exits.

    Outputs in run_dir: `predictions/<evaluation set>.tfrecord`, `texts/<evaluation set>.tfrecord.gz`,
    `run.json`, `metrics.jsonl`, and with `keep` the checkpoint `model`.

    Args:
      settings: the fields of `FinetuningSettings`.

    Raises:
      PreemptedError: SIGTERM or SIGHUP came; the state is saved.

    Reference: Sellam et al. 2022, sections 3 and 4; Devlin et al. 2019, appendix A.3; Webster et al.
    2020, section 4 (coreference); Zhong et al. 2021, section 2 (early and held-out predictions).
    """
    # Everything that identifies the run is in the directory's name and parameters.
    call = settings.call()
    task = task_of(call)
    settings.check_task(task)
    checkpoint = checkpoint_directory(settings.checkpoint)
    family = family_of(call)
    parameters = run_parameters(call, family)
    opened = Checkpoint.open(checkpoint)
    inputs = family.inputs()
    run = RunDirectory(
        settings.run_dir,
        stage="finetune",
        parameters=parameters,
        inputs={"checkpoint": checkpoint, **inputs},
        call=call,
    )
    if run.done:
        remove(run.path / STATE)  # a kill may have come before it was removed
        return

    # All data are read and found good before TensorFlow is imported, which takes seconds.
    if settings.dataset is None:
        refuse_repeated_files(inputs)
    vocabulary = opened.vocabulary
    data = family.read(opened.config, vocabulary)
    rows = TrainingRows.of(data.train_groups, settings) if task.trains else None

    # Data and weights together can be trained and asked.
    content = FileContent.of(checkpoint)
    start = _checkpoint(content, vocabulary)
    learner = data.learner(
        start,
        fingerprint=content.checksum,
        finetune_seed=settings.seed_of("head") if task.trains else 0,
        compile_step=settings.compile_step,
        training=settings.training_options() if task.trains else RECIPE,
    )
    if POOLER[0] not in start.parameters and POOLER[0] in learner.initial_parameters():
        drawn = {"finetune_seed": settings.seed_of("head"), "variables": sorted(POOLER)}
        start = copy.copy(start)  # with the weights that were read
        start.provenance = {**start.provenance, INITIALISED: drawn}
        progress(
            f"note: {checkpoint} lacks the pooler ({POOLER[0]}), as models of masked words do: finetune_seed "
            f"{drawn['finetune_seed']} draws it as it draws the head"
        )
    held_out = np.zeros(0, np.int64) if rows is None else rows.held_out
    if len(held_out) and learner.evaluate_rows is None:
        raise UserError(
            f"task {settings.task} cannot predict training examples; leave finetune.held_out_fold out"
        )
    kept = KeptModel.of(
        settings,
        task,
        learner,
        start,
        content.checksum,
        HELD_OUT if len(held_out) else None,
        () if rows is None else sorted(rows.early_predictions(settings)),
    )
    if earlier := start.provenance.get(FINE_TUNED):
        progress(
            f"{checkpoint} was fine-tuned on {earlier['task'] or 'another task'}: its encoder is taken, the "
            "head is new"
        )

    def predicted(weights: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
        yield from learner.evaluate(weights)
        if len(held_out) and learner.evaluate_rows is not None:
            yield learner.evaluate_rows(weights, held_out)

    with preemption_notice() as should_stop, run:
        if run.done:  # by another process, since the first look
            return
        if rows is None:
            entries = write_sets(run.path, predicted(learner.initial_parameters()))
        else:
            entries = _train(settings, learner, rows, predicted, kept, should_stop)

        # The marker `DONE` comes last: a run without it is not finished.
        record = {
            "task": settings.task,
            "evaluation_sets": entries,
            "learning_rate": settings.learning_rate if task.trains else 0.0,
            "finetune_seed": settings.finetune_seed if task.trains else 0,
            "num_train_examples": 0 if rows is None else rows.used,
            **({"kept_model": {"directory": MODEL, "epochs": kept.epochs()}} if kept else {}),
            **provenance(checkpoint, start.provenance, vocabulary, parameters, inputs),
        }
        # After all the predictions that it lists.
        write_run(run.path, record)
        run.finish([RUN_FILE, *files_of(entries), *(model_files(run.path) if kept else ())])
        remove(run.path / STATE)


def _train(
    settings: FinetuningSettings,
    learner: Learner,
    rows: TrainingRows,
    predicted: Callable[[Mapping[str, np.ndarray]], Iterator[EvaluationSet]],
    kept: KeptModel | None,
    should_stop: Callable[[], bool],
) -> Entries:
    """Trains to the last step and predicts, also on the way; returns the entries in run.json."""
    from multiberts.bert.model.optimization import learning_rate_schedule
    from multiberts.bert.training.state import save_state, saved_step
    from multiberts.bert.training.training_loop import Callbacks, Saving, Schedule, train

    trainer, run_dir = learner.trainer, Path(settings.run_dir)
    assert trainer is not None
    num_steps, num_epochs = rows.total_steps(settings), settings.num_epochs
    if num_steps < rows.num_steps(num_epochs):
        num_epochs = num_steps * settings.batch_size / rows.used
    # Cut, not rounded, as google-research/bert's `run_classifier.py`.
    warmup_steps = int(num_steps * settings.warmup_proportion)
    step_of = rows.early_predictions(settings)

    def predict_early(step: int, trainer: Trainer) -> None:
        weights = trainer.parameters()
        for epochs, due in step_of.items():
            # An earlier start of the run may have come as far.
            if due == step and written_early(run_dir, epochs) is None:
                entries = write_sets(run_dir, predicted(weights), epochs=epochs)
                if kept is not None:
                    kept.offer(weights, entries, epochs)
                note_early(run_dir, epochs, entries)  # last: what is noted is not made again

    def has_ended() -> bool:
        return kept is not None and kept.has_lost_patience()

    train(
        trainer,
        Schedule(
            num_steps=num_steps,
            initial_parameters=learner.initial_parameters,
            batches_at=lambda steps: [learner.batch(rows.batch(step)) for step in steps],
            learning_rate_at=lambda step: learning_rate_schedule(
                step, settings.learning_rate, warmup_steps, num_steps, settings.learning_rate_decay
            ),
            # An address of its own, so that no dropout is shared with the pre-training seed of that number.
            dropout_seed=int(hash_bits("finetune dropout", settings.seed_of("dropout"))),
        ),
        Saving(
            directory=run_dir,
            save_state_every_steps=settings.save_state_every_steps,
            log_every_steps=settings.log_every_steps,
            tensorboard=settings.tensorboard,
        ),
        Callbacks(
            at_steps=set(step_of.values()),
            on_step=predict_early,
            should_stop=should_stop,
            has_ended=has_ended,
        ),
        description=f"{settings.task} seed {settings.finetune_seed}",
    )
    # So that a long training is not lost if the run is stopped while it predicts.
    if num_steps >= settings.save_state_every_steps and saved_step(run_dir) < trainer.step_count:
        save_state(trainer.state(), run_dir)

    entries: Entries = {}
    for epochs in step_of:
        entries |= written_early(run_dir, epochs) or {}
    weights = trainer.parameters()
    if not has_ended():
        last = write_sets(run_dir, predicted(weights))
        if kept is None or kept.offer(weights, last, num_epochs, is_last=True):
            return {**entries, **last}
    # An early model was the best: its predictions are the run's.
    assert kept is not None
    return {**entries, **write_sets(run_dir, predicted(kept.read(weights)))}


def write_sets(
    run_dir: Path, evaluation_sets: Iterable[EvaluationSet], *, epochs: float | None = None
) -> Entries:
    """Writes the predictions of a trained model, or of one on its way.

    Args:
      epochs: how long it has been trained; None at the end of training.

    Returns:
      The entries of `evaluation_sets` in run.json, by name.
    """
    entries: Entries = {}
    for predicted in evaluation_sets:
        name = predicted.name if epochs is None else set_at(predicted.name, epochs)
        file = f"predictions/{name}.tfrecord"
        write_predictions(
            run_dir / file,
            example_ids=predicted.example_ids,
            labels=predicted.labels,
            predictions=predicted.predictions,
            scores=predicted.scores,
            extras=predicted.extras,
            outputs=predicted.outputs,
        )
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


@functools.lru_cache(maxsize=1)
def _checkpoint(content: FileContent, vocabulary: Vocabulary) -> Checkpoint:
    """Returns the weights, read once for consecutive runs that start from them."""
    del vocabulary  # a key: the same weights may be next to files of another case
    return read_checkpoint(content.path)
