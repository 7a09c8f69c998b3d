"""`multiberts push`: folders as the Hub has them, uploaded to a server that answers as the Hub does."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    facts_of,
    predictions_of,
    write_imported,
)
from multiberts.finetune.pushing import push
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.tests.bert.small_checkpoint import write_small
from multiberts.tests.tools.fake_hub import TOKEN, FakeHub, hub_command


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    """Two checkpoints, two runs and a report, as the parameters of `push`."""
    for seed in (0, 1):
        provenance = {"procedure": "base", "pretrain_seed": seed, "data_seed": seed, "step": 7}
        write_small(tmp_path / f"checkpoint_{seed}", seed, provenance=provenance)
        predictions = predictions_of(
            ["rte/0", "rte/1"], [1, 0], np.array([1, seed]), np.eye(2)[[1, seed]]
        )
        run = ImportedRun(
            f"run_{seed}",
            facts_of("RTE", "base", seed, 0, "a test"),
            (),
            lambda predictions=predictions: [ImportedSet("dev", predictions, ("accuracy",))],
        )
        write_imported(str(tmp_path / "runs"), "example", run)
    with RunDirectory(tmp_path / "report", stage="report", parameters={}) as report:
        (report.path / "tables").mkdir()
        (report.path / "index.html").write_text("<p>an answer</p>")
        (report.path / "tables" / "scores.csv").write_text("task\nRTE\n")
        report.finish(["index.html", "tables/scores.csv"])
    return {
        "run_dir": str(tmp_path / "out"),
        "checkpoints": {f"seed_{seed}": str(tmp_path / f"checkpoint_{seed}") for seed in (0, 1)},
        "predictions": [str(tmp_path / "runs")],
        "report": str(tmp_path / "report"),
    }


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    """Runs a command in a process with a Hub, a token and a cache that is empty at first."""

    def run(endpoint: str, token: str | None, *arguments: str) -> Any:
        return hub_command(endpoint, tmp_path / "home", *arguments, token=token)

    return run


def flags(study: dict[str, Any], **more: str) -> list[str]:
    bindings = [f"--gin_param=push.{name} = {value!r}" for name, value in {**study, **more}.items()]
    return ["push", *bindings]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_is_uploaded_is_what_others_find(
    tmp_path: Path, study: dict[str, Any], command: Callable[..., Any]
) -> None:
    pytest.importorskip("huggingface_hub")
    hub, out = FakeHub(tmp_path / "uploads", {}), Path(study["run_dir"])
    with hub.serve() as endpoint:
        done = command(endpoint, TOKEN, *flags(study, repository="me/study"))
        assert done.returncode == 0, done.stderr
        names = [
            "datasets/me/study-predictions",
            "models/me/study-seed_0",
            "models/me/study-seed_1",
        ]
        assert sorted(hub.repositories) == sorted(hub.private) == names
        for name, folder in zip(
            names, ("predictions", "models/seed_0", "models/seed_1"), strict=True
        ):
            assert hub.last(name) == files_of(out / folder)
        before = files_of(out)
        assert not {"models/seed_0/DONE", "models/seed_0/.lock"} & set(before)
        again = command(endpoint, TOKEN, *flags(study, repository="me/study"))
        assert (again.returncode, files_of(out)) == (0, before), again.stderr
        # A private repository's checkpoint is fetched with the same token.
        compared = command(endpoint, TOKEN, "checkpoint", "compare", "hub:me/study-seed_1",
                           study["checkpoints"]["seed_1"], "--strict")  # fmt: skip
        assert compared.returncode == 0, compared.stdout + compared.stderr
    files = hub.last(names[0])
    assert sorted(files) == [
        "README.md", "predictions.parquet", "report/index.html",
        "report/tables/scores.csv",
    ]  # fmt: skip
    import pandas

    rows = pandas.read_parquet(io.BytesIO(files["predictions.parquet"]))
    assert rows[["pretrain_seed", "prediction"]].values.tolist() == [[0, 1], [0, 0], [1, 1], [1, 1]]
    card = files["README.md"].decode()
    assert card.startswith("---\n") and "| RTE | dev | base | 2 | 4 |" in card
    assert b"# base: seed 0" in hub.last(names[1])["README.md"]


def test_a_report_whose_files_lead_elsewhere_is_refused(
    tmp_path: Path, study: dict[str, Any]
) -> None:
    (tmp_path / "secret").write_text("the user's own")
    file = Path(study["report"], "tables", "scores.csv")
    for target in ("secret", "nowhere"):
        file.unlink()
        file.symlink_to(tmp_path / target)
        with pytest.raises(UserError, match=r"scores\.csv is not the file that DONE lists"):
            push(**study)
        assert not Path(study["run_dir"]).exists()


def test_without_a_repository_there_is_the_folder_alone(study: dict[str, Any]) -> None:
    push(**{**study, "report": None, "checkpoints": None})
    assert sorted(path.name for path in Path(study["run_dir"]).glob("predictions/*")) == [
        "README.md", "predictions.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("token", "line"),
    [
        (None, "push.repository needs a token of the Hub, and there is none; log in"),
        ("hf_of_another", "was not uploaded to me/study-seed_0 at http://127.0.0.1"),
    ],
)
def test_without_the_right_token_the_line_says_so(
    tmp_path: Path, study: dict[str, Any], command: Callable[..., Any], token: str | None, line: str
) -> None:
    pytest.importorskip("huggingface_hub")
    hub = FakeHub(tmp_path / "uploads", {})
    with hub.serve() as endpoint:
        done = command(endpoint, token, *flags(study, repository="me/study"))
        assert (done.returncode, hub.repositories) == (2, {})
        assert line in done.stderr and "Traceback" not in done.stderr
        assert Path(study["run_dir"]).exists() == (token is not None)
        if token is not None:  # the same command, with the right one
            done = command(endpoint, TOKEN, *flags(study, repository="me/study"))
            assert (done.returncode, len(hub.repositories)) == (0, 3), done.stderr


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"checkpoints": {}, "predictions": []}, "push has neither push.checkpoints nor"),
        ({"checkpoints": {"a/b": "x"}}, "push.checkpoints has the name 'a/b', expected letters"),
        ({"checkpoints": {"predictions": "x"}}, "and not 'predictions'"),
        ({"checkpoints": {"a": "nowhere"}}, "nowhere does not exist"),
        ({"predictions": ["nowhere"]}, "nowhere"),
        ({"predictions": []}, "push.report goes with the predictions"),
        ({"report": "nowhere"}, "nowhere is not a finished report; give the run_dir"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(
    study: dict[str, Any], change: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError, match=line) as raised:
        push(**{**study, **change})
    assert "\n" not in str(raised.value)
    assert not Path(study["run_dir"]).exists()
