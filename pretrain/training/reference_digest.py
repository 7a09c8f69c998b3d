"""Twenty steps of training in the portable mode, whose digest shows how a machine rounds.

MULTIBERTS_PORTABLE=1 python -m multiberts.pretrain.training.reference_digest
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.randomness import generator
from multiberts.runs.environment import ENGINE, PORTABLE, TENSORFLOW
from multiberts.runs.errors import UserError

# The first digits of the SHA-256 of weights and moments after 20 steps, as found on an AMD EPYC with
# TensorFlow 2.21.
REFERENCE_DIGEST = "2224285875e835d1"

_STEPS = 20
_BATCH_SIZE, _LENGTH, _PREDICTIONS = 16, 32, 5
_CONFIG = BertConfig(
    vocab_size=512,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=_LENGTH,
)


def measure_digest(timeout_seconds: float | None = None) -> str:
    """Trains 20 steps in a process of its own, in the portable mode, and returns the digest.

    Args:
      timeout_seconds: most time for it; None for no limit.
    """
    command = [sys.executable, "-m", "multiberts.pretrain.training.reference_digest"]
    environment = {**os.environ, PORTABLE: "1", ENGINE: TENSORFLOW}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"20 steps of training took more than {error.timeout:g} s; try again on a calm machine"
        ) from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
        raise UserError(
            f"20 steps of training failed ({reason}); check the installation"
        ) from error
    return done.stdout.split()[-1]


def train_and_digest() -> str:
    """Trains 20 steps in this process and returns the first 16 digits of the state's SHA-256."""
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.bert.training.engine import TrainerSettings, new_trainer

    trainer = new_trainer(
        lambda parameters, batch, key, backend: pretraining_loss(
            parameters, _CONFIG, batch, key, backend=backend
        ),
        TrainerSettings(gradient_shards=2),
    )
    trainer.start(initial_parameters(_CONFIG, 0))
    for step in range(_STEPS):
        trainer.step(_batch(step), learning_rate=1e-3, dropout_seed=0)
    return trainer.state().digest().hex()[:16]


def _batch(step: int) -> dict[str, np.ndarray]:
    """Returns arbitrary sequences."""
    draw = generator("reference digest", step)
    rows, masked = (_BATCH_SIZE, _LENGTH), (_BATCH_SIZE, _PREDICTIONS)
    at = draw.permuted(np.tile(np.arange(1, _LENGTH), (_BATCH_SIZE, 1)), axis=1)
    return {
        "input_ids": draw.integers(0, _CONFIG.vocab_size, rows).astype(np.int32),
        "input_mask": np.ones(rows, np.int32),
        "segment_ids": (np.arange(_LENGTH) >= _LENGTH // 2).astype(np.int32)
        * np.ones(rows, np.int32),
        "masked_lm_positions": np.sort(at[:, :_PREDICTIONS]).astype(np.int32),
        "masked_lm_ids": draw.integers(0, _CONFIG.vocab_size, masked).astype(np.int32),
        "masked_lm_weights": np.ones(masked, np.float32),
        "next_sentence_labels": draw.integers(0, 2, _BATCH_SIZE).astype(np.int32),
    }


if __name__ == "__main__":
    sys.stdout.write(train_and_digest() + "\n")
