"""Write a recording while the stream continues.

Each line is passed to the operating system as soon as its content is decided. If the process is killed, the recording
holds everything up to that moment, and lacks its end line. A chunk waits until the stream's line in which it ends is
complete, and, if that line may contain the beginning of a key, until it is decided: see `scrubbing` for the limits.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Self, TypeAlias

from streamtools.errors import ClosedError
from streamtools.recording import format as file_format
from streamtools.recording.format import Chunk, EndKind, ExchangeHead, StreamEnd
from streamtools.recording.redaction import redact_head, redact_text
from streamtools.recording.scrubbing import Scrubber, Secret

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)

RecordingTarget: TypeAlias = str | os.PathLike[str] | BinaryIO


def create_private_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Return an empty file for writing that only its owner can read. Raises OSError.

    An existing file is emptied after its permissions are restricted. A file of another owner raises and stays
    unchanged. A symbolic link is followed.
    """
    file = os.fdopen(os.open(path, _FLAGS, 0o600), "wb")
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # not a device such as /dev/null
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
    """Writes one exchange: its head immediately, then `chunk` for each chunk, then `end`.

    A path is overwritten, and readable only by its owner. A file object is written from its current position and left
    open, so that several exchanges can follow each other. Leaving the `with` block without `end` leaves a recording
    that breaks off.
    """

    def __init__(self, target: RecordingTarget, head: ExchangeHead, *, redact: Iterable[Secret] = ()) -> None:
        """Known key formats and the secrets `redact` are overwritten. Raises OSError and ValueError."""
        self._secrets = list(redact)
        self._scrubber = Scrubber(self._secrets)
        first_line = file_format.encode_head(redact_head(head, self._secrets))
        self._owns_file = isinstance(target, str | os.PathLike)
        self._file = create_private_file(target) if isinstance(target, str | os.PathLike) else target
        self._pending: deque[tuple[float, int]] = deque()  # time and length of the chunks that are not written
        self._scrubbed = bytearray()  # their bytes, as far as they are decided
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False
        self._write(first_line)

    def chunk(self, data: bytes, at: float) -> None:
        """Write the bytes of one read, `at` milliseconds after the request was sent."""
        at = self._check_time(at)
        self._pending.append((at, len(data)))
        self._write_chunks(self._scrubber.feed(data))

    def end(self, kind: EndKind, at: float, error: str = "") -> None:
        """Write how the response ended, and close a file that was opened here."""
        at = self._check_time(at)
        self._write_chunks(self._scrubber.close(complete=kind == "end"))
        end = StreamEnd(kind, at, redact_text(error, self._secrets))
        self._write(file_format.encode_end(end, size=self._size, digest=self._digest.hexdigest()))
        self._ended = True
        self.close()

    def close(self) -> None:
        """Close a file that was opened here. Without `end`, the recording breaks off. Can be repeated."""
        try:
            if not self._ended:
                self._ended = True
                self._write_chunks(self._scrubber.close(complete=False))
        finally:
            if self._owns_file:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check_time(self, at: float) -> float:
        at = file_format.milliseconds(at)
        if self._ended:
            raise ClosedError("the recording is closed")
        return at

    def _write_chunks(self, scrubbed: bytes) -> None:
        """Write the chunks whose bytes are all decided."""
        self._scrubbed += scrubbed
        start = 0
        while self._pending and start + self._pending[0][1] <= len(self._scrubbed):
            at, size = self._pending.popleft()
            data = bytes(self._scrubbed[start : start + size])
            start += size
            self._digest.update(data)
            self._size += size
            self._write(file_format.encode_chunk(Chunk(at, data)))
        del self._scrubbed[:start]

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
