"""Write a recording while the stream goes on.

Each line is handed to the system as soon as it is certain, so that a recording whose writer is killed holds everything
up to that moment; it only lacks its end line, which every reader notices. A chunk waits for the end of the line of the
stream in which it ends, and, if that may be the beginning of a key, until it is certain whether it is one. A killed
writer loses the chunks that wait; `scrubbing` has the bounds. `import_stream` makes recordings of streams that were
saved, and of recordings whose redaction is out of date.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, Self, TypeAlias

import msgspec

from streamtools.errors import ClosedError
from streamtools.recording import format as form
from streamtools.recording.exchanges import DETECT, OpenCapture, exchanges_of
from streamtools.recording.file_reader import OpenRecording
from streamtools.recording.format import Chunk, End, EndKind, Head
from streamtools.recording.playback import recut
from streamtools.recording.redact import credentials_of_headers, keep_headers, redact_head, redact_request, redact_text
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


Target: TypeAlias = str | os.PathLike[str] | BinaryIO


class RecordingWriter:
    """Writes one exchange: its head at once, then `chunk` for each chunk, then `end`.

    A path is written anew, readable for its owner alone: an answer may be as private as a letter. A file object is
    written on from where it stands and left open, so that several exchanges can follow one another.
    Leaving the `with` block without `end` leaves a recording that breaks off, as it did.
    """

    def __init__(
        self, target: Target, head: Head, *, redact: Iterable[Secret] = (), keep_unreadable: bool = False
    ) -> None:
        """`redact` are secrets beside keys of known formats, which are overwritten in any case.

        A body that cannot be looked through is left out, unless `keep_unreadable`.
        Raises OSError for a path that cannot be opened, ValueError for a secret that cannot be looked for.
        """
        self._secrets = list(redact)
        self._scrubber = Scrubber(self._secrets)
        first = form.encode_head(redact_head(head, self._secrets, keep_unreadable=keep_unreadable))
        self._owned = isinstance(target, str | os.PathLike)
        self._file = open_anew(target) if isinstance(target, str | os.PathLike) else target
        self._waiting: deque[tuple[float, int]] = deque()  # time and length of chunks that are not written yet
        self._certain = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False
        self._write(first)

    def chunk(self, data: bytes, at: float) -> None:
        """Write what one read gave, `at` milliseconds after the request was sent; see above for what may wait."""
        at = self._check(at)
        self._waiting.append((at, len(data)))
        self._take(self._scrubber.feed(data))

    def end(self, kind: EndKind, at: float, error: str = "") -> None:
        """Write how the response ended, and close what was opened here."""
        at = self._check(at)
        self._take(self._scrubber.close(complete=kind == "end"))
        end = End(kind, at, redact_text(error, self._secrets))
        self._write(form.encode_end(end, size=self._size, digest=self._digest.hexdigest()))
        self._ended = True
        self.close()

    def close(self) -> None:
        """Close the file if it was opened here; without `end` before, the recording breaks off. May be repeated."""
        try:
            if not self._ended:
                self._ended = True
                self._take(self._scrubber.close(complete=False))
        finally:
            if self._owned:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check(self, at: float) -> float:
        """Return a time as it is written, unless everything has been."""
        at = form.milliseconds(at)
        if self._ended:
            raise ClosedError("the recording has been closed")
        return at

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
            self._write(form.encode_chunk(Chunk(at, data)))
        del self._certain[:start]

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()


def import_stream(
    path: str | os.PathLike[str],
    target: Target,
    *,
    source: str = DETECT,
    redact: Iterable[Secret] = (),
    keep_unreadable: bool = False,
) -> int:
    """Write the stream in a file into `target` as a recording, and return how many exchanges it holds.

    A raw capture becomes one chunk for each event, all at the time 0; `source` says whose it is. A recording keeps its
    chunks, and its `source` unless one is given; bodies that cannot be looked through are left out of it, unless
    `keep_unreadable`. Raises `RecordingError` for a file that is neither, OSError for a target that cannot be written.
    """
    secrets = list(redact)
    exchanges = exchanges_of(path, secrets)
    with open_anew(target) if isinstance(target, str | os.PathLike) else nullcontext(target) as file:
        for exchange in exchanges:
            with exchange.open() as opened:
                head, headers = opened.head, list[tuple[str, str]]()
                found = redact_request(head.request)[1] if head.request else []  # in what others wrote down
                if (response := head.response) is not None:
                    headers = list(response.headers.items())
                    response = msgspec.structs.replace(response, headers=keep_headers(headers))
                known = head.source if source == DETECT else source
                head = msgspec.structs.replace(head, source=known, request=exchange.request, response=response)
                redact = [*secrets, *found, *credentials_of_headers(headers)]
                writer = RecordingWriter(file, head, redact=redact, keep_unreadable=keep_unreadable)
                for at, data in _pieces(opened):
                    writer.chunk(data, at)
                assert opened.end is not None  # or there would have been an error
                writer.end(*opened.end)
    return len(exchanges)


def _pieces(opened: OpenRecording) -> Iterator[Chunk]:
    if not isinstance(opened, OpenCapture):
        return iter(opened)
    first = next(opened)  # a capture holds something, or it would be none
    chunks = itertools.chain([first], opened)
    return _lines(chunks) if first.data.lstrip()[:1] == b"{" else recut(chunks, "frame")


def _lines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    rest = b""
    for at, data in chunks:
        *lines, rest = (rest + data).split(b"\n")
        yield from (Chunk(at, line + b"\n") for line in lines)
    if rest:
        yield Chunk(0.0, rest)
