"""What the launcher refuses when it is called, in one line and before anything is written or started."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.evaluate.imports.imported_runs import ImportedRun, write_imported
from multiberts.launch.markers.lease import launching
from multiberts.launch.running import reap_experiment, run_plan
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.workers import pool
from multiberts.launch.workers.engines import make_engine
from multiberts.runs.command_line.error_lines import one_line_errors
from multiberts.runs.errors import UserError
from multiberts.runs.plan_marker import read_plan
from multiberts.tests.launch.launchers import quick_run

Call = Callable[[Path], object]
ADDRESS = {"scheduler": "tls://127.0.0.1:1"}
PLANNED = {"stage": "a", "name": "a run", "identity": "a" * 64, "parents": [], "facts": {}}


def run(**settings: Any) -> Call:
    plan = [quick_run("note", "note")]
    return lambda folder: run_plan(plan=plan, root=str(folder / "root"), **settings)


def skypilot(task: str | None = None, **settings: Any) -> Call:
    """Runs with a task file of this content; None: with none."""

    def call(folder: Path) -> object:
        if task is not None:
            (folder / "task.yaml").write_text(task)
        options = {"bucket": f"file://{folder}/bucket", "task": str(folder / "task.yaml")}
        return run(engine="skypilot", engine_options=options, **settings)(folder)

    return call


def engine(name: str, workers: int | None = None, **options: Any) -> Call:
    return lambda _folder: make_engine(name, options, workers, 1)


def plan_of(content: str) -> Call:
    def call(folder: Path) -> object:
        (folder / "launch").mkdir()
        (folder / "launch" / "plan.json").write_text(content)
        return read_plan(folder)

    return call


def root_in_the_way(folder: Path) -> object:
    (folder / "launch").write_text("in the way")
    return launching(folder).__enter__()


def import_outside(folder: Path) -> object:
    imported = ImportedRun("../../outside", {}, (folder / "file",), lambda: ())
    return write_imported(folder / "a" / "b", "squad", imported)


ROWS: list[tuple[Call, str]] = [
    (run(engine="abacus"), "run.engine is 'abacus'"),
    (run(workers=0), "run.workers is 0"),
    (run(attempts=0), "run.attempts is 0"),
    (run(engine="dask", dashboard=True), "run.dashboard is set, .*'dask'"),
    (run(engine_options={"partition": "a"}), "'partition', .*'local'"),
    (skypilot(), "is not a file"),
    (skypilot("run: multiberts pretrain\n"), r"does not use \$FLAGS"),
    (skypilot("", budget=3.0), r"run.budget is set, but run.engine is 'skypilot'"),
    (engine("slurm", partion="a"), "'partion', .*'slurm'"),
    (engine("slurm", max_blocks=1.5), "'max_blocks'. is 1.5,"),
    (engine("slurm", max_blocks=0), "'max_blocks'. is 0,"),
    (engine("slurm", gpus="2"), "'gpus'. is '2',"),
    (engine("slurm", walltime="a day"), "expected hours:minutes:seconds"),
    (engine("dask"), "lacks scheduler; .*'dask'"),
    (engine("dask", **ADDRESS, compute="jax"), "MULTIBERTS_ENGINE=jax"),
    (engine("dask", 2, **ADDRESS), "run.workers and "),
    (engine("local", 1, compute="torch"), "'compute'. is 'torch',"),
    (lambda folder: reap_experiment(folder / "none"), "none is not a directory"),
    (collect_status, "nothing was launched in"),
    (read_plan, "nothing was launched"),
    *((plan_of(content), r"plan\.json") for content in ("", "[]", '{"version": 1}')),
    (plan_of('{"version": 0, "runs": []}'), r"plan\.json"),
    *(
        (
            plan_of(json.dumps({"version": 1, "runs": [{**PLANNED, "path": path}]})),
            f"lists '{path}', which is outside of the root",
        )
        for path in ("../elsewhere", "/etc/passwd", "")
    ),
    (root_in_the_way, "cannot write"),
    (import_outside, r"has a run named '\.\./\.\./outside'.*rename it"),
]


@pytest.mark.parametrize(("call", "message"), ROWS, ids=[message for _, message in ROWS])
def test_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, message: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")  # Slurm's, too
    with pytest.raises(UserError, match=message):
        call(tmp_path)
    # What is made is what the call itself was given.
    assert {path.name for path in tmp_path.iterdir()} <= {"launch", "task.yaml"}


def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", os.devnull)
        with pytest.raises(UserError, match="sbatch is not found"):
            make_engine("slurm", {}, None, 1)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "find_spec", lambda name: None)  # as if it were not there
        with pytest.raises(UserError, match=r"bokeh, .*multiberts\[dashboard\]"):
            run(dashboard=True)(tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SystemExit, match="2"), one_line_errors():
        run()(tmp_path)
    # The extra `launch` alone lacks what a launch calls next.
    line = "needs the package distributed, which is not installed: pip install 'multiberts[tensorflow]'"
    assert line in capsys.readouterr().err
