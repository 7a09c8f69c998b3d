"""Initial weights: the cut normal of the original, a pure function of the seed."""

from __future__ import annotations

import numpy as np

from multiberts.bert.model.configuration import BertConfig, parameter_shapes
from multiberts.bert.model.initialization import initial_parameters, truncated_normal

CONFIG = BertConfig(
    vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
)


def test_cut_at_two_sigma_with_the_stated_deviation() -> None:
    values = truncated_normal((400, 400), 0.02, "test", 0)
    assert np.abs(values).max() <= 0.04
    # A normal cut at two sigma keeps 0.8796 of its standard deviation.
    assert abs(values.std() - 0.0176) < 2e-4
    assert abs(values.mean()) < 5 * 0.0176 / 400


def test_seed_decides_all_and_each_variable_has_its_own_draw() -> None:
    first, again, other = (initial_parameters(CONFIG, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    changed = [name for name in first if not np.array_equal(first[name], other[name])]
    assert all(name.endswith(("kernel", "embeddings", "weights")) for name in changed)
    query, key = (f"bert/encoder/layer_0/attention/self/{part}/kernel" for part in ("query", "key"))
    assert not np.array_equal(first[query], first[key])


def test_number_of_parameters_of_bert_base() -> None:
    """110,106,428 with the pre-training heads, as the released checkpoint holds."""
    base = BertConfig(vocab_size=30522)
    assert sum(int(np.prod(shape)) for shape in parameter_shapes(base).values()) == 110_106_428
