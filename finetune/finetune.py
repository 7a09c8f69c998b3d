"""Fine-tuning: from a checkpoint and a task's data to per-example predictions."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.randomness import hash_bits
from multiberts.evaluate.dumps.run_file import RUN_FILE, files_of, write_run
from multiberts.finetune.data_files import FileContent, refuse_repeated_files
from multiberts.finetune.kept_model import MODEL, MODEL_FILES, KeptModel
from multiberts.finetune.outputs import (
    STATE,
    Entries,
    note_early,
    provenance,
    write_sets,
    written_early,
)
from multiberts.finetune.rows import TrainingRows
from multiberts.finetune.settings import IDENTITY as IDENTITY
from multiberts.finetune.settings import FinetuningSettings, family_of, run_parameters, task_of
from multiberts.finetune.task import HELD_OUT, EvaluationSet, Learner
from multiberts.finetune.training_options import RECIPE, TrainingOptions
from multiberts.runs.console import progress
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import remove
from multiberts.runs.parameters import takes_fields_of
from multiberts.runs.preemption import preemption_notice

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import Trainer


@takes_fields_of(FinetuningSettings)
def finetune(settings: FinetuningSettings) -> None:
    """Fine-tunes a checkpoint on a task and writes its predictions on the evaluation sets.

    The same call resumes a run that was killed and does nothing to one that has finished. Order,
    head and dropout are functions of finetune_seed and the step, so the predictions do not depend on
    where the run was interrupted. On SIGTERM it saves its state and exits.

    Outputs in run_dir: `predictions/<evaluation set>.tfrecord`, `texts/<evaluation set>.tfrecord.gz`,
    `run.json`, `metrics.jsonl`, and with `keep` the checkpoint `model`.

    Args:
      settings: the fields of `FinetuningSettings`.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written.
      PreemptedError: SIGTERM came; the state is saved.

    Reference: Sellam et al. 2022, sections 3 and 4; Devlin et al. 2019, appendix A.3; Webster et al.
    2020, section 4 (coreference); Zhong et al. 2021, section 2 (early and held-out predictions).
    """
    from multiberts.bert.checkpoint.checkpoint import VOCABULARY, check_checkpoint
    from multiberts.bert.checkpoint.hub import checkpoint_directory

    call = settings.call()
    task = task_of(call)
    checkpoint, trains = checkpoint_directory(settings.checkpoint), task.trains
    if settings.keep != "none" and not trains:
        raise UserError(
            f"finetune.keep is {settings.keep!r}, but task {settings.task} trains nothing that could be "
            "kept; leave it out"
        )
    if task.frozen_encoder and trains and settings.training_options() != RECIPE:
        names = ", ".join(field.name for field in dataclasses.fields(TrainingOptions))
        raise UserError(
            f"task {settings.task} trains a head on the states of a frozen encoder, which takes none of the "
            f"options {names}; leave them out"
        )
    family = family_of(call)
    parameters = run_parameters(call, family)
    config = check_checkpoint(checkpoint)
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
    if settings.dataset is None:
        refuse_repeated_files(inputs)
    data = family.read(config, FileContent.of(checkpoint / VOCABULARY))
    rows = _training_rows(settings, data.train_groups) if trains else None
    start = FileContent.of(checkpoint)
    learner = data.learner(
        _checkpoint(start),
        fingerprint=start.checksum,
        finetune_seed=settings.finetune_seed if trains else 0,
        compile_step=settings.compile_step,
        training=settings.training_options() if trains else RECIPE,
    )
    evaluated = _Evaluated.of(learner, rows, settings.task)
    held_out = HELD_OUT if len(evaluated.held_out) else None
    kept = KeptModel.of(settings, task, learner, _checkpoint(start), start.checksum, held_out)
    if earlier := _checkpoint(start).provenance.get(FINE_TUNED):
        progress(
            f"{checkpoint} was fine-tuned on {earlier['task'] or 'another task'}: its encoder is taken, the "
            "head is new"
        )
    with preemption_notice() as should_stop, run:
        if run.done:  # by another process, since the first look
            return
        if rows is None:
            entries = write_sets(run.path, evaluated(learner.initial_parameters()))
        else:
            entries = _train(settings, learner, rows, evaluated, kept, should_stop)
        content = {
            "task": settings.task,
            "evaluation_sets": entries,
            "learning_rate": settings.learning_rate if trains else 0.0,
            "finetune_seed": settings.finetune_seed if trains else 0,
            "num_train_examples": 0 if rows is None else rows.used,
            **({"kept_model": {"directory": MODEL, "epochs": kept.epochs()}} if kept else {}),
            **provenance(checkpoint, _checkpoint(start).provenance, parameters, inputs),
        }
        write_run(run.path, content)
        run.finish([RUN_FILE, *files_of(entries), *(MODEL_FILES if kept else ())])
        remove(run.path / STATE)


def _training_rows(settings: FinetuningSettings, groups: np.ndarray) -> TrainingRows:
    """Returns the rows to train on; `groups` numbers the example of each.

    Raises:
      UserError: they do not fill a batch, or are passed over for less than one.
    """
    rows = TrainingRows.of(
        groups,
        task=settings.task,
        finetune_seed=settings.finetune_seed,
        max_train_examples=settings.max_train_examples,
        held_out_fold=settings.held_out_fold,
    )
    if settings.batch_size > rows.used:
        raise UserError(
            f"finetune.batch_size is {settings.batch_size}, but there are "
            f"{counted(rows.used, 'example')} to train "
            f"on, so that a batch would repeat some; give {rows.used} or less"
        )
    given = [("num_epochs", settings.num_epochs)]
    given += [("prediction_epochs", epochs) for epochs in settings.prediction_epochs]
    for epochs in settings.prediction_epochs:
        steps = rows.num_steps(epochs, settings.batch_size)
        if settings.max_steps is not None and steps >= settings.max_steps:
            raise UserError(
                f"finetune.prediction_epochs has {epochs:g}, which is step {steps}, but finetune.max_steps "
                f"is {settings.max_steps}, and at the end predictions are made anyway; correct either"
            )
    for name, epochs in given:
        if rows.num_steps(epochs, settings.batch_size) < 1:
            raise UserError(
                f"finetune.{name} has {epochs:g}, but an epoch of {counted(rows.used, 'example')} is "
                f"{rows.used / settings.batch_size:g} steps, so that nothing would be trained; give "
                f"{math.ceil(1000 * settings.batch_size / rows.used) / 1000:g} or more"
            )
    return rows


@functools.lru_cache(maxsize=1)
def _checkpoint(content: FileContent) -> Checkpoint:
    """Returns the weights, read once for consecutive runs that start from them."""
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    return read_checkpoint(content.path)


@dataclasses.dataclass(frozen=True)
class _Evaluated:
    """Weights -> predictions on all sets of a run, the held-out examples among them."""

    learner: Learner
    held_out: np.ndarray

    @classmethod
    def of(cls, learner: Learner, rows: TrainingRows | None, task: str) -> _Evaluated:
        """Refuses to hold out examples that the task cannot predict."""
        held_out = np.zeros(0, np.int64) if rows is None else rows.held_out
        if len(held_out) and learner.evaluate_rows is None:
            raise UserError(
                f"task {task} cannot predict training examples; leave finetune.held_out_fold out"
            )
        return cls(learner, held_out)

    def __call__(self, weights: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
        yield from self.learner.evaluate(weights)
        if len(self.held_out) and self.learner.evaluate_rows is not None:
            yield self.learner.evaluate_rows(weights, self.held_out)


def _train(
    settings: FinetuningSettings,
    learner: Learner,
    rows: TrainingRows,
    evaluated: _Evaluated,
    kept: KeptModel | None,
    should_stop: Callable[[], bool],
) -> Entries:
    """Trains to the last step and predicts; returns the entries in run.json, early ones first."""
    from multiberts.bert.model.optimization import learning_rate_schedule
    from multiberts.bert.training.state import save_state, saved_step
    from multiberts.bert.training.train import Callbacks, Saving, Schedule, train

    assert learner.trainer is not None
    run_dir = Path(settings.run_dir)
    batch_size, save_every = settings.batch_size, settings.save_state_every_steps
    num_steps, num_epochs = rows.num_steps(settings.num_epochs, batch_size), settings.num_epochs
    if settings.max_steps is not None and settings.max_steps < num_steps:
        num_steps = settings.max_steps
        num_epochs = num_steps * batch_size / rows.used
    warmup_steps = int(num_steps * settings.warmup_proportion)
    early = _EarlyPredictions(
        run_dir,
        evaluated,
        [(rows.num_steps(n, batch_size), n) for n in settings.prediction_epochs],
        kept,
    )
    schedule = Schedule(
        num_steps=num_steps,
        initial_parameters=learner.initial_parameters,
        batches_at=lambda steps: [learner.batch(rows.batch(step, batch_size)) for step in steps],
        learning_rate_at=lambda step: learning_rate_schedule(
            step, settings.learning_rate, warmup_steps, num_steps
        ),
        # An address of its own, so that no dropout is shared with the pre-training seed of that number.
        dropout_seed=int(hash_bits("finetune dropout", settings.finetune_seed)),
    )
    train(
        learner.trainer,
        schedule,
        Saving(
            directory=run_dir,
            save_state_every_steps=save_every,
            log_every_steps=settings.log_every_steps,
            tensorboard=settings.tensorboard,
        ),
        Callbacks(
            at_steps=early.steps,
            on_step=early.predict,
            should_stop=should_stop,
            has_ended=early.has_ended,
        ),
        description=f"{settings.task} seed {settings.finetune_seed}",
    )
    # So that a long training is not lost if the run is stopped while it predicts.
    if num_steps >= save_every and saved_step(run_dir) < learner.trainer.step_count:
        save_state(learner.trainer.state(), run_dir, keep_last=1)
    last = early.predict_last(learner.trainer.parameters(), num_epochs)
    return {**early.entries(), **last}


@dataclasses.dataclass(frozen=True)
class _EarlyPredictions:
    """Predictions of a model that is trained further afterwards.

    Attributes:
      run_dir: the run's directory.
      evaluated: weights -> predictions.
      points: (number of updates, number of epochs) of each.
      kept: the model that the run keeps.
    """

    run_dir: Path
    evaluated: _Evaluated
    points: Sequence[tuple[int, float]]
    kept: KeptModel | None

    @property
    def steps(self) -> set[int]:
        return {step for step, _ in self.points}

    def predict(self, step: int, trainer: Trainer) -> None:
        """Writes all that is due after so many updates, unless an earlier start of the run has."""
        weights = trainer.parameters()
        for due, epochs in self.points:
            if due == step and written_early(self.run_dir, epochs) is None:
                before = self._scores()
                entries = write_sets(self.run_dir, self.evaluated(weights), epochs=epochs)
                if self._is_better(entries, epochs, before):
                    assert self.kept is not None
                    self.kept.write(weights, epochs)
                # Last: what is noted is not made again.
                note_early(self.run_dir, epochs, entries)

    def has_ended(self) -> bool:
        """Returns whether no better model is waited for."""
        return self.kept is not None and self.kept.has_lost_patience(self._scores())

    def predict_last(self, weights: Mapping[str, np.ndarray], num_epochs: float) -> Entries:
        """Writes the predictions of the last model, or of the best one, and keeps that model.

        Args:
          weights: of the last model.
          num_epochs: of the whole training.

        Returns:
          The entries in run.json.
        """
        if not self.has_ended():
            entries = write_sets(self.run_dir, self.evaluated(weights))
            if self.kept is None:
                return entries
            is_last = self.kept.selection is None
            if is_last or self._is_better(entries, None, self._scores()):
                self.kept.write(weights, num_epochs)
                return entries
        from multiberts.bert.checkpoint.checkpoint import read_checkpoint

        assert self.kept is not None
        best = read_checkpoint(self.kept.path)
        trained = {name: {**best.parameters, **best.head}[name] for name in weights}
        return write_sets(self.run_dir, self.evaluated(trained))

    def _is_better(self, entries: Entries, epochs: float | None, before: Sequence[float]) -> bool:
        """Returns whether a model is the best so far, where the best is kept."""
        if self.kept is None or self.kept.selection is None:
            return False
        return self.kept.is_better(self.kept.score(entries, epochs), before)

    def _scores(self) -> list[float]:
        """Returns the scores of the models so far, in their order; none where none is chosen."""
        if self.kept is None or self.kept.selection is None:
            return []
        points = sorted(self.points)
        written = [(epochs, written_early(self.run_dir, epochs)) for _, epochs in points]
        return [
            self.kept.score(entries, epochs) for epochs, entries in written if entries is not None
        ]

    def entries(self) -> Entries:
        """Returns the entries in run.json, by name."""
        found: Entries = {}
        for _, epochs in self.points:
            found |= written_early(self.run_dir, epochs) or {}
        return found
