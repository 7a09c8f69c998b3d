"""A server on this machine that answers as the Hugging Face Hub does: downloads, repositories, commits."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from multiberts.tests.tools import warm
from multiberts.tests.tools.http_server import Answer, serving

TOKEN = "hf_of_the_tests"
_JSON = {"Content-Type": "application/json"}


class FakeHub:
    """The files of repositories by commit; `main` is the last one.

    Attributes:
      repositories: folders by commit, by kind and name: `models/google/multiberts-seed_0`.
      private: names of the repositories that were made private.
      fetched: names of the files that were asked for.
    """

    def __init__(self, folder: Path, repositories: Mapping[str, dict[str, Path]]):
        """Args:
        folder: where uploads are kept.
        repositories: that are there at first.
        """
        self.repositories = dict(repositories)
        self.private: list[str] = []
        self.fetched: list[str] = []
        self._folder = folder
        self._large: dict[str, bytes] = {}
        self._endpoint = ""

    @contextlib.contextmanager
    def serve(self) -> Iterator[str]:
        """Yields the address of a server with these repositories."""
        with serving(self._answer) as self._endpoint:
            yield self._endpoint

    def last(self, repository: str) -> dict[str, bytes]:
        """Returns the files of a repository's last commit."""
        folder = list(self.repositories[repository].values())[-1]
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        path = urllib.parse.unquote(path.partition("?")[0]).strip("/")
        if method in ("POST", "PUT"):
            return self._take(path, headers, body)
        name, _, rest = path.removeprefix("api/").partition("/resolve/")
        if rest:
            revision, _, file = rest.partition("/")
            return self._file(method, name, revision, file)
        parts = [*name.split("/"), "", "", "", ""]
        repository, what, revision = "/".join(parts[:3]), parts[3], parts[4]
        if not path.startswith("api/") or repository not in self.repositories:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        commit = self._commit(repository, revision or "main")
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        folder = self.repositories[repository][commit]
        files = sorted(each for each in folder.rglob("*") if each.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        listed: Any = {
            "id": repository.partition("/")[2],
            "sha": commit,
            "siblings": [{"rfilename": name} for name in names],
        }
        if what == "tree":
            listed = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": _etag(file)}
                for name, file in zip(names, files, strict=True)
            ]
        return 200, _JSON, json.dumps(listed).encode()

    def _commit(self, repository: str, revision: str) -> str | None:
        commits = self.repositories[repository]
        return (
            [*commits, None][-2]
            if revision == "main"
            else revision
            if revision in commits
            else None
        )

    def _file(self, method: str, name: str, revision: str, file: str) -> Answer:
        repository = name if name.startswith("datasets/") else f"models/{name}"
        commit = self._commit(repository, revision) if repository in self.repositories else None
        path = self.repositories[repository][commit] / file if commit else None
        if path is None or not path.is_file():
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        if method == "GET":
            self.fetched.append(file)
        headers = {"X-Repo-Commit": str(commit), "ETag": f'"{_etag(path)}"'}
        return 200, headers, path.read_bytes()

    def _take(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Takes what changes a repository, from those who have the token."""
        if path.startswith("large/"):  # the Hub, too, has such addresses for whoever knows them
            self._large[path.removeprefix("large/")] = body
            return 200, {}, b""
        if headers.get("Authorization") not in (f"Bearer {TOKEN}", _basic()):
            return 401, _JSON, b'{"error": "Invalid username or password."}'
        if path == "api/validate-yaml":
            return 200, _JSON, b'{"errors": [], "warnings": []}'
        given = json.loads(body.splitlines()[0])
        if path == "api/repos/create":
            name = (
                f"{given['organization']}/{given['name']}"
                if given.get("organization")
                else given["name"]
            )
            repository = f"{given.get('type') or 'model'}s/{name}"
            if repository in self.repositories:
                return 409, _JSON, json.dumps({"url": self._url(repository)}).encode()
            self.repositories[repository] = {}
            self.private += (
                [repository] if given.get("visibility") == "private" or given.get("private") else []
            )
            return 200, _JSON, json.dumps({"url": self._url(repository)}).encode()
        if path.endswith("/info/lfs/objects/batch"):
            return 200, {"Content-Type": "application/vnd.git-lfs+json"}, self._batch(given)
        repository, _, what = path.removeprefix("api/").rpartition("/")[0].rpartition("/")
        if what == "preupload":
            files = [
                {"path": each["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if each["path"].endswith((".parquet", ".safetensors")) else "regular"}
                for each in given["files"]
            ]  # fmt: skip
            return 200, _JSON, json.dumps({"files": files}).encode()
        assert what == "commit", path
        return 200, _JSON, self._committed(repository, body)

    def _url(self, repository: str) -> str:
        return f"{self._endpoint}/{repository.removeprefix('models/')}"

    def _batch(self, given: dict[str, Any]) -> bytes:
        objects = [
            {"oid": each["oid"], "size": each["size"], "authenticated": True,
             "actions": {"upload": {"href": f"{self._endpoint}/large/{each['oid']}", "header": {}}}}
            for each in given["objects"]
        ]  # fmt: skip
        return json.dumps({"transfer": "basic", "objects": objects}).encode()

    def _committed(self, repository: str, body: bytes) -> bytes:
        commits = self.repositories[repository]
        commit = hashlib.sha1(f"{repository} {len(commits)}".encode() + body).hexdigest()
        folder = self._folder / commit
        if commits:
            shutil.copytree(list(commits.values())[-1], folder, dirs_exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for line in map(json.loads, body.splitlines()[1:]):
            value = line["value"]
            file = folder / value["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            if line["key"] == "file":
                file.write_bytes(base64.b64decode(value["content"]))
            else:
                content = self._large[value["oid"]]
                assert hashlib.sha256(content).hexdigest() == value["oid"]
                file.write_bytes(content)
        commits[commit] = folder
        url = f"{self._url(repository)}/commit/{commit}"
        return json.dumps({"commitUrl": url, "commitOid": commit, "success": True}).encode()


def hub_command(
    endpoint: str, home: Path, *arguments: str, token: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process with this Hub.

    Args:
      endpoint: the Hub's address.
      home: the folder of the cache, empty at first.
      arguments: of `multiberts`.
      token: of the user; None: there is none.
    """
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home),
                   "HF_HUB_DISABLE_XET": "1", "HF_HUB_ETAG_TIMEOUT": "5"}  # fmt: skip
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        environment.pop(name, None)
    environment |= {} if token is None else {"HF_TOKEN": token}
    return warm.run(arguments, environment=environment)


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


def _basic() -> str:
    return "Basic " + base64.b64encode(f"user:{TOKEN}".encode()).decode()
