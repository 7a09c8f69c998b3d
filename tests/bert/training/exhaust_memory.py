"""Makes an update that no memory holds, in JAX; for `test_jax_trainer.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from multiberts.bert.training.engine import TrainerSettings, new_trainer
from multiberts.runs.errors import UserError

# After the packages above, which settle what Keras computes with.
from keras import ops  # isort: skip


def loss(parameters: Any, batch: Any, key: Any, backend: Any) -> Any:
    # 64 TB, which a sort needs at once.
    products = batch["x"][:, None] * batch["x"][None, :] * parameters["factor"]
    return ops.sum(ops.sort(products, axis=0)[0]), {}


def message() -> str:
    """Returns the line that the update ends with."""
    trainer = new_trainer(loss, TrainerSettings())
    trainer.start({"factor": np.ones((), np.float32)})
    try:
        with trainer.report_errors():
            scalars = trainer.step({"x": np.ones(1 << 22, np.float32)}, 1e-3, dropout_seed=0)
            float(scalars["loss"])  # a processor says so where its result is read
    except UserError as error:
        return str(error)
    return ""
