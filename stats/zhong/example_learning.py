"""Learning curves of single examples: when they are learned and forgotten, and by how many seeds.

Reference: Swayamdipta et al. (2020), Dataset Cartography (confidence and variability); Toneva et al. (2019),
An Empirical Study of Example Forgetting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError


@dataclass(frozen=True)
class Learning:
    """Learning and forgetting of each example over the steps of several seeds.

    Attributes:
      steps: increasing steps of the checkpoints [steps].
      learned: index of the first step from which all answers are right, or the number of steps if the last
        answer is wrong, int64 [seeds, examples].
      forgotten: number of right answers followed by a wrong one, int64 [seeds, examples].
      confidence: mean probability of the right answer over steps and seeds [examples]; the share of right
        answers if there are no losses.
      variability: standard deviation of this probability over steps, averaged over seeds [examples].
    """

    steps: NDArray[np.int64]
    learned: NDArray[np.int64]
    forgotten: NDArray[np.int64]
    confidence: NDArray[np.float64]
    variability: NDArray[np.float64]

    @property
    def share_learned(self) -> NDArray[np.float64]:
        """Returns the share of seeds that have learned each example at the end [examples]."""
        return np.asarray((self.learned < len(self.steps)).mean(axis=0))

    def learned_step(self, share: float = 0.5) -> NDArray[np.float64]:
        """Returns the step by which a share of the seeds has learned each example [examples].

        Args:
          share: share of the seeds, in (0, 1].

        Returns:
          Steps, float64; infinity if fewer seeds have learned the example at the end. Right guesses are
          included; see `learned_by_guesses`.
        """
        if not 0 < share <= 1:
            raise DataError(f"found share {share}, expected a number above 0, at most 1")
        needed = int(np.ceil(share * len(self.learned))) - 1
        steps = np.append(self.steps.astype(np.float64), np.inf)
        return np.asarray(steps[np.sort(self.learned, axis=0)[needed]])

    def learned_by_guesses(self, chance: float) -> float:
        """Returns the probability that half of the seeds seem to have learned an example by guessing.

        Args:
          chance: probability that a guess is right, such as one over the number of classes.
        """
        from scipy.special import bdtrc

        number = len(self.learned)
        return float(bdtrc((number + 1) // 2 - 1, number, chance))


def learning(steps: Sequence[int], right: ArrayLike, losses: ArrayLike | None = None) -> Learning:
    """Computes when examples are learned, how often they are forgotten, confidence and variability.

    Args:
      steps: increasing steps of the checkpoints.
      right: correctness of each answer, bool [seeds, steps, examples].
      losses: negative log probability of the right answer, in the same shape; None if unknown.

    Raises:
      DataError: there are fewer than two steps, shapes differ, or a loss is not finite.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> right = np.array([[[0, 1, 0], [1, 0, 0], [1, 1, 0]]], bool)  # a seed, three steps, three examples
      >>> found = stats.zhong.learning([0, 10, 20], right)
      >>> found.learned_step().tolist(), found.forgotten.tolist()
      ([10.0, 20.0, inf], [[0, 1, 0]])

    See also: `instance_accuracy`, `agreement`.

    Reference: Swayamdipta et al. (2020), Dataset Cartography; Toneva et al. (2019), An Empirical Study of
    Example Forgetting.
    """
    answers = np.asarray(right, bool)
    numbers = np.asarray(steps, np.int64)
    if answers.ndim != 3 or answers.shape[1] != len(numbers) or 0 in answers.shape:
        raise DataError(
            f"found answers of shape {answers.shape} at {counted(len(numbers), 'step')}, expected [seeds, "
            "steps, examples]"
        )
    if len(numbers) < 2 or (np.diff(numbers) <= 0).any():
        raise DataError(f"found the steps {list(steps)}, expected two or more, increasing")
    chances = answers.astype(np.float64)
    if losses is not None:
        chances = np.exp(-np.asarray(losses, np.float64))
        if chances.shape != answers.shape or not np.isfinite(chances).all():
            raise DataError(
                f"found losses of shape {chances.shape}, expected numbers of shape {answers.shape}"
            )
    # Number of consecutive right answers at the end.
    right_to_the_end = np.cumprod(answers[:, ::-1], axis=1).sum(axis=1)
    return Learning(
        numbers,
        len(numbers) - right_to_the_end,
        (answers[:, :-1] & ~answers[:, 1:]).sum(axis=1),
        chances.mean(axis=(0, 1)),
        chances.std(axis=1).mean(axis=0),
    )
