"""An experiment's runs: what changes numbers changes the directory, and nothing else does."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.graph import identity_of
from multiberts.launch.plan.planned_run import STAGES, PlannedRun, stage_function, stage_identity
from multiberts.runs import identity
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, sha256_of_file
from multiberts.tests.launch.launchers import MODEL

SOURCES: dict[str, Any] = {"sources": ["world:corpus.txt"], "source_format": "sentences"}
BASE = {"corpus": "base", "model": MODEL, "num_steps": 20, "checkpoint_steps": [0, 10]}
CONTINUED = {
    "corpus": "swapped",
    "initial_checkpoint": "base",
    "num_steps": 5,
    "checkpoint_steps": [],
}


def experiment(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "world": {"world_seed": 0},
        "corpora": {
            "base": SOURCES,
            "swapped": {**SOURCES, "counterfactual_seed": 0, "vocabulary": "base:vocab.txt"},
        },
        # Listed before the procedure that it starts from: the plan puts them in order.
        "procedures": {"cda_incr": {**BASE, **CONTINUED}, "base": BASE},
        "pretrain_seeds": [0, 1],
        "tasks": {
            "facts": {"data_dir": "world:facts"},
            "pronoun_probe": {"winogender_dir": "world:winogender"},
        },
        "learning_rates": [1e-3, 1e-4],
        "finetune_seeds": [0, 1, 2],
        "finetune_steps": "all",
        "report": {"title": "a title", "comparisons": []},
    }
    return {**arguments, **changes}


def planned(**changes: Any) -> list[PlannedRun]:
    return make_plan(Experiment(**experiment(**changes)))


def paths(plan: list[PlannedRun]) -> set[str]:
    return {run.path for run in plan}


def test_the_plan_has_every_run_after_its_parents() -> None:
    plan = planned()
    counts = {stage: sum(run.stage == stage for run in plan) for stage in {r.stage for r in plan}}
    # Per seed, base keeps steps 0, 10, 20 and cda_incr its last: 4 checkpoints, each with
    # 2 learning rates x 3 seeds of facts and one probe.
    finetuned = 2 * 4 * (2 * 3 + 1)
    assert counts == {
        "make_world": 1, "prepare": 2, "pretrain": 4, "finetune": finetuned, "score": 1, "report": 1
    }  # fmt: skip
    for number, run in enumerate(plan):
        assert all(parent in plan[:number] for parent in run.parents)
        # The root does not count.
        assert run.arguments("one/place")["run_dir"] == f"one/place/{run.path}"
        if run.stage == "pretrain" and run.parameters["procedure"] == "cda_incr":
            start = run.arguments("root")["initial_checkpoint"]
            seed = run.parameters["pretrain_seed"]
            assert f"pretrain/base/seed_{seed}-" in start and start.endswith("checkpoints/step_20")
    assert len(paths(plan)) == len(plan)


def test_a_parameter_changes_its_run_and_those_that_build_on_it_and_no_other() -> None:
    before, continued = planned(), {**BASE, **CONTINUED, "learning_rate": 5e-5}
    after = planned(procedures={"cda_incr": continued, "base": BASE})
    gone = {run.path.rsplit("-", 1)[0] for run in before if run.path not in paths(after)}
    assert gone and all("cda_incr" in path or path in ("scores", "report") for path in gone)
    assert {"pretrain/cda_incr/seed_0", "pretrain/cda_incr/seed_1", "scores", "report"} <= gone


def test_what_changes_no_number_changes_no_directory() -> None:
    changes = {"save_state_every_steps": 7, "log_every_steps": 3, "checkpoint_steps": (0, 10)}
    changes["weight_decay_rate"] = 0.01  # the default, said aloud
    procedures = {"cda_incr": {**BASE, **CONTINUED}, "base": {**BASE, **changes}}
    # Seeds that are listed twice run once.
    seeds = {"finetune_seeds": [0, 1, 1, 2], "pretrain_seeds": [0, 1, 0]}
    found = [run.path for run in planned(procedures=procedures, **seeds)]
    assert found == [run.path for run in planned()]


def test_inputs_count_by_what_they_hold(tmp_path: Path) -> None:
    """Also below the folder of data; tests/launch/plan/test_inputs.py has every input."""
    found = []
    for folder, text in (("here", "One.\n"), ("there", "One.\n"), ("elsewhere", "Two.\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "text.txt").write_text(text)
        found.append(prepared([str(tmp_path / folder / "text.txt")]).path)
        corpora = {"base": {**SOURCES, "sources": ["data:text.txt"]}}
        plan = planned(corpora=corpora, procedures={"base": BASE}, data=str(tmp_path / folder))
        found += [run.path for run in plan if run.stage == "prepare"]
    assert len(set(found[:4])) == len(set(found[4:])) == 1 and found[0] != found[-1]


def prepared(sources: list[str], **changes: Any) -> PlannedRun:
    corpora = {"base": {**SOURCES, "sources": sources, **changes}}
    plan = planned(corpora=corpora, procedures={"base": BASE})
    return next(run for run in plan if run.stage == "prepare")


def test_a_pattern_stands_for_its_files(tmp_path: Path) -> None:
    for name, text in {"b.txt": "Two.\n", "a.txt": "One.\n", "other.md": "Three.\n"}.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    run = prepared([str(tmp_path / "*.txt")])
    assert run.parameters["sources"] == files
    assert run.path == prepared(files).path != prepared(files[::-1]).path
    (tmp_path / "c.txt").write_text("Four.\n")
    assert prepared([str(tmp_path / "*.txt")]).path != run.path
    with pytest.raises(UserError, match=r"no file fits the pattern .*\*\.tex"):
        prepared([str(tmp_path / "*.tex")])


def test_datasets_are_named_not_read() -> None:
    """Of format `tfds` a source is a name, which looks like no path and may look like `place:file`."""
    run = prepared(["lm1b:test", "wikipedia/20230601.en"], source_format="tfds")
    assert run.parameters["sources"] == ["lm1b:test", "wikipedia/20230601.en"]
    other = prepared(["lm1b:train", "wikipedia/20230601.en"], source_format="tfds")
    assert run.path != other.path
    moved = prepared(run.parameters["sources"], source_format="tfds", datasets_dir="elsewhere")
    assert run.path == moved.path


def test_held_out_text_is_a_corpus_of_the_plan() -> None:
    held_out = {**SOURCES, "sources": ["world:held_out.txt"], "vocabulary": "base:vocab.txt"}
    corpora = {**experiment()["corpora"], "held_out": held_out}
    base = {**BASE, "evaluation_corpus": "held_out"}
    plan = planned(corpora=corpora, procedures={"base": base})
    run = next(run for run in plan if run.stage == "pretrain")
    assert {parent.name for parent in run.parents} == {"prepare base", "prepare held_out"}
    assert "/corpora/held_out-" in run.arguments("root")["evaluation_corpus"]
    assert run.path not in paths(planned())
    with pytest.raises(UserError, match="evaluation_corpus is 'held', .*held_out"):
        planned(corpora=corpora, procedures={"base": {**base, "evaluation_corpus": "held"}})


def test_steps_and_rates_may_be_given_by_task() -> None:
    plan = planned(
        finetune_steps={"facts": [0, 20], "pronoun_probe": [20]},
        learning_rates={"facts": [1e-3], "pronoun_probe": []},
        finetune_seeds={"facts": [5], "pronoun_probe": []},
    )
    names = [run.name for run in plan if run.stage == "finetune" and "seed_0" in run.name]
    assert names == [
        "facts base-seed_0-step_0 learning rate 0.001 seed 5",
        "facts base-seed_0-step_20 learning rate 0.001 seed 5",
        "pronoun_probe base-seed_0-step_20",
    ]
    # An untrained task needs no seeds.
    tasks = {"pronoun_probe": {"winogender_dir": "world:winogender"}}
    plan = planned(tasks=tasks, finetune_seeds=[], learning_rates=[])
    assert sum(run.stage == "finetune" for run in plan) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world": None}, "no world is made"),
        ({"procedures": {"../../x": BASE}}, "outside the experiment's root"),
        ({"tasks": {"facts": {"data_dir": "data:facts"}}}, "launch.data is not set"),
        (
            {"procedures": {"base": {**BASE, "model": {**MODEL, "vocab_size": 1000}}}},
            r"model\['vocab_size'\] is 1000, expected \d+, .* corpus base",
        ),
        ({"finetune_steps": [3]}, r"launch\.finetune_steps .* no step"),
        ({"learning_rates": {"pronoun_probe": []}}, "but not for 'facts'"),
        (
            {"learning_rates": {"facts": [1e-3], "fact": [1e-3]}},
            "launch.learning_rates names fact, e",
        ),
        ({"tasks": {"facts": {"checkpoint": "a"}}}, "facts/finetune.checkpoint is set; set launch"),
        ({"tasks": {"facts": {"pretrain_seed": 3}}}, "facts/finetune.pretrain_seed is set"),
        ({"tasks": {"sums": {}}}, "task 'sums' is unknown"),
        ({"finetune_seeds": []}, "launch.finetune_seeds or .* empty for facts"),
        ({"procedures": {"base": {"corpus": "base", "model": MODEL}}}, "pretrain.num_steps"),
        # Lists that would leave nothing to run.
        ({"pretrain_seeds": {"base": [0]}}, r"launch.pretrain_seeds is .*, so cda_incr would"),
        ({"finetune_seeds": {"facts": [], "pronoun_probe": []}}, "is empty for facts"),
        ({"procedures": {}}, "facts, pronoun_probe would have no checkpoint to start from"),
        ({"learning_rates": [0.0]}, r"launch.learning_rates is \[0.0\],"),
    ],
)
def test_what_refers_to_nothing_or_leaves_nothing_to_run_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        planned(**changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (
            {"one": "two", "two": "one"},
            r"one/pretrain.initial_checkpoint is 'two', .*\(one -> two -> one",
        ),
        ({"one": "one"}, r"one/pretrain.initial_checkpoint is 'one', .*\(one -> one\)"),
        # What only leads to a circle is not named as a part of it.
        (
            {"zero": "one", "one": "two", "two": "three", "three": "one"},
            r"\(one -> two -> three -> one\)",
        ),
        ({"one": "other"}, r"is 'other', .*launch\.procedures \(one\)"),
    ],
)
def test_a_circle_of_procedures_is_refused(starts: dict[str, str], message: str) -> None:
    procedures = {name: {**BASE, "initial_checkpoint": start} for name, start in starts.items()}
    with pytest.raises(UserError, match=message):
        planned(procedures=procedures)


def test_corpora_may_be_listed_in_any_order_but_not_in_a_circle() -> None:
    corpora = experiment()["corpora"]
    turned = dict(reversed(corpora.items()))
    assert list(turned) != list(corpora)
    assert paths(planned(corpora=turned)) == paths(planned())
    turned["base"] = {**turned["base"], "vocabulary": "swapped:vocab.txt"}
    with pytest.raises(UserError, match=r"circle in launch\.corpora"):
        planned(corpora=turned)


def test_directories_keep_their_names() -> None:
    """As finished runs are named; `scores` builds on all others.

    Another name here means that everybody's finished runs would be made again: a stage has a new
    parameter, or another default.
    """
    named = {run.stage: run.path for run in planned() if run.stage != "report"}
    assert named == {
        "make_world": "world-f8f8f72e",
        "prepare": "corpora/swapped-492bffe2",
        "pretrain": "pretrain/cda_incr/seed_1-475a569b",
        "finetune": "finetune/pronoun_probe/cda_incr-seed_1-step_5/run-09925627",
        "score": "scores-ff0cf10f",
    }


def test_unchanged_inputs_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("train.tsv", "dev.tsv")]
    for file in files:
        file.write_text(f"{file.name}\n")
        os.utime(file, (1e9, 1e9))
    memory, read = tmp_path / "launch" / "inputs.json", list[str]()

    def counted(path: PathLike) -> str:
        read.append(Path(path).name)
        return sha256_of_file(path)

    monkeypatch.setattr(identity, "sha256_of_file", counted)

    def opened_anew() -> list[str]:
        """Opens both as another process would, and returns their identities."""
        monkeypatch.setattr(identity, "_REMEMBERED", {})
        read.clear()
        identity.recall(memory)
        return [identity.opened(file).identity for file in files]

    first = opened_anew()
    identity.keep(memory)
    assert len(read) == 2 and not memory.exists()  # nothing is created for it
    memory.parent.mkdir()
    identity.keep(memory)
    assert opened_anew() == first and not read
    # Another content of the same length is seen by its time.
    files[1].write_text("DEV.tsv\n")
    second = opened_anew()
    assert second[0] == first[0] and second[1] != first[1] and read == ["dev.tsv"]
    # So is another file in its place, of the same length and time.
    (tmp_path / "new.tsv").write_text("TRAIN.tsv\n")
    os.utime(tmp_path / "new.tsv", (1e9, 1e9))
    os.replace(tmp_path / "new.tsv", files[0])
    third = opened_anew()
    assert third[0] != second[0] and len(read) == 2
    # The other was changed just now, and might be again within the clock's resolution.
    identity.keep(memory)
    assert opened_anew() == third and read == ["dev.tsv"]
    memory.write_text("{")
    assert opened_anew() == third


@pytest.mark.parametrize("stage", STAGES)
def test_a_declaration_names_parameters_of_its_stage(stage: str) -> None:
    declared = stage_identity(stage)
    known = inspect.signature(stage_function(stage)).parameters.keys()
    named = [*declared.inputs, *declared.places, *declared.speed]
    assert set(named) <= known and len(set(named)) == len(named)


def finetuning_paths(task: str, **arguments: Any) -> list[str]:
    plan = planned(tasks={task: arguments}, learning_rates=[1e-3])
    return [run.path for run in plan if run.stage == "finetune"]


def test_where_prepared_datasets_lie_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    given = {"dataset": "glue/rte", "data_dir": str(tmp_path / "one")}
    before = finetuning_paths("RTE", **given)
    (tmp_path / "one" / "of_another_dataset").write_text("anything")
    assert finetuning_paths("RTE", **given) == before
    assert finetuning_paths("RTE", dataset="glue/rte", data_dir=str(tmp_path / "two")) == before
    assert finetuning_paths("RTE", **{**given, "dataset": "glue/rte:2.0.0"}) != before
    sets = {"evaluation_files": {"more": "tfds:super_glue/rte"}}
    others = {"evaluation_files": {"more": "tfds:super_glue/cb"}}
    assert finetuning_paths("RTE", **given, **sets) not in (
        before,
        finetuning_paths("RTE", **given, **others),
    )


def test_of_a_folder_of_data_the_files_of_the_task_count(tmp_path: Path) -> None:
    """As if they were named; tests/launch/plan/test_inputs.py has changes of them and strays."""
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(name)
    files = {f"{split}_files": [str(tmp_path / f"{split}.tsv")] for split in ("train", "dev")}
    assert finetuning_paths("RTE", **files) == finetuning_paths("RTE", data_dir=str(tmp_path))
    (tmp_path / "dev.tsv").unlink()
    with pytest.raises(UserError, match="has no table named dev"):
        finetuning_paths("RTE", data_dir=str(tmp_path))


def test_options_that_are_places_do_not_count() -> None:
    def paths_with(**options: Any) -> list[str]:
        return finetuning_paths("coreference", data_dir="world:coreference", options=options)

    assert paths_with(encodings_dir="here") == paths_with(encodings_dir="there") == paths_with()
    assert paths_with(num_hidden_units=64) != paths_with() == paths_with(num_hidden_units=128)


def test_a_value_without_effect_does_not_count_nor_whether_a_number_is_3_or_3_0() -> None:
    probe, facts = {"winogender_dir": "world:winogender"}, {"data_dir": "world:facts"}
    for task, given, is_moved in (("pronoun_probe", probe, False), ("facts", facts, True)):
        moved = finetuning_paths(task, **given, num_epochs=7)
        assert (moved != finetuning_paths(task, **given)) == is_moved
    assert identity_of("stage", {"epochs": 3.0}) == identity_of("stage", {"epochs": 3})
    assert identity_of("stage", {"epochs": 3.5}) != identity_of("stage", {"epochs": 3})


def test_steps_that_are_asked_for_and_not_kept_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After training they cannot be had: a plan without them looked complete before."""
    make_plan(Experiment(**experiment(finetune_steps={"facts": [0, 20], "pronoun_probe": [20]})))
    alone = "note: launch.finetune_steps leaves out cda_incr in every task\n"
    assert capsys.readouterr().out == alone
    steps = {"facts": {"base": [10, 15, 20]}, "pronoun_probe": [5, 15, 20]}
    make_plan(Experiment(**experiment(finetune_steps=steps)))
    notes = [line.partition(" is asked")[0] for line in capsys.readouterr().out.splitlines()]
    assert notes == [
        "note: facts: step 15 of base",
        "note: pronoun_probe: step 15 of base, cda_incr",
    ]


def seeds_of(plan: list[PlannedRun], *names: str) -> list[tuple[int, ...]]:
    """The seeds of the pre-training of `base`, by pre-training seed."""
    found = [run.parameters for run in plan if run.parameters.get("procedure") == "base"]
    assert [parameters["pretrain_seed"] for parameters in found] == [*range(len(found))]
    return [tuple(parameters[name] for name in names) for parameters in found]


def test_seeds_of_sources_are_crossed_and_the_rest_is_held() -> None:
    plan = planned(
        pretrain_sources=["initialisation_seed", "mask_seed"], finetune_sources=["head_seed"]
    )
    names = ("initialisation_seed", "data_seed", "mask_seed", "dropout_seed")
    found = seeds_of(plan, *names)
    assert found == [(0, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0), (1, 0, 1, 0)]
    # A continuation starts from weights that are there.
    continued = [run for run in plan if run.parameters.get("procedure") == "cda_incr"]
    assert {run.parameters["initialisation_seed"] for run in continued} == {None}
    names = ("finetune_seed", "head_seed", "order_seed", "dropout_seed")
    finetuned = {
        tuple(run.parameters[name] for name in names)
        for run in plan
        if run.stage == "finetune" and run.parameters["task"] == "facts"
    }
    assert finetuned == {(0, 0, 0, 0), (1, 1, 0, 0), (2, 2, 0, 0)}


def test_seeds_of_sources_vary_one_at_a_time() -> None:
    plan = planned(pretrain_sources=["data_seed", "dropout_seed"], seed_design="one_at_a_time")
    found = seeds_of(plan, "initialisation_seed", "data_seed", "dropout_seed")
    assert found == [(0, 0, 0), (0, 2, 0), (0, 0, 2), (0, 1, 1), (0, 3, 1), (0, 1, 3)]


def test_a_seed_that_the_design_varies_is_not_set_beside_it() -> None:
    procedures = {"base": {**BASE, "dropout_seed": 5}}
    refused = "base/pretrain.dropout_seed is set; .*launch.pretrain_seeds"
    with pytest.raises(UserError, match=refused):
        planned(procedures=procedures, pretrain_sources=["dropout_seed"])
    plan = planned(procedures=procedures, pretrain_sources=["data_seed"])
    assert set(seeds_of(plan, "dropout_seed")) == {(5,)}
