"""A pre-training run that is stopped at random moments, and what its checkpoints and its log hold."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.training.log import METRICS, read_metrics
from multiberts.runs.preemption import exit_when_preempted

# Imported once, by the process that the runs are forked from.
IMPORTED = (
    "multiberts.bert.training.training_loop",
    "multiberts.bert.model.heads",
    "multiberts.bert.checkpoint.checkpoint",
    "multiberts.pretrain.training.held_out_evaluation",
)

NUM_STEPS = 600
ARGUMENTS = {
    "model": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
    },
    "pretrain_seed": 3,
    "num_steps": NUM_STEPS,
    "checkpoint_steps": [0, 100, 200, 300, 400, 500],
    "batch_size": 8,
    "sequence_length": 32,
    "max_predictions_per_sequence": 5,
    "learning_rate": 2e-3,
    "warmup_steps": 20,
    "gradient_shards": 2,
    "evaluate_every_steps": 50,
    "evaluation_batches": 2,
    "save_state_every_steps": 7,
    "log_every_steps": 1,
}


@dataclass(frozen=True)
class Stop:
    """One process that was stopped.

    Attributes:
      kind: `SIGKILL` or `SIGTERM`.
      step: the last step that its log told.
      exit_code: of the process; 75 if it saved and left, minus the signal's number if it died.
    """

    kind: str
    step: int
    exit_code: int


def run_with_stops(
    arguments: Mapping[str, Any], num_stops: int, moments: random.Random
) -> list[Stop]:
    """Runs `pretrain` to its end in processes of which the first `num_stops` are stopped.

    Args:
      arguments: of `pretrain`, with `run_dir` and `num_steps`; log_every_steps should be 1.
      num_stops: how many.
      moments: draws signals and moments.

    Returns:
      The stops; fewer than `num_stops` only if the run came to its end before.

    Raises:
      RuntimeError: the process that was not stopped did not finish.
    """
    context = _context()
    run_dir = Path(arguments["run_dir"])
    stops: list[Stop] = []
    while len(stops) < num_stops:
        kind = moments.choice((signal.SIGKILL, signal.SIGTERM))
        left = num_stops - len(stops)
        begun = last_logged_step(run_dir)
        # So far apart that every stop finds steps to interrupt.
        target = begun + moments.randint(0, max(1, (arguments["num_steps"] - begun) // (left + 1)))
        process = context.Process(target=_pretrain, args=(dict(arguments),))
        process.start()
        # One in four is stopped while it starts and compiles.
        if moments.random() < 0.25:
            process.join(moments.uniform(0.0, 3.0))
        else:
            while process.is_alive() and last_logged_step(run_dir) < target:
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.05))
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, kind)
        process.join()
        if process.exitcode == 0:
            return stops
        stops.append(Stop(kind.name, last_logged_step(run_dir), process.exitcode or 0))
    process = context.Process(target=_pretrain, args=(dict(arguments),))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(
            f"the last process, which nobody stopped, exited with {process.exitcode}"
        )
    return stops


def differing_files(one: Path, other: Path) -> list[str]:
    """Names of files of checkpoints that two runs do not share byte for byte."""
    contents = [
        {
            str(path.relative_to(run)): path.read_bytes()
            for path in (run / "checkpoints").rglob("*")
            if path.is_file()
        }
        for run in (one, other)
    ]
    names = sorted(contents[0].keys() | contents[1].keys())
    return [name for name in names if contents[0].get(name) != contents[1].get(name)]


def last_logged_step(run_dir: Path) -> int:
    """The last step in a run's `metrics.jsonl`; 0 where there is none."""
    lines = read_metrics(run_dir / METRICS)
    return int(lines[-1]["step"]) if lines else 0


def _context() -> multiprocessing.context.ForkServerContext:
    """Processes are forked from one that has imported TensorFlow and used nothing of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def _pretrain(arguments: Mapping[str, Any]) -> None:
    """In a process of its own: the command `multiberts pretrain`, but for the command line."""
    from multiberts.pretrain.training.pretraining import pretrain

    with exit_when_preempted():
        pretrain(**arguments)


def make_corpora(folder: Path) -> dict[str, str]:
    """Prepares a corpus of simple sentences, and a held-out one.

    Returns:
      The arguments `corpus` and `evaluation_corpus` of `pretrain`.
    """
    from multiberts.bert.randomness import generator
    from multiberts.pretrain.corpus.preparation import prepare

    nouns, verbs = ["cat", "dog", "house", "tree", "river", "king"], ["sees", "finds", "likes"]
    for name, documents in {"trained": 40, "held_out": 20}.items():
        draw = generator("stress corpus", name)
        lines = []
        for _ in range(documents):
            for _ in range(int(draw.integers(4, 9))):
                subject, thing = draw.choice(nouns, 2)
                lines.append(f"The {subject} {draw.choice(verbs)} the {thing} .")
            lines.append("")
        (folder / f"{name}.txt").write_text("\n".join(lines))
        prepare(
            run_dir=str(folder / name),
            sources=[str(folder / f"{name}.txt")],
            source_format="sentences",
            vocabulary=None if name == "trained" else str(folder / "trained" / "vocab.txt"),
            vocabulary_size=50,
            sequence_length=32,
            dupe_factor=2,
        )
    return {"corpus": str(folder / "trained"), "evaluation_corpus": str(folder / "held_out")}
