"""Names of evaluation sets: one rule for all tasks, applied before the first step and before any file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.evaluate.imports.importing import import_predictions
from multiberts.finetune.finetuning import write_sets
from multiberts.finetune.model import EvaluationSet
from multiberts.finetune.predictor import spooled
from multiberts.finetune.settings import data_of
from multiberts.finetune.task import registered_tasks
from multiberts.runs.errors import UserError

UNFIT = ["", "a/b", "../../x", "a\\b", "dev@2", ".", "..", ".dev", "a\nb", "\x1b[2J", "é" * 101]
# Their modules refuse `evaluation_files`.
OF_ONE_SET = {"coreference", "pronoun_probe", "masked_words"}
# A task that only its labels define; AX has no training data.
OWN = "reviews"
TASKS = [OWN, *sorted(registered_tasks().keys() - OF_ONE_SET - {"AX"})]


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Arguments of `finetune` with files that are found, and not read."""
    paths = {}
    for name in ("train", "dev", "more"):
        paths[name] = tmp_path / f"{name}.tsv"
        paths[name].touch()

    def arguments(task: str, *names: str, **further: Any) -> dict[str, Any]:
        return {
            "task": task,
            "train_files": [str(paths["train"])],
            "dev_files": [str(paths["dev"])],
            "labels": ["bad", "good"] if task in (OWN, "pair") else None,
            "evaluation_files": dict.fromkeys(names, str(paths["more"])),
            **further,
        }

    return arguments


def answers(name: str) -> EvaluationSet:
    import numpy as np

    numbers = np.zeros(1)
    return EvaluationSet(
        name=name, example_ids=["a"], labels=numbers, predictions=numbers, scores=None, metrics=()
    )


@pytest.mark.parametrize("task", TASKS)
def test_names_are_refused_while_the_data_are_sought(
    call: Callable[..., dict[str, Any]], task: str
) -> None:
    for name in UNFIT:
        with pytest.raises(UserError, match="unfit name, expected 1 to 200 bytes .*; rename it"):
            data_of(call(task, name))
    with pytest.raises(UserError, match="sets 1 and 3 of dev, hard, dev have the same name"):
        data_of(call(task, "hard", "dev"))
    with pytest.raises(
        UserError, match="sets 2 and 3 of dev, held_out, held_out have the same name"
    ):
        data_of(call(task, "held_out", held_out_fold=0))
    # Without a fold it is a name like any other, and names are in any language.
    names = ["held_out", "größe 1-2_c.d", "é" * 100]
    assert [*data_of(call(task, *names)).set_names()] == ["dev", *names]


@pytest.mark.parametrize("task", sorted(OF_ONE_SET))
def test_other_tasks_take_no_further_sets(task: str) -> None:
    with pytest.raises(UserError, match=f"task {task} takes no .*evaluation_files"):
        data_of({"task": task, "labels": None, "evaluation_files": {"dev": "dev.tsv"}})


@pytest.mark.parametrize("names", [["dev", "dev"], *([name] for name in UNFIT)])
def test_no_model_writes_over_its_sets_or_outside_its_run(tmp_path: Path, names: list[str]) -> None:
    """The sets of a custom task are known when it predicts them."""
    run = tmp_path / "a" / "b"
    for epochs in (None, 2.5):
        with pytest.raises(
            UserError, match="sets 1 and 2 of dev, dev have the same|has an unfit name"
        ):
            write_sets(run, map(answers, ["first", *names][-2:]), epochs=epochs)
    assert not [*tmp_path.iterdir()]


def test_the_longest_name_has_files(tmp_path: Path) -> None:
    (entry,) = write_sets(tmp_path, [answers("é" * 100)], epochs=123456.0).values()
    assert (tmp_path / entry["file"]).is_file()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["new.tsv", "b/new.tsv"], "sets 1 and 2 of new, new have the same name"),
        (["new.tsv", "new=b/new.tsv"], "sets 1 and 2 of new, new have the same name"),
        ([".tsv"], "set '' has an unfit name"),
        (["=new.tsv"], "set '' has an unfit name"),
        (["..=new.tsv"], r"set '\.\.' has an unfit name"),
        (["a@b.tsv"], "set 'a@b' has an unfit name"),
    ],
)
def test_files_to_predict_have_names_of_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b").mkdir()
    for name in ("new.tsv", "b/new.tsv", ".tsv", "a@b.tsv"):
        Path(name).touch()
    with pytest.raises(UserError, match=message), spooled(files):
        pass


def test_imported_sets_have_the_same_names(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text(
        "task,model,seed,example,prediction,label\nRTE/a@b,m,0,x,1,1\nRTE/a@b,m,0,y,0,1\n"
    )
    with pytest.raises(UserError, match="set 'a@b' has an unfit name"):
        import_predictions(run_dir=str(tmp_path / "runs"), layout="files", source=str(table))
    assert not (tmp_path / "runs").exists()
