"""A provider on the loopback interface, in a thread, for clients that block the test.

with BlockingProvider([b"data: 1\n\n"]) as provider:
    httpx.post(provider.url, json={})
"""

from __future__ import annotations

from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self


class BlockingProvider(ThreadingHTTPServer):
    """Sends the same status and chunks for each request, and keeps the bodies of the requests."""

    daemon_threads = True

    def __init__(self, chunks: Iterable[bytes], *, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.chunks = list(chunks)
        self.status = status
        self.url = f"http://127.0.0.1:{self.server_port}/v1/chat/completions"
        self.requests: list[bytes] = []
        self._thread = Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        super().__exit__(kind, error, trace)


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, BlockingProvider)
        self.server.requests.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.server.status)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for chunk in self.server.chunks:
            self.wfile.write(chunk)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""
