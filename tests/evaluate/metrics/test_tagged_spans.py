"""F1 of spans: the cases of seqeval's documentation, and its rules of where spans begin and end."""

import numpy as np
import pytest

from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.tagged_spans import spans


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-a I-a O B-b", {("a", 0, 1), ("b", 3, 3)}),
        ("I-a I-a", {("a", 0, 1)}),
        ("B-a B-a", {("a", 0, 0), ("a", 1, 1)}),
        ("B-a I-b", {("a", 0, 0), ("b", 1, 1)}),
        ("B-a O I-a", {("a", 0, 0), ("a", 2, 2)}),
        ("B-x-y I-x-y", {("x-y", 0, 1)}),
        ("O O", set()),
        ("", set()),
    ],
)
def test_where_spans_begin_and_end(tags: str, expected: set) -> None:
    assert spans(tags) == expected


def test_known_values() -> None:
    score = METRICS["span_f1"].score
    assert score(["B-a B-b B-c"], ["B-a B-b O"]) == pytest.approx(2 * 2 / 5)
    assert score(["O"], ["O"]) == 0


# What seqeval 1.2.2 gives, `seqeval.metrics.f1_score(labels, answers)`, for the tags drawn below.
OF_SEQEVAL = (
    0.7926829268292682, 0.7886435331230284, 0.8249258160237388, 0.7845659163987139,
    0.7777777777777778, 0.8053691275167787,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(len(OF_SEQEVAL)))
def test_scores_are_those_of_seqeval(seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-X"]
    labels = [random.choice(kinds, number).tolist() for number in random.integers(1, 13, 40)]
    answers = [
        [tag if random.random() < 0.8 else str(random.choice(kinds)) for tag in row]
        for row in labels
    ]
    ours = METRICS["span_f1"].score(
        *([" ".join(row) for row in side] for side in (labels, answers))
    )
    assert ours == pytest.approx(OF_SEQEVAL[seed], abs=1e-10)
