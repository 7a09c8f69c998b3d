"""The learning rate of every step, also where training starts from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from multiberts.runs.errors import UserError

RESTART, CONSTANT, CONTINUE = "restart", "constant", "continue"
Treatment = Literal["restart", "constant", "continue"]


def check_treatment(treatment: Treatment, from_checkpoint: bool) -> None:
    """Refuses a treatment that needs an initial checkpoint where there is none.

    Raises:
      UserError: naming what is expected.
    """
    if treatment == CONTINUE and not from_checkpoint:
        raise UserError(
            "pretrain.learning_rate_treatment is 'continue', expected 'restart' without "
            "pretrain.initial_checkpoint; change it or give the checkpoint"
        )


def learning_rates(
    *,
    treatment: Treatment,
    learning_rate: float,
    warmup_steps: int,
    num_steps: int,
    steps_before: int = 0,
) -> Callable[[int], float]:
    """Returns the learning rate as a function of this run's finished updates.

    * `restart`: a schedule of its own: linear warm-up, linear decay to 0 at `num_steps`. The only
      schedule of training from scratch, and what the original code does with an initial checkpoint,
      whose step count it does not take over.
    * `constant`: linear warm-up, then `learning_rate` to the end.
    * `continue`: the linear decay of one run of `steps_before + num_steps` updates, from where the
      checkpoint stands in it; no warm-up.

    Args:
      treatment: one of those above.
      learning_rate: the nominal peak.
      warmup_steps: updates of warm-up.
      num_steps: updates of this run.
      steps_before: updates that the checkpoint has had, for `continue`.

    Reference: google-research/bert, `optimization.create_optimizer`; the MultiBERTs paper does not
    say which treatment its CDA-incr models had.
    """
    from multiberts.bert.model.optimization import learning_rate_schedule

    def at(step: int) -> float:
        if treatment == CONTINUE:
            total = steps_before + num_steps
            return learning_rate_schedule(steps_before + step, learning_rate, 0, total)
        if treatment == CONSTANT and step >= warmup_steps:
            return learning_rate
        return learning_rate_schedule(step, learning_rate, warmup_steps, num_steps)

    return at
