"""A quiet HTTP server on this machine, for the time of a test."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Answer = tuple[int, Mapping[str, str], bytes]


@contextlib.contextmanager
def serving(
    answer: Callable[[str, str, Mapping[str, str], bytes], Answer],
) -> Iterator[str]:
    """Yields the address of a server.

    Args:
      answer: status, headers and body for a method, path, headers and body.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found: Any = self.headers  # a mapping, whose names are read in any case
            status, headers, body = answer(self.command, self.path, found, given)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
