"""Sides that cannot be compared are refused, and what readers must know of the data is noted."""

import re

import numpy as np
import pytest
import xarray

from multiberts import stats
from multiberts.stats import compare
from multiberts.stats.errors import DataError

RANDOM = np.random.default_rng(0)
LABELS = np.arange(40) % 2


def answers(accuracy: float, seeds: int = 4) -> np.ndarray:
    random = np.random.default_rng([0, seeds, round(100 * accuracy)])  # alike in any order of tests
    return np.where(random.random((seeds, 40)) < accuracy, LABELS, 1 - LABELS)


def dataset(values: np.ndarray, kind: str = "prediction", **examples: np.ndarray) -> xarray.Dataset:
    coordinates = {"pretrain_seed": ("run", np.arange(len(values)))}
    coordinates |= {name: ("example", column) for name, column in examples.items()}
    variables = {kind: (("run", "example"), values)}
    if kind == "prediction":
        variables["label"] = ("example", LABELS)
    return xarray.Dataset(variables, coordinates)


def test_scores_with_labels_are_compared_with_scores_without() -> None:
    base, new = (dataset(answers(skill) == LABELS, "score") for skill in (0.7, 0.9))
    plain = compare(base, new, "mean")
    labelled = compare(base.assign(label=("example", LABELS)), new, "mean")
    assert (labelled.estimate, *labelled.ci) == (plain.estimate, *plain.ci)
    with pytest.raises(DataError, match="different labels for 40 examples"):
        compare(
            *(own.assign(label=("example", n != LABELS)) for n, own in enumerate((base, new))),
            "mean",
        )


def test_free_answers_need_not_be_labels() -> None:
    """Of 40 questions with an answer each, no model knows all."""
    gold = np.array([f"place {number}" for number in range(40)])
    base, new = (np.where(answers(0.6) == LABELS, gold, "nowhere") for _ in range(2))
    base[:, 0] = new[:, 0] = "nowhere"
    assert compare(base, new, "accuracy", labels=gold).estimate < 0.5


def test_one_side_in_per_cent_is_refused() -> None:
    base, new = 1.0 * (answers(0.7) == LABELS), 100.0 * (answers(0.8) == LABELS)
    with pytest.raises(DataError, match=r"1 \(base, seed 0\) .*0 to 100"):
        compare(base, new)
    mixed = base.copy()
    mixed[2] *= 100
    with pytest.raises(DataError, match=r"0 to 100 \(base, seed 2\)"):
        compare(mixed, base)
    losses = RANDOM.random((4, 40))
    assert compare(losses, losses * 3 + RANDOM.random((4, 40))).estimate > 0


def test_seeds_without_names_are_paired_only_where_there_are_equally_many() -> None:
    base, new = answers(0.7, 5), answers(0.8, 4)
    with pytest.raises(DataError, match="5 seeds of base, 4 .*order of rows"):
        compare(base, new, "accuracy", labels=LABELS)
    with pytest.raises(DataError, match="5 seeds of a, 4 "):
        arms = {"a": base, "b": new, "c": base}
        stats.compare_arms(arms, "accuracy", design="paired", labels=LABELS)
    unpaired = compare(base, new, "accuracy", design="unpaired", labels=LABELS)
    assert unpaired.base.seeds == (*range(5),)
    named = compare(dataset(base), dataset(new), "accuracy")
    assert named.base.left_out == (4,)


def test_clusters_are_those_of_both_sides() -> None:
    ids = np.arange(40)
    base = dataset(answers(0.7), example_id=ids, family=ids // 5)
    other = dataset(answers(0.8), example_id=ids, family=ids // 4)
    plain = dataset(answers(0.8), example_id=ids)
    with pytest.raises(DataError, match="clusters 'family' for 30 examples"):
        compare(base, other, "accuracy", clusters="family")
    for sides in ((base, plain), (plain, base)):
        found = compare(*sides, "accuracy", clusters="family")
        assert (found.base.num_clusters, found.experiment.num_clusters) == (8, 8)
    renamed = other.assign_coords(family=("example", np.char.add("f", (ids // 5).astype(str))))
    assert compare(base, renamed, "accuracy", clusters="family").base.num_clusters == 8
    turned = base.isel(example=slice(None, None, -1))
    assert compare(base, turned, "accuracy", clusters="family").base.num_clusters == 8


def test_facts_that_differ_under_one_id_are_refused() -> None:
    ids = np.arange(40)
    hashes = np.array([f"h{number}" for number in ids])
    base = dataset(answers(0.7), example_id=ids, doc_hash=hashes)
    other = dataset(answers(0.7), example_id=ids, doc_hash=np.roll(hashes, 1))
    for data in (base, other):
        data.attrs["identifying"] = ["doc_hash"]
    with pytest.raises(DataError, match="'doc_hash' for 40 examples"):
        compare(base, other, "accuracy")
    assert compare(base, base.isel(example=slice(None, None, -1)), "accuracy").estimate == 0


def test_copies_of_a_run_under_two_seeds_are_named() -> None:
    base, new = answers(0.7), answers(0.8)
    new[3] = new[1]
    found = compare(base, new, "accuracy", labels=LABELS).named(experiment="new")
    [note] = found.notes
    assert re.match("Seeds 1 and 3 .*new .*same .*40 examples", note)
    assert f"Note: {note}" in str(found) or note in str(found)


def test_missing_cells_are_counted_for_each_side() -> None:
    base, new = 1.0 * (answers(0.7) == LABELS), 1.0 * (answers(0.8) == LABELS)
    base[0, :3] = new[1, 5] = np.nan
    notes = " ".join(compare(base, new, missing="omit").notes)
    assert "3 of 160 predictions of base" in notes
    assert "1 of 160 predictions of experiment" in notes and "at random" in notes


def test_an_area_below_chance_is_noted() -> None:
    scores = 1 - 0.6 * LABELS + 0.5 * RANDOM.random((4, 40))
    found = compare(scores, None, "auc", design="single", labels=LABELS)
    assert found.notes[0].startswith("AUC of base is") and "below chance" in found.notes[0]


@pytest.mark.parametrize("empty", ["", " ", None, np.nan])
def test_examples_without_a_cluster_are_refused_and_may_be_clusters_of_their_own(empty) -> None:
    clusters = np.array([f"text {place // 4}" for place in range(40)], dtype=object)
    clusters[:3] = empty
    arms = [dataset(answers(skill), text=clusters) for skill in (0.7, 0.8)]
    for data in arms:  # as read from files
        data.attrs["identifying"] = ["text"]
    with pytest.raises(DataError, match="3 examples of 40 .*cluster of its own"):
        compare(*arms, "accuracy", clusters="text", n_resamples=40)
    alone = np.where(np.arange(40) < 3, [f"alone {place}" for place in range(40)], clusters)
    named = [data.assign_coords(text=("example", alone)) for data in arms]
    found = compare(*named, "accuracy", clusters="text", n_resamples=40)
    assert found.base.num_clusters == 13
    without = [data.drop_vars("text").assign_attrs(identifying=[]) for data in arms]
    assert compare(*without, "accuracy", n_resamples=40).base.num_clusters is None
    with pytest.raises(DataError, match="3 examples .*value of text"):
        stats.slices(compare(*arms, "accuracy", n_resamples=40), "text")


def with_stray(values: np.ndarray) -> np.ndarray:
    """The same answers as words, one of each seed none of the labels'."""
    words = np.array(["no", "yes"])[values].astype(object)
    words[:, 4] = "perhaps"
    return words


WORDS = np.array(["no", "yes"])[LABELS]


def test_stray_answers_are_noted_of_the_arm_that_gives_them() -> None:
    base, new = np.array(["no", "yes"])[answers(0.6)], answers(0.9)
    options = {"labels": WORDS, "n_resamples": 40}
    found = compare(base, with_stray(new), "f1_macro", **options).named(experiment="new")
    assert found.estimate < 0  # as scikit-learn has it
    assert re.match(r"4 of 160 .*new \(2.5 %\) .*classes .*'perhaps' \(4\)", found.notes[0])
    assert "a difference of +" in found.notes[1] and "% for base and" in found.notes[1]
    assert found.notes[1] in str(found)
    first, second = found.over_labels
    assert second > first and f"{100 * second:.1f} % for new" in found.notes[1]
    assert f"a difference of {100 * (second - first):.1f} points (see the notes)." in str(found)
    assert compare(base, np.array(["no", "yes"])[new], "f1_macro", **options).over_labels == ()
    of_accuracy = compare(base, with_stray(new), "accuracy", **options).named(experiment="new")
    assert of_accuracy.notes == found.notes[:1] and of_accuracy.over_labels == ()
    task = {"task": stats.TaskData(base, with_stray(new), "f1_macro", WORDS)}
    of_task = stats.compare_tasks(task, n_resamples=40).comparisons["task"]
    assert of_task.notes[1] == found.notes[1].replace("new", "experiment")
    alone = compare(with_stray(new), None, "f1_macro", **options)
    assert "% for base." in alone.notes[1]


def test_many_arms_have_the_notes_of_each() -> None:
    arms = {"a": answers(0.6), "b": answers(0.7), "c": answers(0.8)}
    words = {name: np.array(["no", "yes"])[own] for name, own in arms.items()}
    words["c"] = with_stray(arms["c"])
    found = stats.compare_arms(words, "f1_macro", labels=WORDS, n_resamples=40)
    assert re.match(r"4 of 160 .*of c \(2.5 %\) .*classes", found.notes[0])
    assert "% for a and" in found.notes[1] and "% for c" in found.notes[1]
    assert f"Note: {found.notes[0]}" in str(found)


def test_an_average_over_the_labels_classes_may_be_given_as_a_function() -> None:
    from sklearn.metrics import f1_score

    def over_labels(labels: np.ndarray, answers: np.ndarray) -> float:
        return f1_score(labels, answers, labels=["no", "yes"], average="macro")

    base, new = np.array(["no", "yes"])[answers(0.6)], with_stray(answers(0.9))
    options = {"labels": WORDS, "n_resamples": 40, "resample": "seeds"}
    found = compare(base, new, over_labels, **options)
    said = compare(base, new, "f1_macro", **options).notes[1]
    assert f"a difference of {100 * found.estimate:+.1f} points" in said
