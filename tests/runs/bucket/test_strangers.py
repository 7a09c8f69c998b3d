"""What others wrote into a bucket cannot leave its folder, and local copies are the user's own."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from multiberts.runs.bucket.copies import fetch
from multiberts.runs.bucket.mirror import MANIFEST, Entry, local_copy, read_manifest, restore
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.errors import UserError


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_a_name_in_the_manifest_stays_inside_the_folder(tmp_path: Path, name: str) -> None:
    entry = {"bytes": 1, "sha256": "0" * 64, "object": "fine"}
    for files in ({name: entry}, {"fine": entry | {"object": name}}):
        (tmp_path / MANIFEST).write_text(json.dumps({"time": 0, "files": files}))
        with pytest.raises(UserError, match="outside"):
            read_manifest(Bucket(f"file://{tmp_path}"))


@pytest.mark.parametrize(
    "content",
    [
        *("", "null", "[]", "{", '{"files": 3}', "[" * 100_000),
        '{"files": {"a": {"bytes": "1", "sha256": "", "object": "a"}}}',
        '{"files": {"a": {"bytes": 1, "sha256": ""}}}',
        '{"files": {}, "time": "noon"}',
    ],
)
def test_a_manifest_that_is_not_whole_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(UserError, match=r"MANIFEST\.json.*remove the whole folder to start again"):
        read_manifest(Bucket(f"file://{tmp_path}"))


def test_local_copies_lie_in_a_folder_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNS_MIRROR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "text").write_text("text")
    place = fetch(f"file://{tmp_path}/bucket")
    assert (place / "text").read_text() == "text"
    folder = tmp_path / "multiberts" / "mirror"
    assert place.is_relative_to(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(UserError, match="others"):
        local_copy(Bucket(f"file://{tmp_path}/bucket"))
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(UserError, match="another user"):
        local_copy(Bucket(f"file://{tmp_path}/bucket"))


def test_an_object_outside_the_folder_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "text").write_text("text")
    monkeypatch.setattr(Bucket, "list", lambda self: {"../text": {"size": 4}})
    with pytest.raises(UserError, match="outside"):
        fetch(f"file://{tmp_path}/bucket")
    assert not (tmp_path / "mirror" / "file" / "text").exists()


def test_nothing_is_deleted_or_written_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "mirror"))
    outside, bucket = tmp_path / "outside", Bucket(f"file://{tmp_path}/bucket/run")
    outside.mkdir()
    (outside / "kept").write_text("kept")
    copy = local_copy(bucket)
    (copy / "state").mkdir(parents=True, mode=0o700)
    (copy / "folder").symlink_to(outside)
    (copy / "state" / "file").symlink_to(outside / "kept")
    bucket.write("folder/new", b"new")
    digest = hashlib.sha256(b"new").hexdigest()
    restore(bucket, copy, {"folder/new": Entry(bytes=3, sha256=digest, object="folder/new")})
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"
    assert (copy / "folder" / "new").read_bytes() == b"new"
    assert not (copy / "folder").is_symlink() and not (copy / "state").exists()
