"""Several exchanges, which may go on at the same time, in one file: one behind the other, in the order of requests.

The first one that has not ended is written while it goes on. One that was begun later is kept in memory until its turn.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import BinaryIO

from streamtools.recording.clients import is_timeout
from streamtools.recording.format import EndKind, Head, Request, Response
from streamtools.recording.scrubbing import Scrubber, Secret
from streamtools.recording.writing import RecordingWriter, open_anew

Edit = Callable[[Head], Head]
"""Takes what is about to be written of an exchange's head, and returns what is."""

Target = str | os.PathLike[str] | BinaryIO


class ExchangeFile:
    """The file. A path is written anew, a file object is left open. Threads may write at the same time.

    A file that cannot be written stops the recording and nothing else: `fault` is then the error.
    """

    def __init__(
        self,
        target: Target,
        *,
        source: str,
        redact: Iterable[Secret] = (),
        edit: Edit | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Raises OSError for a path that cannot be opened, ValueError for a secret that cannot be looked for."""
        self.redact = list(redact)
        Scrubber(self.redact)  # which refuses what it cannot look for, before a file is emptied
        self.source = source
        self.edit = edit
        self.clock = clock
        self.fault: OSError | None = None
        self.lock = threading.RLock()
        self._owned = isinstance(target, str | os.PathLike)
        self._file = open_anew(target) if isinstance(target, str | os.PathLike) else target
        self._running: deque[Entry] = deque()

    def begin(self, request: Request | None, credentials: Iterable[str] = ()) -> Entry:
        """Return an exchange that begins now. `credentials` are overwritten in it, too."""
        with self.lock:
            exchange = Entry(self, request, [*self.redact, *credentials])
            self._running.append(exchange)
            return exchange

    def write(self) -> None:
        """Write what is new of the first exchange, and go on to the next if it has ended."""
        while self._running:
            exchange = self._running[0]
            try:
                if self.fault is None and (lines := exchange.take()):
                    self._file.write(lines)
                    self._file.flush()
            except OSError as error:
                self.fault = error
            if not exchange.ended:
                return
            self._running.popleft()

    def close(self) -> None:
        """Close the file if it was opened here. May be repeated."""
        if self._owned:
            self._file.close()


class Entry:
    """One exchange as the lines of a recording. Times count from when it was made."""

    def __init__(self, exchanges: ExchangeFile, request: Request | None, secrets: list[Secret]) -> None:
        self._exchanges = exchanges
        self._request = request
        self.secrets = secrets
        self._sent = exchanges.clock()
        self._recorded = datetime.now(UTC).isoformat(timespec="seconds")
        self._lines = io.BytesIO()
        self._writer: RecordingWriter | None = None
        self.ended = False

    def answered(self, response: Response | None) -> None:
        """Write the head, with that of the response."""
        with self._exchanges.lock:
            self._begin(response)
            self._exchanges.write()

    def chunk(self, data: bytes) -> None:
        """Write what one read gave. What an HTTP client still has of a response that was closed is none of it."""
        with self._exchanges.lock:
            if not self.ended:
                assert self._writer is not None
                self._writer.chunk(data, self._now())
                self._exchanges.write()

    def end(self, kind: EndKind, error: str = "") -> None:
        """Write how it ended, once."""
        with self._exchanges.lock:
            if not self.ended:
                self.ended = True
                writer = self._writer or self._begin(None)
                writer.end(kind, self._now(), error)
                self._exchanges.write()

    def fail(self, error: BaseException) -> None:
        """Write that it ended with this exception, of which only the name is told; who is cancelled has left."""
        if isinstance(error, Exception):
            self.end("timeout" if is_timeout(error) else "reset", type(error).__name__)
        else:
            self.end("left")

    def take(self) -> bytes:
        """Return the lines that nobody has taken."""
        lines = self._lines.getvalue()
        self._lines.seek(0)
        self._lines.truncate()
        return lines

    def _begin(self, response: Response | None) -> RecordingWriter:
        exchanges = self._exchanges
        head = Head(source=exchanges.source, recorded=self._recorded, request=self._request, response=response)
        if exchanges.edit is not None:
            head = exchanges.edit(head)
        self._writer = RecordingWriter(self._lines, head, redact=self.secrets)
        return self._writer

    def _now(self) -> float:
        return max(0.0, (self._exchanges.clock() - self._sent) * 1000)
