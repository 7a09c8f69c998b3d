"""Reduces the fine-tuning runs of each pre-training seed to one right or wrong answer per example."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import Key, RunsTable, in_order_of, make_runs

Runs: TypeAlias = "RunsTable | ArrayLike"


def as_runs(runs: Runs) -> RunsTable:
    """Converts an array [pretrain_seeds, ..., examples] to runs; returns runs unchanged.

    Runs with only NaN are missing.
    """
    if isinstance(runs, RunsTable):
        return runs
    scores = np.asarray(runs)
    if scores.ndim < 2 or not scores.size:
        raise DataError(
            f"found scores of shape {scores.shape}, expected [pretrain_seeds, ..., examples]"
        )
    keys: list[Key] = list(np.ndindex(scores.shape[:-1]))
    table = scores.reshape(-1, scores.shape[-1])
    if table.dtype.kind == "f":
        rows = np.flatnonzero(~np.isnan(table).all(axis=1))
        table, keys = table[rows], [keys[row] for row in rows]
    return make_runs(table, keys)


def aligned(*sizes: Runs) -> list[RunsTable]:
    """Sorts the examples of all tables in the order of the first table."""
    first, *others = (as_runs(runs) for runs in sizes)
    return [
        first,
        *(
            in_order_of(first, runs, ("set 1", f"set {number}"))
            for number, runs in enumerate(others, 2)
        ),
    ]


def ensemble(runs: Runs, labels: ArrayLike | None = None) -> RunsTable:
    """Takes a majority vote of each seed's runs; returns one run per seed, right (1) or wrong (0).

    The theorem behind `decay_bound` requires one right or wrong answer per pre-training seed. If the mean of
    a seed's fine-tuning runs is used instead, the bound can exceed the truth.

    With labels, the vote is the most frequent answer. Without labels, a seed is right if more than half of
    its runs are, which is equivalent for two classes. Ties are decided by the first tied run in the order of
    keys, which favours neither right nor wrong.

    Args:
      runs: predicted classes if `labels` are given; else 0/1 correctness.
      labels: true classes [examples], or None.

    Raises:
      DataError: a score is not 0 or 1, if there are no labels.

    Examples:
      >>> from multiberts import stats
      >>> runs = [[[1, 0, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 1], [1, 0, 1], [1, 0, 1]]]  # by seed and run
      >>> stats.zhong.ensemble(runs).predictions.tolist()
      [[1, 0, 0], [1, 0, 1]]

    See also: `single_runs`, `decay_bound`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", section 4.
    """
    nested = as_runs(runs)
    if labels is None:
        refuse_fractions(nested.predictions)
        answers, right = nested.predictions.astype(np.int64), np.ones(nested.num_examples, np.int64)
    else:
        classes, codes = np.unique(nested.predictions, return_inverse=True)
        answers = codes.reshape(nested.predictions.shape)
        wanted = np.asarray(labels)
        if wanted.shape != (nested.num_examples,):
            raise DataError(
                f"found labels of shape {wanted.shape}, expected [{nested.num_examples} examples]"
            )
        # Labels that no run predicted differ from all answers.
        index = np.minimum(np.searchsorted(classes, wanted), len(classes) - 1)
        right = np.where(classes[index] == wanted, index, -1)
    groups = nested.groups(1)
    voted = np.stack([_vote(answers[rows]) == right for rows in groups.values()])
    return replace(
        nested, predictions=voted.astype(np.uint8), keys=tuple(groups), levels=nested.levels[:1]
    )


def single_runs(runs: Runs) -> RunsTable:
    """Returns the first run (by key) of each pre-training seed, which includes the noise of fine-tuning.

    Args:
      runs: 0/1 correctness [seeds, runs, examples].

    Examples:
      >>> from multiberts import stats
      >>> runs = [[[1, 0, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 1], [1, 0, 1], [1, 0, 1]]]  # by seed and run
      >>> stats.zhong.single_runs(runs).predictions.tolist()
      [[1, 0, 1], [0, 0, 1]]

    See also: `ensemble`, `decay_bound`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", section 4.
    """
    nested = as_runs(runs)
    rows = [members[0] for members in nested.groups(1).values()]
    return replace(
        nested,
        predictions=nested.predictions[rows],
        keys=tuple(nested.groups(1)),
        levels=nested.levels[:1],
    )


def runs_of_seed(runs: Runs, seed: Hashable) -> RunsTable:
    """Returns the runs of one pre-training seed, with fine-tuning seeds as the outermost level.

    Results from these runs apply to pre-trained models, not to sizes.
    """
    nested = as_runs(runs).with_seeds([seed])
    if len(nested.levels) < 2 or not nested.keys:
        raise DataError(f"found no runs below {nested.levels[0]} {seed!r}; give fine-tuning runs")
    return replace(nested, keys=tuple(key[1:] for key in nested.keys), levels=nested.levels[1:])


def _vote(answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the most frequent answer of runs [runs, examples], or the first of tied answers."""
    votes = np.stack([(answers == answer).sum(axis=0) for answer in answers])  # [runs, examples]
    first = votes.argmax(axis=0)  # argmax returns the first of equal values
    return np.asarray(np.take_along_axis(answers, first[None], axis=0)[0])


def refuse_fractions(scores: NDArray) -> None:
    """Refuses scores other than 0 and 1."""
    wrong = (scores != 0) & (scores != 1)
    if wrong.any():
        raise DataError(
            f"found a score of {scores[wrong][0]}, expected 0 (wrong) or 1 (right); give "
            "correctness, not losses or probabilities"
        )
