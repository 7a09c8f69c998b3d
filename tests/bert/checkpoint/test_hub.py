"""Checkpoints by name, from a server on this machine that answers as the Hugging Face Hub does."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import write_checkpoint
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.runs.errors import UserError

FIRST, SECOND = "1" * 40, "2" * 40
REPOSITORY = "google/multiberts-seed_0"
PROGRAM = "from multiberts.runs.command import main; main()"


class FakeHub:
    """The files of one repository by commit; `main` is the last one."""

    def __init__(self, commits: dict[str, Path]):
        self.commits = commits
        self.fetched: list[str] = []

    def commit(self, revision: str) -> str | None:
        if revision == "main":
            return list(self.commits)[-1]
        return revision if revision in self.commits else None

    def answer(self, path: str, method: str) -> tuple[int, dict[str, str], bytes]:
        path = path.partition("?")[0]
        if path.startswith(f"/api/models/{REPOSITORY}"):
            rest = path.removeprefix(f"/api/models/{REPOSITORY}").strip("/").split("/")
            commit = self.commit(rest[1] if len(rest) > 1 else "main")
            if commit is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            files = sorted(self.commits[commit].iterdir())
            if rest[0] == "tree":
                listed: Any = [
                    {"type": "file", "path": file.name, "size": file.stat().st_size,
                     "oid": self.etag(file)}
                    for file in files
                ]  # fmt: skip
            else:
                listed = {
                    "id": REPOSITORY, "sha": commit,
                    "siblings": [{"rfilename": file.name} for file in files],
                }  # fmt: skip
            return 200, {"Content-Type": "application/json"}, json.dumps(listed).encode()
        if path.startswith(f"/{REPOSITORY}/resolve/"):
            revision, _, name = path.removeprefix(f"/{REPOSITORY}/resolve/").partition("/")
            commit = self.commit(revision)
            file = self.commits[commit] / name if commit else None
            if file is None or not file.is_file():
                return 404, {"X-Error-Code": "EntryNotFound"}, b""
            if method == "GET":
                self.fetched.append(name)
            headers = {"X-Repo-Commit": str(commit), "ETag": f'"{self.etag(file)}"'}
            return 200, headers, file.read_bytes()
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    @staticmethod
    def etag(file: Path) -> str:
        return hashlib.sha1(file.read_bytes()).hexdigest()


@contextlib.contextmanager
def serving(hub: FakeHub) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path, self.command)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def hub(tmp_path: Path) -> FakeHub:
    pytest.importorskip("huggingface_hub")
    vocabulary = tmp_path / "given_vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    config = BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    folders = {}
    for seed, commit in enumerate((FIRST, SECOND)):
        folder = folders[commit] = tmp_path / f"commit_{seed}"
        weights = initial_parameters(config, seed)
        write_checkpoint(folder, weights, config, vocabulary, {}, layout="hugging_face")
        (folder / "checkpoint.json").unlink()
        (folder / "pytorch_model.bin").write_bytes(b"not fetched: there is a safer file")
    return FakeHub(folders)


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    """Runs a command in a process whose Hub is at `endpoint` and whose cache is empty at first."""

    def run(endpoint: str, *arguments: str) -> Any:
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home"),
                       "HF_HUB_DISABLE_XET": "1", "HF_HUB_ETAG_TIMEOUT": "5"}  # fmt: skip
        environment.pop("HF_HUB_OFFLINE", None)
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            capture_output=True, text=True, env=environment,
        )  # fmt: skip

    return run


def test_a_name_is_fetched_once_and_stays_usable_without_a_network(
    hub: FakeHub, command: Callable[..., Any]
) -> None:
    inspect = ("checkpoint", "inspect", f"hub:{REPOSITORY}")
    with serving(hub) as endpoint:
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
        compared = command(endpoint, "checkpoint", "compare", inspect[2], str(hub.commits[SECOND]))
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
    with serving(hub) as endpoint:
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
        (hub.commits[SECOND] / name).unlink()
    with serving(hub) as endpoint:
        done = command(endpoint, "checkpoint", "inspect", f"hub:{REPOSITORY}")
    assert done.returncode == 2 and "holds neither model.safetensors nor" in done.stderr


def test_a_pickle_that_would_run_code_is_refused(
    tmp_path: Path, hub: FakeHub, command: Callable[..., Any]
) -> None:
    pytest.importorskip("torch")
    import pickle

    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "harm"),))

    (hub.commits[SECOND] / "model.safetensors").unlink()
    (hub.commits[SECOND] / "pytorch_model.bin").write_bytes(pickle.dumps(Harm(), protocol=2))
    with serving(hub) as endpoint:
        done = command(endpoint, "checkpoint", "inspect", f"hub:{REPOSITORY}")
    assert done.returncode == 2 and "pytorch_model.bin cannot be read" in done.stderr
    assert not (tmp_path / "harm").exists()


def test_other_names_are_directories() -> None:
    assert checkpoint_directory("results/hub:x") == Path("results/hub:x")
    with pytest.raises(UserError, match="names no repository"):
        checkpoint_directory("hub:@main")
