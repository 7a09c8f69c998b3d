"""Measures the speed of a pre-training step of BERT-Base on a GPU, compared with PyTorch.

    make bench-gpu
    python -m benchmarks.gpu_speed --shapes toy     # on a processor, to see that it works

Each way trains on made-up batches in bfloat16 products, with and without dropout, in a process of its own
on one device:

- ours: `bert.training.engine.Trainer` with the JAX engine, the recipe's 32 gradient shards clipped apart,
  in a process where TensorFlow cannot be imported;
- torch: `transformers`' BertForPreTraining (scaled-dot-product attention without a mask, as nothing is
  padded, so that it may choose its fastest kernel) by torch.compile under autocast, its masked positions
  gathered before the head, the whole batch's gradient clipped at once, fused AdamW.

`sequences/s` is of the best of the repeats, by the clock, each from an idle device to an idle device. MFU
is the model's products (`bert.model.operations`: 301.4 GFLOP per sequence at 512 / 80, 69.9 at 128 / 20)
as a share of the device's peak in bfloat16. `GiB` is the most that the device's allocator held; on a
processor, of the process. `first` is the first step with its compilation.

Needs a PyTorch for the device and `transformers`. A way that fails is a row with the reason. The exit
status is 1 where one fails, or, on a device whose peak is known, where ours is below 25 % of it or behind
torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from multiberts.benchmarks.pretraining_speed import (
    CLIP_NORM,
    LEARNING_RATE,
    VOCABULARY,
    WEIGHT_DECAY,
    gathered_loss,
    random_batch,
    torch_model,
)
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.operations import model_flops_per_step, peak_flops_per_second
from multiberts.runs import console
from multiberts.runs.environment import ENGINE, JAX
from multiberts.runs.errors import UserError

OURS, TORCH = "ours", "torch"
DROPOUT = {"on": 0.1, "off": 0.0}
LEAST_MFU = 0.25


@dataclass(frozen=True)
class StepShape:
    """Batch and model of a step.

    Attributes:
      config: model configuration, with dropout.
      batch_size: number of sequences per step.
      length: number of pieces per sequence.
      predictions: number of predictions per sequence.
      gradient_shards: number of gradient shards in our recipe.
    """

    config: BertConfig
    batch_size: int
    length: int
    predictions: int
    gradient_shards: int

    @property
    def flops_per_sequence(self) -> int:
        """Returns the number of operations in the matrix products for a sequence.

        Examples:
          >>> [round(SHAPES[name].flops_per_sequence / 1e9, 1) for name in ("base-512", "base-128")]
          [301.4, 69.9]
        """
        return model_flops_per_step(self.config, 1, self.length, self.predictions)

    def batch(self) -> dict[str, Any]:
        """Returns made-up sequences of full length."""
        return random_batch(self.batch_size, self.length, self.predictions)


_BASE = BertConfig(vocab_size=VOCABULARY)
_TOY = BertConfig(
    vocab_size=VOCABULARY,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
)
SHAPES = {
    "base-512": StepShape(_BASE, 256, 512, 80, 32),
    "base-128": StepShape(_BASE, 256, 128, 20, 32),
    "toy": StepShape(_TOY, 4, 32, 5, 2),
}


@dataclass(frozen=True)
class Contender:
    """A method of training, ready to be timed.

    Attributes:
      step: function that starts an update.
      wait: function that waits until the device has finished all updates.
      memory: function that returns the peak number of bytes in use; None if the device does not count them.
      device: name reported by the driver.
    """

    step: Callable[[], object]
    wait: Callable[[], object]
    memory: Callable[[], int | None]
    device: str


def ours(shape: StepShape) -> Contender:
    """Returns our engine on one device."""
    # Hide TensorFlow from imports.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.bert.training.engine import TrainerSettings, new_trainer

    import jax  # isort: skip  # after the engine's settings

    def loss(parameters: Any, features: Any, key: Any, backend: Any) -> Any:
        return pretraining_loss(parameters, shape.config, features, key, "bfloat16", backend)

    trainer = new_trainer(
        loss,
        TrainerSettings(
            gradient_shards=shape.gradient_shards, weight_decay_rate=WEIGHT_DECAY, devices=1
        ),
    )
    trainer.start(initial_parameters(shape.config, 0))
    batch, last = shape.batch(), {}

    def step() -> None:
        last.update(trainer.step(batch, LEARNING_RATE, 0))

    statistics = jax.local_devices()[0].memory_stats
    return Contender(
        step,
        # Waiting for the loss is enough, because loss and weights are computed by one program.
        lambda: jax.block_until_ready(last),
        lambda: (statistics() or {}).get("peak_bytes_in_use"),
        trainer.devices.kind,
    )


def torch(shape: StepShape, passes: int = 1) -> Contender:
    """Returns PyTorch's model on one device.

    Args:
      shape: shape of the step.
      passes: number of forward and backward passes per update, each on a part of the batch.
    """
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.set_float32_matmul_precision("high")
    model = torch_model(shape.config).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
    )
    batch = {
        name: torch.from_numpy(values).to(device)
        for name, values in shape.batch().items()
        if name != "input_mask"
    }
    batch = {name: v.long() if v.dtype == torch.int32 else v for name, v in batch.items()}
    chunks = {name: values.chunk(passes) for name, values in batch.items()}
    parts = [{name: chunks[name][part] for name in chunks} for part in range(passes)]
    compiled = torch.compile(gathered_loss)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for part in parts:
            with torch.autocast(device.type, torch.bfloat16):
                loss = compiled(model, part) / passes
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM, foreach=True)
        optimizer.step()

    return Contender(
        step,
        torch.cuda.synchronize if is_gpu else lambda: None,
        lambda: torch.cuda.max_memory_allocated() if is_gpu else None,
        torch.cuda.get_device_name() if is_gpu else "CPU",
    )


def measure(contender: Contender, *, steps: int, repeats: int) -> dict[str, Any]:
    """Times a contender in this process.

    Args:
      contender: method to time.
      steps: number of steps per repeat.
      repeats: number of repeats; the best counts.

    Returns:
      `seconds` per step, `first` seconds, `memory` bytes, `device`.
    """
    begun = time.perf_counter()
    contender.step()
    contender.wait()
    first = time.perf_counter() - begun
    contender.step()  # PyTorch recompiles if it first assumed a constant shape
    contender.wait()
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(steps):
            contender.step()
        contender.wait()
        best = min(best, (time.perf_counter() - begun) / steps)
    memory = contender.memory()
    if memory is None:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": best, "first": first, "memory": memory, "device": contender.device}


def run_apart(way: str, shape: str, dropout: str, further: list[str]) -> dict[str, Any]:
    """Measures a method in a separate process; after a failure returns the reason as `failed`."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "multiberts.benchmarks.gpu_speed",
            "--one",
            way,
            shape,
            dropout,
            *further,
        ],
        env={**os.environ, ENGINE: JAX},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failed": lines[-1]}
    measurement: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measurement


def report_row(way: str, shape: StepShape, row: Mapping[str, Any]) -> float | None:
    """Prints a row of the table and returns its sequences per second; None after a failure."""
    if "failed" in row:
        console.report(f"{way:<8}failed: {row['failed']}")
        return None
    rate = shape.batch_size / row["seconds"]
    share = mfu(shape, row)
    console.report(
        f"{way:<8}{rate:>12.1f}{row['seconds'] * 1e3:>10.1f}"
        f"{'-' if share is None else format(share, '.1%'):>8}"
        f"{row['memory'] / 2**30:>9.2f}{row['first']:>8.1f}  {row['device']}"
    )
    sys.stdout.flush()
    return rate


def mfu(shape: StepShape, row: Mapping[str, Any]) -> float | None:
    """Returns the share of the device's peak reached by a method; None if the peak is unknown.

    Examples:
      >>> row = {"seconds": 1.0, "device": "NVIDIA H200"}
      >>> round(mfu(SHAPES["base-512"], row), 4)  # 256 sequences of 301.4 GFLOP, of 989 TFLOP/s
      0.078
    """
    peak = peak_flops_per_second(row["device"], "bfloat16")
    if peak is None:
        return None
    return shape.batch_size * shape.flops_per_sequence / row["seconds"] / peak


def compare(name: str, dropout: str, ways: list[str], further: list[str]) -> bool:
    """Measures a shape with all methods and prints the rows; returns whether all succeeded."""
    shape = SHAPES[name]
    console.report(
        f"\n{name}: {shape.batch_size} x {shape.length}, {shape.predictions} predictions, dropout {dropout}, "
        f"{shape.flops_per_sequence / 1e9:.1f} GFLOP per sequence"
    )
    console.report(
        f"{'way':<8}{'sequences/s':>12}{'ms/step':>10}{'MFU':>8}{'GiB':>9}{'first s':>8}  device"
    )
    measurements = {way: run_apart(way, name, dropout, further) for way in ways}
    rates = {way: report_row(way, shape, row) for way, row in measurements.items()}
    good = None not in rates.values()
    share = mfu(shape, measurements[OURS]) if rates.get(OURS) else None
    if share is not None:
        good &= share >= LEAST_MFU
        console.report(
            f"ours: at least {LEAST_MFU:.0%}: {'met' if share >= LEAST_MFU else 'MISSED'}"
        )
    first, second = rates.get(OURS), rates.get(TORCH)
    if first and second:
        console.report(f"ours is {first / second:.2f} times torch")
        good &= share is None or first >= second
    return good


def main() -> int:
    """Runs all methods and prints a table per shape; returns 1 if one fails or a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    big = [name for name in SHAPES if name != "toy"]
    parser.add_argument("--shapes", nargs="+", default=big, choices=list(SHAPES))
    parser.add_argument("--ways", nargs="+", default=[OURS, TORCH], choices=[OURS, TORCH])
    parser.add_argument("--dropout", nargs="+", default=list(DROPOUT), choices=list(DROPOUT))
    parser.add_argument("--steps", type=int, default=20, help="of a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--passes",
        type=int,
        default=1,
        help="of PyTorch per update, where its memory does not suffice",
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way, name, dropout = arguments.one
        rate = DROPOUT[dropout]
        shape = SHAPES[name]
        config = dataclasses.replace(
            shape.config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
        )
        shape = dataclasses.replace(shape, config=config)
        try:
            contender = ours(shape) if way == OURS else torch(shape, arguments.passes)
        except UserError as error:
            console.error(str(error))
            return 2
        row = measure(contender, steps=arguments.steps, repeats=arguments.repeats)
        console.report(json.dumps(row))
        return 0
    further = [f"--{name}={getattr(arguments, name)}" for name in ("steps", "repeats", "passes")]
    results = [
        compare(name, dropout, arguments.ways, further)
        for name in arguments.shapes
        for dropout in arguments.dropout
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
