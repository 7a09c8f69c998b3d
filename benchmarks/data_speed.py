"""Measures the speed of making batches from text, compared with the usual methods.

    make bench-data

Everything runs in one process, on one core unless stated otherwise, on real text if available (`DATA`), else
on sentences of made-up words with the frequencies of natural language. The ratios are the result.

- tokenising: `bert.vocabulary.Vocabulary` beside the original's Python code (as `transformers` keeps it,
  `BertTokenizerLegacy`) and beside Hugging Face `tokenizers`, whose ids differ from the original's on rare
  characters. Both as they are called for a corpus: many sentences at once, no offsets.
- batches: 256 sequences of 512 with masks, from a store, drawn by (data_seed, step).
- two workers: as many by two processes at once; steps are independent, so any process can make any of
  them. Judged by their own cores' time, which other work on the machine does not touch.
- two threads: as many by the pool that training makes batches with (`pretrain.batch_threads`), by the clock,
  so it counts on free cores alone; in blocks of eight steps, as training on accelerators dispatches them.
"""

from __future__ import annotations

import gzip
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# One core: the library would otherwise use all. Read when it is first imported.
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
from tokenizers import BertWordPieceTokenizer
from transformers import BertTokenizerLegacy

from multiberts.bert.training.training_loop import batches_ahead
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.batches.corpus_batches import Batches, steps_per_job
from multiberts.pretrain.batches.masking import Masking, pretraining_batch
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.pretrain.corpus.sentences import split_sentences
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.runs import console
from multiberts.runs.processes import keep_freed_memory

REPEATS = 3
# About the size of a shard of a corpus, because repeated words cost less than new ones.
SENTENCES = 200_000
PEER_SENTENCES = 4_000
BATCH_SIZE, SEQUENCE_LENGTH, PREDICTIONS = 256, 512, 80
STEPS = 100

TIMES_THE_ORIGINAL = 10.0
TIMES_THE_LIBRARY = 1.5
BATCHES_A_SECOND = 100.0
TWO_WORKERS = 1.7
TWO_THREADS = 1.8
SMALL_BATCH_SIZE = 32
STEPS_PER_DISPATCH = 8


def main() -> None:
    """Prints the table; exits with 1 if a target was missed."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        documents, source = text()
        path = directory / "text.txt"
        path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
        corpus = directory / "corpus"
        prepare(
            run_dir=str(corpus),
            sources=[str(path)],
            source_format="sentences",
            vocabulary_size=30522,
            sequence_length=SEQUENCE_LENGTH,
            dupe_factor=2,
        )
        sentences = [sentence for document in documents for sentence in document][:SENTENCES]
        megabytes = sum(len(sentence.encode()) for sentence in sentences) / 1e6
        console.report(
            f"{source}: {megabytes:.1f} MB of text; best of {REPEATS}; CPU seconds of this process"
        )
        met = [*tokenising(corpus, sentences), *batches(corpus)]
    sys.exit(0 if all(met) else 1)


def text() -> tuple[list[list[str]], str]:
    """Returns documents of sentences, and a description of them."""
    data = Path(os.environ.get("DATA", "../shared/data"))
    path = data / "pretrain" / "enwiki_2015_wikiextractor_sample.txt.gz"
    documents: list[list[str]] = []
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            for line in handle:
                if line.startswith("<doc"):
                    documents.append([])
                elif not line.startswith("</doc") and line.strip():
                    documents[-1] += split_sentences(line)
        return [document for document in documents if document], "English Wikipedia"
    draws = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(draws.choice(letters, 2 + draws.poisson(4))) for _ in range(30_000)]
    for _ in range(1000):
        lengths = draws.integers(5, 40, 60)
        documents.append(
            [" ".join(words[n] for n in draws.zipf(1.3, k) % len(words)) + "." for k in lengths]
        )
    return documents, "made-up words"


def fastest(function: Callable[[], object]) -> float:
    """Returns the smallest CPU time of some calls, in seconds."""
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        function()
        seconds.append(time.process_time() - begun)
    return min(seconds)


def tokenising(corpus: Path, sentences: list[str]) -> list[bool]:
    """Times the three tokenisers; returns whether the targets were met."""
    vocabulary = str(corpus / "vocab.txt")
    original = BertTokenizerLegacy(vocabulary)
    library = BertWordPieceTokenizer(vocabulary, lowercase=True)

    def ours() -> None:
        # Make a new tokeniser for each call, because filling its cache is part of the work.
        Vocabulary.open(vocabulary).encode_flat(sentences)

    def by_library() -> None:
        library._tokenizer.encode_batch_fast(sentences, add_special_tokens=False)

    def by_original() -> None:
        for sentence in sentences[:PEER_SENTENCES]:
            original.convert_tokens_to_ids(original.tokenize(sentence))

    share = sum(map(len, sentences[:PEER_SENTENCES])) / sum(map(len, sentences))
    size = sum(len(sentence.encode()) for sentence in sentences) / 1e6
    seconds = {"ours": fastest(ours), "library": fastest(by_library)}
    seconds["original"] = fastest(by_original) / share
    for name, value in seconds.items():
        console.report(f"  tokenising, {name:<10}{size / value:8.2f} MB/s")
    return [
        told(
            "times the original's Python", seconds["original"] / seconds["ours"], TIMES_THE_ORIGINAL
        ),
        told(
            "of the library's time (at most)",
            seconds["ours"] / seconds["library"],
            TIMES_THE_LIBRARY,
            at_most=True,
        ),
    ]


def batches(corpus: Path) -> list[bool]:
    """Times batches in one process and in two; returns whether the targets were met."""
    make_batches(corpus, range(5))
    seconds = fastest(lambda: make_batches(corpus, range(STEPS)))
    rate = STEPS / seconds
    console.report(
        f"  batches of {BATCH_SIZE} x {SEQUENCE_LENGTH}, one core {rate:8.1f} per second"
    )
    met = [told("batches per second", rate, BATCHES_A_SECOND)]
    context = multiprocessing.get_context("spawn")
    rates = {}
    for workers in (1, 2):
        barrier = context.Barrier(workers)
        results = context.Queue()
        processes = [
            context.Process(target=_worker, args=(corpus, number, barrier, results))
            for number in range(workers)
        ]
        for process in processes:
            process.start()
        took = [results.get() for _ in processes]
        for process in processes:
            process.join()
        rates[workers] = sum(STEPS / cpu for cpu, _ in took)
        by_clock = sum(STEPS / wall for _, wall in took)
        console.report(
            f"  batches, {workers} at once: {rates[workers]:8.1f} a second of their cores' time, "
            f"{by_clock:.1f} by the clock"
        )
    met.append(told("times one worker, by two", rates[2] / rates[1], TWO_WORKERS))
    return met + [threads(corpus, batch_size) for batch_size in (SMALL_BATCH_SIZE, BATCH_SIZE)]


def threads(corpus: Path, batch_size: int) -> bool:
    """Times the thread pool of training with one and two threads; returns whether the target was met."""
    keep_freed_memory()  # as training does
    masking = Masking(sequence_length=SEQUENCE_LENGTH, max_predictions_per_sequence=PREDICTIONS)
    batches = Batches(corpus, masking, data_seed=0, batch_size=batch_size)
    num_steps = STEPS * STEPS_PER_DISPATCH * BATCH_SIZE // batch_size
    rates = {1: 0.0, 2: 0.0}
    for _, count in itertools.product(range(REPEATS), rates):
        blocks = (
            range(start, start + STEPS_PER_DISPATCH)
            for start in range(0, num_steps, STEPS_PER_DISPATCH)
        )
        at_once = steps_per_job(count, batch_size, SEQUENCE_LENGTH)
        begun = time.perf_counter()
        for _ in batches_ahead(batches.batches, blocks, count, at_once):
            pass
        rates[count] = max(rates[count], num_steps / (time.perf_counter() - begun))
    console.report(
        f"  batches of {batch_size} x {SEQUENCE_LENGTH} in blocks of {STEPS_PER_DISPATCH}: {rates[1]:8.1f} "
        f"per second by one thread, {rates[2]:.1f} by two, by the clock"
    )
    return told("times one thread, by two", rates[2] / rates[1], TWO_THREADS)


def _worker(corpus: Path, number: int, barrier: Any, results: Any) -> None:
    """Makes batches when all processes are ready, and reports CPU and wall seconds."""
    make_batches(corpus, range(5))
    barrier.wait()
    cpu, clock = time.process_time(), time.perf_counter()
    make_batches(corpus, range(number * STEPS, (number + 1) * STEPS))
    results.put((time.process_time() - cpu, time.perf_counter() - clock))


def make_batches(corpus: Path, steps: Sequence[int]) -> None:
    """Makes batches for some steps."""
    store, table = TokenStore(corpus), InstanceTable(corpus)
    vocabulary = Vocabulary.open(corpus / "vocab.txt")
    masking = Masking(sequence_length=SEQUENCE_LENGTH, max_predictions_per_sequence=PREDICTIONS)
    for step in steps:
        pretraining_batch(
            store,
            table,
            masking,
            vocabulary=vocabulary,
            data_seed=0,
            step=step,
            batch_size=BATCH_SIZE,
            fresh_masks=False,
            instance_seed=0,
        )


def told(quantity: str, value: float, target: float, at_most: bool = False) -> bool:
    """Prints a number with its target; returns whether the target was met."""
    met = value <= target if at_most else value >= target
    console.report(f"    {value:.2f} {quantity}; target {target:g}: {'met' if met else 'MISSED'}")
    return met


if __name__ == "__main__":
    main()
