"""Shows the best learning rate of every task, procedure and step, by a rule that is said.

    python -m stats.learning_rates --gin_param='learning_rates.predictions = "results/sweep"' \
        --gin_param='learning_rates.rule = "dev"'
"""

from __future__ import annotations

from collections.abc import Sequence

from multiberts.runs.errors import UserError
from multiberts.stats.report.selection import (
    RULE_TEXTS,
    LearningRateRule,
    PredictionReader,
    Run,
    choose_learning_rate,
    make_groups,
)


def learning_rates(*, predictions: str | Sequence[str], rule: LearningRateRule) -> None:
    """Prints the mean score by learning rate, the chosen one marked.

    Args:
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      rule: `dev` or `held_out`, as in `stats.report.selection.choose_learning_rate`.

    Raises:
      UserError: no finished run is there, or there is nothing to choose by.
    """
    from multiberts.evaluate.dumps.predictions import read_predictions
    from multiberts.evaluate.dumps.run_file import find_runs

    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    runs = [Run(*found) for folder in folders for found in find_runs(folder)]
    if not runs:
        raise UserError(f"{', '.join(folders)}: found no finished run; run the fine-tuning first")
    reader = PredictionReader(read_predictions)
    chosen = [choose_learning_rate(group, reader, rule) for group in make_groups(runs)]
    print(f"{rule}: {RULE_TEXTS[rule]}")
    for kept, choice in chosen:
        print(f"{kept.task}, {kept.name}:", end="")
        if choice is None:
            (rate,) = kept.learning_rates
            print(f" only {'none' if rate is None else format(rate, 'g')}")
            continue
        print(f" {choice.metric} on {choice.evaluation_set}")
        for rate, mean in choice.means.items():
            mark = "  <- best" if rate == choice.learning_rate else ""
            print(f"  {rate:<8g} {mean:.4f}{mark}")
