"""What is found wrong with made-up grids of runs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

from multiberts.evaluate.prediction_files.run_checks import find_all

ENTRY = {"dev": {}}


def grid(tasks, procedures, steps, seeds, rates, finetune_seeds, **content):
    names = ("task", "procedure", "step", "pretrain_seed", "learning_rate", "finetune_seed")
    return [
        (
            Path("/".join(map(str, values))),
            {**dict(zip(names, values, strict=True)), "evaluation_sets": ENTRY, **content},
        )
        for values in itertools.product(tasks, procedures, steps, seeds, rates, finetune_seeds)
    ]


FULL = grid(["RTE", "SST-2"], ["base", "cda"], [10, 20], range(3), [2e-5, 3e-5], range(2))


def kinds(findings):
    return Counter(finding.check for finding in findings)


def test_a_full_grid_has_no_holes():
    assert find_all(FULL) == []


def test_every_removed_run_is_named_and_no_other():
    for removed in (0, 17, len(FULL) - 1):
        (finding,) = find_all(FULL[:removed] + FULL[removed + 1 :])
        content = FULL[removed][1]
        assert finding.check == "missing run"
        assert finding.where == {name: content[name] for name in finding.where}
        assert set(finding.where) == {
            "task", "procedure", "step", "pretrain_seed", "learning_rate", "finetune_seed",
        }  # fmt: skip
        assert f"pretrain_seed {content['pretrain_seed']}" in finding.message


def test_a_seed_that_lacks_a_task_is_missing_there():
    """Seed 1 was fine-tuned on SST-2 alone, at every learning rate and seed."""
    runs = [run for run in FULL if (run[1]["task"], run[1]["pretrain_seed"]) != ("RTE", 1)]
    findings = find_all(runs)
    assert kinds(findings) == {"missing run": 2 * 2 * 2 * 2}
    assert {(item.where["task"], item.where["pretrain_seed"]) for item in findings} == {("RTE", 1)}


def test_a_task_that_a_step_lacks_is_named_once():
    runs = [run for run in FULL if (run[1]["task"], run[1]["step"]) != ("RTE", 10)]
    findings = find_all(runs)
    assert kinds(findings) == {"missing task": 2}
    assert re.match("missing: base .* RTE .* 10$", findings[0].message)


def test_procedures_that_share_no_task_miss_nothing():
    assert (
        find_all(grid(["RTE"], ["a"], [1], [0], [1], [0]) + grid(["X"], ["b"], [1], [0], [1], [0]))
        == []
    )


def test_steps_of_few_seeds_are_named_once():
    """As the release has it: intermediate steps of five seeds, the last step of all."""
    runs = grid(["RTE"], ["base"], [10, 20], range(5), [1], [0])
    runs += grid(["RTE"], ["base"], [30], range(7), [1], [0])
    (finding,) = find_all(runs)
    assert re.match("missing: base .* pretrain_seed 5, 6 .* 10, 20$", finding.message)


def test_more_finetune_seeds_in_one_procedure_are_not_a_hole():
    runs = grid(["RTE"], ["base"], [1], range(5), [1], range(5))
    assert find_all(runs + grid(["RTE"], ["extra"], [1], range(2), [1], range(25))) == []


def test_unknown_seeds_and_steps_can_be_sorted():
    runs = grid(["RTE"], ["base", None], [None, 10], [0, None], [1.0, None], [0])
    assert find_all(runs) == []


def test_sets_that_other_runs_have():
    runs = [*FULL]
    path, content = runs[5]
    runs[5] = (path, {**content, "evaluation_sets": {"dev": {}, "test": {}}})
    findings = find_all(runs)
    assert kinds(findings) == {"missing evaluation set": len(FULL) // 2 - 1}
    assert {item.where["evaluation_set"] for item in findings} == {"test"}
    assert {item.where["task"] for item in findings} == {content["task"]}


def test_repeated_and_unfinished_runs():
    (repeated,) = find_all([*FULL, (Path("copy"), FULL[3][1])])
    assert repeated.check == "repeated run" and repeated.message.startswith("copy has the task")
    assert str(FULL[3][0]) in repeated.message
    (unfinished,) = find_all(FULL, [Path("begun")])
    assert unfinished.check == "unfinished run" and unfinished.message.startswith("begun was s")


def test_mixed_vocabularies_and_data_name_the_runs_in_the_minority():
    def runs(vocabularies, data):
        return [
            (
                path,
                {
                    **content,
                    "vocabulary_sha256": vocabulary,
                    "inputs": {
                        "checkpoint": [{"name": "c", "sha256": str(path)}],
                        "data": [{"name": "train.tsv", "sha256": checksum}],
                    },
                },
            )
            for (path, content), vocabulary, checksum in zip(FULL, vocabularies, data, strict=True)
        ]

    number = len(FULL)
    assert find_all(runs(["v"] * number, ["d"] * number)) == []
    (mixed,) = find_all(runs(["v"] * 7 + ["w"] + ["v"] * (number - 8), ["d"] * number))
    assert mixed.check == "mixed vocabularies" and mixed.message.startswith(str(FULL[7][0]))
    found = find_all(runs(["v"] * number, ["e"] + ["d"] * (number - 1)))
    assert kinds(found) == {"mixed training data": 1}
    # Two tasks may differ from each other.
    assert find_all(runs(["v"] * number, ["d"] * (number // 2) + ["e"] * (number // 2))) == []
