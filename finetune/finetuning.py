"""Fine-tuning: from a checkpoint and a task's data to per-example predictions."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multiberts.bert.randomness import hash_bits
from multiberts.evaluate.dumps.run_file import RUN_FILE, files_of, write_run
from multiberts.finetune.content import FileContent
from multiberts.finetune.data_files import refuse_repeated_files
from multiberts.finetune.family import EvaluationSet, Learner
from multiberts.finetune.recipe import IDENTITY as IDENTITY
from multiberts.finetune.recipe import FinetuningSettings, family_of, run_parameters, task_of
from multiberts.finetune.run_outputs import (
    STATE,
    Entries,
    note_early,
    provenance,
    write_sets,
    written_early,
)
from multiberts.finetune.training_rows import TrainingRows
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
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
    `run.json`, `metrics.jsonl`.

    Args:
      settings: the fields of `FinetuningSettings`.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written.
      PreemptedError: SIGTERM came; the state is saved.

    Reference: Sellam et al. 2022, sections 3 and 4; Devlin et al. 2019, appendix A.3; Webster et al.
    2020, section 4 (coreference); Zhong et al. 2021, section 2 (early and held-out predictions).
    """
    from multiberts.bert.checkpoint.checkpoint import VOCABULARY, check_checkpoint

    call = settings.call()
    checkpoint, trains = Path(settings.checkpoint), task_of(call).trains
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
    )
    evaluated = _Evaluated.of(learner, rows, settings.task)
    with preemption_notice() as should_stop, run:
        if run.done:  # by another process, since the first look
            return
        entries: Entries = {}
        weights: Mapping[str, np.ndarray]
        if rows is None:
            weights = learner.initial_parameters()
        else:
            weights, entries = _train(settings, learner, run.path, rows, evaluated, should_stop)
        entries |= write_sets(run.path, evaluated(weights))
        content = {
            "task": settings.task,
            "evaluation_sets": entries,
            "learning_rate": settings.learning_rate if trains else 0.0,
            "finetune_seed": settings.finetune_seed if trains else 0,
            "num_train_examples": 0 if rows is None else rows.used,
            **provenance(checkpoint, _checkpoint(start).provenance, parameters, inputs),
        }
        write_run(run.path, content)
        run.finish([RUN_FILE, *files_of(entries)])
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
            f"finetune.batch_size is {settings.batch_size}, but there are {rows.used} examples to train "
            f"on, so that a batch would repeat some; give {rows.used} or less"
        )
    given = [("num_epochs", settings.num_epochs)]
    given += [("prediction_epochs", epochs) for epochs in settings.prediction_epochs]
    for name, epochs in given:
        if rows.num_steps(epochs, settings.batch_size) < 1:
            raise UserError(
                f"finetune.{name} has {epochs:g}, but an epoch of {rows.used} examples is "
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
    run_dir: Path,
    rows: TrainingRows,
    evaluated: _Evaluated,
    should_stop: Callable[[], bool],
) -> tuple[Mapping[str, np.ndarray], Entries]:
    """Trains to the last step; returns the weights and the entries of early predictions."""
    from multiberts.bert.model.optimization import learning_rate_schedule
    from multiberts.bert.training.loop import Callbacks, Saving, Schedule, train
    from multiberts.bert.training.state import save_state, saved_step

    assert learner.trainer is not None
    batch_size, save_every = settings.batch_size, settings.save_state_every_steps
    num_steps = rows.num_steps(settings.num_epochs, batch_size)
    warmup_steps = int(num_steps * settings.warmup_proportion)
    early = _EarlyPredictions(
        run_dir,
        evaluated,
        [(rows.num_steps(n, batch_size), n) for n in settings.prediction_epochs],
    )
    schedule = Schedule(
        num_steps=num_steps,
        initial_parameters=learner.initial_parameters,
        batch_at=lambda step: learner.batch(rows.batch(step, batch_size)),
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
        ),
        Callbacks(at_steps=early.steps, on_step=early.predict, should_stop=should_stop),
        description=f"{settings.task} seed {settings.finetune_seed}",
    )
    # So that a long training is not lost if the run is stopped while it predicts.
    if num_steps >= save_every and saved_step(run_dir) < num_steps:
        save_state(learner.trainer.state(), run_dir, keep_last=1)
    return learner.trainer.parameters(), early.entries()


@dataclasses.dataclass(frozen=True)
class _EarlyPredictions:
    """Predictions of a model that is trained further afterwards.

    Attributes:
      run_dir: the run's directory.
      evaluated: weights -> predictions.
      points: (number of updates, number of epochs) of each.
    """

    run_dir: Path
    evaluated: _Evaluated
    points: Sequence[tuple[int, float]]

    @property
    def steps(self) -> set[int]:
        return {step for step, _ in self.points}

    def predict(self, step: int, trainer: Trainer) -> None:
        """Writes all that is due after so many updates, unless an earlier start of the run has."""
        weights = trainer.parameters()
        for due, epochs in self.points:
            if due == step and written_early(self.run_dir, epochs) is None:
                entries = write_sets(self.run_dir, self.evaluated(weights), epochs=epochs)
                note_early(self.run_dir, epochs, entries)

    def entries(self) -> Entries:
        """Returns the entries in run.json, by name."""
        found: Entries = {}
        for _, epochs in self.points:
            found |= written_early(self.run_dir, epochs) or {}
        return found
