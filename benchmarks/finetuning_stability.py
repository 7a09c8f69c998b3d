"""Share of failed fine-tuning runs with and without Adam's bias correction (Mosbach et al. 2021, section 5).

    make study-stability
    python -m benchmarks.finetuning_stability --checkpoint multiberts-seed_0 --task RTE --data-dir glue/RTE \
        --train-examples 2490 --epochs 20 --learning-rate 2e-5 --batch-size 16 --length 128

Everything but the correction is the same in both sides' runs, which have the same seeds. A run has failed
where its accuracy on the development set is not above that of the most frequent class. Prints both rates
with Wilson's 95% intervals and the p-value of Fisher's exact test, two-sided. Stopped, the same command
resumes in the same folder.

Without a checkpoint it is a random tiny model (L2/H128) on pairs of made-up words (see
`finetuning_speed`). The second command is the study of BERT-Base, for a GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from multiberts.benchmarks.finetuning_speed import write_checkpoints, write_data, write_vocabulary

SIDES = {"without bias correction": False, "with bias correction": True}


def accuracies(given: argparse.Namespace, checkpoint: str, data_dir: str) -> dict[str, np.ndarray]:
    """Trains all runs that are not there yet; returns accuracies less the majority's [seeds] by side."""
    from multiberts.evaluate.prediction_files.predictions import read_predictions
    from multiberts.finetune.finetuning import finetune

    found = {}
    for side, is_corrected in SIDES.items():
        runs = [given.root / f"{side.partition(' ')[0]}-{seed}" for seed in range(given.seeds)]
        for seed, run in enumerate(runs):
            finetune(
                run_dir=str(run),
                checkpoint=checkpoint,
                task=given.task,
                data_dir=data_dir,
                finetune_seed=seed,
                bias_correction=is_corrected,
                batch_size=given.batch_size,
                num_epochs=given.epochs,
                learning_rate=given.learning_rate,
                sequence_length=given.length,
                max_train_examples=given.train_examples,
            )
        dev = read_predictions(runs, "dev")
        right = (dev["prediction"] == dev["label"]).to_numpy().mean(axis=1)
        _, counts = np.unique(dev["label"].to_numpy(), return_counts=True)
        print(f"{side}: accuracy {right.mean():.4f}, {right.min():.4f} to {right.max():.4f}")
        found[side] = right - counts.max() / counts.sum()
    return found


def main() -> None:
    """Prints the rates of both sides."""
    from scipy.stats import binomtest, fisher_exact

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("stability"))
    parser.add_argument("--checkpoint", help="left out: a random tiny model and made-up words")
    parser.add_argument("--task", default="RTE")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--train-examples", type=int, default=256)
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    given = parser.parse_args()
    checkpoint, data_dir = given.checkpoint, given.data_dir
    if (checkpoint is None) != (data_dir is None):
        parser.error("give --checkpoint and --data-dir, or neither")
    if checkpoint is None:
        checkpoint, data_dir = str(given.root / "tf1"), str(given.root / "data")
        if not Path(data_dir).exists():
            given.root.mkdir(parents=True, exist_ok=True)
            known = write_vocabulary(given.root / "vocab.txt")
            write_checkpoints(given.root)
            write_data(given.root / "data", known)
    margins = accuracies(given, checkpoint, data_dir)
    failures = {side: int((margin <= 0).sum()) for side, margin in margins.items()}
    for side, number in failures.items():
        low, high = binomtest(number, given.seeds).proportion_ci(method="wilson")
        print(f"{side}: {number} of {given.seeds} runs failed, {low:.0%} to {high:.0%}")
    table = [[number, given.seeds - number] for number in failures.values()]
    print(f"Fisher's exact test: p = {fisher_exact(table).pvalue:.3g}")


if __name__ == "__main__":
    main()
