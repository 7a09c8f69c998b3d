"""Who can talk to a launcher: its own workers, and nobody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.markers.lease import Lease
from multiberts.launch.workers.channel import Channel
from multiberts.launch.workers.engines import make_engine
from multiberts.launch.workers.pool import Pool
from multiberts.launch.workers.worker import Call, Place
from multiberts.tests.launch.launchers import wait_until


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Starts a function; its result or error is added to the list."""
    results: list[Any] = []

    def call() -> None:
        try:
            results.append(function())
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, results


def ends(token: str, other_token: str) -> tuple[Channel, Channel]:
    """The launcher's and the worker's end."""
    one, other = socket.socketpair()
    for end in (one, other):
        end.settimeout(20)
    thread, results = in_thread(lambda: Channel(other, other_token, is_launcher=False))
    launcher = Channel(one, token, is_launcher=True)
    thread.join()
    return launcher, results[0]


def test_values_arrive_as_they_were_and_in_order() -> None:
    launcher, worker = ends("secret", "secret")
    values = [None, (1, [2.5, "a\nb"], {3: True}), "ü" * 10_000]
    for value in values:
        worker.send(value)
        launcher.send(value)
    assert [launcher.receive() for _ in values] == values
    assert [worker.receive() for _ in values] == values


def test_another_token_is_refused_by_both_sides() -> None:
    launcher, stranger = ends("secret", "guess")
    stranger.send(0)
    launcher.send("welcome")
    for end in (launcher, stranger):
        with pytest.raises(ConnectionError, match="has another token"):
            end.receive()


def test_a_message_can_be_neither_changed_nor_repeated_nor_returned() -> None:
    for forge in (lambda line: line.replace(b" 17", b" 18"), lambda line: line + line):
        launcher, worker = ends("secret", "secret")
        worker.send(17)
        worker.connection.sendall(forge(launcher._stream.readline()))
        with pytest.raises(ConnectionError):
            assert launcher.receive() == 17
            launcher.receive()
    launcher, worker = ends("secret", "secret")
    worker.send(17)
    # What the worker sent comes back to it as if the launcher had sent it.
    launcher.connection.sendall(launcher._stream.readline())
    with pytest.raises(ConnectionError):
        worker.receive()


@pytest.mark.usefixtures("quick_stages")
def test_strangers_get_no_runs_and_workers_are_served_all_the_same(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with Lease(root) as lease:
        pool = Pool(make_engine("local", {}, 1, 1), Place(root, "local", lease.owner), 90.0)
        try:
            address = ("127.0.0.1", pool._server.server_address[1])
            greeting = b"multiberts-launch-1 00\n"
            for said in (b"GET / HTTP/1.1\r\n\r\n", greeting + b"0" * 64 + b" 0\n", b"\x80" * 9000):
                with socket.create_connection(address, 20) as stranger:
                    stranger.sendall(said)
                    stranger.shutdown(socket.SHUT_WR)
                    heard = b""
                    while data := stranger.recv(4096):
                        heard += data
                # A number of the launcher's, and then the end.
                assert heard.startswith(b"multiberts-launch-1 ") and heard.count(b"\n") == 1
            calls = [Call("note", "quick_stages:note", {"run_dir": f"{root}/note"}, "note.log")]
            future = pool.submit(calls)
            assert wait_until(future.done)
            assert future.result()[0] == [("done", None)]
        finally:
            pool.end(5)
