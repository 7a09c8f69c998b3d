"""Measures the time of a whole fine-tuning sweep, compared with separate runs of the usual script.

    make bench-finetune
    python -m benchmarks.finetuning_speed --peer-runs 3

RTE-sized data: 2,490 training and 277 development pairs of made-up words, as long as RTE's are in
pieces of BERT's vocabulary (a median of 56, every eighth cut at 128). A word of the second text gives
the label, which is wrong in every twelfth pair. Tiny model (L2/H128, 30,522 pieces) of random weights,
3 epochs, batch 32, length 128, 4 learning rates x 5 seeds.

- ours: `multiberts sweep`, whose workers (--workers) share the runs and the threads;
- the peer: one process per run of benchmarks/hugging_face_finetuning.py (transformers' Trainer, from our
  export of the same weights), which pads to 128 as that script does by default.

Both have the same number of threads (--threads). Wall time and CPU time of whole processes, start-up
and compilation included. With fewer --peer-runs than 20, the peer's time is that many times as long
and the output says so. The accuracies need not agree run by run, since the peer draws its own heads,
orders and dropout: what must agree is their mean, within its own error. The rates are those at which
both learn: the recipe's Adam has no bias correction, so its first updates are larger, and from 7e-4 on
many of its runs stay at chance where the peer's do not (Zhang et al. 2021, "Revisiting few-sample BERT
fine-tuning", section 4).

The peer needs accelerate, which `make bench-finetune` installs.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

NUM_TRAIN, NUM_DEV = 2_490, 277
VOCABULARY = 30_522
LEARNING_RATES = (5e-4, 4e-4, 3e-4, 2e-4)
SEEDS = (0, 1, 2, 3, 4)
BATCH_SIZE, EPOCHS, LENGTH = 32, 3, 128
WRONG_LABELS = 1 / 12
TARGET = 4.0
# Quantiles of RTE's lengths in pieces, before truncation and including special pieces.
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.874, 1.0)
LENGTHS = (13, 33, 43, 56, 85, 128, 250)
LABELS = ("entailment", "not_entailment")
_LETTERS = "bcdfghklmnprstvz"


def words(count: int) -> list[str]:
    """Returns distinct made-up words of two or three syllables."""
    syllables = [consonant + vowel for consonant in _LETTERS for vowel in "aeiou"]
    pairs = ("".join(parts) for parts in itertools.product(syllables, repeat=2))
    triples = ("".join(parts) for parts in itertools.product(syllables, repeat=3))
    return list(itertools.islice(itertools.chain(pairs, triples), count))


def write_vocabulary(path: Path) -> list[str]:
    """Writes the vocabulary file and returns its words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = words(VOCABULARY - len(special))
    path.write_text("\n".join([*special, *vocabulary]) + "\n")
    return vocabulary


def write_data(folder: Path, vocabulary: Sequence[str]) -> None:
    """Writes `train.tsv` and `dev.tsv` in the layout of RTE."""
    folder.mkdir()
    random = np.random.default_rng(0)
    # Frequent and rare words, as in text; the first of them determine the labels.
    cues, others = vocabulary[:16], np.array(vocabulary[16:])
    weights = 1 / np.arange(10, 10 + len(others))
    weights /= weights.sum()
    for split, count in (("train", NUM_TRAIN), ("dev", NUM_DEV)):
        rows = ["index\tsentence1\tsentence2\tlabel"]
        lengths = np.interp(random.random(count), QUANTILES, LENGTHS).astype(int) - 3
        for number, length in enumerate(lengths):
            text = random.choice(others, length, p=weights).tolist()
            second = min(10, length // 2)
            cue = int(random.integers(len(cues)))
            text[-1 - int(random.integers(second))] = cues[cue]
            label = cue % 2 ^ int(random.random() < WRONG_LABELS)
            first = " ".join(text[:-second]), " ".join(text[-second:])
            rows.append("\t".join((str(number), *first, LABELS[label])))
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n")


def write_checkpoints(root: Path) -> None:
    """Writes the same weights for both programs."""
    from multiberts.bert.checkpoint.checkpoint import HUGGING_FACE, TENSORFLOW, write_checkpoint
    from multiberts.bert.model.configuration import BertConfig
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.bert.vocabulary import Vocabulary

    config = BertConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=2,
        hidden_size=128,
        num_attention_heads=2,
        intermediate_size=512,
    )
    parameters = initial_parameters(config, 0)
    provenance = {"procedure": "base", "pretrain_seed": 0, "data_seed": 0, "step": 0}
    vocabulary = Vocabulary.open(root / "vocab.txt")
    for layout in (TENSORFLOW, HUGGING_FACE):
        write_checkpoint(root / layout, parameters, config, vocabulary, provenance, layout=layout)


def sweep_command(root: Path, workers: int) -> list[str]:
    settings = {
        "root": root / "ours", "checkpoints": root / "tf1", "tasks": "RTE", "data_dir": root / "data",
        "batch_size": BATCH_SIZE, "num_epochs": EPOCHS, "sequence_length": LENGTH,
        "learning_rates": ",".join(map(str, LEARNING_RATES)),
        "finetune_seeds": ",".join(map(str, SEEDS)), "workers": workers,
    }  # fmt: skip
    flags = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "multiberts", "sweep", *flags]


def accuracies_of_ours(root: Path) -> list[float]:
    """Returns the accuracy of each run from its predictions."""
    from multiberts.evaluate.prediction_files.predictions import read_predictions
    from multiberts.evaluate.prediction_files.run_file import find_runs

    runs = [path for path, _ in find_runs(root / "ours")]
    dataset = read_predictions(runs, "dev")
    return (dataset["prediction"] == dataset["label"]).mean("example").values.tolist()


def timed_process(command: Sequence[str], threads: int) -> tuple[float, float, str]:
    """Runs a process; returns wall seconds, CPU seconds and its last line."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
    }
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode:
        sys.exit(f"{command} failed:\n{result.stderr[-3000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, result.stdout.splitlines()[-1]


def run_peer(root: Path, count: int, threads: int) -> tuple[float, float, list[float]]:
    """Returns wall and CPU seconds of the first `count` runs of the peer, and their accuracies."""
    script = str(Path(__file__).with_name("hugging_face_finetuning.py"))
    walls, cpus, accuracies = [], [], []
    runs = list(itertools.product(LEARNING_RATES, SEEDS))
    # Fewer runs are spread over all learning rates.
    chosen = runs if count == len(runs) else [runs[n * len(runs) // count] for n in range(count)]
    for number, (rate, seed) in enumerate(chosen):
        sizes = (rate, seed, BATCH_SIZE, EPOCHS, LENGTH)
        paths = (root / "hugging_face", root / "data", root / f"peer_{number}")
        command = [sys.executable, script, *map(str, paths), *map(str, sizes)]
        wall, cpu, line = timed_process(command, threads)
        walls.append(wall)
        cpus.append(cpu)
        accuracies.append(json.loads(line)["accuracy"])
        print(f"  peer {rate:g} seed {seed}: {wall:.1f} s wall, {cpu:.1f} s CPU", flush=True)
    return sum(walls), sum(cpus), accuracies


def described(accuracies: Sequence[float]) -> str:
    """Formats a mean, its standard error and the standard deviation."""
    spread = np.std(accuracies, ddof=1) if len(accuracies) > 1 else np.nan
    error = spread / np.sqrt(len(accuracies))
    return f"{np.mean(accuracies):.4f} +- {error:.4f} (standard deviation of a run {spread:.4f})"


def main() -> None:
    """Makes data and weights, runs both programs and compares them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer-runs", type=int, default=20, help="of 20; the rest is extrapolated")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--workers", type=int, help="of our sweep; one per thread unless given")
    flags = parser.parse_args()
    workers = flags.workers or flags.threads
    if flags.peer_runs and importlib.util.find_spec("accelerate") is None:
        sys.exit("error: accelerate is missing; give make bench-finetune, which installs it")
    runs = len(LEARNING_RATES) * len(SEEDS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_data(root / "data", write_vocabulary(root / "vocab.txt"))
        write_checkpoints(root)
        wall, cpu, _ = timed_process(sweep_command(root, workers), flags.threads)
        ours = accuracies_of_ours(root)
        print(f"ours, {runs} runs, {workers} workers: {wall:.1f} s wall, {cpu:.1f} s CPU")
        print(f"  accuracy {described(ours)}", flush=True)
        if not flags.peer_runs:
            return
        peer_wall, peer_cpu, peer = run_peer(root, flags.peer_runs, flags.threads)
    scale = runs / flags.peer_runs
    remark = "" if scale == 1 else f" (measured {flags.peer_runs}, times {scale:g})"
    print(
        f"peer, {runs} runs{remark}: {peer_wall * scale:.1f} s wall, {peer_cpu * scale:.1f} s CPU"
    )
    print(f"  accuracy {described(peer)}")
    ratios = {"wall": peer_wall * scale / wall, "CPU": peer_cpu * scale / cpu}
    for name, ratio in ratios.items():
        print(f"ratio of {name} time: {ratio:.2f} (target {TARGET:g})")
    difference = abs(np.mean(ours) - np.mean(peer))
    print(f"difference of mean accuracies: {difference:.4f}")


if __name__ == "__main__":
    main()
