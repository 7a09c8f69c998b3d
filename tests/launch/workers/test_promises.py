"""A run whose inputs or code are not what they were when it was planned is not carried out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from multiberts.launch.markers.attempts import file_of_journal
from multiberts.launch.plan.graph import Graph
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.workers.worker import Call, LaunchContext, Outcome, carry_out_calls
from multiberts.runs.identity import opened_code
from multiberts.tests import good_files
from multiberts.tests.launch.plan.test_inputs import PAIRS

TASK = """
from multiberts.finetune.text.user_tasks import user_task
import dataclasses
TASKS = (dataclasses.replace(user_task("theirs", ("entailment", "not_entailment"))),)
"""


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedRun:
    good_files.checkpoint(tmp_path / "start")
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(PAIRS.replace("cake", f"cake {name[0]}"))
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "their_task.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.delitem(sys.modules, "their_task", raising=False)
    opened_code.cache_clear()
    arguments = {
        "checkpoint": str(tmp_path / "start"), "task": "theirs", "task_modules": ["their_task"],
        "data_dir": str(tmp_path), "num_epochs": 1, "batch_size": 8, "sequence_length": 16,
        "compile_step": False,
    }  # fmt: skip
    return Graph().add("finetune", "theirs", "theirs", arguments)


def carry_out(run: PlannedRun, root: Path) -> Outcome:
    call = Call(run.path, run.stage, run.arguments(root), "log.txt", 1, run.promises)
    context = LaunchContext(str(root), "local", owner="owner")
    file_of_journal(root, "journal").parent.mkdir(parents=True, exist_ok=True)
    return carry_out_calls([call], context, 0, "journal")[0][run.path]


@pytest.mark.parametrize(
    "file", ["train.tsv", "start/bert_config.json", pytest.param("dev.tsv", marks=pytest.mark.slow)]
)
def test_a_file_that_is_edited_after_the_plan_is_named(
    planned: PlannedRun, tmp_path: Path, file: str
) -> None:
    """A directory is named after its inputs; runs of the new file there would mix with those before.

    One that is planned anew is trained to its end, with TensorFlow, whose import takes most of the seconds.
    """
    path = tmp_path / file
    path.write_text(path.read_text().replace("good", "bad").replace("0.1", "0.2"))
    outcome, error = carry_out(planned, tmp_path / "root")
    assert outcome == "failed" and error is not None
    assert not (tmp_path / "root" / planned.path / "DONE").exists()
    if not file.startswith("start"):  # that has a record with checksums
        said = f"{path} changed after this run was planned; give the same command again"
        assert error == {"kind": "UserError", "message": said}
        # Which plans a run of its own for the file as it is now.
        again = Graph().add("finetune", "theirs", "theirs", planned.parameters)
        assert again.path != planned.path
        assert again.promises[str(path)] != planned.promises[str(path)]
        if file == "dev.tsv":
            assert carry_out(again, tmp_path / "root") == ("done", None)


def test_a_worker_that_imported_other_code_says_so(planned: PlannedRun, tmp_path: Path) -> None:
    """A worker of a cluster stays, and keeps the module that it imported for the launch before."""
    (tmp_path / "modules" / "their_task.py").write_text(TASK.replace('"ent', '"other", "ent'))
    anew = opened_code.__wrapped__("their_task").identity  # as the next launch plans it
    promises = {**planned.promises, "their_task": anew}
    outcome, error = carry_out(
        PlannedRun(**{**vars(planned), "promises": promises}), tmp_path / "root"
    )
    assert outcome == "failed" and error is not None
    assert error["message"] == (
        "their_task changed after this run was planned; restart workers that imported the old code, and give "
        "the same command again"
    )


def test_a_stage_of_the_user_s_counts_by_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_stage.py").write_text("def note(*, run_dir): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    def identity() -> str:
        opened_code.cache_clear()
        return Graph().add("their_stage:note", "note", "note", {}).identity

    before = identity()
    (tmp_path / "their_stage.py").write_text("def note(*, run_dir): print()\n")
    assert identity() != before
