"""The connection between a launcher and a worker: each message is signed with the launch's token.

Neither side sends the token. Both send a random number first; the key of the connection is an HMAC of
both numbers. Every message is one line: its HMAC over sender, count and content, and the content as a
Python literal, which is parsed and never executed. Whoever does not know the token can neither send nor
change nor repeat a message. Messages are not encrypted.
"""

from __future__ import annotations

import ast
import hmac
import secrets
import socket
import threading
from typing import Any

# The launcher's answer to a worker of its own.
WELCOME = "welcome"

_GREETING = b"multiberts-launch-1 "
_MAX_BYTES_OF_STRANGERS = 4096


class Channel:
    """One end of a connection, after both sides have greeted each other."""

    def __init__(self, connection: socket.socket, token: str, *, is_launcher: bool):
        """Exchanges random numbers, which takes one message in each direction.

        Args:
          connection: connected; its time-out holds for `receive`.
          token: of the launch.
          is_launcher: which end this is.

        Raises:
          OSError: the connection ends, or another program answers.
        """
        self.connection = connection
        self._stream = connection.makefile("rb")
        self._names = ("launcher", "worker") if is_launcher else ("worker", "launcher")
        self._sent = self._received = 0
        self._sending = threading.Lock()
        ours = secrets.token_hex(16).encode()
        connection.sendall(_GREETING + ours + b"\n")
        line = self._stream.readline(_MAX_BYTES_OF_STRANGERS)
        if not line.startswith(_GREETING):
            raise ConnectionError("another program answers")
        numbers = sorted([ours, line.removeprefix(_GREETING).strip()])
        self._key = hmac.digest(token.encode(), b" ".join(numbers), "sha256")

    def send(self, value: Any) -> None:
        """Sends a value that `repr` writes as a literal; several threads may send.

        Raises:
          OSError: the connection has ended.
        """
        content = repr(value).encode()
        with self._sending:
            signature = self._signature(self._names[0], self._sent, content)
            self._sent += 1
            self.connection.sendall(signature + b" " + content + b"\n")

    def receive(self) -> Any:
        """Returns the next value that the other side sent.

        Raises:
          OSError: the connection has ended or is silent, or the sender does not know the token.
        """
        line = self._stream.readline(-1 if self._received else _MAX_BYTES_OF_STRANGERS)
        signature, _, content = line.removesuffix(b"\n").partition(b" ")
        expected = self._signature(self._names[1], self._received, content)
        if not line.endswith(b"\n") or not hmac.compare_digest(signature, expected):
            raise ConnectionError("the connection has ended, or its other side has another token")
        self._received += 1
        return ast.literal_eval(content.decode())

    def _signature(self, sender: str, number: int, content: bytes) -> bytes:
        message = f"{sender} {number} ".encode() + content
        return hmac.digest(self._key, message, "sha256").hex().encode()
