"""`python -m multiberts.launch.tpu.accelerator TPU`: does the accelerator answer, and can it multiply?"""

from __future__ import annotations

import sys

from multiberts.runs.console import report


def check_accelerator(kind: str) -> str:
    """Multiplies two matrices on every device of a kind.

    Args:
      kind: `TPU`, `GPU` or `CPU`.

    Returns:
      What was found, in a line.

    Raises:
      RuntimeError: there is none, or it gives another product.
    """
    import numpy as np
    import tensorflow as tf

    if kind == "TPU":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    devices = tf.config.list_logical_devices(kind)
    if not devices:
        raise RuntimeError(f"TensorFlow {tf.__version__} sees no {kind}")
    factor = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    for device in devices:
        with tf.device(device.name):
            product = tf.linalg.matmul(factor, factor).numpy()
        if not np.allclose(product, factor @ factor, atol=0.05):
            raise RuntimeError(f"{device.name} multiplies wrongly")
    return f"{len(devices)} {kind} answer to TensorFlow {tf.__version__}"


if __name__ == "__main__":
    report(check_accelerator(sys.argv[1]))
