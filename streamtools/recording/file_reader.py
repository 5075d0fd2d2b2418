"""Read recordings, line by line or whole.

Whatever is wrong with a file is one `RecordingError` that says it in one sentence, with the name of the file and, where
there is one, the line. A recording that breaks off is wrong: a test that replayed half of a stream in silence would be
green for the wrong reason. With `strict=False` what is there can be had; its `end` is None, its digest is not checked.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from streamtools.errors import RecordingError
from streamtools.recording.format import VERSION, Chunk, End, FileMark, Head, Line, Recording, read_data, read_end

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


Name: TypeAlias = str | os.PathLike[str]

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line. A chunk from the network has some tens of KiB; a request body with images may have some MiB."""

BLOCK = 64 * 1024
"""Bytes that are read at once."""

_T = TypeVar("_T")


class Lines:
    """Reads a file line by line. Blank lines are passed over; `again` gives a line back."""

    def __init__(self, name: str, file: io.BufferedReader) -> None:
        self.name = name
        self.file = file
        self.number = 0
        self.offset = 0
        """Where the line begins that `next` gave last."""
        self._behind = 0
        self._kept: bytes | None = None

    def next(self) -> bytes | None:
        """Return the next line with its line feed, None at the end of the file; raise `RecordingError`."""
        if (line := self._kept) is not None:
            self._kept = None
            return line
        while line := self.file.readline(MAX_LINE + 1):
            self.number += 1
            self.offset, self._behind = self._behind, self._behind + len(line)
            if len(line) > MAX_LINE:
                raise self.wrong(f"is longer than {MAX_LINE // 1024 // 1024} MiB")
            if not line.isspace():
                return line
        return None

    def go_to(self, offset: int, number: int) -> None:
        """Go on at `offset`, where the line of this number begins."""
        self.file.seek(offset)
        self._behind, self.number = offset, number - 1

    def again(self, line: bytes) -> None:
        """Let `next` return this line, the last one that it gave, once more."""
        self._kept = line

    def decode(self, decoder: msgspec.json.Decoder[_T], line: bytes) -> _T:
        """Return what the line says; raise `RecordingError`."""
        try:
            return decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"cannot be read: {error}") from None

    def wrong(self, what: str) -> RecordingError:
        """Return the error that says `what` of the present line."""
        return RecordingError(f"{self.name}, line {self.number}, {what}")


class _File(io.FileIO):
    """A file whose reads raise `RecordingError` and no OSError."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(str(self.name), error) from None


def open_file(path: Name) -> io.BufferedReader:
    """Return the file, open for reading; opening and all reading raise `RecordingError` where the system fails."""
    name = os.fspath(path)
    try:
        return io.BufferedReader(_File(name), BLOCK)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> RecordingError:
    match error:
        case FileNotFoundError():
            return RecordingError(f"{name} does not exist")
        case IsADirectoryError():
            return RecordingError(f"{name} is a directory, not a recording")
        case OSError(strerror=str(reason)):
            return RecordingError(f"{name} cannot be read: {reason}")
        case _:
            return RecordingError(f"{name!r} cannot be read: {error}")


Chunks: TypeAlias = Generator[Chunk, None, End | None]
"""Yields the chunks of one exchange and returns its end, None if it breaks off."""


_BOM = b"\xef\xbb\xbf"

_as_mark = msgspec.json.Decoder(FileMark)
_as_head = msgspec.json.Decoder(Head)
_as_line = msgspec.json.Decoder(Line)


class OpenRecording:
    """A recording that is read while it is used, in constant memory: an iterator of its chunks, with its `head`.

    `end` is known when all chunks have been read. The file is closed then, on an error, and on leaving the block.
    """

    def __init__(self, name: str, head: Head, chunks: Chunks, file: io.BufferedReader) -> None:
        self.name = name
        self.head = head
        self.end: End | None = None
        self.chunks = chunks
        self._file = file

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        try:
            return next(self.chunks)
        except StopIteration as last:
            self.end = last.value or self.end
            self.close()
            raise
        except RecordingError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; nothing more can be read. May be repeated."""
        self.chunks.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_recording(path: Name, *, strict: bool = True) -> OpenRecording:
    """Open a recording, whose first exchange is read as it is iterated over; raise `RecordingError`."""
    return open_lines(Lines(os.fspath(path), open_file(path)), strict=strict)


def open_lines(lines: Lines, *, strict: bool) -> OpenRecording:
    """Return the exchange that begins at the next line; raise `RecordingError`, with the file closed."""
    try:
        return OpenRecording(lines.name, _read_head(lines), _read_chunks(lines, strict), lines.file)
    except RecordingError:
        lines.file.close()
        raise


def read_recording(path: Name, *, strict: bool = True) -> Recording:
    """Return the recording in a file that holds one exchange; raise `RecordingError`."""
    recordings = read_recordings(path, strict=strict)
    if len(recordings) > 1:
        raise RecordingError(f"{os.fspath(path)} holds {len(recordings)} exchanges, where one was expected")
    return recordings[0]


def read_recordings(path: Name, *, strict: bool = True) -> list[Recording]:
    """Return the exchanges of a file, one or more, in their order; raise `RecordingError`."""
    lines = Lines(os.fspath(path), open_file(path))
    with lines.file:
        recordings = [read_whole(lines.name, _read_head(lines), _read_chunks(lines, strict))]
        while (line := lines.next()) is not None:
            if lines.decode(_as_mark, line).streamtools == "recording":
                lines.again(line)
                recordings.append(read_whole(lines.name, _read_head(lines), _read_chunks(lines, strict)))
        return recordings


class Place(NamedTuple):
    """An exchange in a file: its head, where that stands, and whether there is an end line."""

    head: Head
    offset: int
    line: int
    ended: bool


def find_exchanges(path: Name) -> list[Place]:
    """Return the places of the exchanges of a file, one or more, from their heads; raise `RecordingError`.

    What is wrong between heads is reported when that is read.
    """
    lines = Lines(os.fspath(path), open_file(path))
    with lines.file:
        places = [Place(_read_head(lines), lines.offset, lines.number, ended=False)]
        while (line := lines.next()) is not None:
            # Not found in the text of a chunk, where quotes are escaped; the request in a head may hold any key.
            if b'"streamtools"' in line and _decode(_as_mark, line, FileMark()).streamtools == "recording":
                lines.again(line)
                places.append(Place(_read_head(lines), lines.offset, lines.number, ended=False))
            elif b'"end"' in line and _decode(_as_line, line, Line()).end is not None:
                places[-1] = places[-1]._replace(ended=True)
        return places


def open_place(path: Name, place: Place) -> OpenRecording:
    """Open the exchange at `place` in a file; raise `RecordingError`."""
    lines = Lines(os.fspath(path), open_file(path))
    lines.go_to(place.offset, place.line)
    return open_lines(lines, strict=True)


def read_whole(name: str, head: Head, chunks: Chunks) -> Recording:
    """Return the recording that `head` and `chunks` make."""
    kept: list[Chunk] = []
    while True:
        try:
            kept.append(next(chunks))
        except StopIteration as last:
            return Recording(head=head, chunks=tuple(kept), end=last.value, name=name)


def _read_head(lines: Lines) -> Head:
    line = lines.next()
    if line is None:
        raise RecordingError(f"{lines.name} is empty")
    line = line.removeprefix(_BOM)
    try:
        mark = _as_mark.decode(line)
    except (ValueError, RecursionError):
        if b"\0" in line or line.decode(errors="ignore").encode() != line:
            raise RecordingError(f"{lines.name} is a binary file, not a recording") from None
        mark = FileMark()
    if mark.streamtools != "recording":
        raise RecordingError(f"{lines.name} is not a recording: its line {lines.number} is not the head of one")
    if type(mark.version) is not int or mark.version < 1:
        raise lines.wrong(f"gives the version of the recording as {mark.version!r}, where a number from 1 belongs")
    if mark.version > VERSION:
        raise RecordingError(
            f"{lines.name} is a recording of version {mark.version}, and this streamtools reads version {VERSION}"
        )
    return lines.decode(_as_head, line)


def _read_chunks(lines: Lines, strict: bool) -> Chunks:
    digest, size, at = hashlib.sha256(), 0, 0.0
    while (line := lines.next()) is not None:
        try:
            fields = lines.decode(_as_line, line)
        except RecordingError:
            if line.endswith(b"\n"):
                raise
            if strict:
                raise lines.wrong("breaks off in the middle") from None
            return None
        if fields.streamtools == "recording":  # the next exchange, and this one has no end
            lines.again(line)
            break
        at = at if fields.at is None else fields.at
        if at < 0:
            raise lines.wrong(f"gives a time before the request was sent: {at!r}")
        if (end := read_end(fields, at)) is not None:
            if strict and (fields.bytes not in (None, size) or fields.sha256 not in (None, digest.hexdigest())):
                raise lines.wrong("gives the length or digest of other bytes than stand above it")
            return end
        try:
            data = read_data(fields)
        except ValueError as error:
            raise lines.wrong(f"cannot be read: {error}") from None
        if data is not None:
            size += len(data)
            digest.update(data)
            yield Chunk(at, data)
    if strict:
        raise RecordingError(f"{lines.name} breaks off at line {lines.number}, without an end line")
    return None


def _decode(decoder: msgspec.json.Decoder[_T], line: bytes, otherwise: _T) -> _T:
    try:
        return decoder.decode(line)
    except (ValueError, RecursionError):
        return otherwise
