"""The learning rate where training resumes from a checkpoint, and what crossing seeds changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.bert.checkpoint.commands import convert_checkpoints
from multiberts.bert.training.log import read_metrics
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.pretrain.training.settings import learning_rates
from multiberts.runs.errors import UserError

Arguments = Callable[..., dict[str, Any]]
CDA_INCR: dict[str, Any] = {"learning_rate": 1e-4, "num_steps": 50_000, "warmup_steps": 10_000}


def test_restart_is_the_schedule_of_training_from_scratch_and_constant_stays_at_the_peak() -> None:
    rate = learning_rates(treatment="restart", **CDA_INCR)
    assert rate(0) == 0.0
    assert rate(5_000) == pytest.approx(0.5e-4)
    # Decay of the global step, not offset by the warm-up.
    assert rate(10_000) == pytest.approx(0.8e-4)
    assert rate(49_999) == pytest.approx(1e-4 / 50_000)
    rate = learning_rates(treatment="constant", **CDA_INCR)
    assert [rate(step) for step in (0, 10_000, 49_999)] == [0.0, 1e-4, 1e-4]


def test_continue_is_the_rest_of_one_longer_run() -> None:
    whole = learning_rates(treatment="restart", **{**CDA_INCR, "num_steps": 2_050_000})
    rest = learning_rates(treatment="continue", steps_before=2_000_000, **CDA_INCR)
    for step in (0, 25_000, 49_999):
        assert rest(step) == whole(2_000_000 + step)
    assert rest(0) == pytest.approx(1e-4 * 50 / 2050)


@pytest.mark.slow
def test_treatments_of_a_run(arguments: Arguments, tmp_path: Path) -> None:
    """From a checkpoint at step 4, four more."""
    pretrain(**arguments(tmp_path / "base", num_steps=4))
    start = str(checkpoint_path(tmp_path / "base", 4))

    def rates(treatment: str) -> list[float]:
        run = tmp_path / treatment
        given = {"initial_checkpoint": start, "learning_rate_treatment": treatment}
        pretrain(**arguments(run, num_steps=4, log_every_steps=1, **given))
        return [line["learning_rate"] for line in read_metrics(run / "metrics.jsonl")]

    assert rates("restart") == pytest.approx([2e-3, 1.5e-3, 1e-3, 0.5e-3])
    assert rates("constant") == pytest.approx([2e-3] * 4)
    assert rates("continue") == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])


def test_refusal_of_a_checkpoint_without_its_step_leaves_the_run_directory_free(
    arguments: Arguments, tmp_path: Path
) -> None:
    """First here to import TensorFlow: its seconds are those."""
    pretrain(**arguments(tmp_path / "base", num_steps=1))
    start = tmp_path / "start"
    source = str(checkpoint_path(tmp_path / "base", 1))
    convert_checkpoints(sources=[source], target=str(start), to="hugging_face")
    (start / "checkpoint.json").unlink()  # others' checkpoints have none
    call = arguments(tmp_path / "run", num_steps=1, initial_checkpoint=str(start))
    with pytest.raises(UserError, match="does not record its step"):
        pretrain(**call, learning_rate_treatment="continue")
    pretrain(**call, learning_rate_treatment="restart")
    assert (tmp_path / "run" / "DONE").exists()


def test_initialisation_and_order_can_be_crossed(arguments: Arguments, tmp_path: Path) -> None:
    """Two by two: the first weights depend on pretrain_seed alone, the batches on data_seed alone.

    And the bits of dropout on a seed of their own, beside the others, as their program is the same.
    """

    def trained(**seeds: int) -> list[Mapping[str, np.ndarray]]:
        run = tmp_path / "-".join(map(str, seeds.values()))
        pretrain(**arguments(run, num_steps=3, checkpoint_steps=[0], **seeds))
        return [read_checkpoint(checkpoint_path(run, step)).parameters for step in (0, 3)]

    runs = {
        (pretrain_seed, data_seed): trained(pretrain_seed=pretrain_seed, data_seed=data_seed)
        for pretrain_seed in (1, 2)
        for data_seed in (1, 2)
    }
    runs[1, 0] = trained(pretrain_seed=1, data_seed=1, dropout_seed=2)

    def equal(one: tuple[int, int], other: tuple[int, int], which: int) -> bool:
        a, b = runs[one][which], runs[other][which]
        return all(np.array_equal(a[name], b[name]) for name in a)

    assert equal((1, 1), (1, 2), 0) and equal((2, 1), (2, 2), 0) and equal((1, 1), (1, 0), 0)
    assert not equal((1, 1), (2, 1), 0)
    for one, other in itertools.combinations(runs, 2):
        assert not equal(one, other, 1), (one, other)
