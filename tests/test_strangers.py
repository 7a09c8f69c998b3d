"""What a stranger's file may do: each row of the list in SECURITY.md is tried by files that try more.

A file lies in a folder where its reader works, beside a module that would leave a trace if it were imported,
and below it is a home folder whose files a stranger would like to change.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from multiberts.tests import good_files
from multiberts.tests.tools import warm

LIST = Path(__file__).resolve().parents[1] / "SECURITY.md"
FORGED = "good\nResult: evil is better"
FORMULA = "+cmd|' /C calc'!A0"


@dataclass(frozen=True)
class Trial:
    """Files of a stranger, the command that a person gives, and a pattern of what it says.

    `status` is its exit status, `kind` that of `warm.Process`.
    """

    files: Callable[[Path], object]
    command: Sequence[str]
    says: str
    status: int = 2
    kind: str = warm.PLAIN


def _gin(text: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        good_files.frame().to_csv(folder / "a.csv", index=False)
        (folder / "notes.csv").write_text("my notes\n")
        (folder / "a.gin").write_text(text + "\n")

    return write


def _edited(file: str, **fields: object) -> Callable[[Path], object]:
    """Writes a good file, and changes fields of it."""

    def write(folder: Path) -> None:
        path = good_files.GOOD[file](folder)
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return write


def _names(folder: Path) -> None:
    frames = [
        good_files.frame(shift).assign(model=name) for shift, name in enumerate((FORGED, FORMULA))
    ]
    frames[0].loc[:, "kind"] = frames[1].loc[:, "kind"] = ["$\\foo{x$", "<script>"] * 12
    with (folder / "a.csv").open("w") as file:
        for number, frame in enumerate(frames):
            frame.to_csv(file, index=False, header=not number)


class _Opens:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch ran",)


def _pickled(folder: Path) -> None:
    (folder / "a.csv").write_bytes(pickle.dumps(_Opens()))


def _objects(folder: Path) -> None:
    np.savez(folder / "a.npz", predictions=np.array([[_Opens()]], dtype=object))


def _much(folder: Path) -> None:
    good_files.frame().to_parquet(folder / "a.parquet")
    good_files.state_more_rows(folder / "a.parquet")


def _dataset(folder: Path) -> None:
    dataset = folder / "data" / "stranger" / "1.0.0"
    dataset.mkdir(parents=True)
    info = {"name": "stranger", "version": "1.0.0", "fileFormat": "tfrecord"}
    (dataset / "dataset_info.json").write_text(json.dumps(info))
    (dataset / "features.json").write_text(json.dumps({"type": "evilmod.Evil", "content": "{}"}))


def _plan(folder: Path) -> None:
    path = good_files.GOOD["plan"](folder)
    plan = json.loads(path.read_text())
    plan["runs"][0]["path"] = "../../home"
    path.write_text(json.dumps(plan))


def _run(folder: Path) -> None:
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    entry = {"file": "../../../home/.bashrc", "examples": 1, "sha256": "0" * 64, "metrics": []}
    content = dict.fromkeys(
        ("procedure", "pretrain_seed", "data_seed", "step", "learning_rate", "finetune_seed")
    )
    content |= {"task": "RTE", "evaluation_sets": {"dev": entry}}
    (run / "run.json").write_text(json.dumps(content))
    (run / "DONE").write_text(json.dumps({"outputs": {}}))


COMPARE = ["compare", "a.csv", "--gin_file=a.gin"]
TRIALS: dict[str, list[Trial]] = {
    "Gin file": [
        *(
            Trial(_gin(text), COMPARE, says)
            for text, says in (
                ("compare.csv = '~/.bashrc'", r"a\.gin line 1 sets csv to ~/\.bashrc, .*give --csv="),
                ("OUT = '../home/new.html'\ncompare.html = %OUT", "give --html="),
                ("compare.csv = '.envrc'", "none that begins with a dot"),
                ("compare.csv = 'notes.csv'", r"notes\.csv exists and was not .*--overwrite"),
                ("import evilmod", "imports a module"),
                ("compare.base = @evilmod.Evil()", "refers to a function"),
                ("finetune.task_modules = ['evilmod']", "sets task_modules, whose code would run"),
                ("run.engine_options = {'worker_init': 'touch ran'}", "sets worker_init, whose"),
                ("prepare.scheduler = 'tcp://203.0.113.1:1'", "sets scheduler, whose code"),
            )
        ),
    ],
    "name of a run, arm, task or column": [
        Trial(
            _names,
            ["compare", "a.csv", "--by=kind", "--csv=o.csv", "--html=o.html", "--latex=o.tex"],
            r"good\\nResult: evil is better",
            status=0,
        ),
        Trial(
            _edited("record", procedure=FORGED),
            ["checkpoint", "inspect", "model"],
            r"procedure +good\\nResult: evil is better",
            status=0,
        ),
    ],
    "table of predictions": [
        Trial(_pickled, ["compare", "a.csv"], "is a pickle of Python, which is not read"),
        Trial(_objects, ["compare", "a.npz"], "Object arrays"),
    ],
    "file that fills the memory": [
        Trial(_much, ["compare", "a.parquet"], r"a\.parquet needs over [\d,]+ bytes of memory"),
    ],
    "prepared dataset (TensorFlow Datasets)": [
        Trial(
            _dataset,
            ["prepare", "--run_dir=out", "--sources=stranger", "--source_format=tfds",
             "--datasets_dir=data", "--vocabulary_size=100"],
            "its files name the type 'evilmod.Evil'",
            kind=warm.TENSORFLOW,
        ),
    ],
    "checkpoint": [
        Trial(
            _edited("record", files={"../../home/.bashrc": {"bytes": 1, "sha256": "0" * 64}}),
            ["checkpoint", "inspect", "model"],
            r"lists '\.\./\.\./home/\.bashrc', which is not a file of a checkpoint",
        ),
        Trial(
            _edited("hf config", auto_map={"AutoModel": "evilmod.Evil"}),
            ["checkpoint", "inspect", "model"],
            "layout +Hugging Face",
            status=0,
        ),
    ],
    "run directory": [
        Trial(_run, ["evaluate", "--run_dir=out", "--predictions=runs"], "DONE|run.json"),
        Trial(_plan, ["launch", "status", "--root=root"], r"'\.\./\.\./home'|\.\./\.\./home"),
    ],
}  # fmt: skip


def test_the_list_has_what_is_tried() -> None:
    rows = [line.split(" | ")[0].strip("| ") for line in LIST.read_text().splitlines()]
    listed = [
        row
        for row, line in zip(rows, LIST.read_text().splitlines(), strict=True)
        if line[:2] == "| "
    ]
    assert listed[1:] == [*TRIALS]


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(one, id=f"{row}-{n}")
        for row, all_ in TRIALS.items()
        for n, one in enumerate(all_)
    ],
)
def test_a_stranger_s_file_does_what_the_list_says(tmp_path: Path, trial: Trial) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    (home / ".bashrc").write_text("# mine\n")
    trial.files(here)
    (here / "evilmod.py").write_text(f"open({str(here / 'ran')!r}, 'w')\n")
    before = _contents(tmp_path)
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(here)}
    done = warm.run(trial.command, here, environment=environment, kind=trial.kind)
    assert done.returncode == trial.status, done.stderr
    assert re.search(trial.says, done.stdout + done.stderr), done.stdout + done.stderr
    # What was there is there, and nothing is new but what the command names; nothing ran.
    after = _contents(tmp_path)
    assert {name: after.get(name) for name in before} == before
    named = {f"here/{flag.partition('=')[2]}" for flag in trial.command if "=o." in flag}
    assert {*after} - {*before} <= named, {*after} - {*before}
    # No line of a stranger's stands alone, and no cell is a formula.
    assert "\nResult: " not in done.stdout + done.stderr
    for name in sorted(named & {"here/o.csv"}):
        cells = [cell for row in csv.reader(after[name].decode().splitlines()) for cell in row]
        assert f"'{FORMULA}" in cells and FORMULA not in cells
    if trial.status:
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: "), done.stderr
