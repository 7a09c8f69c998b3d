"""Measures the speed of writing predictions, and of reading those of a study into one labelled array.

    python -m benchmarks.predictions_speed

Makes the prediction files of a study of the paper's size in a temporary folder (25 pre-training seeds, 5
fine-tuning runs each, 10,000 examples of 3 classes), then reads them, checksums compared, in a
process of its own. Beside it stands TensorFlow's reader (`TFRecordDataset`, `parse_example`) on the
same files, without alignment, ids as bytes and checks of its own alone. A second study has answers in
words.

Targets: reading under 5 s on 2 cores, writing a file under 1 s. Both are judged by the time of the
process's own (one) core, which other work on the machine does not touch; the wall's stands next to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import evaluation_entry, find_runs, write_run
from multiberts.runs.directory import RunDirectory

SECONDS_TO_READ = 5.0
SECONDS_TO_WRITE = 1.0
REPEATS = 3

Seconds = tuple[float, float]  # CPU time of the process, wall time


def main() -> None:
    """Prints the table; exits with 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--read", help="reads a study that was written, and prints the seconds")
    parser.add_argument("--tensorflow", action="store_true", help="reads with TensorFlow instead")
    arguments = parser.parse_args()
    if arguments.read:
        print(*_seconds_to_read(Path(arguments.read), arguments.tensorflow))
        return
    missed = False
    size = "{seeds} x {runs} runs, {examples} examples, {classes} classes".format(**vars(arguments))
    for study, in_words in ((size, False), (f"{size}, answers in words", True)):
        with tempfile.TemporaryDirectory() as scratch:
            writing = _write_study(Path(scratch), arguments, in_words)
            reading = min(_in_process(scratch) for _ in range(REPEATS))
            peer = min(_in_process(scratch, "--tensorflow") for _ in range(REPEATS))
            print(f"{study}: seconds of its cores, seconds on the wall")
            for name, (cpu, wall), target in (
                ("writing a file", writing, SECONDS_TO_WRITE),
                ("reading all", reading, SECONDS_TO_READ),
                ("TensorFlow's reader", peer, None),
            ):
                judged = "" if target is None else f"   (target {target:g})"
                print(f"  {name:20} {cpu:8.3f} {wall:8.3f}{judged}")
            missed |= writing[0] > SECONDS_TO_WRITE or reading[0] > SECONDS_TO_READ
    sys.exit(int(missed))


def _in_process(folder: str, *flags: str) -> Seconds:
    command = [sys.executable, "-m", "benchmarks.predictions_speed", "--read", folder, *flags]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    cpu, wall = done.stdout.split()
    return float(cpu), float(wall)


def _since(start: Seconds) -> Seconds:
    return time.process_time() - start[0], time.perf_counter() - start[1]


def _write_study(root: Path, arguments: argparse.Namespace, in_words: bool) -> Seconds:
    """Writes all runs; returns the median seconds per file."""
    random = np.random.default_rng(0)
    number, classes = arguments.examples, arguments.classes
    labels = random.integers(0, classes, number)
    words = np.array([f"answer {index} of some length" for index in range(500)])
    references = [tuple(words[random.integers(0, 500, 3)].tolist()) for _ in range(number)]
    seconds = []
    for seed in range(arguments.seeds):
        for run in range(arguments.runs):
            run_dir = root / f"seed_{seed}-run_{run}"
            scores = random.normal(size=(number, classes)).astype(np.float32)
            texts = words[random.integers(0, 500, number)].tolist()
            with RunDirectory(run_dir, stage="finetune", parameters={}) as directory:
                start = _since((0, 0))
                write_predictions(
                    run_dir / "predictions" / "dev.tfrecord",
                    example_ids=[f"MNLI/dev_matched/{row}" for row in range(number)],
                    labels=labels,
                    predictions=scores.argmax(axis=1),
                    scores=scores,
                    extras={"answers": references} if in_words else None,
                    outputs={"prediction_text": texts} if in_words else None,
                )
                seconds.append(_since(start))
                entry = evaluation_entry(
                    run_dir, "predictions/dev.tfrecord", examples=number, metrics=["accuracy"]
                )
                facts = {
                    "task": "MNLI",
                    "procedure": "base",
                    "pretrain_seed": seed,
                    "data_seed": seed,
                }
                facts |= {"step": 2_000_000, "learning_rate": 2e-5, "finetune_seed": run}
                write_run(run_dir, {**facts, "evaluation_sets": {"dev": entry}})
                directory.finish(["run.json", "predictions/dev.tfrecord"])
    cpu, wall = np.median(seconds, axis=0).tolist()
    return cpu, wall


def _seconds_to_read(root: Path, tensorflow: bool) -> Seconds:
    """Returns the seconds to read a study, without imports."""
    paths = [path for path, _ in find_runs(root)]
    if tensorflow:
        return _seconds_of_tensorflow(paths)
    read_predictions(paths[:1], "dev")
    start = _since((0, 0))
    data = read_predictions(paths, "dev")
    seconds = _since(start)
    assert data.sizes["run"] == len(paths)
    return seconds


def _seconds_of_tensorflow(paths: list[Path]) -> Seconds:
    import tensorflow as tf

    columns = {
        "example_id": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.float32),
        "prediction": tf.io.FixedLenFeature([], tf.float32),
        "scores": tf.io.RaggedFeature(tf.float32),
        "answers[]": tf.io.RaggedFeature(tf.string),
        "outputs/prediction_text": tf.io.FixedLenFeature([], tf.string, ""),
    }
    for timed in (paths[:1], paths):
        start = _since((0, 0))
        for path in timed:
            dataset = tf.data.TFRecordDataset(str(path / "predictions" / "dev.tfrecord"))
            records = np.concatenate([batch.numpy() for batch in dataset.batch(1 << 16)])
            for column in tf.io.parse_example(records, columns).values():
                column.numpy()
        seconds = _since(start)
    return seconds


if __name__ == "__main__":
    main()
