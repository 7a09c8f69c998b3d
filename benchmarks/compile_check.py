"""Compiles the JAX engine's steps for absent accelerators, with their vendors' compilers.

    make compile-check                                        # all rows that are missing or stale
    python -m benchmarks.compile_check --only=base-512:v5e-8  # some rows, again

Requires the extra `compile`, but no device: compilers use a description of the device. Each row is compiled
in a separate process. Rows are written to docs/compile_table.jsonl, and as a page to docs/compile_table.md. A
row stays valid while the program (before compilation) and the compiler are unchanged.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

_DOCS = Path(__file__).resolve().parents[1] / "docs"
ROWS, PAGE = _DOCS / "compile_table.jsonl", _DOCS / "compile_table.md"
# Recipe of the release: gradients are clipped separately per shard of 8 sequences.
BATCH_SIZE, SHARDS, VOCABULARY = 256, 32, 30_522


@dataclasses.dataclass(frozen=True)
class Model:
    """Sizes of a model and of its training batches.

    Attributes:
      layers, hidden, heads: numbers of layers, hidden units and heads; feed-forward layers have width 4
        hidden.
      length: pieces of a sequence.
      predictions: number of masked positions per sequence.
      batch_size, shards: numbers of sequences and shards per update.
    """

    layers: int
    hidden: int
    heads: int
    length: int
    predictions: int
    batch_size: int = BATCH_SIZE
    shards: int = SHARDS


BASE = Model(12, 768, 12, 512, 80)
MODELS = {
    "base-512": BASE,
    "base-128": Model(12, 768, 12, 128, 20),
    "mini-128": Model(4, 256, 4, 128, 20),
    "large-512": Model(24, 1024, 16, 512, 80),
    "tiny-128": Model(2, 128, 2, 128, 20, 64, 8),
}


@dataclasses.dataclass(frozen=True)
class FinetunedModel:
    """A step of fine-tuning BERT-Base or of prediction with it, on one device.

    Attributes:
      batch_size: number of examples per step.
      length: length of the rows in pieces.
      has_spans: whether answers are spans, as in SQuAD; otherwise there are three classes.
      is_trained: whether the step is an update; otherwise it is a prediction.
      packed_rows: number of packed rows with at most four examples each; None: one row per example.
      compute_dtype: dtype of the matrix products.
    """

    batch_size: int
    length: int
    has_spans: bool = False
    is_trained: bool = True
    packed_rows: int | None = None
    compute_dtype: Literal["float32", "bfloat16"] = "float32"

    @property
    def rows(self) -> int:
        """Returns the number of rows in a batch."""
        return self.packed_rows or self.batch_size


# Batches of configs/finetune, and batches for prediction.
FINETUNED = {
    f"{name}-{dtype}": dataclasses.replace(model, compute_dtype=dtype)
    for name, model in {
        "squad-384": FinetunedModel(48, 384, has_spans=True),
        "classification-128": FinetunedModel(32, 128),
        "classification-128-packed": FinetunedModel(32, 128, packed_rows=14),
        "predict-384": FinetunedModel(64, 384, has_spans=True, is_trained=False),
        "predict-128": FinetunedModel(64, 128, is_trained=False),
    }.items()
    for dtype in ("float32", "bfloat16")
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Accelerators of one host.

    Attributes:
      topology: name of the topology in the compiler's plug-in.
      memory: bytes per JAX device, which is half a chip on v2.
      gigahertz: clock rate of the compiler's cycle estimates; None if it has no estimates.
    """

    topology: str
    memory: float
    gigahertz: float | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_WHOLE_CHIPS = {"chip_config_name": "megacore", "chips_per_host_bounds": (2, 2, 1)}
_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150000000000
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H200"
"""
TARGETS = {
    "v2-8": Target("v2:2x2", 8e9, 0.7),
    "v4-8": Target("v4:2x2x1", 32e9, 1.05, _WHOLE_CHIPS),
    "v5e-8": Target("v5e:2x4", 16e9, 1.5),
    "v5p-8": Target("v5p:2x2x1", 95e9, 1.75, _WHOLE_CHIPS),
    "v6e-8": Target("v6e:2x4", 32e9, 1.75),
    "H200": Target("1x1x1", 141e9, None, {"target_config": _H200, "topology": "1x1x1"}),
}
TABLE = (
    *(("base-512", target) for target in ("v5e-8", "H200", "v6e-8", "v4-8", "v5p-8", "v2-8")),
    *(
        (model, target)
        for model in ("base-128", "mini-128", "large-512")
        for target in ("v5e-8", "H200")
    ),
    *((name, target) for name in FINETUNED for target in ("v5e-8", "H200", "v6e-8")),
)
# Width of one product, whose estimate by the compiler is the ceiling for programs of this library.
PRODUCT, WIDTH = "product-8192", 8192
CEILINGS = tuple((PRODUCT, target) for target, chip in TARGETS.items() if chip.gigahertz)
# Packages of the compilers.
_TPU, _CUDA = "libtpu", "jax-cuda12-plugin"
_COMMENT = re.compile(r"/\*index=\d+\*/")


def package_of(target: str) -> str:
    """Returns the package with the compiler for a target."""
    return _CUDA if target == "H200" else _TPU


def devices_of(target: str) -> list[Any]:
    """Returns the described devices of a target."""
    from jax.experimental import topologies

    chip, platform = TARGETS[target], "cuda" if target == "H200" else "tpu"
    described = topologies.get_topology_desc(
        platform=platform, topology_name=chip.topology, **chip.options
    )
    return list(described.devices)


def lowered_step(model: Model, devices: list[Any]) -> Any:
    """Returns the engine's update (`jax.stages.Lowered`) of a model on devices, before compilation."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    from multiberts.bert.model.configuration import parameter_shapes
    from multiberts.bert.model.heads import pretraining_loss
    from multiberts.bert.training.devices import Devices
    from multiberts.bert.training.jax_devices import DATA
    from multiberts.bert.training.jax_trainer import JaxTrainer
    from multiberts.bert.training.trainer import DROPOUT_KEYS, TrainerSettings

    config = config_of(model)
    mesh = Mesh(np.array(devices), (DATA,)) if len(devices) > 1 else None
    whole: Any = SingleDeviceSharding(devices[0])
    dealt = whole
    if mesh is not None:
        whole, dealt = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), (DATA,)))

    def loss(parameters: Any, batch: Any, dropout_key: Any, backend: Any) -> Any:
        return pretraining_loss(parameters, config, batch, dropout_key, "bfloat16", backend)

    weights = {
        name: jax.ShapeDtypeStruct(shape, np.float32, sharding=whole)
        for name, shape in sorted(parameter_shapes(config).items())
    }
    widths = {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), ((model.length,), np.int32)),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), ((model.predictions,), np.int32)),
        "masked_lm_weights": ((model.predictions,), np.float32),
        "next_sentence_labels": ((), np.int32),
    }
    batch = {
        name: jax.ShapeDtypeStruct((model.batch_size, *shape), dtype, sharding=dealt)
        for name, (shape, dtype) in widths.items()
    }
    batch[DROPOUT_KEYS] = jax.ShapeDtypeStruct((model.shards, 2), np.uint32, sharding=dealt)
    rate = jax.ShapeDtypeStruct((), np.float32, sharding=whole)
    settings = TrainerSettings(gradient_shards=model.shards)
    described = Devices(mesh, len(devices), devices[0].device_kind)
    return JaxTrainer(loss, settings, described).lower((weights, weights, weights), batch, rate)


def lowered_finetuning(model: FinetunedModel, device: Any) -> Any:
    """Returns an update of fine-tuning, or a prediction (`jax.stages.Lowered`), for a device."""
    import jax
    import numpy as np
    from jax.sharding import SingleDeviceSharding

    from multiberts.bert.model.configuration import parameter_shapes
    from multiberts.bert.training.devices import Devices
    from multiberts.bert.training.jax_trainer import JaxTrainer
    from multiberts.bert.training.trainer import DROPOUT_KEYS, TrainerSettings
    from multiberts.finetune.packing import PACKING
    from multiberts.finetune.squad.task import SquadNetwork
    from multiberts.finetune.text.heads import Classification

    def described(*shape: int, dtype: Any = np.int32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(device))

    config, dtype = config_of(BASE), model.compute_dtype
    outputs, rows, examples = 2 if model.has_spans else 3, model.rows, model.batch_size
    network = (
        SquadNetwork(config, dtype) if model.has_spans else Classification(config, dtype, outputs)
    )
    shapes = {
        **{
            name: shape
            for name, shape in parameter_shapes(config).items()
            if not name.startswith("cls/")
        },
        "output_weights": (outputs, config.hidden_size),
        "output_bias": (outputs,),
    }
    weights = {name: described(*shapes[name], dtype=np.float32) for name in sorted(shapes)}
    inputs = ("input_ids", "input_mask", "segment_ids")
    batch = {name: described(rows, model.length) for name in inputs}
    if model.packed_rows is not None:
        sides = ((rows, model.length), (rows, model.length), (rows, 4), (examples,))
        batch |= {name: described(*side) for name, side in zip(PACKING, sides, strict=True)}
    if not model.is_trained:
        return jax.jit(network.predict).lower(weights, batch)
    answers = ("start_positions", "end_positions") if model.has_spans else ("labels",)
    batch |= {name: described(examples) for name in answers}
    batch[DROPOUT_KEYS] = described(1, 2, dtype=np.uint32)
    devices = Devices(None, 1, device.device_kind)
    trainer = JaxTrainer(network.loss, TrainerSettings(), devices)
    return trainer.lower((weights, weights, weights), batch, described(dtype=np.float32))


def lowered_product(device: Any) -> Any:
    """Returns a bfloat16 product [8192, 8192] x [8192, 8192] (`jax.stages.Lowered`) for a device."""
    import jax
    from jax.sharding import SingleDeviceSharding

    matrix = jax.ShapeDtypeStruct(
        (WIDTH, WIDTH), jax.numpy.bfloat16, sharding=SingleDeviceSharding(device)
    )
    return jax.jit(jax.numpy.matmul).lower(matrix, matrix)


def config_of(model: Model) -> Any:
    """Returns the `BertConfig` of a model."""
    from multiberts.bert.model.configuration import BertConfig

    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=model.hidden,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=4 * model.hidden,
    )


def compile_row(
    name: str, target: str, old_digest: str = "", text: Path | None = None
) -> dict[str, Any]:
    """Compiles a model's step for a target.

    Args:
      name: key of `MODELS` or `FINETUNED`, or `product-8192`.
      target: key of `TARGETS`.
      old_digest: digest of a program that is not compiled again.
      text: file to write the compiled program to, or None.

    Returns:
      A row of the table; only the digest if it equals `old_digest`.
    """
    devices, turns = devices_of(target), 1
    if name == PRODUCT:
        devices = devices[:1]
        lowered, flops = lowered_product(devices[0]), 2.0 * WIDTH**3
    elif name in FINETUNED:
        devices, finetuned = devices[:1], FINETUNED[name]
        lowered, flops = lowered_finetuning(finetuned, devices[0]), _finetuning_flops(finetuned)
    else:
        model = MODELS[name]
        lowered, flops = lowered_step(model, devices), _flops(model) / len(devices)
        turns = model.shards // len(devices)
    digest = hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]
    if digest == old_digest:
        return {"digest": digest}
    # Autotuning needs the device, so tile sizes differ from those of a run.
    options = {"xla_gpu_autotune_level": 0, "xla_gpu_deterministic_ops": True}
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    compiled = lowered.compile(compiler_options=options if target == "H200" else None)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF)
    optimised = compiled.as_text()
    if text is not None:
        text.write_text(optimised)
    sizes = compiled.memory_analysis()
    live = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    row = {
        "digest": digest,
        "compiled": True,
        "devices": len(devices),
        "device_kind": devices[0].device_kind,
        "seconds": round(seconds),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "gigabytes_to_compile": round(after.ru_maxrss / 1e6, 1),
        "memory": live + sizes.temp_size_in_bytes,
        "collectives": collectives(optimised),
    }
    gigahertz = TARGETS[target].gigahertz
    if gigahertz is not None:
        cycles = estimated_cycles(optimised, turns)
        share = _share_of_peak(flops, cycles / gigahertz / 1e9, devices[0].device_kind)
        row |= {"cycles": cycles, "mfu": round(share, 4)}
    else:
        row["kernels"] = kernels(optimised, turns)
    return row


def _flops(model: Model) -> float:
    from multiberts.bert.model.operations import model_flops_per_step

    return model_flops_per_step(config_of(model), model.batch_size, model.length, model.predictions)


def _finetuning_flops(model: FinetunedModel) -> float:
    from multiberts.bert.model.operations import model_flops_per_step

    return model_flops_per_step(config_of(BASE), model.rows, model.length, trained=model.is_trained)


def _share_of_peak(flops: float, seconds: float, device_kind: str) -> float:
    """Returns the share of a device's peak that corresponds to a time for some operations."""
    from multiberts.bert.model.operations import peak_flops_per_second

    peak = peak_flops_per_second(device_kind, "bfloat16")
    assert peak is not None, f"peaks.toml lacks {device_kind}"
    return flops / peak / seconds


def computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Returns the lines of each computation of a compiled program (HLO), and the name of the first."""
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if head:
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name:
            bodies[name].append(_COMMENT.sub("", line))
    return bodies, entry


def executed(text: str, turns: int) -> Iterator[tuple[str, int]]:
    """Yields the instructions of a compiled program with the number of times they run.

    Args:
      text: HLO text of the program.
      turns: iterations of a loop whose HLO text does not state them.
    """
    bodies, entry = computations(text)

    def walk(name: str, times: int) -> Iterator[tuple[str, int]]:
        for line in bodies[name]:
            if " while(" in line:
                body, condition = (
                    re.search(rf"{part}=%?([\w.\-]+)", line)[1]  # type: ignore[index]
                    for part in ("body", "condition")
                )
                trip_count = re.search(r"known_trip_count[^0-9]*(\d+)", line) or re.search(
                    r"s32\[\]\S* constant\((\d+)\)", "\n".join(bodies[condition])
                )
                yield from walk(body, times * int(trip_count[1] if trip_count else turns))
            elif " call(" in line or " conditional(" in line:
                for called in re.findall(r"(?:to_apply|calls)=%?([\w.\-]+)", line):
                    yield from walk(called, times)
            else:
                yield line, times

    return walk(entry, 1)


def estimated_cycles(text: str, turns: int) -> int:
    """Returns the sum of the TPU compiler's estimates for the instructions of a compiled program.

    Transfers between devices have no estimate.

    Args:
      text: HLO text of the program.
      turns: iterations of a loop whose HLO text does not state them.
    """
    return sum(
        times * int(cycles[1])
        for line, times in executed(text, turns)
        if (cycles := re.search(r'"estimated_cycles":"(\d+)"', line))
    )


# Instructions of GPU programs that the host launches separately.
_LAUNCHED = re.compile(
    r" (?:fusion|custom-call|convolution|dot|copy|reduce|reduce-window|sort|scatter|gather|transpose)\("
)


def kernels(text: str, turns: int) -> int:
    """Returns the number of kernels that a compiled program for GPUs launches.

    Args:
      text: HLO text of the program.
      turns: iterations of a loop whose HLO text does not state them.
    """
    return sum(times for line, times in executed(text, turns) if _LAUNCHED.search(line))


_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "pred": 1, "s8": 1, "u8": 1}


def collectives(text: str) -> dict[str, list[int]]:
    """Returns the number of transfers between devices of a compiled program, and their bytes, by kind."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    kinds = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
    for line, times in executed(text, 1):
        operation = re.search(rf" = (.*?) ({kinds})(?:-start)?\(", line)
        if operation:
            counts[operation[2]] += times
            for dtype, sides in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", operation[1]):
                size = _BYTES.get(dtype, 0)
                for side in filter(None, sides.split(",")):
                    size *= int(side)
                sizes[operation[2]] += times * size
    return {kind: [counts[kind], sizes[kind]] for kind in sorted(counts)}


def versions(target: str) -> dict[str, str]:
    """Returns the versions of JAX and of a target's compiler; `missing` if it is not installed."""
    versions_by_package = {}
    for package in ("jax", package_of(target)):
        try:
            versions_by_package[package] = version(package)
        except PackageNotFoundError:
            versions_by_package[package] = "missing"
    return versions_by_package


def compiled_apart(name: str, target: str, limit: float, old_digest: str = "") -> dict[str, Any]:
    """Makes a row in a separate process; see `compile_row`.

    Args:
      name: key of `MODELS` or `FINETUNED`.
      target: key of `TARGETS`.
      limit: seconds before the process is stopped.
      old_digest: digest of a program that is not compiled again.

    Returns:
      The row, with `compiled` False and the reason in `why` if compilation failed.
    """
    if "missing" in versions(target).values():
        why = f"{package_of(target)} is not installed: install multiberts[compile]"
        return {"compiled": False, "why": why}
    command = [
        sys.executable,
        "-m",
        "multiberts.benchmarks.compile_check",
        f"--only={name}:{target}",
    ]
    environment = {
        **os.environ,
        "MULTIBERTS_ENGINE": "jax",
        "JAX_PLATFORMS": "cpu",  # for computation; compilers for other devices need none
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # they use no device
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    try:
        done = subprocess.run(
            [*command, f"--here={old_digest or 'always'}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return {"compiled": False, "why": f"stopped at the limit of {limit:.0f} s"}
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"compiled": False, "why": (lines or [f"exit status {done.returncode}"])[-1][:300]}
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the rows of a table by `model:target`; empty if the file is missing."""
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {f"{row['model']}:{row['target']}": row for row in rows}


_HEADER = """# Compiled for accelerators that were not there

Made by `make compile-check` with {versions}; the rows are in `docs/compile_table.jsonl`. It is the
whole training step of the JAX engine: {batch_size} sequences in {shards} shards that are clipped apart, bfloat16 products,
dropout on. **Nothing here was run on an accelerator**: all figures are the compilers' own.

Rows of squad, classification and predict are BERT-Base on one device: an update of fine-tuning (48 x 384; 32 x 128, or these 32 packed
into 14 rows), or a prediction (64 rows), in float32 or bfloat16. MFU is of the bfloat16 peak in both.

A device is what JAX calls one: half a chip on v2, a chip elsewhere. Memory is weights, moments and all that a
step needs besides. Cycles are the sum of the TPU compiler's own estimates, without the transfers between
devices, without copies that run beside the rest, and custom calls (kernels written by hand) count nothing; MFU is the model's products
at the clock of the chip, as a share of its peak. It counts the whole last layer, though the step computes only what the heads read (of
base-512 5.7 % fewer products). The ceiling is the share that the same estimate grants one bfloat16 product of two matrices of 8192 x
8192, alone: no program of these products can be above it. The compiler for GPUs estimates no
cycles, and chooses the tiles of products without the device, on which it would try them; kernels are what the
host launches in a step. CPU seconds are those of compiling, on a busy machine. [Engines and speed](engines.md) has more.

| model, length | target | devices | compiles | CPU s | GB of memory per device | M cycles | MFU | ceiling | kernels | transfers per step |
|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def page(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page of a table, in Markdown."""
    used = {f"{name} {text}" for row in rows.values() for name, text in row["versions"].items()}
    header = _HEADER.format(versions=", ".join(sorted(used)), batch_size=BATCH_SIZE, shards=SHARDS)
    lines = [
        _line(model, target, rows.get(f"{model}:{target}"), rows.get(f"{PRODUCT}:{target}", {}))
        for model, target in TABLE
    ]
    return header + "\n".join(lines) + "\n"


def _line(
    model: str, target: str, row: Mapping[str, Any] | None, product: Mapping[str, Any]
) -> str:
    if row is None or not row["compiled"]:
        why = row["why"].replace("|", "/") if row else "not tried yet"
        return f"| {model} | {target} | | not compiled: {why} | | | | | | | |"
    cells = [
        model,
        target,
        f"{row['devices']} x {row['device_kind']}",
        "yes",
        str(row["cpu_seconds"]),
        f"{row['memory'] / 1e9:.1f} of {TARGETS[target].memory / 1e9:.0f}",
        f"{row['cycles'] / 1e6:.1f}" if "cycles" in row else "",
        f"{row['mfu']:.1%}" if "mfu" in row else "",
        f"{product['mfu']:.0%}" if "mfu" in product else "",
        f"{row['kernels']:,}" if "kernels" in row else "",
        ", ".join(
            f"{count} {kind} ({size / 1e6:.0f} MB)"
            for kind, (count, size) in row["collectives"].items()
        )
        or "none",
    ]
    return f"| {' | '.join(cells)} |"


def check(keys: Iterable[str], limit: float, again: bool) -> None:
    """Makes missing and stale rows, one after the other, and the page."""
    for key in keys:
        name, target = key.split(":")
        old = read_rows(ROWS).get(key, {})
        same_compiler = old.get("versions") == versions(target) and not again
        row = compiled_apart(name, target, limit, old.get("digest", "") if same_compiler else "")
        if "compiled" in row:
            rows = read_rows(ROWS)  # another process may have added rows meanwhile
            rows[key] = {"model": name, "target": target, "versions": versions(target), **row}
            text = "".join(json.dumps(rows[key]) + "\n" for key in sorted(rows))
            partial = ROWS.with_suffix(".partial")
            partial.write_text(text)
            partial.replace(ROWS)
        print(f"{key}: {json.dumps(row) if 'compiled' in row else 'unchanged'}", flush=True)
        PAGE.write_text(page(read_rows(ROWS)))


def main() -> None:
    """Makes the table, or one row in this process."""
    flags = argparse.ArgumentParser(
        description="Compiles the step for accelerators that are not here."
    )
    flags.add_argument(
        "--only", default="", help="rows such as base-512:v5e-8, with commas; made again"
    )
    flags.add_argument("--limit", type=float, default=1800.0, help="seconds per row")
    flags.add_argument("--text", type=Path, help="with --here: file for the compiled program")
    flags.add_argument(
        "--here", default="", help="in this process: a digest to leave out, or 'always'"
    )
    arguments = flags.parse_args()
    if arguments.here:
        name, target = arguments.only.split(":")
        print(json.dumps(compile_row(name, target, arguments.here, arguments.text)))
        return
    keys = arguments.only.split(",") if arguments.only else map(":".join, (*TABLE, *CEILINGS))
    check(keys, arguments.limit, again=bool(arguments.only))


if __name__ == "__main__":
    main()
