"""Measures the speed of a pre-training step, compared with the usual methods.

    make bench-pretrain
    python -m benchmarks.pretraining_speed --sizes tiny --lengths 128 --repeats 3

Every way trains the same model (tiny L2/H128, mini L4/H256; 30,522 pieces) on the same made-up
batches of 4,096 tokens with 15 % predictions, with dropout, on the same number of threads, each in a
process of its own:

- ours: `bert.training.engine.Trainer`, compiled by XLA; of the last layer it computes what the heads read,
  where the others compute it whole (MFU counts it whole for all);
- ours, no XLA: the same, uncompiled;
- torch eager / torch compiled: `transformers`' BertForPreTraining (scaled-dot-product attention),
  its masked positions gathered before the head, gradient clipping, fused AdamW;
- torch ... kept memory: with glibc set to keep freed memory, as our engine sets it, though its
  users do not;
- torch usual: the model as it comes, which scores the vocabulary at every position;
- keras fit: KerasHub's BertBackbone, its MaskedLMHead and a next-sentence head in `Model.fit` with
  AdamW and global clipping, compiled by XLA or not, whichever is faster.

What counts are CPU seconds per step (`time.process_time`, the least of the repeats: other work on the
machine can only add), because wall time depends on who else is there. `start` is importing and
building, `first` the first step with its compilation, both in wall seconds. MFU is the model's
products (`bert.model.operations`) a CPU second, as a share of what a square product of float32 reaches a CPU
second in the same process.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.operations import model_flops_per_step
from multiberts.runs import console

VOCABULARY = 30_522
SIZES = {"tiny": (2, 128), "mini": (4, 256)}
# Batch size and predictions per sequence, by sequence length.
SHAPES = {128: (32, 20), 512: (8, 80)}
OURS = ("ours", "ours_no_xla")
TORCH = (
    "torch_compiled",
    "torch_compiled_kept_memory",
    "torch_eager",
    "torch_eager_kept_memory",
    "torch_usual",
)
KERAS = ("keras_fit_xla", "keras_fit")
WAYS = (*OURS, *TORCH, *KERAS)
# Required ratio of CPU seconds per step between the best of a group and ours.
TARGETS = {"tiny": {"torch": 1.5, "keras": 1.0}, "mini": {"torch": 1.2, "keras": 1.0}}
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0

Step = Callable[[], None]


def configuration(size: str) -> BertConfig:
    """Returns the model configuration of a size."""
    layers, hidden = SIZES[size]
    return BertConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


def made_up_batch(length: int) -> dict[str, np.ndarray]:
    """Returns the batch size and number of predictions for a length in `SHAPES`."""
    batch_size, predictions = SHAPES[length]
    return random_batch(batch_size, length, predictions)


def random_batch(batch_size: int, length: int, predictions: int) -> dict[str, np.ndarray]:
    """Returns random sequences of full length, with the original's feature names."""
    random = np.random.default_rng(0)
    positions = [random.permutation(length)[:predictions] for _ in range(batch_size)]
    return {
        "input_ids": random.integers(0, VOCABULARY, (batch_size, length)).astype(np.int32),
        "input_mask": np.ones((batch_size, length), np.int32),
        "segment_ids": (np.arange(length) >= length // 2) * np.ones((batch_size, 1), np.int32),
        "masked_lm_positions": np.sort(positions, axis=1).astype(np.int32),
        "masked_lm_ids": random.integers(0, VOCABULARY, (batch_size, predictions)).astype(np.int32),
        "masked_lm_weights": np.ones((batch_size, predictions), np.float32),
        "next_sentence_labels": random.integers(0, 2, batch_size).astype(np.int32),
    }


def our_step(way: str, size: str, length: int) -> Step:
    """Returns a function that makes one update by our engine."""
    batch = made_up_batch(length)
    trainer = our_trainer(configuration(size), compile_step=way == "ours")
    return lambda: float(trainer.step(batch, LEARNING_RATE, 0)["loss"])  # type: ignore[return-value]


def our_trainer(config: BertConfig, dtype: str = "float32", **settings: Any) -> Any:
    """Returns our engine with initial weights; `settings` are those of `TrainerSettings`."""
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.bert.training.engine import TrainerSettings, new_trainer

    trainer = new_trainer(
        lambda parameters, features, key, backend: pretraining_loss(
            parameters, config, features, key, dtype, backend
        ),
        TrainerSettings(weight_decay_rate=WEIGHT_DECAY, **settings),
    )
    trainer.start(initial_parameters(config, 0))
    return trainer


def torch_step(way: str, size: str, length: int) -> Step:
    """Returns a function that makes one update of `transformers`' model by PyTorch."""
    import torch

    if way.endswith("kept_memory"):
        from multiberts.runs.processes import keep_freed_memory

        keep_freed_memory()
    model = torch_model(configuration(size))
    batch = torch_batch(made_up_batch(length))
    everywhere = torch.full_like(batch["input_ids"], -100)
    everywhere.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def usual_loss(batch: Mapping[str, Any]) -> Any:
        return model(
            input_ids=batch["input_ids"],
            attention_mask=batch["input_mask"],
            token_type_ids=batch["segment_ids"],
            labels=everywhere,
            next_sentence_label=batch["next_sentence_labels"],
        ).loss

    loss = usual_loss if way == "torch_usual" else (lambda batch: gathered_loss(model, batch))
    if way.startswith("torch_compiled"):
        loss = torch.compile(loss)
    return torch_update(model, loss, [batch])


def torch_batch(batch: Mapping[str, np.ndarray], device: str = "cpu") -> dict[str, Any]:
    """Returns a batch as tensors, with the types of integers that PyTorch's losses take."""
    import torch

    tensors = {name: torch.from_numpy(values).to(device) for name, values in batch.items()}
    return {name: v.long() if v.dtype == torch.int32 else v for name, v in tensors.items()}


def torch_update(model: Any, loss: Callable[[Any], Any], parts: Sequence[Any]) -> Step:
    """Returns a function that makes one update by the sum of the loss' gradients on the parts of a batch."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
    )

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for part in parts:
            loss(part).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM, foreach=True)
        optimizer.step()

    return step


def torch_model(config: BertConfig) -> Any:
    """Returns `transformers`' model of our sizes, which attends by `scaled_dot_product_attention`."""
    import transformers

    sizes = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name not in ("hidden_act", "initializer_range")
    }
    return transformers.BertForPreTraining(
        transformers.BertConfig(**sizes, hidden_act="gelu_pytorch_tanh")
    ).train()


def gathered_loss(model: Any, batch: Mapping[str, Any]) -> Any:
    """Returns the loss of `transformers`' model, with scores of the vocabulary at masked positions only.

    Args:
      model: model from `torch_model`.
      batch: tensors by the original's names; `input_mask` may be absent if nothing is padded.
    """
    from torch.nn.functional import cross_entropy

    outputs = model.bert(
        input_ids=batch["input_ids"],
        attention_mask=batch.get("input_mask"),
        token_type_ids=batch["segment_ids"],
    )
    hidden = outputs.last_hidden_state
    at = batch["masked_lm_positions"][:, :, None].expand(-1, -1, hidden.shape[-1])
    logits, following = model.cls(hidden.gather(1, at), outputs.pooler_output)
    loss = cross_entropy(logits.flatten(0, 1), batch["masked_lm_ids"].flatten())
    return loss + cross_entropy(following, batch["next_sentence_labels"])


def keras_step(way: str, size: str, length: int) -> Step:
    """Returns a function that makes one update of KerasHub's model by Keras' `fit`."""
    import keras
    import keras_hub

    config, batch = configuration(size), made_up_batch(length)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        max_sequence_length=config.max_position_embeddings,
    )
    predictions = batch["masked_lm_positions"].shape[1]
    positions = keras.Input((predictions,), dtype="int32", name="masked_lm_positions")
    head = keras_hub.layers.MaskedLMHead(
        token_embedding=backbone.token_embedding, intermediate_activation="gelu"
    )
    words = head(backbone.output["sequence_output"], mask_positions=positions)
    following = keras.layers.Dense(2)(backbone.output["pooled_output"])
    model = keras.Model({**backbone.input, "masked_lm_positions": positions}, [words, following])
    model.compile(
        optimizer=keras.optimizers.AdamW(
            LEARNING_RATE, weight_decay=WEIGHT_DECAY, global_clipnorm=CLIP_NORM
        ),
        loss=[keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in range(2)],
        jit_compile=way == "keras_fit_xla",
    )
    features = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
        "masked_lm_positions": batch["masked_lm_positions"],
    }
    labels = [batch["masked_lm_ids"], batch["next_sentence_labels"]]
    # Fit many copies of the batch, so that start and end of `fit` cost little per step.
    import tensorflow as tf

    data = tf.data.Dataset.from_tensors((features, tuple(labels))).repeat()

    def step() -> None:
        model.fit(data, steps_per_epoch=keras_step.steps, epochs=1, verbose=0)  # type: ignore[attr-defined]

    return step


keras_step.steps = 1  # type: ignore[attr-defined]


def measure(way: str, size: str, length: int, *, repeats: int, seconds: float) -> dict[str, float]:
    """Times one method in this process: start, first step, and the least CPU and wall time per step."""
    begun = time.perf_counter()
    make = our_step if way in OURS else torch_step if way in TORCH else keras_step
    step = make(way, size, length)
    start = time.perf_counter() - begun
    begun = time.perf_counter()
    step()
    first = time.perf_counter() - begun
    step()  # torch recompiles if it first assumed a constant shape
    begun, cpu = time.perf_counter(), time.process_time()
    step()
    count = max(2, round(seconds / max(time.process_time() - cpu, 1e-3)))
    if way in KERAS:
        keras_step.steps = count  # type: ignore[attr-defined]
    cpu_seconds, wall_seconds = float("inf"), float("inf")
    for _ in range(repeats):
        begun, cpu = time.perf_counter(), time.process_time()
        for _ in range(1 if way in KERAS else count):
            step()
        cpu_seconds = min(cpu_seconds, (time.process_time() - cpu) / count)
        wall_seconds = min(wall_seconds, (time.perf_counter() - begun) / count)
    return {"cpu": cpu_seconds, "wall": wall_seconds, "start": start, "first": first}


def product_rate() -> float:
    """Returns FLOP per CPU second of a square float32 product by TensorFlow, the best of a few."""
    import tensorflow as tf

    size = 1024
    factor = tf.random.stateless_normal((size, size), seed=(0, 0))
    best = float("inf")
    for _ in range(12):
        begun = time.process_time()
        tf.linalg.matmul(factor, factor).numpy()
        best = min(best, time.process_time() - begun)
    return 2 * size**3 / best


def run_apart(arguments: list[str], threads: int) -> dict[str, float]:
    """Runs this file in a process with this number of threads, and parses the last line of its output."""
    environment = {
        **os.environ,
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Waiting threads sleep at once, because spinning would add to PyTorch's CPU seconds.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pretraining_speed", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def report_ways(
    size: str, length: int, measurements: Mapping[str, Mapping[str, float]], peak: float
) -> bool:
    """Prints one shape's table; returns whether its targets are met."""
    batch_size, predictions = SHAPES[length]
    flops = model_flops_per_step(configuration(size), batch_size, length, predictions)
    ours = measurements["ours"]["cpu"]
    console.report(
        f"\n{size}, {batch_size} x {length}, {predictions} predictions, {flops / 1e9:.1f} GFLOP"
    )
    console.report(
        f"{'way':<26}{'CPU s':>8}{'wall s':>8}{'ratio':>7}{'MFU':>6}{'start':>8}{'first':>8}"
    )
    for way, row in measurements.items():
        console.report(
            f"{way.replace('_', ' '):<26}{row['cpu']:>8.3f}{row['wall']:>8.3f}"
            f"{row['cpu'] / ours:>7.2f}{flops / row['cpu'] / peak:>6.0%}"
            f"{row['start']:>8.1f}{row['first']:>8.1f}"
        )
    met = True
    for group, factor in TARGETS[size].items():
        rows = [row["cpu"] for way, row in measurements.items() if way.startswith(group)]
        if rows:
            ratio = min(rows) / ours
            met &= ratio >= factor
            state = "met" if ratio >= factor else "MISSED"
            console.report(f"best {group}: {ratio:.2f} times ours, target {factor}: {state}")
    sys.stdout.flush()
    return met


def main() -> int:
    """Runs all methods and prints a table per size and length; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=list(SHAPES), choices=list(SHAPES)
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds of a repeat")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way, size, length = arguments.one
        if way == "product":
            console.report(json.dumps({"rate": product_rate()}))
            return 0
        row = measure(way, size, int(length), repeats=arguments.repeats, seconds=arguments.seconds)
        console.report(json.dumps(row))
        return 0
    ways = [way for way in arguments.ways if way != "ours"]
    if importlib.util.find_spec("keras_hub") is None:
        console.report(
            "KerasHub is not installed: without the Keras fit (make bench-pretrain installs it)"
        )
        ways = [way for way in ways if way not in KERAS]
    limits = [f"--repeats={arguments.repeats}", f"--seconds={arguments.seconds}"]
    peak = run_apart(["--one", "product", "-", "-", *limits], arguments.threads)["rate"]
    console.report(
        f"{arguments.threads} threads; a square product: {peak / 1e9:.0f} GFLOP a CPU second"
    )
    met = True
    for size in arguments.sizes:
        for length in arguments.lengths:
            measurements = {
                way: run_apart(["--one", way, size, str(length), *limits], arguments.threads)
                for way in ("ours", *ways)
            }
            met &= report_ways(size, length, measurements, peak)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
