"""Run directories: whole, named, locked, and refused where they belong to another run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from multiberts.runs import identity
from multiberts.runs.bucket import lease
from multiberts.runs.directory import (
    UNFETCHED,
    RunDirectory,
    read_config,
    read_done,
    read_unfetched,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, sha256_of_file, write_atomically
from multiberts.runs.identity import opened


def _run(path: Path, **parameters: object) -> RunDirectory:
    return RunDirectory(path, stage="stage", parameters={"steps": 3, **parameters})


def _finish(path: Path, **parameters: object) -> None:
    with _run(path, **parameters) as run:
        write_atomically(run.path / "out.txt", "result")
        run.finish(["out.txt"])


def test_done_comes_last_with_checksums(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert not _run(path).done and not path.exists()  # looking creates nothing
    with _run(path) as run:
        write_atomically(path / "out.txt", "result")
        assert not _run(path).done
        run.finish(["out.txt"])
    assert _run(path).done
    entry = json.loads((path / "DONE").read_text())["outputs"]["out.txt"]
    assert entry == {"bytes": 6, "sha256": hashlib.sha256(b"result").hexdigest()}
    assert (path / "config.gin").read_text().splitlines()[1] == "stage.steps = 3"


def test_inputs_are_compared_by_content_not_by_path(tmp_path: Path) -> None:
    first, moved = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("text")
    os.utime(first, (1e9, 1e9))  # a large input of that age would be recorded

    def run(path: Path) -> RunDirectory:
        return RunDirectory(tmp_path / "run", stage="stage", parameters={}, inputs={"text": path})

    with run(first) as open_run:
        open_run.finish([])
    assert {file.name for file in open_run.path.iterdir()} == {".lock", "DONE", "config.gin"}
    first.rename(moved)
    assert run(moved).done
    moved.write_text("other")
    content = r"content '?\w{12}\.\.\.'?"
    with pytest.raises(UserError, match=rf"text \(there {content}, now {content}\)"):
        run(moved)


@pytest.mark.parametrize("content", ["resul", "results"])
def test_output_of_another_size_is_noticed(tmp_path: Path, content: str) -> None:
    _finish(tmp_path / "run")
    (tmp_path / "run" / "out.txt").write_text(content)
    with pytest.raises(UserError, match=r"out\.txt .*another size"):
        _run(tmp_path / "run")


def test_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        _run(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_killed_run_is_no_input_and_its_leftovers_are_dropped(tmp_path: Path) -> None:
    with _run(tmp_path / "run") as run:
        (run.path / "out.txt.unfinished").write_text("ha")
    with pytest.raises(UserError, match="has not finished"):
        opened(tmp_path / "run")
    with _run(tmp_path / "run") as run:
        assert sorted(p.name for p in run.path.iterdir()) == [".lock", "config.gin"]


def _without_locks(code: int | None) -> None:
    """Makes the kernel's lock end as on a file system that has none."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code or 0))

    if code is not None:
        fcntl.flock = flock
        lease.Lease.__init__.__defaults__ = (1.0,)


@pytest.mark.parametrize("code", [None, errno.ENOLCK, errno.ENOSYS])
def test_two_writers_at_once_are_refused(
    code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(fcntl, "flock", fcntl.flock)
    monkeypatch.setattr(lease.Lease.__init__, "__defaults__", (60.0,))
    _without_locks(code)
    program = (
        "import sys; from multiberts.runs.directory import RunDirectory\n"
        f"from multiberts.tests.runs.test_directory import _without_locks; _without_locks({code})\n"
        f"with RunDirectory({str(tmp_path / 'run')!r}, stage='stage', parameters={{'steps': 3}}):\n"
        "    print('in', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin and holder.stdout
    assert holder.stdout.readline() == b"in\n"
    with pytest.raises(
        UserError, match=f"^{tmp_path}/run is being written by (another )?process( {holder.pid})?"
    ):
        _run(tmp_path / "run").__enter__()
    holder.kill()
    holder.communicate()
    _finish(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    said = f"{os.strerror(code)}: a lease that is renewed keeps other processes out" if code else ""
    assert said in capfd.readouterr().err


def test_a_run_that_came_in_between_is_not_written_into(tmp_path: Path) -> None:
    """Three look at a new directory before any has locked it, and two are the same run."""
    first, again, second = (_run(tmp_path / "run", rate=rate) for rate in (0.1, 0.1, 0.2))
    with first:
        first.finish([])
    with again:
        assert again.done
    refused = pytest.raises(UserError, match=r"rate \(there 0\.1, now 0\.2\)")
    with refused as error, second:
        raise AssertionError("entered")
    assert "steps" not in str(error.value)
    with first:
        pass  # the lock was given back


def test_a_call_with_names_of_its_own_is_kept_and_not_compared(tmp_path: Path) -> None:
    def run(width: int, **call: object) -> RunDirectory:
        parameters = {"width": width}
        return RunDirectory(tmp_path / "run", stage="stage", parameters=parameters, call=call)

    with run(64, options={"width": 64}, labels=None):
        pass
    lines = (tmp_path / "run" / "config.gin").read_text().splitlines()
    assert lines[1:] == [
        "#: stage.width = 64",
        "# The call that makes the run again:",
        "stage.options = {'width': 64}",
    ]
    assert not run(64, options={"width": 64, "folder": "elsewhere"}).done
    with pytest.raises(UserError, match=r"width \(there 64, now 32\)"):
        run(32, options={"width": 32})


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"null", b"[]", b"\xff\xfe", b"{}"),
        *(b'{"outputs": []}', b'{"outputs": {"a": 3}}'),
        b'{"outputs": {"a": {"bytes": "3", "sha256": ""}}}',
        b'{"outputs": {"../a": {"bytes": 3, "sha256": ""}}}',
        b'{"outputs": {"/a": {"bytes": 3, "sha256": ""}}}',
        b'{"outputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"outputs": {"a": {"bytes": ' + b"9" * 10_000 + b', "sha256": ""}}}',
    ],
    ids=lambda content: content[:24].decode("latin-1"),
)
def test_a_marker_that_is_not_whole_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    for marker, *readers in (("DONE", read_done, opened), (UNFETCHED, read_unfetched)):
        (tmp_path / marker).write_bytes(content)
        for refuse in readers:
            with pytest.raises(UserError) as refused:
                refuse(tmp_path)
            assert marker in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x93NUMPY\xff\x00", "line 1: byte 0x93 at offset 0"),
        (b"stage.steps\n", "line 1: found 'stage.steps'"),
    ],
)
def test_a_frozen_configuration_that_is_not_ours_is_refused_in_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    config = tmp_path / "config.gin"
    config.write_bytes(content)
    for refuse in (lambda: _run(tmp_path), lambda: list(read_config(config))):
        with pytest.raises(UserError, match=message):
            refuse()


@pytest.mark.parametrize(
    "value", ["__import__('os').getcwd()", "[" * 100_000, "9" * 10_000, "@os.getcwd()"]
)
def test_a_frozen_configuration_is_literals_alone(tmp_path: Path, value: str) -> None:
    config = tmp_path / "config.gin"
    config.write_text(f"# Frozen\nimport os\nstage.steps = {value}\n")
    with pytest.raises(UserError, match="line 2: found 'import os'"):
        list(read_config(config))
    config.write_text(f"stage.steps = {value}\n")
    with pytest.raises(UserError, match="line 1: .* literal"):
        list(read_config(config))


def test_large_inputs_of_a_finished_run_are_read_again_only_where_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiberts.runs.directory.LARGE_INPUT_BYTES", 4)
    text = tmp_path / "text.txt"
    text.write_text("four and more")
    read: list[str] = []

    def counted(path: PathLike) -> str:
        read.append(Path(path).name)
        return sha256_of_file(path)

    monkeypatch.setattr(identity, "sha256_of_file", counted)

    os.utime(text, (1e9, 1e9))

    def run() -> RunDirectory:
        monkeypatch.setattr(identity, "_REMEMBERED", {})  # as in another process
        return RunDirectory(tmp_path / "run", stage="s", parameters={}, inputs={"texts": [text]})

    def reads_text() -> bool:
        read.clear()
        assert run().done
        return "text.txt" in read

    with run() as first:
        first.finish([])
    assert read.count("text.txt") == 1
    assert not reads_text()
    facts = text.stat()
    text.touch()
    assert reads_text()
    # Other text of the same size under the old date is another input: its status changed.
    text.write_text("five and more")
    os.utime(text, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(UserError, match=r"s\.texts"):
        run()
    text.write_text("four and more")
    # What cannot be read counts as nothing recorded.
    (tmp_path / "run" / ".inputs.json").write_text("[")
    assert reads_text()


def test_a_run_that_lost_its_directory_or_an_output_is_not_done(tmp_path: Path) -> None:
    """Outputs that come later make the directory again; a run of other parameters would be taken for it."""
    with RunDirectory(tmp_path / "run", stage="count", parameters={}) as run:
        shutil.rmtree(run.path)
        write_atomically(run.path / "a", "a")
        said = r"config\.gin was removed .*; remove the directory, and"
        with pytest.raises(UserError, match=said):
            run.finish(["a"])
    shutil.rmtree(run.path)
    with RunDirectory(tmp_path / "run", stage="count", parameters={"other": 1}) as other:
        assert not other.done
        with pytest.raises(UserError, match="run/a was removed"):
            other.finish(["a"])
    assert not (run.path / "DONE").exists()
