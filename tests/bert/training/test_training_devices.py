"""The same training, to the last bit, on one, two, four and eight devices, with JAX."""

from __future__ import annotations

from typing import Any

import pytest

from multiberts.bert.training.devices import CPU, Devices
from multiberts.bert.training.trainer import TrainerSettings
from multiberts.runs.environment import ENGINE, JAX
from multiberts.runs.errors import UserError
from multiberts.tests.tools import own_process

TRAIN = "bert.training.train_on_devices:train_on"


@pytest.fixture
def needs_jax() -> Any:
    return pytest.importorskip("jax", reason="needs JAX: the extra jax")


def _trained(way: str, *devices: str) -> list[Any]:
    return list(own_process.call(TRAIN, way, devices, **{ENGINE: JAX}))


def _digests(way: str, *devices: str) -> list[str]:
    """Digests of weights and moments after 20 steps on each number of devices, in one process."""
    found = _trained(way, *devices)
    assert all(has_equal_copies for has_equal_copies, *_ in found)
    return [digest for *_, digest in found]


@pytest.mark.slow
@pytest.mark.parametrize("count", ["2", "4"])
def test_several_devices_train_to_the_bytes_of_one(needs_jax: Any, count: str) -> None:
    several, one = _digests("bert", count, "1")
    assert several == one


@pytest.mark.slow
def test_up_to_eight_devices_train_to_the_bytes_of_one(needs_jax: Any) -> None:
    """Another model, as each device compiles its own step; a shard on each of eight devices."""
    eight, one = _digests("perceptron", "8", "1")
    others = [_digests("perceptron", count)[0] for count in ("4", "2")]
    assert [eight, *others] == [one] * 3


@pytest.mark.slow
def test_the_program_for_accelerators_trains_alike_on_parts_of_a_processor(needs_jax: Any) -> None:
    """Sums over shards on each device, then over devices; the last bits may differ."""
    (same, loss, _), (_, expected, _) = _trained("accelerators", "4", "1")
    assert same
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_several_steps_at_once_train_to_the_bytes_of_single_ones(needs_jax: Any) -> None:
    """The program for accelerators, on a part of a processor; blocks of 8 leave a shorter one."""
    one, eight = _trained("accelerators", "1", "1x8")
    assert one == eight


def test_shards_must_be_a_multiple_of_the_devices() -> None:
    devices = Devices(mesh=None, count=4, kind="CPU")
    devices.check_shards(32)
    with pytest.raises(UserError, match="gradient_shards 6 is not a multiple of the 4 devices"):
        devices.check_shards(6)


@pytest.mark.parametrize("count", [0, -1, "all", 1.5])
def test_a_number_of_devices_that_cannot_be(count: object) -> None:
    with pytest.raises(UserError, match="give 'auto' or a number from 1"):
        TrainerSettings(devices=count)


def test_peak_of_all_devices() -> None:
    pair = Devices(mesh=None, count=2, kind="NVIDIA A100-SXM4-40GB")
    assert pair.peak_flops_per_second("bfloat16") == 2 * 312e12
    assert Devices(mesh=None, count=1, kind=CPU).peak_flops_per_second() is None
