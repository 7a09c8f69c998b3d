"""Metrics of sets of labels against scikit-learn, and each label's own score."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from multiberts.evaluate.metrics.register import METRICS

CLASSES = ("grief", "joy", "relief", "so, so")


def drawn(seed: int, num_examples: int) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Indicators [examples, classes] of labels and answers, and the same as texts."""
    random = np.random.default_rng(seed)
    labels, answers = random.random((2, num_examples, len(CLASSES))) < [0.6, 0.4, 0.1, 0.3]
    texts = [
        ["|".join(random.permutation(np.array(CLASSES)[row])) for row in side]
        for side in (labels, answers)
    ]
    return labels, answers, *texts


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_averages_are_those_of_scikit_learn(average: str) -> None:
    for seed in range(20):
        labels, answers, label_texts, answer_texts = drawn(seed, 30)
        seen = labels.any(axis=0) | answers.any(axis=0)
        theirs = f1_score(labels[:, seen], answers[:, seen], average=average, zero_division=0)
        ours = METRICS[f"multilabel_f1_{average}"].score(label_texts, answer_texts)
        assert ours == pytest.approx(theirs, abs=1e-10)


def test_each_label_is_that_of_scikit_learn() -> None:
    labels, answers, label_texts, answer_texts = drawn(3, 200)
    found = METRICS["multilabel_f1_macro"].by_class(np.array(label_texts), np.array(answer_texts))
    assert tuple(found) == CLASSES
    expected = f1_score(labels, answers, average=None, zero_division=0)
    np.testing.assert_allclose(list(found.values()), expected, rtol=0, atol=1e-10)


def test_nothing_anywhere_is_zero() -> None:
    assert METRICS["multilabel_f1_macro"].score(["", ""], ["", ""]) == 0
