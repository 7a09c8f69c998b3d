from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiberts.finetune.rows import TrainingRows
from multiberts.finetune.settings import FinetuningSettings
from multiberts.runs.errors import UserError


def rows_of(groups: np.ndarray, **changes) -> TrainingRows:
    changes = {"batch_size": 1, **changes}
    settings = FinetuningSettings(run_dir="run", checkpoint="checkpoint", task="RTE", **changes)
    return TrainingRows.of(groups, settings)


def test_every_epoch_has_each_row_once_in_an_order_of_its_own() -> None:
    rows = rows_of(np.arange(60), batch_size=15)
    epochs = [np.concatenate([rows.batch(4 * epoch + n) for n in range(4)]) for epoch in (0, 1)]
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(60))
    assert epochs[0].tolist() != epochs[1].tolist()
    other = rows_of(np.arange(60), batch_size=15, finetune_seed=1)
    assert other.batch(0).tolist() != epochs[0][:15].tolist()


@given(st.lists(st.integers(1, 4), min_size=5, max_size=40), st.integers(0, 4))
def test_a_fold_is_a_fifth_of_the_examples_and_cuts_none(sizes: list[int], fold: int) -> None:
    """Examples of several rows each, such as questions with their windows."""
    groups = np.repeat(1000 + 7 * np.arange(len(sizes)), sizes)
    rows = rows_of(groups, held_out_fold=fold)
    assert sorted([*rows.trained, *rows.held_out]) == list(range(len(groups)))
    inside, outside = set(groups[rows.held_out]), set(groups[rows.trained])
    assert not inside & outside
    assert abs(len(inside) - len(sizes) / 5) < 1
    assert rows_of(groups, held_out_fold=fold, finetune_seed=9).held_out.tolist() == (
        rows.held_out.tolist()
    )


def test_the_folds_together_are_all_examples() -> None:
    groups = np.arange(101)
    folds = [rows_of(groups, held_out_fold=fold).held_out for fold in range(5)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(101))


def test_training_stays_outside_the_fold_and_within_the_most() -> None:
    rows = rows_of(np.arange(50), held_out_fold=2, max_train_examples=12, batch_size=6)
    drawn = np.concatenate([rows.batch(step) for step in range(8)])
    assert len(set(drawn.tolist())) == rows.used == 12
    assert not set(drawn.tolist()) & set(rows.held_out.tolist())
    other = rows_of(np.arange(50), max_train_examples=12, held_out_fold=2, finetune_seed=1)
    assert {int(other.batch(step)[0]) for step in range(12)} == set(drawn.tolist())
    outside = sorted({*range(50)} - {*rows.held_out.tolist()})
    assert sorted(set(drawn.tolist())) != outside[:12]


def test_too_few_examples_for_a_fifth_are_refused() -> None:
    with pytest.raises(UserError, match="has 4 training examples, too few"):
        rows_of(np.array([1, 1, 2, 3, 4]), held_out_fold=0)


@pytest.mark.parametrize(
    ("examples", "epochs", "batch_size", "steps"),
    # As run_classifier.py: int(examples / batch_size * epochs).
    [(3668, 3, 32, 343), (100, 3, 32, 9), (96, 20, 16, 120), (31, 1, 32, 0), (33, 1.9, 32, 1)],
)
def test_steps_are_whole_batches_of_the_epochs(
    examples: int, epochs: float, batch_size: int, steps: int
) -> None:
    rows = np.arange(examples)
    assert TrainingRows("RTE", 0, rows, rows[:0], batch_size).num_steps(epochs) == steps
