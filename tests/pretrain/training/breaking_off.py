"""Pre-training that breaks off at a step, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from multiberts.bert.training.engine import Trainer
from multiberts.pretrain.training.pretraining import pretrain


class Broken(Exception):
    """What breaks it off."""


def pretrain_until(step: int, call: dict[str, Any]) -> None:
    """Trains until something breaks, in the block of updates that would make the step.

    Args:
      step: a number of finished updates.
      call: the arguments of `pretrain`.
    """
    real = Trainer.steps

    def breaking(self: Trainer, batches: Sequence[Any], *given: Any) -> Any:
        if self.step_count + len(batches) > step:
            raise Broken
        return real(self, batches, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "steps", breaking)
        with pytest.raises(Broken):
            pretrain(**call)
