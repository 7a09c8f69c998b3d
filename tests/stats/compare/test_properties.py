"""Rules that hold of every study, near the ends of a score and far: the same answer asked in two ways."""

import numpy as np
import pandas as pd
import pytest

from multiberts import stats

DESIGNS = ("paired", "unpaired", "fixed_baseline")
FEW = {"n_resamples": 39}
# Of each property: studies in every run of the tests, and in the slow ones.
STUDIES = [
    pytest.param(range(15), id="some"),
    pytest.param(range(15, 225), id="many", marks=pytest.mark.slow),
]


def study(key):
    """Right and wrong answers of two arms [seeds, examples], and how they are compared.

    A third of the studies are near the ends, a third have arms that hardly differ.
    """
    random = np.random.default_rng([15, key])
    num_seeds, num_examples = int(random.integers(2, 6)), int(random.integers(30, 120))
    skill = random.choice([0.5, 0.8, 0.95, 0.995])
    examples = random.random(num_examples)
    base = (random.random((num_seeds, num_examples)) * 0.3 + examples * 0.7 < skill).astype(float)
    experiment = (random.random(base.shape) * 0.3 + examples * 0.7 < skill).astype(float)
    if key % 3 == 0:
        differs = random.random(num_examples) < 0.04
        experiment = np.where(differs, 1 - base, base)
    return base, experiment, DESIGNS[key % 4 % 3]


def numbers(result, sign=1):
    ends = tuple(sorted(sign * end for end in result.ci))
    return (sign * result.estimate, *ends, result.standard_error, result.p_value)


def check_equal(first, second, sign=1):
    assert first.ci.method == second.ci.method
    assert numbers(first) == pytest.approx(numbers(second, sign), rel=1e-7, abs=1e-9)
    assert -1 <= first.ci.low <= first.ci.high <= 1


def near(first, second, share):
    """Whether the ends of one interval are those of another but for a share of its width."""
    width = second.ci.high - second.ci.low
    return tuple(first.ci) == pytest.approx(tuple(second.ci), abs=share * width)


@pytest.mark.parametrize("keys", STUDIES)
def test_labels_and_scores_of_nought_and_one_agree(keys):
    for key in keys:
        base, experiment, design = study(key)
        labels = np.random.default_rng(key).integers(0, 2, base.shape[1])
        answers = [np.where(right == 1, labels, 1 - labels) for right in (base, experiment)]
        labelled = stats.compare(*answers, "accuracy", labels=labels, design=design, **FEW)
        plain = stats.compare(base, experiment, design=design, **FEW)
        check_equal(plain, labelled)
        assert tuple(plain.base.ci) == pytest.approx(tuple(labelled.base.ci), abs=1e-12)


@pytest.mark.parametrize("keys", STUDIES)
def test_clusters_of_one_example_are_no_clusters(keys):
    for key in keys:
        base, experiment, design = study(key)
        plain = stats.compare(base, experiment, design=design, **FEW)
        clusters = np.random.default_rng(key).permutation(base.shape[1])
        check_equal(stats.compare(base, experiment, design=design, clusters=clusters, **FEW), plain)


@pytest.mark.parametrize("keys", STUDIES)
def test_the_arms_in_the_other_order_change_the_signs(keys):
    for key in keys:
        base, experiment, design = study(key)
        design = "paired" if design == "fixed_baseline" else design
        plain = stats.compare(base, experiment, design=design, **FEW)
        check_equal(stats.compare(experiment, base, design=design, **FEW), plain, -1)


@pytest.mark.parametrize("keys", STUDIES)
def test_the_order_of_rows_and_seeds_and_a_constant_column_change_nothing(keys):
    for key in list(keys)[::5]:
        base, experiment, design = study(key)
        rows = [
            {"arm": arm, "seed": seed, "example": example, "score": table[seed, example]}
            for arm, table in (("base", base), ("new", experiment))
            for seed, example in np.ndindex(table.shape)
        ]
        frame = pd.DataFrame(rows)
        mixed = frame.sample(frac=1, random_state=key).sort_values("arm", kind="stable")
        mixed["split"] = "test"
        options = {"design": design, **FEW}
        check_equal(stats.compare(mixed, **options), stats.compare(frame, **options))
        order = np.random.default_rng(key).permutation(len(base))
        check_equal(
            stats.compare(base[order], experiment[order], design=design, **FEW),
            stats.compare(base, experiment, design=design, **FEW),
        )


@pytest.mark.parametrize("keys", STUDIES)
def test_missing_cells_tend_to_none(keys):
    """One cell of two hundred and more, in either arm: the method stays, and the interval nearly."""
    for key in keys:
        base, experiment, design = study(key)
        random = np.random.default_rng(key)
        copies = 1 + 600 // base.size
        base, experiment = np.tile(base, copies), np.tile(experiment, copies)
        whole = stats.compare(base, experiment, design=design, missing="omit", **FEW)
        holed = [base.copy(), experiment.copy()]
        holed[key % 2][random.integers(len(base)), random.integers(base.shape[1])] = np.nan
        missing = stats.compare(*holed, design=design, missing="omit", **FEW)
        # A rule that changes at a number can change with it; the number of differences hardly does.
        if missing.ci.method != whole.ci.method:
            assert {missing.ci.method, whole.ci.method} == {"t", "Newcombe"}, key
            assert near(missing, whole, 0.25), key
        else:
            assert near(missing, whole, 0.1), (key, missing.ci, whole.ci)
