"""A small Cloud Storage: the JSON API over HTTP, with versions, conditions and faults."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class CloudStorage:
    """What the service holds and how it misbehaves.

    Attributes:
      url: where it answers.
      objects: content and generation by bucket and name.
      granted: by bucket, permissions that the caller has.
      failures: statuses that the next requests get, instead of being served.
      lost_answers: how many uploads are carried out, but answered with 503.
      log: method and name of every object written or deleted, in order.
    """

    url: str = ""
    objects: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    granted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    lost_answers: int = 0
    log: list[tuple[str, str]] = field(default_factory=list)
    sessions: dict[str, tuple[str, str, str | None, bytearray]] = field(default_factory=dict)
    generation: int = 1000
    lock: threading.RLock = field(default_factory=threading.RLock)

    def names(self, prefix: str = "") -> list[str]:
        with self.lock:
            return sorted(name for _, name in self.objects if name.startswith(prefix))

    def written(self) -> list[str]:
        return [name for method, name in self.log if method == "write"]


class Refused(Exception):
    """Ends a request with a status."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in two packets would wait for the client's word on the first, forty milliseconds.
    wbufsize = -1
    storage: CloudStorage

    def log_message(self, *arguments: object) -> None:
        pass

    def serve(self) -> None:
        split = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(split.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.storage.lock:
            try:
                if self.storage.failures:
                    raise Refused(self.storage.failures.pop(0))
                answer = self.route(split.path, query, body)
            except Refused as refusal:
                status = refusal.args[0]
                error = {"error": {"code": status, "message": f"refused with {status}"}}
                self.answer(status, json.dumps(error).encode())
                return
        if isinstance(answer, bytes):
            self.answer(200, answer)
        elif isinstance(answer, str):
            self.answer(200, b"", {"Location": answer})
        else:
            self.answer(200, json.dumps(answer).encode())

    do_GET = do_POST = do_PUT = do_DELETE = serve

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def route(self, path: str, query: dict[str, list[str]], body: bytes) -> object:
        match = re.fullmatch(r"(?P<kind>/upload|/download|)/storage/v1/b/(?P<rest>.*)", path)
        assert match is not None, path
        bucket, _, rest = match["rest"].partition("/")
        if bucket not in self.storage.granted:
            raise Refused(404)
        granted = self.storage.granted[bucket]
        if rest == "iam/testPermissions":
            return {"permissions": [name for name in query["permissions"] if name in granted]}

        def need(name: str) -> None:
            if f"storage.objects.{name}" not in granted:
                raise Refused(403)

        name = urllib.parse.unquote(rest.removeprefix("o").removeprefix("/"))
        wanted = query.get("ifGenerationMatch", [None])[0]
        if match["kind"] == "/upload":
            need("create")
            return self.upload(bucket, query, body, wanted)
        if self.command == "GET" and not name:
            need("list")
            return self.listing(bucket, query)
        need("delete" if self.command == "DELETE" else "get")
        found = self.storage.objects.get((bucket, name))
        if found is None or query.get("generation", [str(found[1])])[0] != str(found[1]):
            raise Refused(404)
        if self.command == "DELETE":
            if wanted is not None and int(wanted) != found[1]:
                raise Refused(412)
            del self.storage.objects[bucket, name]
            self.storage.log.append(("delete", name))
            return b""
        if query.get("alt") == ["media"]:
            return self.ranged(found[0])
        return self.facts(bucket, name)

    def ranged(self, content: bytes) -> bytes:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if match is None:
            return content
        return content[int(match[1]) : int(match[2]) + 1 if match[2] else None]

    def upload(
        self, bucket: str, query: dict[str, list[str]], body: bytes, wanted: str | None
    ) -> object:
        kind = query["uploadType"][0]
        if "upload_id" in query:
            name, _, condition, data = self.storage.sessions[query["upload_id"][0]]
            data.extend(body)
            first, last, total = re.fullmatch(
                r"bytes (\d+)-(\d+)/(\d+)", self.headers["Content-Range"]
            ).groups()
            assert int(last) - int(first) + 1 == len(body)
            return (
                self.store(bucket, name, bytes(data), condition) if len(data) == int(total) else b""
            )
        if kind == "resumable":
            session = uuid.uuid4().hex
            name = query.get("name", [None])[0] or json.loads(body)["name"]
            self.storage.sessions[session] = (name, bucket, wanted, bytearray())
            place = f"{self.storage.url}/upload/storage/v1/b/{bucket}/o"
            return f"{place}?uploadType=resumable&upload_id={session}"
        if kind == "multipart":
            boundary = re.search(r'boundary="?([^"]+)"?', self.headers["Content-Type"])[1].encode()
            _, first, second, _ = body.split(b"--" + boundary)
            name = json.loads(first.split(b"\n\n", 1)[1])["name"]
            return self.store(bucket, name, second.split(b"\n\n", 1)[1][:-1], wanted)
        return self.store(bucket, query["name"][0], body, wanted)

    def store(self, bucket: str, name: str, data: bytes, wanted: str | None) -> object:
        found = self.storage.objects.get((bucket, name))
        if wanted is not None and int(wanted) != (0 if found is None else found[1]):
            raise Refused(412)
        if found is not None and "storage.objects.delete" not in self.storage.granted[bucket]:
            raise Refused(403)
        self.storage.generation += 1
        self.storage.objects[bucket, name] = (data, self.storage.generation)
        self.storage.log.append(("write", name))
        if self.storage.lost_answers:
            self.storage.lost_answers -= 1
            raise Refused(503)
        return self.facts(bucket, name)

    def listing(self, bucket: str, query: dict[str, list[str]]) -> object:
        prefix = query.get("prefix", [""])[0]
        delimiter = query.get("delimiter", [""])[0]
        names = sorted(n for b, n in self.storage.objects if b == bucket and n.startswith(prefix))
        inside, folders = [], set()
        for name in names:
            tail = name.removeprefix(prefix)
            if delimiter and delimiter in tail:
                folders.add(prefix + tail.split(delimiter)[0] + delimiter)
            else:
                inside.append(self.facts(bucket, name))
        return {"items": inside, "prefixes": sorted(folders)}

    def facts(self, bucket: str, name: str) -> dict[str, object]:
        data, generation = self.storage.objects[bucket, name]
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "size": str(len(data)),
            "generation": str(generation),
            "metageneration": "1",
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
        }


def own_disk(folder: Path, size: str) -> Iterator[Path]:
    """Yields a folder on a disk of its own, which is unmounted afterwards."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Local copies lie in the test's own folder, and nothing is pushed unless a test asks for it."""
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / "mirrors"))
    monkeypatch.setenv("RUNS_PUSH_SECONDS", "1e6")
    return tmp_path / "mirrors"


ALL = tuple(f"storage.objects.{name}" for name in ("create", "delete", "get", "list"))


@pytest.fixture
def cloud_storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudStorage]:
    """A service with the buckets `ours`, where all is allowed, and `theirs`, where only reading is."""
    if importlib.util.find_spec("gcsfs") is None:
        pytest.skip("needs the extra cloud")
    storage = CloudStorage(granted={"ours": ALL, "theirs": ALL[2:]})
    handler = type("BoundHandler", (Handler,), {"storage": storage})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # A client that has its answer elsewhere already closes the connection.
    server.handle_error = lambda *given: None
    storage.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage.url)
    yield storage
    server.shutdown()
    server.server_close()
