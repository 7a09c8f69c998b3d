"""Rows of the training data: which a run trains on, in which order, and which it leaves out."""

from __future__ import annotations

import dataclasses

import numpy as np

from multiberts.bert.randomness import permuted_index
from multiberts.runs.errors import UserError, counted

# A run that holds out a part of its training data leaves out one fifth (Zhong et al. 2021, section 2).
NUM_FOLDS = 5


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that a run uses.

    Attributes:
      task: the task's name; with the seed, the address of the order.
      finetune_seed: of the order.
      kept: int64 [rows]: of all rows those that may be trained on.
      held_out: int64 [rows]: those left out for prediction.
      used: how many of `kept` are trained on.
    """

    task: str
    finetune_seed: int
    kept: np.ndarray
    held_out: np.ndarray
    used: int

    @classmethod
    def of(
        cls,
        groups: np.ndarray,
        *,
        task: str,
        finetune_seed: int,
        max_train_examples: int | None,
        held_out_fold: int | None,
    ) -> TrainingRows:
        """Cuts the data; the same for every seed.

        Raises:
          UserError: too few examples to hold out a fifth.
        """
        rows = np.arange(len(groups))
        kept, held_out = rows, rows[:0]
        if held_out_fold is not None:
            _, number = np.unique(groups, return_inverse=True)
            count = int(number.max()) + 1
            if count < NUM_FOLDS:
                raise UserError(
                    f"task {task} has {counted(count, 'training example')}, too few to hold out one "
                    "fifth; leave finetune.held_out_fold out"
                )
            place = permuted_index(np.arange(count), count, "held-out folds", task)
            is_out = (place * NUM_FOLDS // count == held_out_fold)[number]
            kept, held_out = rows[~is_out], rows[is_out]
        most = len(kept) if max_train_examples is None else max_train_examples
        return cls(task, finetune_seed, kept, held_out, min(len(kept), most))

    def batch(self, step: int, batch_size: int) -> np.ndarray:
        """Returns int64 [batch_size]: the rows of a step's batch.

        A batch may reach into the next epoch, so every batch has the same size.
        """
        position = step * batch_size + np.arange(batch_size)
        epoch = position // self.used
        row = permuted_index(
            position % self.used,
            self.used,
            "finetune order",
            self.task,
            self.finetune_seed,
            epoch,
        )
        if self.used < len(self.kept):
            # Which examples are used is the same for every seed.
            row = permuted_index(row, len(self.kept), "max_train_examples", self.task)
        found: np.ndarray = self.kept[row]
        return found

    def num_steps(self, epochs: float, batch_size: int) -> int:
        """Returns the number of full batches in so many passes over the used rows."""
        return int(self.used * epochs / batch_size)
