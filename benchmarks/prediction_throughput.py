"""Measures the prediction speed of a fine-tuned model, compared with transformers' pipeline, one thread each.

    make bench-predict

One model, BertForSequenceClassification of the size of mini (L4/H256, 30,522 pieces) with random weights in
the Hugging Face layout, and pairs of made-up words as long as RTE's in pieces.

- ours: `multiberts predict`, which sorts pairs into batches by their lengths, with TensorFlow;
- the peer: transformers' `pipeline("text-classification")`, batches of 32, in the order of the file, and
  the same with pairs sorted by length beforehand.

Wall and CPU seconds of whole processes, start-up and compilation included; the last column leaves out what
a process takes for a single pair. All answer the same labels, or the program ends with 1. Then the seconds
that a process takes for a single pair, also as it is without `--engine`: in NumPy.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from multiberts.benchmarks.finetuning_speed import (
    LENGTHS,
    QUANTILES,
    timed_process,
    write_vocabulary,
)

_LENGTH, _BATCH_SIZE = 128, 32
_PEER = """
import json, sys
import torch
from transformers import pipeline

model, data, output, is_sorted = sys.argv[1:]
torch.set_num_threads(1)
rows = [json.loads(line) for line in open(data)]
order = range(len(rows))
if is_sorted == "True":
    order = sorted(order, key=lambda row: len(rows[row]["sentence1"]) + len(rows[row]["sentence2"]))
pairs = [{"text": rows[row]["sentence1"], "text_pair": rows[row]["sentence2"]} for row in order]
answer = pipeline("text-classification", model=model, device=-1)
found = answer(pairs, batch_size=32, truncation=True, max_length=128)
labels = dict(zip(order, (one["label"] for one in found)))
open(output, "w").write("\\n".join(labels[row] for row in range(len(rows))))
print(len(rows))
"""
_OURS = """
import contextlib, os, sys

model, data, output, engine = sys.argv[1:]
os.environ["MULTIBERTS_ENGINE"] = engine
from multiberts.finetune.prediction import predict

with open(output, "w") as lines, contextlib.redirect_stdout(lines):
    predict(model=model, files=[data])
print("done")
"""


def write_model(folder: Path) -> None:
    """Writes the model with its vocabulary."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024
    )
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def write_pairs(path: Path, vocabulary: list[str], count: int) -> None:
    """Writes JSON lines of pairs with the lengths of RTE's."""
    random = np.random.default_rng(0)
    lengths = np.interp(random.random(count), QUANTILES, LENGTHS).astype(int)
    with open(path, "w") as lines:
        for length in lengths:
            drawn = random.choice(vocabulary, length - 3).tolist()
            cut = max(1, len(drawn) // 4)
            pair = {"sentence1": " ".join(drawn[cut:]), "sentence2": " ".join(drawn[:cut])}
            lines.write(json.dumps(pair) + "\n")


def labels_of_ours(path: Path) -> list[str]:
    """Returns the labels that `multiberts predict` printed."""
    return [json.loads(line)["prediction"] for line in path.read_text().splitlines()]


def process_seconds(
    program: str, model: Path, folder: Path, data: str, output: Path, setting: str
) -> tuple[float, float]:
    """Returns wall and CPU seconds of a program on one file."""
    command = [sys.executable, "-c", program, *map(str, (model, folder / f"{data}.jsonl", output))]
    return timed_process([*command, setting], threads=1)[:2]


def main() -> int:
    """Prints the table; returns 1 if labels differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--examples", type=int, default=4_000)
    examples = parser.parse_args().examples
    answers: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        model.mkdir()
        vocabulary = write_vocabulary(model / "vocab.txt")
        write_model(model)
        write_pairs(folder / "one.jsonl", vocabulary, 1)
        write_pairs(folder / "all.jsonl", vocabulary, examples)
        print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'pairs per CPU s, start left out':>34}")
        alone = {}
        for label, program, setting in (
            ("ours", _OURS, "tensorflow"),
            ("pipeline", _PEER, "False"),
            ("pipeline, sorted", _PEER, "True"),
        ):
            seconds = {}
            for data in ("one", "all"):
                output = folder / f"{label}-{data}"
                wall, cpu = process_seconds(program, model, folder, data, output, setting)
                seconds[data] = cpu
                if data == "one":
                    alone[label] = wall, cpu
            answers[label] = (
                labels_of_ours(output) if program is _OURS else output.read_text().splitlines()
            )
            rate = (examples - 1) / (seconds["all"] - seconds["one"])
            print(f"{label:24}{wall:8.1f}{seconds['all']:8.1f}{rate:34.0f}", flush=True)
        numpy = process_seconds(_OURS, model, folder, "one", folder / "numpy", "")
        print("a single pair")
        for label, (wall, cpu) in {**alone, "ours, no engine named": numpy}.items():
            print(f"{label:24}{wall:8.1f}{cpu:8.1f}")
    differing = sum(
        one != peer for one, peer in zip(answers["ours"], answers["pipeline"], strict=True)
    )
    print(f"{differing} of {examples} labels differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
