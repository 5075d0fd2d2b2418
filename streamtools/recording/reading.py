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
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from streamtools.errors import RecordingError
from streamtools.recording.format import VERSION, Chunk, End, Head, Line, Mark, Recording, read_data, read_end
from streamtools.recording.lines import Lines, Name, open_file

Chunks: TypeAlias = Generator[Chunk, None, End | None]
"""Yields the chunks of one exchange and returns its end, None if it breaks off."""

_T = TypeVar("_T")

_BOM = b"\xef\xbb\xbf"

_as_mark = msgspec.json.Decoder(Mark)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    What is wrong between heads is told when that is read.
    """
    lines = Lines(os.fspath(path), open_file(path))
    with lines.file:
        places: list[Place] = []
        more = True
        while more:
            head = _read_head(lines)
            offset, number, ended, more = lines.offset, lines.number, False, False
            while not more and (line := lines.next()) is not None:
                if b'"end"' in line:  # in the text of a chunk its quotes are escaped
                    ended = ended or _decode(_as_line, line, Line()).end is not None
                elif b'"streamtools"' in line and _decode(_as_mark, line, Mark()).streamtools == "recording":
                    lines.again(line)
                    more = True
            places.append(Place(head, offset, number, ended))
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
        if b"\0" in line or not _is_utf8(line):
            raise RecordingError(f"{lines.name} is a binary file, not a recording") from None
        mark = Mark()
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


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
