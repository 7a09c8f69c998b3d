"""What a compiler is told about the precision of a product, in a process of its own."""

from __future__ import annotations

from multiberts.bert.training.engine import new_trainer
from multiberts.runs.environment import JAX, engine


def told() -> str:
    """Returns the program of a product of float32, as the compiler gets it from this process's engine."""
    new_trainer(lambda *_: None)
    if engine() == JAX:
        import jax
        import jax.numpy as jnp

        square = jnp.zeros((64, 64), jnp.float32)
        return str(jax.jit(jnp.matmul).lower(square, square).as_text())
    import tensorflow as tf

    square = tf.zeros((64, 64))
    product = tf.function(lambda first, second: tf.matmul(first, second), jit_compile=True)
    return str(
        product.experimental_get_compiler_ir(square, square)(stage="hlo", device_name="CPU:0")
    )
