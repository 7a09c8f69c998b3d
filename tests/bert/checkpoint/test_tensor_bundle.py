"""TensorFlow's checkpoint files without TensorFlow: its own reader and writer are the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.bert.checkpoint.tensor_bundle import read_bundle, write_bundle
from multiberts.bert.model.configuration import BertConfig, parameter_shapes
from multiberts.bert.randomness import generator

FILES = (".index", ".data-00000-of-00001")


def tensors(layers: int = 2) -> dict[str, np.ndarray]:
    config = BertConfig(
        vocab_size=31, hidden_size=8, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    draw = generator("tensor bundle")
    found = {
        name: draw.normal(size=shape).astype(np.float32)
        for name, shape in sorted(parameter_shapes(config).items())
    }
    return {**found, "global_step": np.asarray(2_000_000, np.int64)}


def write_with_tensorflow(prefix: Path, values: dict[str, np.ndarray]) -> None:
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )


@pytest.mark.parametrize("layers", [2, 24])
def test_the_bytes_are_those_of_tensorflow(tmp_path: Path, layers: int) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_bundle(ours, tensors(layers))
    write_with_tensorflow(theirs, tensors(layers))
    for file in FILES:
        assert Path(f"{ours}{file}").read_bytes() == Path(f"{theirs}{file}").read_bytes()


def test_what_tensorflow_wrote_is_read(tmp_path: Path) -> None:
    import tensorflow as tf

    kinds = [tf.float64, tf.int32, tf.bfloat16, tf.float16, tf.string]
    values = {f"of {kind.name}": tf.cast([[1, 2, 3]], kind) for kind in kinds[:-1]}
    values["of string"] = tf.constant("text")
    write_with_tensorflow(tmp_path / "kinds", values)
    found = read_bundle(tmp_path / "kinds", lambda name: name != "of string")
    assert sorted(found) == sorted(f"of {kind.name}" for kind in kinds[:-1])
    for name, value in found.items():
        assert value.dtype == values[name].dtype.as_numpy_dtype
        assert value.tolist() == [[1, 2, 3]]
    with pytest.raises(ValueError, match="of string is not an array of numbers"):
        read_bundle(tmp_path / "kinds", lambda name: True)


def test_every_bit_is_under_a_checksum(tmp_path: Path) -> None:
    """One bit is changed, or the end is cut off, at places throughout both files."""
    prefix, draw = tmp_path / "bert.ckpt", generator("damaged bundle")
    expected = tensors()
    write_bundle(prefix, expected)
    for file in FILES:
        path = Path(f"{prefix}{file}")
        whole = path.read_bytes()
        for place in draw.integers(0, len(whole), 40).tolist():
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(draw.integers(8))
            for content in (bytes(damaged), whole[:place]):
                path.write_bytes(content)
                try:
                    found = read_bundle(prefix, lambda name: True)
                except ValueError:
                    continue
                # Padding of the footer is all that may change unseen.
                assert all(np.array_equal(found[name], expected[name]) for name in expected)
                assert file == ".index" and place > len(whole) - 48
        path.write_bytes(whole)
    assert read_bundle(prefix, lambda name: name == "global_step") == {"global_step": 2_000_000}
