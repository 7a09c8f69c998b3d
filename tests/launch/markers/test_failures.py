"""How a launch ends after failures."""

from __future__ import annotations

import pytest

from multiberts.launch.markers.failures import FailedRun, exit_with
from multiberts.launch.plan.planned_run import PlannedRun


@pytest.mark.parametrize(
    ("were_user_errors", "status"), [([True], 2), ([True, True], 2), ([True, False], 1)]
)
def test_the_status_is_2_where_all_inputs_were_at_fault(
    were_user_errors: list[bool], status: int
) -> None:
    run = PlannedRun("pretrain", "a run", {}, (), "a", "a")
    with pytest.raises(SystemExit) as end:
        exit_with([FailedRun(run, "message", is_one, None) for is_one in were_user_errors])
    assert end.value.code == status


def test_nothing_failed() -> None:
    exit_with([])
