"""Data that show the spread of seeds alone, or of examples alone: what is resampled, and SciPy's numbers."""

import numpy as np
import pandas
import pytest
import scipy.stats

from multiberts import stats
from multiberts.report.presentation import planning, ranking_words, words
from multiberts.stats.compare.result import Comparison
from multiberts.stats.errors import DataError

SEEDS = np.arange(10)
BASE, NEW = np.random.default_rng(3).normal([[0.88], [0.89]], 0.01, (2, 10)).round(4)


def table(base: np.ndarray = BASE, new: np.ndarray = NEW, **columns: object) -> pandas.DataFrame:
    arms = {"base": base, "new": new}
    rows = [(name, seed, score) for name, own in arms.items() for seed, score in enumerate(own)]
    return pandas.DataFrame(rows, columns=["model", "seed", "accuracy"]).assign(**columns)


def test_one_score_per_run_is_student_s_t_of_pairs():
    found, known = stats.compare(table()), scipy.stats.ttest_rel(NEW, BASE)
    assert found.resample == "seeds" and found.df == 9
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-12)
    assert [found.ci.low, found.ci.high] == pytest.approx([*known.confidence_interval()])
    assert found == stats.compare(table(), resample="seeds")
    assert stats.compare(BASE[:, None], NEW[:, None]).p_value == pytest.approx(known.pvalue)


def test_unpaired_scores_of_runs_are_welch_s_t_and_alike_ones_of_equal_number_student_s():
    for number, spread, pooled in ((7, 1.0, False), (10, 1.0, True), (10, 4.0, False)):
        new = 0.89 + spread * (BASE[::-1][:number] - BASE.mean())
        found = stats.compare(BASE[:, None], new[:, None], design="unpaired")
        known = scipy.stats.ttest_ind(new, BASE, equal_var=pooled)
        assert found.pooled_seeds == pooled and found.df == pytest.approx(known.df)
        assert found.p_value == pytest.approx(known.pvalue, rel=1e-12)


@pytest.mark.parametrize("scale", [1, 100])
def test_scores_of_whole_runs_keep_their_unit(scale: int):
    text, decimals = str(stats.compare(table(BASE * scale, NEW * scale))), 3 if scale == 1 else 1
    new, base = (f"{scale * own.mean():.{decimals}f}" for own in (NEW, BASE))
    assert f"mean {new} against {base} (" in text and "points" not in text


def test_one_run_of_each_is_student_s_t_of_examples():
    scores = np.random.default_rng(4).beta(2, 1, (2, 300))
    found, known = stats.compare(*scores[:, None]), scipy.stats.ttest_rel(*scores[::-1])
    assert found.resample == "examples" and found.df == 299
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-12)
    assert [found.ci.low, found.ci.high] == pytest.approx([*known.confidence_interval()])


def test_what_was_said_first_is_not_taken_back():
    whole = stats.compare(table(BASE, BASE[::-1] + 0.001))
    single = stats.compare(*np.random.default_rng(4).integers(0, 2, (2, 40)))
    arms = {name: own[:, None] for name, own in zip("abc", (BASE, NEW, NEW + 0.01), strict=True)}
    ranking = ranking_words.ranking_finding(stats.compare_arms(arms))
    for start, other, texts in (
        ("One run of each model: ", "seed", [*_texts(single), single.methods()]),
        ("Scores of whole runs: ", "example", [*_texts(whole), whole.methods()]),
        ("Scores of whole runs: ", "example", [ranking]),
    ):
        assert texts[0].startswith(start)
        later = " ".join([texts[0].partition(". ")[2], *texts[1:]])
        assert other not in later.replace(f", with the {other}s held fixed,", "")


def _texts(result: Comparison) -> list[str]:
    return [words.finding(result), *planning.needs_in_words(result), *words.warnings(result)]


def test_one_seed_beside_several_is_refused():
    one, five = np.random.default_rng(4).integers(0, 2, (1, 40)), np.ones((5, 40)) - np.eye(5, 40)
    assert stats.compare(one, five, design="fixed_baseline").resample == "both"
    with pytest.raises(
        DataError, match="base has one seed .*add seeds, or give design='fixed_baseline'"
    ):
        stats.compare(BASE[:1, None], NEW[:, None], design="unpaired")
    known = scipy.stats.ttest_1samp(NEW, BASE[0])
    found = stats.compare(BASE[:1, None], NEW[:, None], design="fixed_baseline")
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-12)


def test_tasks_of_one_score_each_have_a_mean_over_the_same_seeds():
    tasks = {
        name: stats.TaskData(BASE[:, None] + n, NEW[:, None] + n) for n, name in enumerate("ab")
    }
    found = stats.compare_tasks(tasks).macro_average
    assert found.resample == "seeds"
    assert found.p_value == pytest.approx(scipy.stats.ttest_rel(NEW, BASE).pvalue)
    assert str(found).startswith("Scores of whole runs: ")
