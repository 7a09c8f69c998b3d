"""Messages of the training loop."""

from __future__ import annotations

import numpy as np
import pytest

from multiberts.bert.training.devices import CPU
from multiberts.bert.training.state import TrainingState
from multiberts.bert.training.training_loop import _report_another_machine


@pytest.mark.parametrize(
    ("before", "now", "is_said"),
    [
        # Any number of a processor's devices gives the same bytes (test_training_devices.py).
        ({"device": CPU, "devices": 1}, {"device": CPU, "devices": 2}, False),
        ({"device": "a GPU", "devices": 1}, {"device": "a GPU", "devices": 2}, True),
        ({"device": CPU, "devices": 1}, {"device": "a GPU", "devices": 1}, True),
        ({"device": CPU, "processor": "a"}, {"device": CPU, "processor": "b"}, True),
    ],
)
def test_another_machine_is_said_where_bytes_may_differ(
    capsys: pytest.CaptureFixture[str], before: dict, now: dict, is_said: bool
) -> None:
    weights = {"w": np.zeros(1, np.float32)}
    _report_another_machine(TrainingState(weights, weights, weights, 7, before), now)
    assert ("last bits" in capsys.readouterr().err) is is_said
