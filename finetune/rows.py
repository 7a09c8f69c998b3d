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
      trainable: int64 [rows]: rows available for training.
      held_out: int64 [rows]: rows held out for prediction.
      used: number of `trainable` rows that are trained on.
    """

    task: str
    order_seed: int
    trainable: np.ndarray
    held_out: np.ndarray
    used: int
    batch_size: int

    @classmethod
    def of(cls, groups: np.ndarray, settings: FinetuningSettings) -> TrainingRows:
        """Splits the data, in the same way for every seed.

        Args:
          groups: int64 [rows]: number of each row's example.
        """
        task, held_out_fold = settings.task, settings.held_out_fold
        rows = np.arange(len(groups))
        trainable, held_out = rows, rows[:0]
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
            trainable, held_out = rows[~is_out], rows[is_out]
        used = min(len(trainable), settings.max_train_examples or len(trainable))
        training_rows = cls(
            task, settings.seed_of("order"), trainable, held_out, used, settings.batch_size
        )

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
        return self._rows(
            permuted_index(
                position % self.used, self.used, "finetune order", self.task, self.order_seed, epoch
            )
        )

    def all(self) -> np.ndarray:
        """Returns the rows that are trained on, int64 [used]."""
        return self._rows(np.arange(self.used))

    def _rows(self, numbers: np.ndarray) -> np.ndarray:
        if self.used < len(self.trainable):
            # A subset without the seed: every seed trains on the same examples.
            numbers = permuted_index(numbers, len(self.trainable), "max_train_examples", self.task)
        rows: np.ndarray = self.trainable[numbers]
        return rows

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
