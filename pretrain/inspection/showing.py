"""The command `show`: what a corpus holds, what a training step saw, how losses fell.

multiberts show results/corpus
multiberts show results/seed_0 --step=1200
multiberts show results/seed_0 results/seed_1
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from multiberts.pretrain.corpus.description import DESCRIPTION
from multiberts.pretrain.inspection.batch_view import show_batch
from multiberts.pretrain.inspection.corpus_summary import describe
from multiberts.pretrain.inspection.loss_curves import curves
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import NonNegativeInt, PositiveInt


def show(
    *,
    paths: Sequence[str],
    step: PositiveInt | None = None,
    rows: NonNegativeInt = 4,
    corpus: str | None = None,
    initial_checkpoint: str | None = None,
    output_dir: str = "curves",
) -> str:
    """Sums up a corpus, spells out the batch of a training step, or draws the loss curves of runs.

    A corpus: its sizes, lengths and masks. Pre-training runs: their losses in `loss.png` and their held-out
    accuracies in `held_out.json`, with mean and spread by procedure, number of steps and corpus. With a
    step: the batch of that step, made again from the run's seeds.

    Args:
      paths: a corpus, or pre-training runs, finished or not.
      step: update whose batch is shown, from 1 as in `metrics.jsonl`.
      rows: sequences of the batch that are spelled out; 0: all.
      corpus: the run's corpus, if it was moved since.
      initial_checkpoint: the checkpoint that the run resumed from, if it was moved since.
      output_dir: folder of the curves.
    """
    if step is not None:
        if len(paths) != 1:
            raise UserError(f"show.step is {step} and there are {len(paths)} runs; give one run")
        return show_batch(
            run_dir=paths[0],
            step=step,
            rows=rows,
            corpus=corpus,
            initial_checkpoint=initial_checkpoint,
        )
    corpora = [path for path in paths if (Path(path) / DESCRIPTION).is_file()]
    if not corpora:
        return curves(run_dirs=paths, output_dir=output_dir)
    if len(paths) > 1:
        raise UserError(f"{corpora[0]} is a corpus and not the only path; show it by itself")
    return describe(run_dir=corpora[0])
