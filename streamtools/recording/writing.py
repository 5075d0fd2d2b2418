"""Write a recording while the stream goes on.

Each line is handed to the system as soon as it is certain, so that a recording whose writer is killed holds everything
up to that moment; what it lacks then is its end line, and every reader can see that. What ends in the beginning of what
may be a key waits until it is certain whether it is one: of that a killed writer loses the last chunk, and those before
it that hold the same beginning; `scrubbing` tells how long it may be.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from streamtools.errors import ClosedError
from streamtools.recording.format import (
    Chunk,
    End,
    EndKind,
    Head,
    encode_chunk,
    encode_end,
    encode_head,
    milliseconds,
)
from streamtools.recording.redact import redact_head, redact_text
from streamtools.recording.scrubbing import Scrubber, Secret

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)


def open_anew(path: str | os.PathLike[str]) -> BinaryIO:
    """Return the file, emptied, for writing, and readable for its owner alone; raise OSError.

    An older file keeps its name, and loses its other readers before anything is written; one that belongs to somebody
    else is refused and stays as it is. A symbolic link is followed: it is the file behind it that is written.
    """
    file = os.fdopen(os.open(path, _FLAGS, 0o600), "wb")
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # and no device, which belongs to all
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
            else:
                Path(path).chmod(0o600)
            file.truncate()
    except BaseException:
        file.close()
        raise
    return file


class RecordingWriter:
    """Writes one exchange: its head at once, then `chunk` for each chunk, then `end`.

    A path is written anew, readable for its owner alone: an answer may be as private as a letter. A file object is
    written on from where it stands and left open, so that several exchanges can follow one another.
    Leaving the `with` block without `end` leaves a recording that breaks off, as it did.
    """

    def __init__(self, target: str | os.PathLike[str] | BinaryIO, head: Head, *, redact: Iterable[Secret] = ()) -> None:
        """`redact` are secrets beside keys of known formats, which are overwritten in any case.

        Raises OSError for a path that cannot be opened, ValueError for a secret that cannot be looked for.
        """
        self._secrets = list(redact)
        self._scrubber = Scrubber(self._secrets)
        first = encode_head(redact_head(head, self._secrets))
        if isinstance(target, str | os.PathLike):
            self._file: BinaryIO = open_anew(target)
            self._owned = True
        else:
            self._file = target
            self._owned = False
        self._waiting: deque[tuple[float, int]] = deque()  # time and length of chunks that are not written yet
        self._certain = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False
        self._write(first)

    def chunk(self, data: bytes, at: float) -> None:
        """Write what one read gave, `at` milliseconds after the request was sent; see above for what may wait."""
        at = milliseconds(at)
        self._check()
        self._waiting.append((at, len(data)))
        self._take(self._scrubber.feed(data))

    def end(self, kind: EndKind, at: float, error: str = "") -> None:
        """Write how the response ended, and close what was opened here."""
        at = milliseconds(at)
        self._check()
        self._take(self._scrubber.close(complete=kind == "end"))
        end = End(kind, at, redact_text(error, self._secrets))
        self._write(encode_end(end, size=self._size, digest=self._digest.hexdigest()))
        self._ended = True
        self.close()

    def close(self) -> None:
        """Close the file if it was opened here; without `end` before, the recording breaks off. May be repeated."""
        if not self._ended:
            self._ended = True
            try:
                self._take(self._scrubber.close(complete=False))
            finally:
                self._close()
        else:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close(self) -> None:
        if self._owned:
            self._file.close()

    def _check(self) -> None:
        if self._ended:
            raise ClosedError("the recording has been closed")

    def _take(self, certain: bytes) -> None:
        """Write the chunks whose bytes are all certain."""
        self._certain += certain
        start = 0
        while self._waiting and start + self._waiting[0][1] <= len(self._certain):
            at, size = self._waiting.popleft()
            data = bytes(self._certain[start : start + size])
            start += size
            self._digest.update(data)
            self._size += size
            self._write(encode_chunk(Chunk(at, data)))
        del self._certain[:start]

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
