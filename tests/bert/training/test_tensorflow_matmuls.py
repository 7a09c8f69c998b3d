"""Matrix products as XLA compiles them for processors are those of the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from multiberts.bert.randomness import generator

if TYPE_CHECKING:
    import tensorflow as tf

    from multiberts.bert.model.backend_ops import BackendOps


def drawn(*shape: int) -> tf.Tensor:
    import tensorflow as tf

    return tf.constant(generator("products", *shape).normal(size=shape), tf.float32)


def outputs_and_gradients(
    backend: BackendOps, kind: str, given: tuple[tf.Tensor, ...], dtype: str, is_compiled: bool
) -> list[np.ndarray]:
    import tensorflow as tf

    @tf.function(jit_compile=is_compiled, autograph=False)
    def computed(*given: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            cast = [tf.cast(value, dtype) for value in given]
            # As the model does: the bias of scores stays float32.
            outputs = getattr(backend, kind)(
                *cast[:2], given[2] if kind == "word_scores" else cast[2]
            )
            loss = tf.reduce_sum(tf.sin(tf.cast(outputs, tf.float32)))
        return [outputs, *tape.gradient(loss, given)]

    return [np.asarray(tf.cast(value, tf.float32)) for value in computed(*given)]


@pytest.mark.parametrize(
    ("kind", "shapes", "dtype"),
    [
        ("dense", ((3, 5, 8), (8, 20), (20,)), "float32"),
        ("dense", ((3, 5, 20), (20, 8), (8,)), "float32"),
        ("dense", ((15, 8), (8, 8), (8,)), "float32"),
        ("word_scores", ((15, 8), (40, 8), (40,)), "float32"),
        # Both sides are compiled; the paths are those of float32.
        ("dense", ((3, 5, 20), (20, 8), (8,)), "bfloat16"),
        ("word_scores", ((15, 8), (40, 8), (40,)), "bfloat16"),
        pytest.param("dense", ((3, 5, 8), (8, 20), (20,)), "bfloat16", marks=pytest.mark.slow),
        pytest.param("dense", ((15, 8), (8, 8), (8,)), "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_equal_to_the_definition(
    kind: str, shapes: tuple[tuple[int, ...], ...], dtype: str
) -> None:
    from multiberts.bert.model.backend_ops import PLAIN
    from multiberts.bert.training.tensorflow_matmuls import COMPILED_ON_CPU

    given = tuple(drawn(*shape) for shape in shapes)
    found = outputs_and_gradients(COMPILED_ON_CPU, kind, given, dtype, is_compiled=True)
    # XLA keeps more of bfloat16 between operations, in the definition too.
    expected = outputs_and_gradients(PLAIN, kind, given, dtype, is_compiled=dtype == "bfloat16")
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()


def test_squares() -> None:
    import tensorflow as tf

    from multiberts.bert.training.tensorflow_matmuls import COMPILED_ON_CPU

    values = drawn(7, 9)
    found = tf.function(COMPILED_ON_CPU.square, jit_compile=True, autograph=False)(values)
    np.testing.assert_array_equal(found, np.square(values))
