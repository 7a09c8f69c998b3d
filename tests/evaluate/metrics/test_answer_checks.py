"""Answers are looked at against labels before they are scored."""

import re

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from multiberts.evaluate.metrics.answer_checks import Answers, check_answers
from multiberts.evaluate.metrics.register import METRICS

CLASSES = np.array(["low", "medium", "high"])


def study(skill, key, seeds=4, number=300):
    """Labels [examples] and answers [seeds, examples] of three classes."""
    random = np.random.default_rng(key)
    labels = np.random.default_rng(9).integers(0, 3, number)
    right = random.random((seeds, number)) < skill
    answers = np.where(right, labels, (labels + random.integers(1, 3, right.shape)) % 3)
    return CLASSES[labels], CLASSES[answers].astype("U12")


def with_stray(answers):
    """The same with 3 % of other words."""
    random, answers = np.random.default_rng(3), answers.copy()
    places = random.random(answers.shape) < 0.03
    answers[places] = random.choice(["maybe", "n/a", "?"], places.sum())
    return answers


@pytest.mark.parametrize(
    ("metric", "of_sklearn"),
    [("f1_macro", f1_score), ("precision_macro", precision_score), ("recall_macro", recall_score)],
)
def test_stray_answers_are_counted_and_the_score_over_the_labels_classes_is_said(
    metric, of_sklearn
):
    labels, base = study(0.67, 0)
    experiment = with_stray(study(0.74, 1)[1])
    of_base, of_experiment = check_answers(metric, labels, [Answers(base), Answers(experiment)])
    assert of_base == []
    number = int((~np.isin(experiment, CLASSES)).sum())
    assert of_experiment[0].startswith(f"{number} of 1,200 answers of {{arm}} (")
    assert "(2.7 %)" in of_experiment[0]
    words, counts = np.unique(experiment[~np.isin(experiment, CLASSES)], return_counts=True)
    for word, count in zip(words, counts, strict=True):
        assert f"'{word}' ({count})" in of_experiment[0]
    options = {"labels": CLASSES, "average": "macro"}
    scores = [
        100 * np.mean([of_sklearn(labels, row, **options) for row in arm])
        for arm in (base, experiment)
    ]
    for said in (
        f" {scores[0]:.1f} % for {{base}}",
        f" {scores[1]:.1f} % for {{experiment}}",
        f" {scores[1] - scores[0]:+.1f} points",
    ):
        assert said in of_experiment[1]
    # What the metric itself says is the opposite.
    shown = [METRICS[metric].score(labels, arm).mean() for arm in (base, experiment)]
    assert scores[1] - scores[0] > 4 and shown[1] < shown[0]


def test_other_metrics_have_the_count_alone():
    labels, answers = study(0.7, 0)
    for metric in ("accuracy", "matthews", "f1_weighted", "balanced_accuracy"):
        (notes,) = check_answers(metric, labels, [Answers(with_stray(answers))])
        assert len(notes) == 1 and "of classes that no label has" in notes[0]
        assert check_answers(metric, labels, [Answers(answers)]) == [[]]


def test_missing_answers_do_not_count_and_runs_of_a_seed_weigh_as_one():
    labels, answers = study(0.7, 0)
    stray = with_stray(answers)
    seen = np.isin(stray, CLASSES)
    assert check_answers("f1_macro", labels, [Answers(stray, observed=seen)]) == [[]]
    weights = np.array([1.0, 0, 0, 0])
    (notes,) = check_answers("f1_macro", labels, [Answers(stray, weights=weights)])
    alone = f1_score(labels, stray[0], labels=CLASSES, average="macro")
    assert f"is {100 * alone:.1f} % for {{arm}}." in notes[1]


def test_placeholders_are_refused_and_a_class_of_that_name_is_not():
    labels = np.full(40, -1)
    with pytest.raises(ValueError, match="all 40 labels are -1"):
        check_answers("accuracy", labels, [Answers(np.ones((3, 40), int))])
    both = np.where(np.arange(40) % 2, 1, -1)[None]
    assert check_answers("accuracy", labels, [Answers(both)]) == [[]]
    # The right answer of each example may be 1, as where answers are whether they are right.
    assert check_answers("accuracy", np.ones(40, int), [Answers(1 * (both > 0))]) == [[]]


def test_a_label_that_no_run_predicts_is_named():
    labels = np.arange(60) % 3
    ((note,),) = check_answers("accuracy", labels, [Answers(np.minimum(labels, 1)[None])])
    assert re.search(r"\{arm\} .*label 2\b.* 20 .* 60 ", note)


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("accuracy", r"{arm} .* 10\.0 % .* 50\.0 %.* exchanged"),
        ("f1", "exchanged"),
        ("auc", r"AUC of {arm} is 0\.1, .*\(0\.5\).* other class"),
        ("average_precision", "other class"),
        ("pearson", r"Spearman.* of {arm} is -0\.8, .*\(0\).* other way"),
    ],
)  # fmt: skip
def test_answers_far_below_chance_are_noted(metric, says):
    labels = np.arange(200) % 2
    exchanged = np.where(np.arange(200) // 2 % 10, 1 - labels, labels)[None]
    ((note,),) = check_answers(metric, labels, [Answers(exchanged)])
    assert re.search(says, note)
    assert check_answers(metric, labels, [Answers(1 - exchanged)]) == [[]]
    # Ten clusters of twenty examples are ten answers: they may well be wrong by chance.
    assert check_answers(metric, labels, [Answers(exchanged, num_units=10)]) == [[]]


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro", "auc", "spearman", "pearson"])
def test_chance_is_not_called_far_below_it(metric):
    random = np.random.default_rng(5)
    for study_number in range(150):
        share = (0.5, 0.1, 0.02)[study_number % 3]
        labels = (random.random(200) < share) * 1
        answers = (random.random((3, 200)) < random.random()) * 1
        if metric in ("auc", "spearman", "pearson"):
            answers = random.standard_cauchy((3, 200))
        assert not any(
            "below" in note for note in check_answers(metric, labels, [Answers(answers)])[0]
        )


def test_many_examples_are_looked_at_in_part():
    labels = np.arange(30_000) % 2
    scores = np.where(np.arange(30_000) % 10, 1 - labels, labels)[None]
    ((note,),) = check_answers("auc", labels, [Answers(scores)])
    assert "far below chance (0.5)" in note
    assert check_answers("auc", labels, [Answers(1 - scores)]) == [[]]
    assert check_answers("auc", labels, [Answers(scores, num_units=10)]) == [[]]


def test_a_word_for_no_answer_is_noted_where_it_stands_for_many():
    """SQuAD 2.0 takes the empty answer alone: "unanswerable" cost 27 points without a word."""
    labels = np.array([(), "", ("in May", "May")] * 20, dtype=object)
    answers = np.array([["unanswerable", "N/A", "May"] * 20, ["", "", "May"] * 20], dtype=object)
    answers[0, [0, 3]] = "somebody"
    for metric in ("squad_f1", "squad_exact_match"):
        [[note]] = check_answers(metric, labels, [Answers(answers)])
        assert note.startswith("20 of 80 answers of {arm} to questions without an answer are 'N/A'")
    assert check_answers("squad_f1", labels, [Answers(answers[1:])]) == [[]]
    assert check_answers("squad_f1", labels[2::3], [Answers(answers[:, 2::3])]) == [[]]
    few = answers[1:].copy()
    few[0, [0, 3, 6]] = "May"
    assert len(check_answers("squad_f1", labels, [Answers(few)])[0]) == 1
    few[0, 6] = "June"
    assert check_answers("squad_f1", labels, [Answers(few)]) == [[]]
