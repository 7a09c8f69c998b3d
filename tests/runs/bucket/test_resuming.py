"""What a run in a bucket fetches when it resumes, and what is left there in the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multiberts.pretrain.training.checkpoints import KeptCheckpoints
from multiberts.runs.bucket.mirror import UNFETCHED, Mirror, read_manifest
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.directory import DONE, RunDirectory
from multiberts.runs.files import remove, write_atomically


def write_checkpoint(path: Path, step: int) -> None:
    write_atomically(path / "checkpoints" / f"step_{step}" / "weights", f"weights of {step}")


def outputs(path: Path) -> list[str]:
    kept = KeptCheckpoints(path, (0, 5, 9), config=None, vocabulary=path, provenance={})
    return kept.outputs()


def test_a_restart_fetches_the_state_and_no_checkpoint_and_ends_in_the_same_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, fetched = f"file://{tmp_path}/bucket", []
    get = Bucket.get

    def count(bucket: Bucket, name: str, path: Path) -> None:
        fetched.append(name)
        get(bucket, name, path)

    monkeypatch.setattr(Bucket, "get", count)
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "one machine"))
    with Mirror(url) as mirror, RunDirectory(mirror.path, stage="pretrain", parameters={}):
        for step in (0, 5):
            write_checkpoint(mirror.path, step)
        write_atomically(mirror.path / "state" / "step_6.npz", "state of 6")
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "another machine"))
    with Mirror(url) as mirror:
        path = mirror.path
        run = RunDirectory(path, stage="pretrain", parameters={})
        with run:
            assert sorted(fetched) == ["config.gin", "state/step_6.npz"]
            assert (path / "state" / "step_6.npz").read_text() == "state of 6"
            mirror.push()
            assert "checkpoints/step_0/weights" in (read_manifest(Bucket(url)) or {})
            write_checkpoint(path, 9)
            run.finish(outputs(path))
            # The run needs its state no more here, but until DONE is in the bucket it does there.
            remove(path / "state" / "step_6.npz")
            mirror._push_files()
            assert "state/step_6.npz" in (read_manifest(Bucket(url)) or {})
    whole = RunDirectory(tmp_path / "whole", stage="pretrain", parameters={})
    with whole:
        for step in (0, 5, 9):
            write_checkpoint(whole.path, step)
        whole.finish(outputs(whole.path))
    assert (tmp_path / "bucket" / DONE).read_bytes() == (whole.path / DONE).read_bytes()
    names = {"config.gin", *(f"checkpoints/step_{step}/weights" for step in (0, 5, 9))}
    assert (read_manifest(Bucket(url)) or {}).keys() == names
    assert not list((tmp_path / "bucket" / "state").glob("*"))
    assert json.loads((path / UNFETCHED).read_text())["outputs"].keys() == {
        "checkpoints/step_0/weights",
        "checkpoints/step_5/weights",
    }
    # A finished run is restored whole.
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "a third machine"))
    with Mirror(url) as mirror:
        assert RunDirectory(mirror.path, stage="pretrain", parameters={}).done
        assert (mirror.path / "checkpoints" / "step_5" / "weights").read_text() == "weights of 5"
