"""Write a recording while the stream goes on.

Each line is handed to the system as soon as it is complete, so that a recording whose writer is killed holds everything
up to that moment; what it lacks then is its end line, and every reader can see that.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from streamtools.errors import ClosedError
from streamtools.recording.format import Chunk, End, EndKind, Head, encode_chunk, encode_end, encode_head

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)


def open_anew(path: str | os.PathLike[str]) -> BinaryIO:
    """Return the file, emptied, for writing, and readable for its owner alone; raise OSError."""
    file = os.fdopen(os.open(path, _FLAGS, 0o600), "wb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # and no device, which belongs to all
        Path(path).chmod(0o600)  # an older file keeps its mode when it is opened
    return file


class RecordingWriter:
    """Writes one exchange: its head at once, then `chunk` for each chunk, then `end`.

    A path is written anew, readable for its owner alone: an answer may be as private as a letter. A file object is
    written on from where it stands and left open, so that several exchanges can follow one another.
    Leaving the `with` block without `end` leaves a recording that breaks off, as it did.
    """

    def __init__(self, target: str | os.PathLike[str] | BinaryIO, head: Head) -> None:
        if isinstance(target, str | os.PathLike):
            self._file: BinaryIO = open_anew(target)
            self._owned = True
        else:
            self._file = target
            self._owned = False
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False
        self._write(encode_head(head))

    def chunk(self, data: bytes, at: float) -> None:
        """Write what one read gave, `at` milliseconds after the request was sent."""
        line = encode_chunk(Chunk(at, data))
        self._digest.update(data)
        self._size += len(data)
        self._write(line)

    def end(self, kind: EndKind, at: float, error: str = "") -> None:
        """Write how the response ended, and close what was opened here."""
        self._write(encode_end(End(kind, at, error), size=self._size, digest=self._digest.hexdigest()))
        self.close()

    def close(self) -> None:
        """Close the file if it was opened here; without `end` before, the recording breaks off. May be repeated."""
        self._ended = True
        if self._owned:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        if self._ended:
            raise ClosedError("the recording has been closed")
        self._file.write(line)
        self._file.flush()
