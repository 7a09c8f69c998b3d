"""Pre-training that breaks off at a step, in this process or in one that a test stops."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.training.engine import Trainer
from multiberts.pretrain.training.pretraining import pretrain
from multiberts.tests.tools import warm
from multiberts.tests.tools.stress_resume import last_logged_step


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


def start(call: dict[str, Any]) -> warm.Process:
    """Starts the command with these arguments of `pretrain`."""
    flags = [f"--gin_param=pretrain.{name} = {value!r}" for name, value in call.items()]
    return warm.Process(warm.COMMAND, [["pretrain", *flags]], kind=warm.TENSORFLOW)


def wait_for_step(process: warm.Process, run: Path, step: int) -> None:
    """Waits until a run has logged a step, or has ended."""
    while process.poll() is None and last_logged_step(run) < step:
        time.sleep(0.01)
