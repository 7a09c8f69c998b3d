"""Training rows of a run, their order, and the held-out rows."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from multiberts.bert.randomness import permuted_index
from multiberts.evaluate.prediction_files.run_file import set_at
from multiberts.finetune.settings import FinetuningSettings
from multiberts.finetune.task import NUM_FOLDS
from multiberts.runs.errors import UserError, counted


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that a run uses.

    Attributes:
      task: the task's name; the order depends on it and on the seed.
      trained: int64 [used]: rows that are trained on.
      held_out: int64 [rows]: rows held out for prediction.
    """

    task: str
    order_seed: int
    trained: np.ndarray
    held_out: np.ndarray
    batch_size: int

    @property
    def used(self) -> int:
        return len(self.trained)

    @classmethod
    def of(cls, groups: np.ndarray, settings: FinetuningSettings) -> TrainingRows:
        """Splits the data, in the same way for every seed.

        Args:
          groups: int64 [rows]: number of each row's example.
        """
        task, held_out_fold = settings.task, settings.held_out_fold
        rows = np.arange(len(groups))
        trained, held_out = rows, rows[:0]
        if held_out_fold is not None:
            _, number = np.unique(groups, return_inverse=True)
            count = int(number.max()) + 1
            if count < NUM_FOLDS:
                raise UserError(
                    f"task {task} has {counted(count, 'training example')}, too few to hold out one "
                    "fifth; leave finetune.held_out_fold out"
                )
            position = permuted_index(np.arange(count), count, "held-out folds", task)
            is_out = (position * NUM_FOLDS // count == held_out_fold)[number]
            trained, held_out = rows[~is_out], rows[is_out]
        used = min(len(trained), settings.max_train_examples or len(trained))
        if used < len(trained):
            # A subset without the seed: every seed trains on the same examples.
            chosen = permuted_index(np.arange(used), len(trained), "max_train_examples", task)
            trained = trained[chosen]
        training_rows = cls(task, settings.seed_of("order"), trained, held_out, settings.batch_size)

        # Refuse numbers of examples, steps and epochs that do not fit together.
        if settings.batch_size > used:
            raise UserError(
                f"finetune.batch_size is {settings.batch_size}, but there are {counted(used, 'example')} to "
                f"train on, so that a batch would repeat some; give {used} or less"
            )
        for epochs in settings.prediction_epochs:
            steps = training_rows.num_steps(epochs)
            if settings.max_steps is not None and steps >= settings.max_steps:
                raise UserError(
                    f"finetune.prediction_epochs has {epochs:g}, which is step {steps}, but "
                    f"finetune.max_steps is {settings.max_steps}, and at the end predictions are made "
                    "anyway; correct either"
                )
        every = settings.evaluate_every_steps
        early = training_rows.early_predictions(settings)
        total = training_rows.total_steps(settings)
        if every is not None and every >= total:
            raise UserError(
                f"finetune.evaluate_every_steps is {every}, but training has {counted(total, 'step')}, and "
                "at the end predictions are made anyway; give a smaller number, or leave it out"
            )
        if len({set_at("dev", epochs) for epochs in early}) < len(early):
            raise UserError(
                f"finetune.evaluate_every_steps is {every}, so that some of "
                f"{counted(len(early), 'prediction')} would share a name, as names have four digits of the "
                "epochs; give a larger number"
            )
        epoch_counts = [("num_epochs", settings.num_epochs)]
        epoch_counts += [("prediction_epochs", epochs) for epochs in settings.prediction_epochs]
        for name, epochs in epoch_counts:
            if training_rows.num_steps(epochs) < 1:
                raise UserError(
                    f"finetune.{name} has {epochs:g}, but an epoch of {counted(used, 'example')} is "
                    f"{used / settings.batch_size:g} steps, so that nothing would be trained; give "
                    f"{math.ceil(1000 * settings.batch_size / used) / 1000:g} or more"
                )
        return training_rows

    def batch(self, step: int) -> np.ndarray:
        """Returns the rows of a step's batch, int64 [batch_size].

        A batch may extend into the next epoch, so that all batches have the same size.
        """
        position = step * self.batch_size + np.arange(self.batch_size)
        epoch = position // self.used
        key = ("finetune order", self.task, self.order_seed, epoch)
        return np.asarray(self.trained[permuted_index(position % self.used, self.used, *key)])

    def total_steps(self, settings: FinetuningSettings) -> int:
        num_steps = self.num_steps(settings.num_epochs)
        return num_steps if settings.max_steps is None else min(num_steps, settings.max_steps)

    def total_epochs(self, settings: FinetuningSettings) -> float:
        """Returns the epochs of training; `max_steps` may end them early."""
        num_steps = self.total_steps(settings)
        is_cut = num_steps < self.num_steps(settings.num_epochs)
        return num_steps * self.batch_size / self.used if is_cut else settings.num_epochs

    def early_predictions(self, settings: FinetuningSettings) -> dict[float, int]:
        """Returns the steps of the predictions before the last one, by epochs."""
        steps = {epochs: self.num_steps(epochs) for epochs in settings.prediction_epochs}
        if every := settings.evaluate_every_steps:
            further = {*range(every, self.total_steps(settings), every)} - {*steps.values()}
            steps |= {step * self.batch_size / self.used: step for step in sorted(further)}
        return steps

    def num_steps(self, epochs: float) -> int:
        return int(self.used * epochs / self.batch_size)
