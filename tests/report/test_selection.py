"""Choosing runs: groups, last steps, and the learning rate by the mean over runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray

from multiberts.report.selection import (
    FinishedRun,
    PredictionSetReader,
    choose_learning_rate,
    last_steps,
    make_groups,
    select,
)
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import MarkedRun


def run(number, *, task="t", procedure="base", step=10, rate=None, pretrain_seed=0, metrics=None):
    sets = {"dev": {"metrics": metrics or ["accuracy"]}, "test": {"metrics": ["accuracy"]}}
    facts = {"task": task, "procedure": procedure, "step": step, "learning_rate": rate}
    facts |= {"pretrain_seed": pretrain_seed, "evaluation_sets": sets}
    return FinishedRun(Path(f"run{number}"), facts)


def reader(hits):
    """Predictions of 10 examples, of which the run's own number is right; label 1 is right."""

    def read(directories, evaluation_set):
        right = np.array([hits[str(directory)] for directory in directories])
        predictions = (np.arange(10) < right[:, None]).astype(float)
        if evaluation_set != "dev":
            predictions = 1 - predictions
        return xarray.Dataset(
            {"prediction": (("run", "example"), predictions), "label": ("example", np.ones(10))}
        )

    return PredictionSetReader(read)


def test_groups_share_task_procedure_and_step():
    runs = [run(0, step=20), run(1, step=5), run(2, procedure="new")]
    runs += [run(3, step=20, pretrain_seed=1), run(4, task="a")]
    found = [(g.task, g.name, [str(r.directory) for r in g.runs]) for g in make_groups(runs)]
    assert found == [
        ("a", "base, step 10", ["run4"]),
        ("t", "base, step 5", ["run1"]),
        ("t", "base, step 20", ["run0", "run3"]),
        ("t", "new, step 10", ["run2"]),
    ]
    assert [str(r.directory) for r in last_steps(runs)] == ["run0", "run2", "run3", "run4"]
    with pytest.raises(UserError, match="no pretrain_seed"):
        make_groups([run(0, pretrain_seed=None)])


def test_a_run_with_other_parameters_is_not_averaged_with_the_first(tmp_path):
    """As in a root whose plan changed: both results lie there, and the plan has one of them."""
    coordinates = {"data_seed": 0, "finetune_seed": 0}
    first, second = (
        FinishedRun(tmp_path / name, {**run(0).facts, **coordinates}) for name in ("lr-1a", "lr-2b")
    )
    with pytest.raises(UserError, match="lr-1a and .*lr-2b are both t, .*; move one of them away"):
        make_groups([first, second])
    marked = MarkedRun("lr-2b", "finetune", "a run", "2b")
    entry = {**vars(marked), "parents": []}
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "plan.json").write_text(json.dumps({"version": 1, "runs": [entry]}))
    with pytest.raises(UserError, match="no longer has .*lr-1a: move these away"):
        make_groups([first, second])
    # Seeds of single sources distinguish runs of one finetune_seed.
    apart = FinishedRun(second.directory, {**second.facts, "parameters": {"head_seed": 1}})
    assert len(make_groups([first, apart])) == 1


def test_one_rate_or_none_needs_no_choice():
    for rate in (None, 1e-3):
        (group,) = make_groups([run(0, rate=rate), run(1, rate=rate, pretrain_seed=1)])
        assert choose_learning_rate(group, reader({})) == (group, None)


def test_the_best_mean_on_dev_is_chosen_not_the_best_run():
    rates = {"run0": 1.0, "run1": 1.0, "run2": 2.0, "run3": 2.0}
    (group,) = make_groups([run(n, rate=rates[f"run{n}"], pretrain_seed=n % 2) for n in range(4)])
    hits = {"run0": 6, "run1": 6, "run2": 9, "run3": 2}
    kept, choice = choose_learning_rate(group, reader(hits))
    assert choice.learning_rate == 1.0
    assert choice.means == pytest.approx({1.0: 0.6, 2.0: 0.55})
    assert (choice.evaluation_set, choice.metric) == ("dev", "accuracy")
    assert [str(r.directory) for r in kept.runs] == ["run0", "run1"]
    kept, choice = choose_learning_rate(group, reader(hits | {"run3": 3}))
    assert choice.learning_rate == 1.0  # a tie goes to the smaller rate


def test_lower_is_better_for_errors_and_slopes_choose_nothing():
    (group,) = make_groups([run(n, rate=float(n), metrics=["slope", "error"]) for n in (1, 2)])
    _, choice = choose_learning_rate(group, reader({"run1": 3, "run2": 8}))
    assert (choice.metric, choice.learning_rate) == ("error", 2.0)
    only = [run(n, rate=float(n), metrics=["slope"]) for n in (1, 2)]
    for item in only:
        del item.facts["evaluation_sets"]["test"]
    (group,) = make_groups(only)
    with pytest.raises(UserError, match="no metric"):
        choose_learning_rate(group, reader({"run1": 3, "run2": 8}))


def held_out_run(number, fold=0, **facts):
    """A run that left out a fifth of its training data and predicted it."""
    made = run(number, **facts)
    made.facts["parameters"] = {"held_out_fold": fold}
    made.facts["evaluation_sets"]["held_out"] = {"metrics": ["accuracy"]}
    return made


def test_the_held_out_rule_looks_at_held_out_examples_and_keeps_the_runs_on_all():
    on_all = [run(n, rate=rate) for n, rate in enumerate((1.0, 2.0))]
    voters = [held_out_run(n + 2, rate=rate) for n, rate in enumerate((1.0, 2.0))]
    (group,) = make_groups([*voters, *on_all])
    # The reader turns predictions round on all sets but dev: 9 right there are 1 right here.
    hits = {"run0": 6, "run1": 4, "run2": 9, "run3": 2}
    kept, choice = choose_learning_rate(group, reader(hits), "held_out")
    assert (choice.learning_rate, choice.evaluation_set) == (2.0, "held_out")
    assert choice.rule == "held_out"
    assert choice.means == pytest.approx({1.0: 0.1, 2.0: 0.8})
    assert [str(r.directory) for r in kept.runs] == ["run1"]
    kept, choice = choose_learning_rate(group, reader(hits), "dev")
    # By dev, where runs on four fifths have no vote.
    assert choice.means == pytest.approx({1.0: 0.6, 2.0: 0.4})
    assert (choice.rule, [str(r.directory) for r in kept.runs]) == ("dev", ["run0"])


def test_held_out_runs_alone_are_a_group_of_their_own():
    (group,) = make_groups([held_out_run(n, rate=rate) for n, rate in enumerate((1.0, 2.0))])
    kept, choice = choose_learning_rate(group, reader({"run0": 9, "run1": 2}), "held_out")
    assert choice.learning_rate == 2.0
    assert [str(r.directory) for r in kept.runs] == ["run1"]


def test_a_rate_that_no_run_held_out_for_is_named():
    runs = [run(0, rate=1.0), run(1, rate=2.0), held_out_run(2, rate=1.0)]
    (group,) = make_groups(runs)
    with pytest.raises(UserError, match="learning rate 2 held out"):
        choose_learning_rate(group, reader({}), "held_out")
    with pytest.raises(UserError, match="rule is 'test'"):
        choose_learning_rate(group, reader({}), "test")


def test_selection_takes_the_last_step_unless_told():
    runs = [run(0, step=5), run(1, step=20), run(2, step=20, task="a"), run(3, procedure="new")]
    chosen = select(runs, {"procedure": "base"}, "it")
    assert [str(r.directory) for r in chosen] == ["run1", "run2"]
    chosen = select(runs, {"procedure": "base", "step": 5}, "it")
    assert [str(r.directory) for r in chosen] == ["run0"]
    with pytest.raises(UserError, match="it: no finished run"):
        select(runs, {"procedure": "base", "step": 6}, "it")
    with pytest.raises(UserError, match=r"it: .*\['lr', 'procedure'\]"):
        select(runs, {"procedure": "base", "lr": 6}, "it")


def test_an_unknown_metric_is_named():
    (group,) = make_groups([run(0, metrics=["blue"])])
    with pytest.raises(UserError, match="found metric 'blue'"):
        reader({"run0": 1})(group, "dev").measured("blue")
