"""Metrics of sets of labels against scikit-learn, and each label's own score."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from multiberts.evaluate.metrics.register import METRICS

CLASSES = ("grief", "joy", "relief", "so, so")
THEIRS = {"f1": f1_score, "precision": precision_score, "recall": recall_score}


def drawn(seed: int, num_examples: int) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Indicators [examples, classes] of labels and answers, and the same as texts."""
    random = np.random.default_rng(seed)
    labels, answers = random.random((2, num_examples, len(CLASSES))) < [0.6, 0.4, 0.1, 0.3]
    texts = [
        ["|".join(random.permutation(np.array(CLASSES)[row])) for row in side]
        for side in (labels, answers)
    ]
    return labels, answers, *texts


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples"])
@pytest.mark.parametrize("measure", THEIRS)
def test_averages_are_those_of_scikit_learn(measure: str, average: str) -> None:
    for seed in range(20):
        labels, answers, label_texts, answer_texts = drawn(seed, 30)
        seen = labels.any(axis=0) | answers.any(axis=0)
        theirs = THEIRS[measure](
            labels[:, seen], answers[:, seen], average=average, zero_division=0
        )
        ours = METRICS[f"multilabel_{measure}_{average}"].score(label_texts, answer_texts)
        assert ours == pytest.approx(theirs, abs=1e-10)


def test_exact_sets_and_each_label_are_those_of_scikit_learn() -> None:
    labels, answers, label_texts, answer_texts = drawn(3, 200)
    ours = METRICS["multilabel_accuracy"].score(label_texts, answer_texts)
    assert ours == pytest.approx(accuracy_score(labels, answers), abs=1e-10)
    for measure, theirs in THEIRS.items():
        by_class = METRICS[f"multilabel_{measure}_macro"].by_class
        found = by_class(np.array(label_texts), np.array(answer_texts))
        assert tuple(found) == CLASSES
        expected = theirs(labels, answers, average=None, zero_division=0)
        np.testing.assert_allclose(list(found.values()), expected, rtol=0, atol=1e-10)


def test_nothing_anywhere_is_zero_and_numbers_are_refused() -> None:
    assert METRICS["multilabel_f1_macro"].score(["", ""], ["", ""]) == 0
    assert METRICS["multilabel_accuracy"].score(["", ""], ["", ""]) == 1
    with pytest.raises(ValueError, match=r"found 1 in labels.* \| "):
        METRICS["multilabel_f1_micro"].score([1, 0], ["a", "b"])
