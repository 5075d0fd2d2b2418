"""Writes a recording while the stream is read.

Each line of the file is written without buffering. If the process is killed, the recording holds the chunks until then,
but no end line. A chunk is written when the line of the stream in which the chunk ends is complete. If this line ends
with the possible beginning of a key, the chunk waits until the key is complete or excluded. `scrubbing` describes the
limits of this buffering.
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
"""The path of a recording, or a binary file that is open for writing."""


def create_private_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open an empty file for writing that only the current user can read. Raises OSError.

    The permissions of an existing file are restricted before it is emptied. If the file belongs to another user, this
    function raises and does not change the file. A symbolic link is followed.
    """
    file = os.fdopen(os.open(path, _FLAGS, 0o600), "wb")
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # skip devices such as /dev/null
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
    """Writes one exchange. Creating it writes the head. Call `chunk` for each chunk, then `end`.

    If the target is a path, the file is overwritten, and only the current user can read it. A file object is written
    from its current position and is not closed, so that it can hold several exchanges. Leaving the `with` block before
    `end` writes no end line, so the recording is incomplete.
    """

    def __init__(self, target: RecordingTarget, head: ExchangeHead, *, redact: Iterable[Secret] = ()) -> None:
        """Open the target and write the head. Keys of known formats and the secrets in `redact` are overwritten.

        Raises OSError for a target that cannot be written, and ValueError for an invalid secret.
        """
        self._secrets = list(redact)
        self._scrubber = Scrubber(self._secrets)
        first_line = file_format.encode_head(redact_head(head, self._secrets))
        self._owns_file = isinstance(target, str | os.PathLike)
        self._file = create_private_file(target) if isinstance(target, str | os.PathLike) else target
        self._pending: deque[tuple[float, int]] = deque()  # time and length of each chunk that was not written
        self._scrubbed = bytearray()  # the scrubbed bytes of these chunks
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False
        self._write(first_line)

    def chunk(self, data: bytes, at: float) -> None:
        """Add the bytes of one read. `at` is the time in milliseconds since the request was sent."""
        at = self._check_time(at)
        self._pending.append((at, len(data)))
        self._write_chunks(self._scrubber.feed(data))

    def end(self, kind: EndKind, at: float, error: str = "") -> None:
        """Write the remaining chunks and the end line. If the target is a path, close the file."""
        at = self._check_time(at)
        self._write_chunks(self._scrubber.close(complete=kind == "end"))
        end = StreamEnd(kind, at, redact_text(error, self._secrets))
        self._write(file_format.encode_end(end, size=self._size, digest=self._digest.hexdigest()))
        self._ended = True
        self.close()

    def close(self) -> None:
        """If the target is a path, close the file. Without `end`, the recording is incomplete. Can be repeated."""
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
        """Return the rounded time. Raises ValueError for an invalid time, and ClosedError after the end."""
        at = file_format.round_time(at)
        if self._ended:
            raise ClosedError("the recording is closed")
        return at

    def _write_chunks(self, scrubbed: bytes) -> None:
        """Add scrubbed bytes. Write each chunk of which all bytes are scrubbed."""
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
