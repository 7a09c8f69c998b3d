"""Shows within eight minutes whether the JAX engine is right on an NVIDIA GPU, and how fast it is.

    make bench-gpu PYTHON=python    # of an environment with JAX and PyTorch for the GPU, and transformers
    python -m benchmarks.gpu_check --toy    # everything at toy size, on a processor

First the project's commands on a tiny model, several at once on the card: the same updates on the processor
and on the GPU, a run that is killed and resumed, a fine-tuning. Then the speed of updates of BERT-Base on
made-up batches, each way alone: our engine with the recipe's 32 gradient shards clipped apart, variants of
it, and `transformers`' BertForPreTraining (scaled-dot-product attention without a mask, as nothing is padded)
by torch.compile under autocast, masked positions gathered before the head, the gradient clipped at once.

Sequences per second are of the best repeat, from an idle device to an idle device. The peak's share is that
of the model's products (301.4 GFLOP per sequence at 512, 69.9 at 128). Memory is the most that the device's
allocator held; on a processor, of the process. The first step includes its compilation.

The exit status is 1 where something failed, where bytes that must be equal differ, where numbers are further
apart than the goals, or, on a device whose peak is known, where ours at 512 is below 25 % of it or behind
PyTorch; 2 without a GPU. A variant for which no time is left does not count.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from multiberts.benchmarks import pretraining_speed as peers
from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.operations import model_flops_per_step, peak_flops_per_second
from multiberts.bert.training.log import METRICS, read_metrics
from multiberts.bert.training.state import STATE
from multiberts.evaluate.prediction_files.prediction_file import read_file
from multiberts.runs import console
from multiberts.runs.environment import ATTENTION, ENGINE, HIGHEST, JAX, PLAIN, PRECISION
from multiberts.runs.errors import UserError

LEAST_SHARE, AIM = 0.25, 0.40
LEAST_SECONDS, NO_TIME = 15.0, "no time left"  # to start a process

FULL, PROCESSOR = {PRECISION: HIGHEST}, {"JAX_PLATFORMS": "cpu"}
_WORLD = "world --num_documents={documents} --num_train_facts={facts} --num_dev_facts={facts}"
_CORPUS = """prepare --sources={work}/world/corpus.txt --source_format=sentences --vocabulary_size=1000
  --sequence_length=64"""
_PRETRAIN = """pretrain --corpus={work}/corpus --model={model} --pretrain_seed=0 --sequence_length=64
  --batch_size=32 --gradient_shards=4 --max_predictions_per_sequence=10 --warmup_steps=4
  --learning_rate=1e-3 --tensorboard=false """
_FEW = _PRETRAIN + "--num_steps=24 --log_every_steps=1"
_MANY = _PRETRAIN + (
    "--num_steps={steps} --log_every_steps=4 --save_state_every_steps={save} --compute_dtype={dtype}"
)
_TUNE = """finetune --task=facts --data_dir={work}/world/facts --num_epochs=1 --learning_rate=3e-4
  --checkpoint={work}/processor/checkpoints/step_24 --sequence_length=32 --log_every_steps=1 --keep=last"""
# {run: (the run that it needs, command, environment)}
RUNS: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "world": ("", _WORLD, {}),
    "corpus": ("world", _CORPUS, {}),
    "processor": ("corpus", _FEW, PROCESSOR),
    "gpu": ("corpus", _FEW, FULL),
    "again": ("corpus", _FEW, FULL),
    "whole": ("corpus", _MANY, {}),
    "killed": ("corpus", _MANY, {}),
    "plain": ("corpus", _FEW, {**FULL, ATTENTION: PLAIN}),
    "tf32": ("corpus", _FEW, {}),
    "tuned": ("processor", _TUNE, PROCESSOR),
    "tuned-gpu": ("processor", _TUNE, FULL),
    "tuned-again": ("processor", _TUNE, FULL),
}
_GOALS = {"weights": 1e-4, "first loss": 1e-5}
# {sentence: (two runs, the most that they may be apart; None: not in a byte)}
PAIRS: dict[str, tuple[str, str, Mapping[str, float] | None]] = {
    "24 updates twice on the GPU": ("gpu", "again", None),
    "24 updates, GPU against processor": ("gpu", "processor", _GOALS),
    "24 updates, GPU with plain attention against processor": ("plain", "processor", _GOALS),
    "24 updates, GPU with TF32 against processor": ("tf32", "processor", {}),
    "A run killed and resumed against one that was not": ("killed", "whole", None),
    "Fine-tuned twice on the GPU": ("tuned-gpu", "tuned-again", None),
    "Fine-tuned, GPU against processor": ("tuned-gpu", "tuned", {"scores": 1e-4}),
}

_NAMES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
_TINY = dict(zip(_NAMES, (2, 128, 2, 512), strict=True))
_TOY = dict(zip(_NAMES, (1, 16, 2, 32), strict=True))
SIZES: dict[str, dict[str, Any]] = {
    "base": {"documents": 4000, "facts": 600, "steps": 3000, "save": 300, "dtype": "bfloat16"},
    "toy": {"documents": 300, "facts": 64, "steps": 100, "save": 10, "dtype": "float32"},
}
_BASE, _SMALL = BertConfig(peers.VOCABULARY), BertConfig(peers.VOCABULARY, **_TOY)  # type: ignore[arg-type]
SHAPES = {  # (model, batch size, length, predictions), gradient shards
    "base-512": ((_BASE, 256, 512, 80), 32),
    "base-128": ((_BASE, 256, 128, 20), 32),
    **dict.fromkeys(("toy-512", "toy-128"), ((_SMALL, 4, 32, 5), 2)),
}


class Way(NamedTuple):
    """A way to train: a row of the table. `constants` are new values of those of `jax_trainer`."""

    name: str
    shape: str
    passes: int = 0  # PyTorch's per update, each on a part of the batch; 0: our engine
    dropout: float = 0.1
    dtype: str = "bfloat16"
    constants: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}
    repeats: Sequence[int] = (10, 10, 10)  # updates that are timed together


Row = Mapping[str, Any]
OURS = "JAX engine"
TUNED = f"{OURS}, kernels tuned"
AGAIN, KEPT, ANEW = f"{OURS}, again", f"{TUNED}, tuning kept", f"{TUNED} anew"
# Rows at 512 that may end in the same bytes, and whether the engine promises it.
SAME = ((OURS, AGAIN, True), (TUNED, KEPT, None), (TUNED, ANEW, None))


def ways(work: Path, size: str) -> list[Way]:
    """Returns all ways, what is most worth knowing first; `verdict` asks the first two."""
    at_512, at_128 = f"{size}-512", f"{size}-128"

    def tuned(name: str, folder: str) -> Way:
        # XLA tries deterministic kernels, and keeps in the folder which were fastest.
        options = {"GPU_OPTIONS": {"xla_gpu_exclude_nondeterministic_ops": True}}
        kept = {"JAX_COMPILATION_CACHE_DIR": str(work / folder)}
        return Way(name, at_512, constants=options, environment=kept)

    found = [
        Way(OURS, at_512),
        Way("PyTorch, four passes", at_512, 4),
        tuned(TUNED, "tuned"),
        tuned(KEPT, "tuned"),
        Way(f"{OURS}, four shards at once", at_512, constants={"SHORT": 512}),
        Way(OURS, at_128),
        Way("PyTorch, one batch", at_128, 1),
        Way(f"{OURS}, sixteen shards at once", at_128, constants={"SHARDS_AT_ONCE": 16}),
        Way(f"{OURS}, float32 as TF32", at_128, dtype="float32"),
        Way(f"{OURS}, float32 in full", at_128, dtype="float32", environment=FULL),
        Way(AGAIN, at_512),
        tuned(ANEW, "anew"),
        Way(f"{OURS}, no dropout", at_512, dropout=0.0),
        Way("PyTorch, four passes, no dropout", at_512, 4, dropout=0.0),
    ]
    return found if size == "base" else [way._replace(repeats=(2,)) for way in found]


def ours(way: Way, config: BertConfig) -> tuple[Callable, Callable, Callable]:
    """Returns our engine's functions: start an update, wait for it, and return facts at the end."""
    # Hide TensorFlow from imports.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    from multiberts.bert.training import jax_trainer

    import jax  # isort: skip  # after the engine's settings

    for name, value in way.constants.items():
        getattr(jax_trainer, name)  # setting a name that is gone would change nothing
        setattr(jax_trainer, name, value)
    (_, *sizes), shards = SHAPES[way.shape]
    trainer = peers.our_trainer(config, way.dtype, gradient_shards=shards, devices=1)
    batch, last = peers.random_batch(*sizes), {}

    def facts() -> dict[str, Any]:
        weights = sorted(trainer.parameters().items())
        digest = hashlib.sha256(b"".join(name.encode() + part.tobytes() for name, part in weights))
        memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        return {"device": trainer.devices.kind, "memory": memory, "weights": digest.hexdigest()}

    return (
        lambda: last.update(trainer.step(batch, peers.LEARNING_RATE, 0)),
        # Waiting for the loss is enough, because loss and weights are computed by one program.
        lambda: jax.block_until_ready(last),
        facts,
    )


def pytorch(way: Way, config: BertConfig) -> tuple[Callable, Callable, Callable]:
    """Returns the same functions of PyTorch's model."""
    import torch

    device = "cpu" if os.environ["JAX_PLATFORMS"] == "cpu" else "cuda"
    torch.set_float32_matmul_precision("high")
    model = peers.torch_model(config).to(device)
    (_, *sizes), _ = SHAPES[way.shape]
    batch = peers.torch_batch(peers.random_batch(*sizes), device)
    del batch["input_mask"]
    chunks = {name: values.chunk(way.passes) for name, values in batch.items()}
    parts = [{name: chunks[name][part] for name in chunks} for part in range(way.passes)]
    compiled = torch.compile(peers.gathered_loss)

    def loss(part: Mapping[str, Any]) -> Any:
        with torch.autocast(device, torch.bfloat16):
            return compiled(model, part) / way.passes

    step = peers.torch_update(model, loss, parts)
    if device == "cpu":
        return step, lambda: None, lambda: {"device": "CPU", "memory": None}
    cuda = torch.cuda
    facts = {"device": cuda.get_device_name()}
    return step, cuda.synchronize, lambda: {**facts, "memory": cuda.max_memory_allocated()}


def measure(way: Way) -> Row:
    """Returns `seconds` per update, `first` seconds, `memory` bytes, `device` and SHA-256 of `weights`."""
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), way.dropout)
    config = dataclasses.replace(SHAPES[way.shape][0][0], **rates)  # type: ignore[arg-type]
    step, wait, facts = (pytorch if way.passes else ours)(way, config)

    def seconds(steps: int) -> float:
        begun = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return (time.perf_counter() - begun) / steps

    first, _ = seconds(1), seconds(1)  # PyTorch recompiles if it first assumed a constant shape
    row = {"first": first, "seconds": min(map(seconds, way.repeats)), **facts()}
    row["memory"] = row["memory"] or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


def versions() -> Row:
    """Returns versions of packages or why they cannot be imported, the driver's, and JAX's device."""
    found = {"Python": sys.version.split()[0]}
    for name in ("numpy", "jax", "keras", "absl", "gin", "torch", "transformers"):
        try:
            found[name] = getattr(__import__(name), "__version__", "found")
        except Exception as error:
            found[name] = f"MISSING ({type(error).__name__}: {error})"
    driver = Path("/proc/driver/nvidia/version")
    found["driver"] = driver.read_text().splitlines()[0] if driver.exists() else "none"
    with contextlib.suppress(KeyError, RuntimeError):
        found["device"] = sys.modules["jax"].devices()[0].device_kind
    return found


def share(way: Way, row: Row) -> float | None:
    """Returns the share of the device's peak that a way reached; None if the peak is not known."""
    peak = peak_flops_per_second(row["device"], way.dtype)
    if peak is None or way.environment == FULL:  # the known peak of float32 is that of TF32
        return None
    return model_flops_per_step(*SHAPES[way.shape][0]) / row["seconds"] / peak


TITLE = "| {}: sequences of | | per second | ms | share of the peak | memory | first step |"


def table_row(way: Way, row: Row) -> str:
    _, batch_size, length, _ = SHAPES[way.shape][0]
    if "reason" in row:
        return f"| {length} | {way.name} | {row['reason'].replace('|', '/')} | | | | |"
    reached = share(way, row)
    return (
        f"| {length} | {way.name} | {batch_size / row['seconds']:,.0f} "
        f"| {row['seconds'] * 1e3:,.1f} | {'-' if reached is None else f'{reached * 100:.1f} %'} "
        f"| {row['memory'] / 2**30:.1f} GiB | {row['first']:.0f} s |"
    )


def verdict(rows: Sequence[tuple[Way, Row]]) -> dict[str, bool | None]:
    """Returns sentences on the rows of `ways`, with whether all is well; None: nothing is asked."""
    found: dict[str, bool | None] = {}
    (way, first), (_, second) = rows[:2]
    if "reason" in first or "reason" in second:
        found["The JAX engine and PyTorch at 512: not both measured"] = False
    else:
        reached, ratio = share(way, first), second["seconds"] / first["seconds"]
        if reached is not None:
            text = f"{reached:.1%} of the peak at 512 ({LEAST_SHARE:.0%} asked, {AIM:.0%} the aim)"
            found[text] = reached >= LEAST_SHARE
        text = f"The JAX engine at 512 is {ratio:.2f} times as fast as PyTorch"
        found[text] = None if reached is None else ratio >= 1
    weights = {way.name: row.get("weights") for way, row in rows if way.shape.endswith("512")}
    for name, other, is_promised in SAME:
        if weights.get(name) and weights.get(other):
            is_same = weights[name] == weights[other]
            text = f"{name}, and {other}: {'the same bytes' if is_same else 'OTHER BYTES'}"
            found[text] = is_promised and is_same
    return found


def compared(first: Path, second: Path, most: Mapping | None) -> tuple[str, bool | None]:
    """Returns how two runs differ, weights as a share of the largest of their array, and whether they may.

    A key's bias has no gradient: its values are rounding errors, and it is left out.
    """
    runs = (first, second)
    weights = [next(run.rglob("bert.ckpt.data*")) for run in runs]
    if most is None:
        is_same = weights[0].read_bytes() == weights[1].read_bytes()
        return "the same bytes" if is_same else "OTHER BYTES", is_same
    one, other = (read_checkpoint(path.parent).variables for path in weights)
    logs = [read_metrics(run / METRICS) for run in runs]
    losses = [next(line["loss"] for line in log if "loss" in line) for log in logs]
    scores = [read_file(path).scores for run in runs for path in run.glob("predictions/*")]
    names = [name for name in other if not name.endswith("key/bias")]
    apart = (abs(one[name] - other[name]).max() / abs(other[name]).max() for name in names)
    found = {"weights": max(apart), "first loss": abs(losses[0] - losses[1]) / losses[1]}
    if scores:
        found["scores"] = abs(scores[0] - scores[1]).max()
    goals = {name: f" (at most {limit:.0e})" for name, limit in most.items()}
    text = ", ".join(f"{name} {value:.1e}{goals.get(name, '')}" for name, value in found.items())
    return text, all(found[name] <= limit for name, limit in most.items()) if most else None


def reason(log: Path) -> str:
    """Returns the line of a log that says best why a process failed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line for line in lines if "Error: " in line or line.startswith("error: ")]
    return next(filter(None, [*reversed(errors), *reversed(lines), "it printed nothing"]))[:200]


class Bench:
    """The processes of one call within its time; `faults` are sentences on what is not as it should be."""

    def __init__(self, out: Path, work: Path, limit: float, size: str):
        self._out, self._work, self._limit, self._size = out, work, limit, size
        self._begun = time.monotonic()
        self._runs: dict[str, concurrent.futures.Future[None]] = {}
        self.faults: list[str] = []
        self.is_stopped = False  # then all processes end, and none starts
        self._environment = {
            **{**os.environ, ENGINE: JAX, ATTENTION: "", PRECISION: ""},
            "JAX_PLATFORMS": "cpu" if size == "toy" else "cuda,cpu",
            # On a GPU every process compiles its programs, so that equal bytes mean something.
            "JAX_COMPILATION_CACHE_DIR": str(work / "programs") if size == "toy" else "",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0" if size == "toy" else "1000000",
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            # PyTorch's C++ for processors takes half a minute to compile.
            "TORCH_COMPILE_DISABLE": "1" if size == "toy" else "0",
        }

    def say(self, text: str, is_good: bool | None = None, **facts: Any) -> None:
        """Writes a sentence, which is a fault if it is not good; None: nothing is asked."""
        if self.is_stopped:
            return
        facts.update(second=time.monotonic() - self._begun, text=text, is_good=is_good)
        line = text + {None: "", True: ": good", False: ": NOT GOOD"}[is_good]
        console.report(line)
        for name, content in {"summary.txt": line, "numbers.jsonl": json.dumps(facts)}.items():
            with (self._out / name).open("a") as file:
                file.write(content + "\n")
        self.faults += [text] * (is_good is False)

    def run(self, name: str, *command: str, until: Callable = bool, **variables: Any) -> str:
        """Runs a Python module to its end, or kills it when `until` holds; returns its output."""
        log, begun, is_enough = self._work / f"{name}.log", time.monotonic(), False
        left = self._begun + self._limit - begun
        most = min(max(60.0, self._limit / 3), left)
        if self.is_stopped or left < LEAST_SECONDS:
            raise UserError(NO_TIME)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**self._environment, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        while process.poll() is None and time.monotonic() - begun < most:
            time.sleep(0.02)
            is_enough = until()
            if is_enough or self.is_stopped:
                break
        status = process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if status == 0 or is_enough:
            return log.read_text(errors="replace")
        shutil.copy(log, self._out / "logs")
        late = f"failed: no end within {most:.0f} s" if most < left else NO_TIME
        raise UserError(late if status is None else f"failed: {reason(log)}")

    def own_process(self, name: str, way: Way | None, **variables: Any) -> Row:
        """Returns what this module finds in a process of its own: `measure` of a way, or `versions`."""
        module = "multiberts.benchmarks.gpu_check"
        output = self.run(name, module, "--one", json.dumps(way), **variables)
        return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])

    def _command(self, name: str) -> None:
        """Runs a command of `RUNS`; `killed` is killed after a third of its updates, and resumed."""
        needed, text, variables = RUNS[name]
        if needed:
            self._runs[needed].result()
        run, facts = self._work / name, SIZES[self._size]
        model = _TOY if self._size == "toy" else _TINY
        flags = [part.format(work=self._work, model=model, **facts) for part in text.split()]
        command = (name, "multiberts", *flags, f"--run_dir={run}")
        if name == "killed":
            lines = facts["steps"] / 4 / 3
            self.run(*command, until=lambda: len(read_metrics(run / METRICS)) > lines, **variables)
            if not any((run / STATE).glob("*.npz")):
                raise UserError("failed: it left nothing to resume")
        self.run(*command, **variables)

    def commands(self) -> None:
        """Runs the commands, several at once, and says what they show."""
        self._environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        with concurrent.futures.ThreadPoolExecutor(min(10, os.cpu_count() or 1)) as pool:
            for name in RUNS:  # each after the one that it needs
                self._runs[name] = pool.submit(self._command, name)
        for sentence, (first, second, most) in PAIRS.items():
            try:
                for name in (first, second):
                    self._runs[name].result()
                found, is_good = compared(self._work / first, self._work / second, most)
            except UserError as error:
                found, is_good = str(error), False
            self.say(f"{sentence}: {found}", is_good)

    def speeds(self, device: str) -> None:
        """Measures all ways, each alone on the device, and says what they show."""
        rows: list[tuple[Way, Row]] = []
        self._environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
        self.say(TITLE.format(device) + "\n|---|---|" + "---:|" * 5)
        for number, way in enumerate(ways(self._work, self._size)):
            try:
                row = self.own_process(f"way-{number}", way, **way.environment)
            except UserError as error:
                row = {"reason": str(error)}
            rows.append((way, row))
            self.say(table_row(way, row), **way._asdict(), **row)
            if row.get("reason", NO_TIME) != NO_TIME:
                self.faults.append(f"{way.name}: {row['reason']}")
        for sentence, is_good in verdict(rows).items():
            self.say(sentence, is_good)


def main() -> int:
    """Shows everything; returns 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--toy", action="store_true", help="toy size, on a processor")
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="folder to write")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds of the whole")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way = json.loads(arguments.one)
        console.report(json.dumps(measure(Way(*way)) if way else versions()))
        return 0
    out = arguments.out
    shutil.rmtree(out / "logs", ignore_errors=True)
    (out / "logs").mkdir(parents=True)
    for name in ("summary.txt", "numbers.jsonl"):
        (out / name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-", ignore_cleanup_errors=True) as work:
        bench = Bench(out, Path(work), arguments.limit, "toy" if arguments.toy else "base")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: setattr(bench, "is_stopped", True))
        try:
            found = bench.own_process("versions", None)
        except UserError as error:
            found = {"device": str(error)}
        note = ["toy size, where this processor plays the GPU"] * arguments.toy
        bench.say("; ".join([*map(" ".join, found.items()), *note]), **found)
        if not arguments.toy and found.get("device", "cpu") == "cpu":
            console.error(
                f"JAX of {sys.executable} finds no GPU; run make bench-gpu PYTHON=python with the Python of "
                "an environment with multiberts[jax-cuda12], or add TOY=1"
            )
            return 2
        bench.commands()
        bench.speeds(found["device"])
    if bench.is_stopped:
        console.error(f"stopped by a signal; {out}/summary.txt has what was shown before")
        return 130
    faults = "\n- ".join(["Not as it should be:", *bench.faults])
    bench.say(faults if bench.faults else "Everything is as it should be.")
    return 1 if bench.faults else 0


if __name__ == "__main__":
    sys.exit(main())
