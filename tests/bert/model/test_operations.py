"""FLOPs of a step against hand counts and the published use of the release's machines."""

from __future__ import annotations

import pytest

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.operations import model_flops_per_step, peak_flops_per_second

BASE = BertConfig(vocab_size=30_522)


def test_bert_base_at_512_by_hand() -> None:
    layers = 512 * 2 * 84_934_656  # each weight multiplies and adds once a token
    attention = 12 * 2 * (2 * 512 * 512 * 768)  # scores and mixtures, all heads together
    head = 80 * 2 * (768 * 768 + 768 * 30_522)
    pooler = 2 * (768 * 768 + 768 * 2)
    forward = layers + attention + head + pooler
    assert model_flops_per_step(BASE, 256, 512, 80, trained=False) == 256 * forward
    assert model_flops_per_step(BASE, 256, 512, 80) == 3 * 256 * forward


def test_the_release_used_54_percent_of_its_chips() -> None:
    """2,000,000 steps in about 4.5 days on 16 TPU v2 chips of 46 TFLOP/s each."""
    needed = model_flops_per_step(BASE, 256, 512, 80) * 2_000_000
    offered = 16 * 46e12 * 4.5 * 24 * 3600
    assert needed / offered == pytest.approx(0.54, abs=0.005)


@pytest.mark.parametrize(
    ("name", "compute_dtype", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", "bfloat16", 312e12),
        ("NVIDIA A100-SXM4-40GB", "float32", 156e12),
        ("NVIDIA H100 PCIe", "bfloat16", 756e12),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989e12),
        ("NVIDIA L4", "bfloat16", 121e12),
        ("NVIDIA L40S", "bfloat16", 362e12),
        ("NVIDIA L40", "bfloat16", 181e12),
        ("NVIDIA H100 NVL", "bfloat16", 835e12),
        ("NVIDIA T400", "float32", None),
        ("Tesla T4", "bfloat16", None),
        ("TPU v2", "bfloat16", 23e12),
        ("TPU v3", "bfloat16", 61.5e12),
        ("TPU v4", "float32", 275e12),
        ("TPU v5 lite", "bfloat16", 197e12),
        ("TPU v5", "bfloat16", 459e12),
        ("TPU v5p", "bfloat16", 459e12),
        ("TPU v6 lite", "bfloat16", 918e12),
        ("CPU", "float32", None),
    ],
)
def test_peaks_of_data_sheets(name: str, compute_dtype: str, peak: float | None) -> None:
    assert peak_flops_per_second(name, compute_dtype) == peak
