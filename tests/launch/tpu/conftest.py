"""A Cloud TPU service in this process, and the real client connected to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ZONES = {"zone-a": ("v4-8",), "zone-b": ("v4-8", "v4-16"), "zone-c": ("v4-8",)}


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a service: `make_service(mishaps, **arguments)`."""
    pytest.importorskip("google.cloud.tpu_v2", reason="needs the extra cloud")
    from multiberts.tests.launch.tpu.rehearsal.service import TpuService

    started = []

    def make(mishaps: Any = None, **arguments: Any) -> Any:
        service = TpuService(
            zones=ZONES,
            runtime_versions=("tpu-ubuntu2204-base",),
            folder=tmp_path / "nodes",
            mishaps=mishaps,
            seconds_to_provision=0.0,
            **arguments,
        )
        service.__enter__()
        started.append(service)
        return service

    yield make
    for service in started:
        service.__exit__(None, None, None)
