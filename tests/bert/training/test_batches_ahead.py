"""Threads make the batches of the blocks that follow."""

from __future__ import annotations

import pytest

from multiberts.bert.training.training_loop import batches_ahead

BLOCKS = [range(2, 4), range(4, 8), range(8, 9), range(9, 12), range(12, 16), range(16, 17)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("steps_per_job", "jobs"),
    [
        (1, BLOCKS),
        (4, [range(2, 8), range(8, 12), range(12, 16), range(16, 17)]),
        (100, [range(2, 17)]),
    ],
)
def test_blocks_have_their_batches_and_jobs_their_steps(
    threads: int, steps_per_job: int, jobs: list[range]
) -> None:
    made: list[range] = []

    def batches_at(steps: range) -> list[dict[str, int]]:
        made.append(steps)
        return [{"step": step} for step in steps]

    found = list(batches_ahead(batches_at, iter(BLOCKS), threads, steps_per_job))
    assert found == [(steps, [{"step": step} for step in steps]) for steps in BLOCKS]
    assert sorted(made, key=lambda steps: steps.start) == jobs


def test_an_error_of_a_thread_is_the_loop_s() -> None:
    def batches_at(steps: range) -> list[dict[str, int]]:
        if steps.start >= 9:
            raise ValueError("no such instance")
        return [{"step": step} for step in steps]

    ahead = batches_ahead(batches_at, iter(BLOCKS), 2)
    assert [next(ahead)[0] for _ in range(3)] == BLOCKS[:3]
    with pytest.raises(ValueError, match="no such instance"):
        next(ahead)
