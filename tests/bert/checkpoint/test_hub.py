"""Checkpoints by name, from a server on this machine that answers as the Hugging Face Hub does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.hub import check_name, checkpoint_directory
from multiberts.runs.errors import UserError
from multiberts.tests.bert.small_checkpoint import write_small
from multiberts.tests.tools.fake_hub import FakeHub, hub_command

FIRST, SECOND = "1" * 40, "2" * 40
REPOSITORY = "google/multiberts-seed_0"


def commit_of(hub: FakeHub, commit: str) -> Path:
    return hub.repositories[f"models/{REPOSITORY}"][commit]


@pytest.fixture
def hub(tmp_path: Path) -> FakeHub:
    pytest.importorskip("huggingface_hub")
    folders = {}
    for seed, commit in enumerate((FIRST, SECOND)):
        folder = write_small(tmp_path / f"commit_{seed}", seed, "hugging_face", {})
        folders[commit] = folder
        (folder / "checkpoint.json").unlink()
        (folder / "pytorch_model.bin").write_bytes(b"not fetched: there is a safer file")
    return FakeHub(tmp_path / "uploads", {f"models/{REPOSITORY}": folders})


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    """Runs a command in a process whose Hub is at `endpoint` and whose cache is empty at first."""
    return lambda endpoint, *arguments: hub_command(endpoint, tmp_path / "home", *arguments)


def test_a_name_is_fetched_once_and_stays_usable_without_a_network(
    hub: FakeHub, command: Callable[..., Any]
) -> None:
    inspect = ("checkpoint", "inspect", f"hub:{REPOSITORY}")
    with hub.serve() as endpoint:
        done = command(endpoint, *inspect)
        assert done.returncode == 0, done.stderr
        assert f"hub:{REPOSITORY} is {REPOSITORY}@{SECOND}" in done.stderr
        # The cache's folder says which model it is.
        assert "procedure      multiberts" in done.stdout and "pretrain_seed  0" in done.stdout
        assert sorted(hub.fetched) == [
            "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
        ]  # fmt: skip
        hub.fetched.clear()
        again = command(endpoint, *inspect)
        assert (again.returncode, again.stdout, hub.fetched) == (0, done.stdout, [])
        older = command(endpoint, *inspect[:2], f"{inspect[2]}@{FIRST}")
        assert f"is {REPOSITORY}@{FIRST}" in older.stderr and "model.safetensors" in hub.fetched
        compared = command(
            endpoint, "checkpoint", "compare", inspect[2], str(commit_of(hub, SECOND)), "--strict"
        )
        assert compared.returncode == 0, compared.stdout
    alone = command(endpoint, *inspect)
    assert (alone.returncode, alone.stdout) == (0, done.stdout), alone.stderr
    assert "is taken from the cache" in alone.stderr or f"@{SECOND}" in alone.stderr


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("hub:google/nothing", "the Hub has no such repository, or it is private"),
        (f"hub:{REPOSITORY}@lost", "the Hub has no such revision"),
        ("hub:", "names no repository, expected hub:<owner>/<name>"),
        ("hub:a b/c", "names no repository"),
    ],
)
def test_what_is_not_there_gets_one_line(
    hub: FakeHub, command: Callable[..., Any], name: str, line: str
) -> None:
    with hub.serve() as endpoint:
        done = command(endpoint, "checkpoint", "inspect", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr and done.stderr.count("\n") == 1


def test_without_a_network_and_a_cache_the_line_says_so(command: Callable[..., Any]) -> None:
    pytest.importorskip("huggingface_hub")
    done = command("http://127.0.0.1:9", "checkpoint", "inspect", f"hub:{REPOSITORY}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be fetched from http://127.0.0.1:9" in done.stderr
    assert "is not cached; fetch it where there is a network" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_repository_without_a_model_is_refused(hub: FakeHub, command: Callable[..., Any]) -> None:
    for name in ("model.safetensors", "pytorch_model.bin"):
        (commit_of(hub, SECOND) / name).unlink()
    with hub.serve() as endpoint:
        done = command(endpoint, "checkpoint", "inspect", f"hub:{REPOSITORY}")
    assert done.returncode == 2 and "holds neither model.safetensors nor" in done.stderr


def test_other_names_are_directories() -> None:
    assert checkpoint_directory("results/hub:x") == Path("results/hub:x")
    with pytest.raises(UserError, match="names no repository"):
        checkpoint_directory("hub:@main")


@pytest.mark.parametrize(
    "name",
    [
        "gpt2", "google/multiberts-seed_0", "a.b/c_d-e", "a__b/c", "1/2", "A" * 96, "A" * 97, "_a/b_",
        "a--b/c", "a/b..c", "a/b.git", ".a/b", "a/.b", "a/b-", "-a/b", "a/b/c", "a/b c", "a/é", "a/", "/b",
    ],
)  # fmt: skip
def test_names_are_those_that_the_client_of_the_hub_takes(name: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        with pytest.raises(UserError, match="names no repository"):
            check_name(f"hub:{name}")
    else:
        if name.isascii():
            check_name(f"hub:{name}")
            check_name(f"hub:{name}@refs/pr--1")
