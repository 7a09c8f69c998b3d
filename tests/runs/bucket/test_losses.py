"""What is gone is not what was removed: bucket, local copy and inputs keep what nobody removed on purpose."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from multiberts.runs.bucket.copies import fetch, local_arguments, push_finished
from multiberts.runs.bucket.mirror import MANIFEST, Mirror, read_manifest
from multiberts.runs.bucket.objects import Bucket, MirrorLostError
from multiberts.runs.command_line.command import run_main
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove, replaced, write_atomically
from multiberts.runs.preemption import PreemptedError, preemption_notice
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE

pytestmark = [pytest.mark.seconds, pytest.mark.usefixtures("mirrors")]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket/run"


def content(url: str) -> dict[str, bytes]:
    """Everything in a bucket but the lease."""
    folder = Path(url.removeprefix("file://"))
    files = (file for file in folder.rglob("*") if file.is_file() and "LEASE" not in file.name)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def save_state(path: Path, step: int) -> None:
    write_atomically(path / "state" / f"step_{step}.npz", f"state of {step}")


LOSSES: dict[str, Callable[[Path], object]] = {
    "the folder of all copies": lambda path: shutil.rmtree(path.parents[3]),
    "the copy": shutil.rmtree,
    "its configuration": lambda path: (path / "config.gin").unlink(),
    "a checkpoint": lambda path: (path / "checkpoints" / "step_0" / "weights").unlink(),
    "a log": lambda path: (path / "metrics.jsonl").unlink(),
    "another is mounted": lambda path: path.rename(path.with_name("moved")),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("saves_on", [True, False])
def test_a_run_whose_copy_was_removed_keeps_its_bucket(
    url: str, lose: Callable[[Path], object], saves_on: bool
) -> None:
    with pytest.raises(MirrorLostError) as caught:
        with Mirror(url) as mirror:
            path = mirror.path
            with RunDirectory(path, stage="pretrain", parameters={}):
                write_atomically(path / "checkpoints" / "step_0" / "weights", "weights")
                write_atomically(path / "metrics.jsonl", "1")
                save_state(path, 1)
                mirror.push()
                before = content(url)
                lose(path)
                if saves_on:  # trainers make missing folders again
                    save_state(path, 2)
                with pytest.raises(MirrorLostError):
                    mirror.push()
    message = str(caught.value)
    assert message.startswith("somebody removed ") and "\n" not in message
    assert f" from {path}, the local copy of {url}" in message
    assert message.endswith("the same command resumes from there")
    assert content(url) == before
    with Mirror(url) as mirror:
        assert (mirror.path / "state" / "step_1.npz").read_text() == "state of 1"
        RunDirectory(mirror.path, stage="pretrain", parameters={})


def test_a_copy_that_is_lost_before_the_first_push_pushes_nothing(url: str) -> None:
    with pytest.raises(MirrorLostError, match="whole folder"):
        with Mirror(url) as mirror:
            shutil.rmtree(mirror.path)
            save_state(mirror.path, 1)
    assert content(url) == {}


def test_what_the_run_removes_leaves_the_bucket(url: str) -> None:
    with Mirror(url) as mirror:
        path = mirror.path
        for name in ("figures/a.png", "figures/b.png", "notes.txt"):
            write_atomically(path / name, name)
        mirror.push()
        with replaced(path / "figures") as folder:
            folder.mkdir()
            (folder / "b.png").write_text("new")
        remove(path / "notes.txt")
        mirror.push()
        assert (read_manifest(Bucket(url)) or {}).keys() == {"figures/b.png"}
        write_atomically(path / "notes.txt", "again")  # so its removal is over
        mirror.push()
        (path / "notes.txt").unlink()
        with pytest.raises(MirrorLostError, match=r"notes\.txt"):
            mirror.push()
        write_atomically(path / "notes.txt", "again")
    assert (read_manifest(Bucket(url)) or {}).keys() == {"figures/b.png", "notes.txt"}


def test_a_run_that_was_refused_and_removed_leaves_an_empty_bucket(url: str) -> None:
    """As a corpus whose vocabulary does not fit."""
    with pytest.raises(UserError, match="does not fit"):
        with Mirror(url) as mirror:
            write_atomically(mirror.path / "vocab.txt", "[PAD]")
            mirror.push()
            remove(mirror.path)
            raise UserError("the vocabulary does not fit the text")
    assert read_manifest(Bucket(url)) == {}


def train(url: str, stage: str) -> None:
    def main(_arguments: Sequence[str]) -> None:
        with local_arguments({"run_dir": url}) as local:
            path = Path(local["run_dir"])
            write_atomically(path / "config.gin", "x")
            print(path, flush=True)
            if stage == "prepare":
                time.sleep(600)  # as it cannot save
            with preemption_notice() as should_stop:
                while not should_stop():
                    time.sleep(0.05)
                raise PreemptedError("asked to stop: saved")

    run_main(main)


def push_while_asked_to_stop(url: str) -> None:
    """Trains; SIGTERM comes while the last push is under way."""
    write = Bucket.write

    def write_and_notice(bucket: Bucket, name: str, data: bytes) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write(bucket, name, data)

    def main(_arguments: Sequence[str]) -> None:
        with local_arguments({"run_dir": url}) as local:
            save_state(Path(local["run_dir"]), 7)
            Bucket.write = write_and_notice
            raise PreemptedError("asked to stop: saved")

    run_main(main)


def test_a_second_notice_does_not_end_the_push_after_the_first(url: str) -> None:
    """Google's metadata server speaks some seconds before the machine's services get SIGTERM."""
    process = warm.Process(
        "multiberts.tests.runs.bucket.test_losses:push_while_asked_to_stop", [url]
    )
    _, errors = process.communicate()
    assert (process.returncode, errors) == (75, "asked to stop: saved\n")
    assert list(read_manifest(Bucket(url)) or {}) == ["state/step_7.npz"]


@pytest.mark.parametrize("stage", ["pretrain", "prepare"])
def test_a_stage_whose_copy_is_removed_ends_with_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("RUNS_PUSH_SECONDS", "0.1")
    process = warm.Process("multiberts.tests.runs.bucket.test_losses:train", [url, stage])
    end = time.monotonic() + PATIENCE
    while MANIFEST not in content(url) and time.monotonic() < end:
        time.sleep(0.02)
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    before = content(url)
    shutil.rmtree(path)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert f"whole folder from {path}" in message
    assert message.count("\n") == 1
    assert content(url) == before


def test_a_bucket_that_is_gone_costs_no_local_copy(url: str, tmp_path: Path) -> None:
    """A mount that is missing looks like a new bucket."""
    with Mirror(url) as mirror:
        write_atomically(mirror.path / "config.gin", "x")
        save_state(mirror.path, 1)
    path = mirror.path
    (tmp_path / "bucket").rename(tmp_path / "unmounted")
    with pytest.raises(UserError) as caught:
        with local_arguments({"run_dir": url}):
            pass
    assert str(caught.value) == (
        f"{url} is empty, but {path}, its local copy, was pushed there before; put the bucket's files back "
        "(is it mounted?), or remove the local copy, too, to start again"
    )
    assert (path / "state" / "step_1.npz").read_text() == "state of 1"
    # Both cures work.
    shutil.rmtree(tmp_path / "bucket")
    (tmp_path / "unmounted").rename(tmp_path / "bucket")
    with Mirror(url) as mirror:
        assert (path / "state" / "step_1.npz").read_text() == "state of 1"
    shutil.rmtree(tmp_path / "bucket")
    shutil.rmtree(path)
    with Mirror(url) as mirror:
        assert not list(path.rglob("*.npz"))


def test_a_first_start_that_was_killed_before_its_push_starts_again(url: str) -> None:
    mirror = Mirror(url)
    mirror.__enter__()
    write_atomically(mirror.path / "config.gin", "x")
    mirror._lease.release()  # as if killed
    with Mirror(url) as again:
        assert not (again.path / "config.gin").exists()


@pytest.mark.parametrize("is_run", [True, False])
def test_an_input_that_lost_a_file_here_is_fetched_again(url: str, is_run: bool) -> None:
    """Programs that clean caches by age remove single files."""
    if is_run:
        with Mirror(url) as mirror, RunDirectory(mirror.path, stage="x", parameters={}) as run:
            for name in ("a", "b"):
                write_atomically(run.path / name, name)
            run.finish(["a", "b"])
        shutil.rmtree(mirror.path)
    else:
        for name in ("a", "b"):
            Bucket(url).write(name, name.encode())
    path = fetch(url)
    (path / "a").unlink()
    assert fetch(url) == path and (path / "a").read_text() == "a"
    (path / "b").write_text("cut off"[:0])
    assert fetch(url) == path and (path / "b").read_text() == "b"


def test_a_finished_run_that_lost_an_output_is_not_copied(url: str, tmp_path: Path) -> None:
    path = report_on("old", tmp_path / "run", tmp_path).path
    (path / "page").unlink()
    with pytest.raises(UserError, match=r"run/page.*DONE"):
        push_finished(path, url)
    assert content(url) == {}
    (path / "DONE").unlink()  # the cure
    report_on("old", path, tmp_path)
    push_finished(path, url)
    assert content(url)["page"] == b"of old"


def test_an_output_that_vanished_unpushed_is_not_declared_done(url: str) -> None:
    with pytest.raises(MirrorLostError, match="removed a from"):
        with Mirror(url) as mirror:
            with RunDirectory(mirror.path, stage="x", parameters={}) as run:
                write_atomically(run.path / "a", "a")
                run.finish(["a"])
            (run.path / "a").unlink()
    assert "DONE" not in content(url)


def report_on(text: str, path: Path, folder: Path) -> RunDirectory:
    """Makes a report of an input, or makes it again."""
    write_atomically(folder / "input", text)
    inputs = {"of": folder / "input"}
    run = RunDirectory(path, stage="report", parameters={}, inputs=inputs, renewed_by=["of"])
    if not run.done:
        with run:
            write_atomically(run.path / "page", f"of {text}")
            write_atomically(run.path / text, text)
            run.finish(["page", text])
    return run


def test_a_report_that_is_made_again_replaces_that_in_the_bucket(url: str, tmp_path: Path) -> None:
    for text in ("old", "new", "new"):
        with Mirror(url) as mirror:
            report_on(text, mirror.path, tmp_path)
    assert content(url)["page"] == b"of new"
    shutil.rmtree(tmp_path / "mirrors")
    with Mirror(url) as mirror:
        assert report_on("new", mirror.path, tmp_path).done
        assert (mirror.path / "page").read_bytes() == b"of new"


@pytest.mark.parametrize("lost", ["", "page", "DONE"])
def test_a_report_that_is_lost_when_it_is_made_again_leaves_the_old_one(
    url: str, tmp_path: Path, lost: str
) -> None:
    with Mirror(url) as mirror:
        report_on("old", mirror.path, tmp_path)
    before = content(url)
    with pytest.raises(MirrorLostError, match=lost or "whole folder"):
        with Mirror(url) as mirror:
            report_on("new", mirror.path, tmp_path)
            subprocess.run(["rm", "-r", str(mirror.path / lost)], check=True)
    assert content(url) == before
    with Mirror(url) as mirror:
        report_on("new", mirror.path, tmp_path)
    assert content(url)["page"] == b"of new"
