"""The task file for SkyPilot, as SkyPilot reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from multiberts.runs.preemption import EXIT_PREEMPTED

TASK = Path(__file__).resolve().parent.parent.parent / "configs/launch/skypilot/pretrain.yaml"


def test_skypilot_accepts_the_task() -> None:
    sky = pytest.importorskip("sky", reason="needs skypilot, which is not among the requirements")
    with pytest.raises(ValueError, match="'BUCKET' is None"):
        sky.Task.from_yaml(str(TASK))
    import yaml

    fields = yaml.safe_load(TASK.read_text())
    task = sky.Task.from_yaml_config(fields, env_overrides=[("BUCKET", "gs://b"), ("SEED", "3")])
    assert all(resources.use_spot for resources in task.resources)
    recoveries = [resources.job_recovery for resources in task.resources]
    assert all(one["recover_on_exit_codes"] == [EXIT_PREEMPTED] for one in recoveries)
    assert task.envs["SEED"] == "3"
