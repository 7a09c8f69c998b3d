"""Seeds: one type for every parameter and every reader, and what it takes can be read back."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_provenance
from multiberts.evaluate.imports.importing import import_predictions
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.finetune.finetuning import finetune
from multiberts.finetune.task import registered_tasks
from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_json_fields
from multiberts.runs.parameters import Seed, annotations_of, check_types, described, fits

MOST = 2**63 - 1  # of int64, in which tables hold seeds


def parts_of(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is composed of; one with a range is whole."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated or not parts:
        yield annotation
    elif typing.get_origin(annotation) is not typing.Literal:
        for part in parts:
            yield from parts_of(part)


@pytest.mark.seconds
def test_every_parameter_that_is_a_seed_is_of_the_one_type() -> None:
    """Others of such a name are columns of seeds, texts, or a stage."""
    found: dict[str, Any] = {}
    for command_name, command in COMMANDS.items():
        flags = load(command.arguments)(load(command.target)).flags()
        found |= {f"{command_name} {name}": kind for name, kind in flags.items()}
    for task in registered_tasks().values():
        options = annotations_of(task.settings) if task.settings else {}
        found |= {f"{task.name} {name}": kind for name, kind in options.items()}
    seeds = {
        name: {part for part in parts_of(kind) if part not in (str, type(None))}
        for name, kind in found.items()
        if name.endswith(("seed", "seeds", "rng", "initialise_missing"))
    }
    assert {name for name, kinds in seeds.items() if kinds - {Seed}} == set()
    assert sum(kinds == {Seed} for kinds in seeds.values()) > 25


def test_the_type_names_its_ends_and_a_way_into_it() -> None:
    assert described(Seed) == f"int at least 0 and at most {MOST} (seed % 2**63 fits)"
    fitting = [seed for seed in (-1, 0, MOST, MOST + 1, 2**64 - 1) if fits(seed, Seed)]
    assert fitting == [0, MOST]
    entropy = np.random.SeedSequence().entropy  # 128 bits
    assert isinstance(entropy, int) and fits(entropy % 2**63, Seed)
    with pytest.raises(
        UserError, match=rf"a\.b is {2**63}, expected int .*\(seed % 2\*\*63 fits\); "
    ):
        check_types("a", {"b": 2**63}, {"b": Seed})


def imported(folder: Path, seed: int) -> Path:
    table = folder / "new.csv"
    table.write_text(f"seed,example,prediction,label\n{seed},x,1,1\n{seed},y,0,1\n")
    import_predictions(run_dir=str(folder / "runs"), layout="files", source=str(table))
    return folder / "runs"


def test_the_largest_seed_is_imported_and_read(tmp_path: Path) -> None:
    ((path, content),) = find_runs(imported(tmp_path, MOST))
    assert content["pretrain_seed"] == MOST
    read = read_predictions([path], next(iter(content["evaluation_sets"])))
    assert read["pretrain_seed"].to_numpy().tolist() == [MOST]


@pytest.mark.parametrize("seed", [-1, MOST + 1, 10**30])
def test_others_are_refused_at_the_door(tmp_path: Path, seed: int) -> None:
    with pytest.raises(UserError, match=f"found the seed {seed}, expected whole numbers from 0 to"):
        imported(tmp_path, seed)
    with pytest.raises(UserError, match=rf"finetune_seed is {seed}, .*seed % 2\*\*63 fits"):
        finetune(run_dir=str(tmp_path / "run"), checkpoint="none", task="RTE", finetune_seed=seed)


@pytest.mark.parametrize("name", ["pretrain_seed", "data_seed"])
def test_a_checkpoint_of_another_seed_is_refused(tmp_path: Path, name: str) -> None:
    """When it is opened: the run that fine-tunes it would record the seed."""
    record = {**dict.fromkeys(("procedure", "pretrain_seed", "data_seed", "step")), "files": {}}
    write_json_fields(tmp_path / "checkpoint.json", {**record, name: MOST})
    assert read_provenance(tmp_path)[name] == MOST
    write_json_fields(tmp_path / "checkpoint.json", {**record, name: MOST + 1})
    with pytest.raises(UserError, match=f"{name} is {MOST + 1}, expected int at least 0 and at"):
        read_provenance(tmp_path)
