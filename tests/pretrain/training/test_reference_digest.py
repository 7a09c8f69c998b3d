"""Portable mode: what the user's cap and threads are does not enter the bytes."""

from __future__ import annotations

import pytest

from multiberts.pretrain.training.reference_digest import measure_digest
from multiberts.runs.errors import UserError


@pytest.mark.slow
def test_two_caps_of_the_instruction_set_give_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for cap, threads in (("AVX", "1"), ("AVX2", "2")):
        monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_max_isa={cap}")
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", cap)
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", threads)
        found.add(measure_digest())
    assert len(found) == 1


def test_a_measurement_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(UserError, match="20 steps of training failed"):
        measure_digest()
