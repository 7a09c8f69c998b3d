"""Pre-trains seeds with JAX; run by `test_pretraining_together.py`.

    python tests/pretrain/training/train_seeds.py JSON

JSON has `runs`, the arguments of `pretrain` for each seed, and `way`: `alone`, one after the other;
`together`; or `inexact`, together by a program that rounds otherwise. With `is_accelerator` the processor's
programs are those of accelerators. Prints by number of seeds in how many updates one program gave the bytes
of single ones, or null.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import jax

from multiberts.bert.training.devices import _opened as opened_devices
from multiberts.bert.training.devices import open_devices
from multiberts.bert.training.engine import Trainer
from multiberts.bert.training.jax_engine import JaxStep
from multiberts.pretrain.training.pretraining import pretrain, pretrain_together


def round_otherwise() -> None:
    """Makes the program of several seeds change the last bits of their weights."""
    exact = JaxStep._updated_together

    def inexact(self: JaxStep, state: Any, arrays: Any, of_steps: Any) -> Any:
        found, metrics = exact(self, state, arrays, of_steps)
        return jax.tree.map(lambda values: values * (1 + 1e-6), found), metrics

    JaxStep._updated_together = inexact  # type: ignore[method-assign]


def main(runs: list[dict[str, Any]], way: str, is_accelerator: bool) -> None:
    if is_accelerator:
        opened_devices[1] = dataclasses.replace(open_devices(1), kind="not a CPU")
    if way == "alone":
        for arguments in runs:
            pretrain(**arguments)
        return
    if way == "inexact":
        round_otherwise()
    made: list[Trainer] = []
    twin = Trainer.twin
    Trainer.twin = lambda self: made.append(twin(self)) or made[-1]  # type: ignore
    errors = pretrain_together(runs)
    assert errors == [None] * len(runs), errors
    print(json.dumps(made[0].exact_packs if made else {}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
