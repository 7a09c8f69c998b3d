"""What metrics and readers of files refuse: each with its one line."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from multiberts.evaluate.metrics.register import (
    METRICS,
    default_metric,
    metric_input,
    metric_named,
    values_of_cells,
)
from multiberts.evaluate.metrics.squad import best_threshold
from multiberts.evaluate.metrics.winogender_bias import (
    gotcha_column,
    occupation_bias,
    occupation_means,
    occupation_scores,
)
from multiberts.runs.errors import UserError
from multiberts.tests.evaluate.metrics.test_winogender_bias import probe_dataset

NAN = float("nan")
SETS = ["joy", "joy, relief", "relief", "fear", "fear, joy"]
PROBABILITIES = ("ece", "brier", "log_loss")


def cells(*values):
    """Cells of any kind."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


# Metric, labels, predictions and the line.
VALUES = [
    ("f1", [0, 1, 2], [0, 1, 1], "f1 .*found 2 in labels"),
    ("f1", [0, 1, 0], [0, 1, 2], "f1 .*found 2 in predictions"),
    *((f1, [0, 1], [0.25, 1], rf"{f1} .*fraction 0\.25") for f1 in ("f1_macro", "f1_micro", "matthews")),
    *(
        (name, [0, 1], ["b", "a"], f"{name} .*found 'b' in predictions")
        for name in ("mse", "mae", "pearson", "slope", "mean")
    ),
    ("share", np.ones(2), [1.0, 0.5], r"share .*found 0\.5.* mean"),
    *(
        row
        for name in PROBABILITIES
        for row in (
            (name, [0, 1, 1], [0.5, 1.5, 0.1], rf"{name} .*probabilities, found 1\.5"),
            (name, [0, 1, 1], [0.5, NAN, 0.1], "probabilities, found nan"),
            (name, [0, 1, 1], [[0.5, 0.5], [0.9, 0.3], [0.2, 0.8]], r"sum to 1\.2, expected 1\b"),
            (name, [0, 1, 2], [0.5, 0.5, 0.1], "label 2, .* 0 to 1"),
            (name, [0, 3], np.full((2, 3), 1 / 3), "label 3, .* 0 to 2"),
            (name, ["a", "b"], [0.5, 0.5], "numbers .*found 'a'"),
            (name, [0, 1, 1], [0.5, 0.5], r"\(3,\) .*\(2,\).* classes\]"),
        )
    ),
    ("auc", [0, 1, 2], [0.1, 0.2, 0.3], "auc .*found 2 in labels"),
    ("auc", [0, 1], [0.1, NAN], "auc: found nan"),
    ("spearman", ["a", "b"], [0.1, 0.2], "spearman .*found 'a' in labels"),
    *(
        row
        for name in ("squad_f1", "squad_exact_match")
        for row in (
            (name, cells(1), ["a"], f"{name}: .*label 1, .*tuple"),
            (name, ["a"], cells(None), f"{name}: .*prediction None"),
            (name, cells(None), ["a"], "label None"),
        )
    ),
    ("multilabel_f1_micro", [1, 0], ["a", "b"], r"found 1 in labels.* \| "),
    ("span_f1", ["B-a O"], ["B-a O O"], "3 tags .* 2 of 'B-a O'"),
    ("span_f1", ["B-a O"], ["B-a S-a"], "found 'S-a'"),
    ("span_f1", ["B-a O"], ["B-a I"], "found 'I'"),
    *(
        row
        for name in ("accuracy", "auc")
        for row in (
            (name, [0, 1], [[0, 0, 1], [1, 1, 0]], r"shape \(2,\) .*\(2, 3\)"),
            (name, [], [], "no examples"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "labels", "predictions", "line"), VALUES)
def test_values_that_a_metric_does_not_take(name, labels, predictions, line):
    with pytest.raises(ValueError, match=line):
        METRICS[name].score(labels, predictions)


def asked(labels):
    """Asks for the metric of answers like these labels."""
    default_metric(cells(*labels)[None], cells(*labels))


def with_another_share():
    data = probe_dataset()
    data["percent_feminine"][0] = 3.0
    occupation_scores(data, "probe_slope")


auc: Any = METRICS["auc"]
LOGITS = np.zeros((1, 2, 3))
LISTS = cells(("joy", "relief"), (), NAN)
ABC = np.array(["a", "b", "c"])
CALLS = [
    ("'acuracy'.* mean accuracy", lambda: metric_named("acuracy")),
    ("brier needs the scores", lambda: metric_input(METRICS["brier"], np.array([[1, 0]]))),
    ("auc .*two classes.* 3", lambda: metric_input(auc, np.array([[1, 0]]), LOGITS)),
    (r"shape \(1, 2\) .*\(1, 2\)", lambda: METRICS["accuracy"].bind([[0, 1]], [[0, 1]])),
    (r"shape \(1, 2\) .*\(1, 2\)", lambda: auc.bind([[0, 1]], [[0, 1]])),
    (r"expected \[replicates, 2\]", lambda: auc.bind([0, 1], [[0.1, 0.2]]).weighted([1, 1])),
    (r"expected \[runs, examples\]", lambda: auc.bind([0, 1], [0.1, 0.2])),
    (r"observed .*\(2,\).*\(1, 2\)", lambda: auc.bind([0, 1], [[0.1, 0.2]], [True, False])),
    (r"\(1,\), \(2,\)", lambda: best_threshold([1.0], [0.5, 0.1], [True], [True])),
    ("null odds", lambda: best_threshold([1.0], [NAN], [True], [True])),
    (r"sets, such as 'fear, joy'; .*\(fear\|joy\), or give --metric=accuracy", lambda: asked(SETS)),
    ("sets, such as 'fear;joy'", lambda: asked([text.replace(", ", ";") for text in SETS])),
    ("sets, .* --metric=multilabel_f1_micro", lambda: asked([text.replace(", ", "|") for text in SETS])),
    ("tags, such as 'O O I-LOC'; give --metric=span_f1", lambda: asked(["B-PER O", "O O I-LOC"])),
    *(
        (
            f"lists as {role}s, which {name} .* --metric={cure}",
            partial(values_of_cells, METRICS[name], LISTS, role),
        )
        for name in ("accuracy", "mse", "auc", "spearman")
        for role, cure in (("label", "squad_f1"), ("prediction", "multilabel_f1_micro"))
    ),
    (
        r"name 'a\|b', expected names without",
        lambda: values_of_cells(METRICS["multilabel_f1_micro"], cells(("a|b",)), "label"),
    ),
    ("found lists .* --metric=multilabel_f1_micro", lambda: default_metric(LISTS[None], ABC)),
    ("found lists .* --metric=squad_f1", lambda: default_metric(ABC[None], LISTS)),
    ("'nurse' .*no masculine", lambda: occupation_bias([[0, 1]], ["nurse"] * 2, ["feminine", "neutral"])),
    ("found gender 'female'", lambda: occupation_bias([[0]], ["nurse"], ["female"])),
    ("other than 0", lambda: occupation_bias([[2, 1]], ["nurse"] * 2, ["feminine", "masculine"])),
    (r"expected \[runs, examples\]", lambda: occupation_means([[1.0, 2.0]], ["nurse"])),
    ("found gender 'male'", lambda: gotcha_column(["male"], [3.0], [0])),
    ("answers other than 0", lambda: gotcha_column(["feminine"], [3.0], [2])),
    ("bias_slope .*feature gender", lambda: occupation_scores(probe_dataset(genders=False), "bias_slope")),
    (r"'occupation 0' has percent_feminine \[3\.0, ", with_another_share),
]  # fmt: skip


@pytest.mark.parametrize(("line", "call"), CALLS)
def test_calls_of_metrics_that_are_refused(line, call):
    with pytest.raises((ValueError, UserError), match=line) as refused:
        call()
    assert "\n" not in str(refused.value)
